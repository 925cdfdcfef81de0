"""What an importer yields: one tensor that the source recorded, and what the source knows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format.schema import Sequence
from verify.dumps.importers.faults import broken

STANDS_FOR: Final = "stands_for"
"""Attribute of a record that holds facts about a tensor instead of the tensor: ``hash`` or
``statistics``."""


@dataclass(slots=True)
class Tensor:
    """Raw bits of a tensor: unsigned words of its shape, C-contiguous, and its layout at the source
    (strides and offset in elements; None: not known)."""

    words: NDArray[Any]
    dtype: str
    strides: list[int] | None = None
    storage_offset: int = 0


@dataclass(slots=True, kw_only=True)
class Observation:
    """One tensor at one tap. The order in which an importer yields them is the order of execution
    on each rank; ``step`` never falls."""

    tap: str
    tensor: Tensor
    axes: str | None = None
    """As in a record: ``b``, ``t``, ``s`` and free names; None: not known, so one row."""
    step: int = 0
    rank: int = 0
    positions: NDArray[np.int64] | None = None
    """Position of every entry of the axis ``t``, where it is known."""
    sequences: list[str | None] | None = None
    """Sequence of every entry of the axis ``t`` (without ``b``), or of ``b``; None: padding."""
    inputs: list[int] | None = None
    """What it was computed from: numbers of earlier observations on the rank, counted from 0.
    None: not known."""
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Source:
    """Where a run comes from, and what is not known of it."""

    format: str
    path: Path
    unknown: list[str] = field(default_factory=list)
    """What the source did not record, one clause each; people see it wherever the run is used."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""
    ranks: int = 1
    sequences: list[Sequence] = field(default_factory=list)
    model: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    """False: the source says, or shows, that its run did not come to its end."""


@dataclass(slots=True)
class Imported:
    """A source that was opened: what is known of it, and its tensors, read as they are asked for."""

    source: Source
    observations: Iterator[Observation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user adds to a source that does not say it."""

    pattern: str | None = None
    """Of the paths in a plain tree, for example ``step{step}/rank{rank}/{tap}.npy``."""
    axes: tuple[tuple[str, str], ...] = ()
    """Globs on tap names with the axes of the tensors."""
    dtypes: tuple[tuple[str, str], ...] = ()
    """Globs on tap names with the dtype of words whose file does not name it."""


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of foreign dump."""

    name: str
    title: str
    recognise: Callable[[Path], bool]
    """Whether the content at the path is of this kind. Raises nothing."""
    read: Callable[[Path, Options], Imported]


def statistics_of(
    names: list[str], values: list[float | None], **attributes: Any
) -> tuple[Tensor, dict[str, Any]]:
    """A tensor of float64 that holds statistics of another one (NaN: not recorded), and its
    attributes."""
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    known = {STANDS_FOR: "statistics", "statistics": names, **attributes}
    return Tensor(numbers.view(np.uint64), "float64"), known


def hash_of(algorithm: str, value: float, **attributes: Any) -> tuple[Tensor, dict[str, Any]]:
    """A tensor of one element that holds a hash of another one by ``algorithm``: float64 for a
    hash that is a real number, else uint64 (int64 below zero).

    Raises:
        DumpError: an integer that 64 bits do not hold; cut, two of them could look equal.
    """
    known = {STANDS_FOR: "hash", "algorithm": algorithm, **attributes}
    if isinstance(value, float):
        return Tensor(np.array([value]).view(np.uint64), "float64"), known
    if not -(1 << 63) <= value < 1 << 64:
        raise broken(
            algorithm, f"a hash of {value.bit_length()} bits", "hashes have 64 bits at most"
        )
    dtype = "uint64" if value >= 0 else "int64"
    return Tensor(np.array([value & (1 << 64) - 1], np.uint64), dtype), known
