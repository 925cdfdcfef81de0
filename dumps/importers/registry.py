"""All formats, those with the most telling content first, and which one a path is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verify.dumps.importers import (
    debug_mode,
    flashinfer,
    hf_tree,
    llama_logits,
    msprobe,
    neuron,
    payload,
    plain,
    polygraphy,
    sglang,
    tensorrt_llm,
    torchlens,
)
from verify.dumps.importers.faults import unexpected_shapes
from verify.dumps.importers.observation import Format, Imported, Observation, Options
from verify.errors import ArgumentError, DumpError

FORMATS: Final[tuple[Format, ...]] = (
    debug_mode.FORMAT,
    polygraphy.FORMAT,
    torchlens.FORMAT,
    msprobe.FORMAT,
    flashinfer.FORMAT,
    hf_tree.FORMAT,
    sglang.FORMAT,
    sglang.PASSES,
    neuron.FORMAT,
    tensorrt_llm.FORMAT,
    llama_logits.FORMAT,
    payload.FORMAT,
    plain.FORMAT,
)
"""A plain tree stands last: every other one may be a tree of tensor files as well."""


def recognise(path: Path) -> Format | None:
    """The format of what lies at a path, by its content."""
    return next((format for format in FORMATS if _is(format, path)), None)


def _is(format: Format, path: Path) -> bool:
    try:
        return format.recognise(path)
    except OSError:
        return False


def open_source(path: Path, name: str | None = None, options: Options | None = None) -> Imported:
    """Open a foreign dump; its tensors are read when they are asked for.

    Args:
        name: of the format; None: by the content.

    Raises:
        ArgumentError: no such format.
        DumpError: nothing there, not recognised, or broken.
    """
    if not path.exists():
        raise DumpError("there is nothing at this path", where=path, hint="check the path")
    found = recognise(path) if name is None else by_name(name)
    if found is None:
        raise DumpError(
            "neither a dump nor a dump of another tool that is known",
            where=path,
            allowed=", ".join(format.name for format in FORMATS),
            hint="docs/importers.md says what each of them looks like; --format names one",
        )
    with unexpected_shapes(path):
        imported = found.read(path, options or Options())
    imported.observations = _guarded(imported.observations, path)
    return imported


def _guarded(observations: Iterator[Observation], path: Path) -> Iterator[Observation]:
    with unexpected_shapes(path):
        yield from observations


def by_name(name: str) -> Format:
    """The format of that name.

    Raises:
        ArgumentError: there is none.
    """
    for format in FORMATS:
        if format.name == name:
            return format
    raise ArgumentError(
        "no importer of that name",
        where="--format",
        found=name,
        allowed=", ".join(format.name for format in FORMATS),
    )
