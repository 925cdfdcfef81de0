"""Records of B described in the layout in which A holds the same tap.

A row is its elements row-major over the axes that stand for no token, so `b t c` of 64 channels and
`b h t d` of 4 heads of 16 hold the same rows: only the description changes, no word does. Whatever
reads heads, as the checks of attention do, then finds them in both runs.
"""

from __future__ import annotations

from math import prod

from verify.dumps.format.schema import Record
from verify.taps.present import Made
from verify.taps.view import renamed
from verify.taps.words import strides

_TOKENS = frozenset("bts")


def lay_out(made: Made, like: dict[str, Record]) -> None:
    """Describe presented records as ``like`` (tap -> a record of A) does, where their rows allow."""
    for presented in made.presented:
        model = like.get(presented.record.tap)
        if model is not None:
            presented.record = described_like(presented.record, model)


def described_like(record: Record, model: Record) -> Record:
    """The record with the axes of ``model``; as it is where it has other tokens or row lengths."""
    names, own = model.axes.split(), _sizes(record)
    free = {n: size for n, size in _sizes(model).items() if n not in _TOKENS}
    tokens = [name for name in names if name in _TOKENS]
    held = [name for name in own if name in _TOKENS]
    if record.axes == model.axes or prod(free.values()) != record.row_length:
        return record
    if set(tokens) - {"b"} != set(held) - {"b"} or ("b" in held and "b" not in tokens):
        return record
    shape = [free.get(name, own.get(name, 1)) for name in names]
    return renamed(record, axes=model.axes, shape=shape, strides=strides(shape))


def _sizes(record: Record) -> dict[str, int]:
    return dict(zip(record.axes.split(), record.shape, strict=True))
