"""Inputs of a graph: an npz file, or the tokens of an earlier run and what follows from them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format import open_dump
from verify.dumps.format.schema import Sequence
from verify.errors import ArgumentError

TOKENS = "input_ids"
Arrays = dict[str, NDArray[Any]]


def read_inputs(path: Path) -> Arrays:
    """The arrays of an npz file by name.

    Raises:
        ArgumentError: it is none, or holds pickled objects.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ArgumentError(
            "not a readable npz file of plain arrays", where="--inputs", found=error
        ) from error


def inputs_of_tape(graph: Any, tape: Path) -> tuple[Arrays, Sequence]:
    """All tokens of a run that were read by its model, as one pass from an empty cache.

    ``attention_mask`` is ones, ``position_ids`` count from 0, and ``past_...`` has no tokens.

    Raises:
        ArgumentError: several sequences, or an input that does not follow from the tokens.
        DumpError: there is no run at ``tape``.
    """
    tracks = open_dump(tape).tokens()
    if len(tracks) != 1:
        raise ArgumentError(
            "one sequence is recorded", where="--tape", found=len(tracks), allowed=1
        )
    ((name, track),) = tracks.items()
    ids = [*track.prompt, *track.generated[:-1]]  # no model read the last one
    sequence = Sequence(id=name, prompt=track.prompt, generated=track.generated)
    held = {value.name for value in graph.initializer}
    asked = [value for value in graph.input if value.name not in held]
    found = {value.name: _follows(value, np.array([ids], np.int64)) for value in asked}
    open_ones = [name for name, array in found.items() if array is None]
    if open_ones or TOKENS not in found:
        raise ArgumentError(
            "the inputs of the graph do not follow from tokens",
            where="--tape",
            found=", ".join(open_ones) or f"no {TOKENS}",
            allowed=f"{TOKENS}, attention_mask, position_ids, past_...",
            hint="give all inputs with --inputs FILE.npz",
        )
    return {name: array for name, array in found.items() if array is not None}, sequence


def _follows(value: Any, ids: NDArray[np.int64]) -> NDArray[Any] | None:
    import onnx

    kind = value.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if value.name == TOKENS:
        return ids.astype(dtype)
    if value.name == "attention_mask":
        return np.ones(ids.shape, dtype)
    if value.name == "position_ids":
        return np.arange(ids.shape[1], dtype=dtype)[None]
    if value.name.startswith("past_") and len(kind.shape.dim) == 4:
        # [batch, heads, tokens, head size]; what is no number is not fixed.
        batch, heads, _, size = (dim.dim_value for dim in kind.shape.dim)
        return np.zeros((batch or 1, heads, 0, size), dtype) if heads and size else None
    return None
