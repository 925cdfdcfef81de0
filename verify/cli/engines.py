"""`verify capture --engine NAME MODEL`: other engines than PyTorch, each a line of :data:`ENGINES`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from verify.cli.capture_command import new_folder
from verify.dumps.engine_request import EngineRequest
from verify.errors import ArgumentError, UsageError


@dataclass(frozen=True, slots=True)
class Engine:
    """The function that records an engine, as module and name; it loads when it is asked for, takes
    an :class:`EngineRequest`, and returns the lines that the command prints.
    """

    module: str
    function: str
    options: frozenset[str]
    """Names of the options of `verify capture` that it reads; others are refused."""
    suffixes: tuple[str, ...] = ()
    """Of model files, for the message of a request without one."""


ENGINES: dict[str, Engine] = {
    "llama.cpp": Engine(
        "verify.dumps.llamacpp.engine",
        "record_engine",
        frozenset({"tape", "threads"}),
        (".gguf",),
    ),
    "onnxruntime": Engine(
        "verify.dumps.onnx_runtime.engine",
        "record_engine",
        frozenset({"inputs", "tape", "threads"}),
        (".onnx",),
    ),
}
"""Name of the engine -> how it is recorded."""


def capture_engine(
    context: typer.Context, name: str, words: list[str], out: Path | None, settings: list[str]
) -> list[str]:
    """Record ``MODEL`` in the engine ``name``; the lines to print.

    Raises:
        UsageError: no such engine, no model, or an option that the engine does not read.
        VerifyError: whatever the engine refuses.
    """
    engine = ENGINES.get(name)
    if engine is None:
        raise UsageError(
            "no engine of that name", where="--engine", found=name, allowed=", ".join(ENGINES)
        )
    if len(words) != 1:
        raise UsageError(
            "an engine records one model file",
            where=f"--engine {name}",
            found=" ".join(words) or "none",
            allowed="MODEL" + "".join(f", for example model{end}" for end in engine.suffixes),
        )
    own = {"engine", "command", "out", "settings"}
    for option in context.params:
        source = context.get_parameter_source(option)
        asked = source is not None and source.name == "COMMANDLINE"
        if asked and option not in own | engine.options:
            raise UsageError(
                f"the engine {name} does not read this option",
                where=f"--{option.replace('_', '-')}",
                allowed=", ".join(f"--{each}" for each in sorted(engine.options | {"out", "set"})),
            )
    request = EngineRequest(
        model=words[0],
        out=new_folder(out, [Path(words[0]).stem]),
        given={option: context.params.get(option) for option in engine.options},
        settings=dict(map(_pair, settings)),
    )
    function: Callable[[EngineRequest], list[str]] = getattr(
        importlib.import_module(engine.module), engine.function
    )
    return function(request)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise ArgumentError(
            "not a name and a value", where="--set", found=repr(text), allowed="NAME=VALUE"
        )
    return name, value
