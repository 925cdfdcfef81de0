"""Token lists that are the same but for a few tokens at one end."""

from __future__ import annotations

from collections.abc import Sequence

LARGEST = 64
"""Tokens that may stand in front of one list alone: more than any set of start tokens, and as many
as a short prompt in a padded batch needs."""

_SHARED = 2  # tokens that two lists must have in common before their order means anything


def shift_between(a: Sequence[int], b: Sequence[int]) -> int | None:
    """How many tokens ``b`` has in front of ``a`` (negative: ``a`` in front of ``b``), where the
    rest agrees as far as both go; None where it does not. 0 is no shift."""
    for size in range(1, LARGEST + 1):
        for longer, shorter, sign in ((b, a, 1), (a, b, -1)):
            rest = longer[size:]
            shared = min(len(rest), len(shorter))
            if shared >= min(_SHARED, len(shorter)) > 0 and rest[:shared] == shorter[:shared]:
                return sign * size
    return 0 if a == b else None
