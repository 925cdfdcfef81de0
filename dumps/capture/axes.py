"""Which axis of a tensor counts what: inferred once a tap, from the batch and token counts.

Axis names: ``b`` sequence, ``t`` token, ``s`` key position; ``c`` channel, ``h`` head, ``d`` head
channel, ``v`` vocabulary, and ``x0 x1 ...`` for axes without a known meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

_AFTER_TOKENS = {0: "", 1: "c", 2: "h d"}


def infer_axes(
    shape: Sequence[int], strides: Sequence[int], batch: int, tokens: int, kept: int | None = None
) -> str:
    """Name the axes of a tensor that came out of a module.

    Args:
        shape, strides: of the tensor, in elements.
        batch: sequences in the step.
        tokens: positions computed a sequence.
        kept: positions whose logits are computed, where that is another number.

    A tensor in which no axis fits has none that counts tokens, and is one row.
    """
    for count in dict.fromkeys([tokens, *([] if kept is None else [kept])]):
        found = _with_tokens(shape, strides, batch, count)
        if found is not None:
            return found
    return free_axes(len(shape))


def fits(axes: str, shape: Sequence[int], batch: int, counts: Sequence[int]) -> bool:
    """Whether ``axes``, found for an earlier tensor at the same tap, describe this one as well."""
    names = axes.split()
    if len(names) != len(shape):
        return False
    size = dict(zip(names, shape, strict=True))
    if "b" in size and size["b"] != batch:
        return False
    if "t" not in size:
        return "b" not in size or counts[0] == 1
    return any(size["t"] == count * (1 if "b" in size else batch) for count in counts)


def free_axes(ndim: int) -> str:
    return " ".join(f"x{index}" for index in range(ndim))


def _with_tokens(
    shape: Sequence[int], strides: Sequence[int], batch: int, tokens: int
) -> str | None:
    ndim = len(shape)
    if ndim >= 2 and shape[0] == batch:
        candidates = [axis for axis in range(1, max(2, ndim - 1)) if shape[axis] == tokens]
        if candidates:
            # [b, h, t, d] and [b, t, h, d] look alike when h = t. Projections lay heads inside
            # tokens, so the token axis is the one with the longer stride.
            return _batched(ndim, max(candidates, key=lambda axis: strides[axis]))
    if ndim >= 1 and shape[0] == batch * tokens:
        return _join("b" if tokens == 1 and batch > 1 else "t", _rest(ndim - 1))
    if tokens == 1 and ndim >= 1 and shape[0] == batch:
        return _join("b", _rest(ndim - 1))
    return None


def _batched(ndim: int, token_axis: int) -> str:
    if token_axis == 1:
        return _join("b t", _rest(ndim - 2))
    names = ["b", *(f"x{i}" for i in range(1, ndim))]
    if ndim == 4:
        names = ["b", "h", "t", "d"]
    names[token_axis] = "t"
    return " ".join(names)


def _rest(count: int) -> str:
    return _AFTER_TOKENS.get(count, free_axes(count))


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
