"""Operations that move values and compute none."""

# fmt: off
_NAMES = (
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "cat", "chunk", "clone", "contiguous",
    "detach", "embedding", "expand", "flip", "gather", "index", "index_select", "narrow", "permute",
    "repeat", "reshape", "roll", "select", "slice", "split", "split_with_sizes", "squeeze", "stack",
    "t", "transpose", "unbind", "unsqueeze", "view",
)
# fmt: on

MOVES = frozenset(f"aten.{name}" for name in _NAMES)
"""As records spell them. ``copy_`` is not among them: it may cast."""
