"""The values of one run as observations of a dump."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.dumps.capture.axes import infer_axes
from verify.dumps.capture.masks import MaskRule, canonical_mask
from verify.dumps.capture.positions import PositionTracker, Step
from verify.dumps.format.schema import Sequence
from verify.dumps.importers.observation import Observation, Source, Tensor
from verify.dumps.onnx_runtime.inputs import TOKENS, Arrays
from verify.dumps.onnx_runtime.plan import Wanted
from verify.errors import ModelError

_CORE = re.compile(r"(^|\.)attn\.(in\.[qkv]|out)$")
_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def observations(
    source: Source,
    wanted: list[Wanted],
    values: dict[str, Any],
    inputs: Arrays,
    edges: dict[str, list[str]],
) -> Iterator[Observation]:
    """The wanted values in order; what is no tensor of numbers is left out with a note.

    Where the source has the generated tokens of its one sequence, logits are kept from the last
    row of the prompt on, and each of these rows chooses a token (``tokens.out``), the most likely one.

    Raises:
        ModelError: as :func:`positions_of`.
    """
    leading = inputs.get(TOKENS, next(iter(inputs.values()), np.zeros(())))
    batch, tokens = leading.shape[:2] if leading.ndim >= 2 else (1, 1)
    positions = positions_of(inputs, batch, tokens)
    named = [each.id for each in source.sequences]
    chosen = source.sequences[0] if len(source.sequences) == 1 else None
    if not named:
        named = [f"sequence#{index}" for index in range(batch)]
        if TOKENS in inputs:
            source.sequences += [
                Sequence(id=name, prompt=row.tolist(), generated=[])
                for name, row in zip(named, leading, strict=True)
            ]
    step = PositionTracker().begin(np.tile(positions, (batch, 1)), named, cached=0)
    entries = [Wanted(TOKENS, "tokens.in")] if TOKENS in inputs else []
    at: dict[str, int] = {}
    count = 0
    for each in [*entries, *wanted]:
        array = inputs.get(each.value, values.get(each.value))
        if each.tap.endswith("attn.in.mask"):
            array = _mask(array, each.causal, step)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
            source.notes.append(f"{each.tap}: not a tensor of numbers, left out")
            continue
        axes = _axes(each.tap, array, batch, tokens)
        rows = set(axes.split())
        chooses = each.tap == "logits" and chosen is not None and axes == "b t c"
        kept = slice(len(chosen.prompt) - 1, None) if chosen and chooses else slice(None)
        near = [each.value] if each.value in at else edges.get(each.value, [])
        seen = Observation(
            tap=each.tap,
            tensor=_tensor(array[:, kept] if chooses else array),
            axes=axes,
            positions=positions[kept] if "t" in rows else None,
            sequences=list(named) if rows & {"b", "t"} else None,
            inputs=[at[value] for value in near if value in at],
        )
        yield seen
        at.setdefault(each.value, count)
        count += 1
        if chooses:
            ids = np.argmax(array[:, kept], axis=-1)
            yield replace(
                seen, tap="tokens.out", tensor=_tensor(ids), axes="b t", inputs=[count - 1]
            )
            count += 1


def _tensor(array: NDArray[Any]) -> Tensor:
    return Tensor(np.ascontiguousarray(array).view(_WIDTHS[array.itemsize]), str(array.dtype))


def positions_of(inputs: Arrays, batch: int, tokens: int) -> NDArray[np.int64]:
    """Position of every token, the same in all sequences: as ``position_ids`` says, else from 0.

    Raises:
        ModelError: padding, positions that differ between sequences, or keys and values of earlier
            tokens: rows would not have one position each.
    """
    mask = inputs.get("attention_mask")
    if mask is not None and mask.ndim == 2 and not mask.all():
        raise _refused("attention_mask", "padding")
    cached = [name for name in inputs if name.startswith("past_") and inputs[name].size]
    if cached:
        raise _refused(cached[0], "keys and values of earlier tokens")
    given = inputs.get("position_ids")
    if given is None:
        return np.arange(tokens)
    rows = np.broadcast_to(given, (batch, tokens)) if given.ndim <= 2 else given
    if rows.shape != (batch, tokens) or (rows != rows[:1]).any():
        raise _refused("position_ids", f"shape {list(given.shape)}, not one position for a column")
    return np.asarray(rows[0], np.int64)


def _refused(name: str, found: str) -> ModelError:
    return ModelError(
        "the rows have no positions that are known",
        where=f"--inputs, {name}",
        found=found,
        allowed="whole sequences of one length from an empty cache",
        hint="record each sequence alone, in one pass",
    )


def _axes(tap: str, array: NDArray[Any], batch: int, tokens: int) -> str:
    if _CORE.search(tap) and array.ndim == 4:
        return "b h t d"  # without a cache, keys are those of the same tokens
    strides = [size // array.itemsize for size in np.ascontiguousarray(array).strides]
    return infer_axes(array.shape, strides, batch, tokens)


def _mask(array: Any, causal: bool, step: Step) -> NDArray[np.int64] | None:
    """Which keys each query reads, int64 [b, t, 3] (docs/dump-format.md); None where a mask says
    more than that."""
    tensor = None if array is None else torch.from_numpy(np.array(array))
    found, more = canonical_mask(tensor, MaskRule(causal=causal), step.tokens, step.tokens, step)
    return None if more else found
