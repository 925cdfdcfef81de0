"""Which part of the implementation, taken from the other side, moves the output across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verify.dumps.format import Dump
from verify.errors import NotComparableError
from verify.replay.refuse import check_dumps
from verify.replay.run import Models
from verify.replay.steps import Implementation, recorded_steps
from verify.replay.values import Values, both_ways
from verify.swap.choose import Choice, choose
from verify.swap.hunt import MOST, Goal, Hunt, Progress
from verify.swap.mixed import MixedBench, Ways
from verify.swap.parts import By, Part, cut
from verify.swap.result import SwapResult


def swap_implementations(
    a: Dump,
    b: Dump,
    models: Models,
    *,
    by: By = By.LAYER,
    position: int | None = None,
    most: int = MOST,
    goal: Goal = "output",
    each: bool = False,
    progress: Progress = lambda what: None,
    command: Sequence[str] = (),
) -> SwapResult:
    """As :func:`verify.swap.run.swap`, with layers that compute as the other side does (its
    attention core, its cache for keys or values) in place of tensors.

    Args:
        by: how parts are cut.
        each: also try every part alone, both ways.

    Raises:
        NotComparableError: the runs declare the same implementation, the model is none of the
            generation loop of ``verify capture``, or as for :func:`verify.swap.run.swap`.
    """
    check_dumps(a, b)
    alignment, a_for_b, b_for_a = both_ways(a, b)
    choice = choose(alignment, a_for_b, position)
    parts = cut(a, b, _layers(models.a.model), by)
    benches = {
        "B": _bench(b, a, models.b or models.a, a_for_b, choice, choice.steps[1], parts),
        "A": _bench(a, b, models.a, b_for_a, choice, choice.steps[0], parts),
    }
    order = [part.name for part in parts]
    hunt = Hunt(
        (a, b), choice, benches, order, what="part", most=most, goal=goal, progress=progress
    )
    if each:
        hunt.try_each()
    return hunt.run(command)


def _bench(
    own: Dump,
    other: Dump,
    implementation: Implementation,
    values: Values,
    choice: Choice,
    step: int,
    parts: Sequence[Part],
) -> MixedBench:
    steps = [s for s in recorded_steps(own) if s.index <= step]
    at = (step, choice.sequence, choice.position)
    layers = _layers(implementation.model)
    return MixedBench(implementation, values, steps, at, parts, layers, _ways(own), _ways(other))


def _ways(dump: Dump) -> Ways:
    settings = dump.manifest.settings
    return Ways(str(settings.get("attn")), str(settings.get("kv_cache")))


def _layers(model: Any) -> int:
    count = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if not isinstance(count, int):
        raise NotComparableError(
            "parts of the implementation can be exchanged in Hugging Face models only",
            found=type(model).__name__,
            hint="exchange tensors: leave out --by",
        )
    return count
