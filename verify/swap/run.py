"""Which exchange of tensors moves the output of one run to that of the other."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from verify.dumps.format import Dump
from verify.errors import NotComparableError
from verify.replay.refuse import check_dumps
from verify.replay.run import Models
from verify.replay.steps import Implementation, recorded_steps
from verify.replay.values import Values, both_ways
from verify.swap.bench import Bench
from verify.swap.choose import Choice, choose
from verify.swap.hunt import MOST, Goal, Hunt, Progress
from verify.swap.result import SwapResult


def swap(
    a: Dump,
    b: Dump,
    models: Models,
    *,
    taps: Sequence[str] = (),
    position: int | None = None,
    alone: bool = False,
    most: int = MOST,
    goal: Goal = "output",
    each: bool = False,
    progress: Progress = lambda what: None,
    command: Sequence[str] = (),
) -> SwapResult:
    """Find a smallest set of taps that, taken from A, moves B's output to A's; and the reverse.

    Args:
        taps: globs; only these are exchanged.
        position: of the logits looked at; None: the first flipped choice, else the choice whose
            logits differ most.
        alone: run the step of the choice only, from recorded keys and values, instead of all steps
            up to it: one forward pass a trial, but what earlier steps left in the cache is a tap of
            its own then.
        most: members that a set may have.
        goal: ``output``: the choice becomes the other run's, and its logits move by at least
            :data:`verify.swap.hunt.MOVED` of the distance; ``token``: the choice alone, where it
            flips.
        each: also try every tap alone, both ways.

    Raises:
        NotComparableError: no logits in common, no difference, a model that does not reproduce its
            run, or an exchange that cannot be made.
    """
    check_dumps(a, b)
    alignment, a_for_b, b_for_a = both_ways(a, b)
    choice = choose(alignment, a_for_b, position)
    benches = {
        "B": _bench(b, models.b or models.a, a_for_b, choice, choice.steps[1], alone),
        "A": _bench(a, models.a, b_for_a, choice, choice.steps[0], alone),
    }
    theirs = set(benches["A"].candidates())
    order = [t for t in benches["B"].candidates() if t in theirs and (not taps or _any(t, taps))]
    if not order:
        raise NotComparableError(
            "no tap of both runs can be exchanged",
            allowed="floating-point taps that both dumps hold in full",
            hint="capture both again with --taps default --level full",
        )
    hunt = Hunt((a, b), choice, benches, order, most=most, goal=goal, progress=progress)
    if each:
        hunt.try_each()
    return hunt.run(command)


def _bench(
    dump: Dump,
    implementation: Implementation,
    values: Values,
    choice: Choice,
    step: int,
    alone: bool,
) -> Bench:
    steps = [s for s in recorded_steps(dump) if s.index <= step]
    return Bench(implementation, values, steps, (step, choice.sequence, choice.position), alone)


def _any(tap: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(tap, glob) for glob in globs)
