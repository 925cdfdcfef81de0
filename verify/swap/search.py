"""Finding a smallest set of exchanges that moves an output across.

``crosses(chosen)`` says whether the output moves when exactly ``chosen`` are exchanged. Effects need
not be monotone: a longer prefix may undo what a shorter one did. So bisection finds *a* place where
exchanging one more tap tips the outcome, both of its sides are tested, and nothing else is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Chosen = frozenset[str]
Crosses = Callable[[Chosen], bool]


def tipping_prefix(order: Sequence[str], kept: Iterable[str], crosses: Crosses) -> int:
    """A length k such that exchanging the first k taps of ``order``, and ``kept``, crosses, and the
    first k - 1 do not.

    All of ``order`` must cross, and none of it must not (both with ``kept``); at most
    ceil(log2(len(order))) calls.
    """
    fixed = frozenset(kept)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        if crosses(fixed | frozenset(order[:middle])):
            high = middle
        else:
            low = middle
    return high


def find_set(order: Sequence[str], crosses: Crosses, limit: int) -> list[str] | None:
    """A set that crosses, built from the last member that is needed to the first; in ``order``.

    Each member costs one bisection. None if more than ``limit`` are needed.
    """
    found: list[str] = []
    while len(found) < limit:
        rest = order if not found else order[: order.index(found[-1])]
        if not rest:
            return None
        found.append(rest[tipping_prefix(rest, found, crosses) - 1])
        if crosses(frozenset(found)):
            return minimise(sorted(found, key=order.index), crosses)
    return None


def minimise(members: Sequence[str], crosses: Crosses) -> list[str]:
    """The members without those that can be left out, one at a time (1-minimal, as delta debugging
    calls it); the outcome of all of them is known to cross."""
    kept = list(members)
    for member in list(members):
        if len(kept) > 1:
            without = [one for one in kept if one != member]
            if crosses(frozenset(without)):
                kept = without
    return kept


def ddmin(members: Sequence[str], crosses: Crosses) -> list[str]:
    """Delta debugging (Zeller and Hildebrandt, Simplifying and isolating failure-inducing input,
    IEEE TSE 28(2), 2002): a 1-minimal subset of ``members`` that crosses, without any order."""
    kept, parts = list(members), 2
    while len(kept) >= 2:
        size = -(-len(kept) // parts)
        chunks = [kept[i : i + size] for i in range(0, len(kept), size)]
        smaller = next((c for c in chunks if crosses(frozenset(c))), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        rests = ([x for x in kept if x not in set(chunk)] for chunk in chunks)
        rest = next((r for r in rests if len(chunks) > 2 and crosses(frozenset(r))), None)
        if rest is not None:
            kept, parts = rest, max(parts - 1, 2)
            continue
        if parts >= len(kept):
            break
        parts = min(len(kept), 2 * parts)
    return kept
