"""Rates over trials, and the demands on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from verify.noise.intervals import clopper_pearson, rule_of_three
from verify.selftest.result import Rate, SelftestResult, Summary, Trial
from verify.selftest.sizes import Size

INNOCENT = "innocent"
DETECTION, FIRST_TAP, VERDICT = 0.95, 0.95, 0.90
"""Least shares of gross and moderate faults that are found, placed and judged rightly."""


def rate(hits: int, trials: int) -> Rate:
    """A rate with its exact interval; of no trials it says nothing."""
    low, high = clopper_pearson(hits, trials)
    return Rate(hits=hits, trials=trials, low=low, high=high)


def summarise(label: str, trials: Sequence[Trial]) -> Summary:
    """The rates of trials that belong together."""

    def share(of: Callable[[Trial], bool | None]) -> Rate:
        answers = [a for a in map(of, trials) if a is not None]
        return rate(sum(answers), len(answers))

    return Summary(
        label=label,
        found=share(lambda t: t.found),
        right_tap=share(lambda t: t.right_tap),
        right_verdict=share(lambda t: t.right_verdict),
        right_support=share(lambda t: t.right_support),
        false_blame=share(lambda t: t.false_blame),
    )


def conclude(model: str, trials: Sequence[Trial]) -> SelftestResult:
    """Tables and demands. Faults that changed nothing are counted apart."""
    innocent = [t for t in trials if t.kind == INNOCENT]
    planted = [t for t in trials if t.kind != INNOCENT and t.changed]
    loud = [t for t in planted if t.size != Size.TINY]
    quiet = [t for t in planted if t.size == Size.TINY]
    accused = rate(sum(t.false_blame for t in innocent), len(innocent))
    bars = list(_bars(summarise("", loud), summarise("", quiet), accused, trials))
    missed = [text for text, met in bars if not met]
    return SelftestResult(
        model=model,
        trials=list(trials),
        by_size=[
            summarise(f"{size}, {'above rounding' if on_top else 'alone'}", chosen)
            for size in Size
            for on_top in (False, True)
            if (chosen := [t for t in planted if t.size == size and t.on_top is on_top])
        ],
        by_kind=[
            summarise(f"{kind} {name}", [t for t in loud if (t.kind, t.name) == (kind, name)])
            for kind, name in _ordered((t.kind, t.name) for t in loud)
        ],
        innocent=accused,
        bars=[text for text, _ in bars],
        missed=missed,
        unplanted=sum(t.kind != INNOCENT and not t.changed for t in trials),
        exit_code=1 if missed else 0,
    )


def _ordered(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(dict.fromkeys(names))


def _bars(
    loud: Summary, quiet: Summary, accused: Rate, trials: Sequence[Trial]
) -> Iterable[tuple[str, bool]]:
    wanted = (
        ("found", loud.found, DETECTION),
        ("right first tap", loud.right_tap, FIRST_TAP),
        ("right verdict", loud.right_verdict, VERDICT),
    )
    for name, reached, least in wanted:
        if reached.trials:
            share = f"{reached.hits} of {reached.trials} ({reached.value:.1%})"
            text = f"gross and moderate faults, {name}: {share}, at least {least:.0%}"
            yield text, reached.value >= least
    for name, reached in (
        ("gross and moderate faults, an innocent tap accused", loud.false_blame),
        ("tiny faults, an innocent tap accused", quiet.false_blame),
        ("innocent pairs, something accused", accused),
    ):
        if reached.trials:
            bound = f", the rate is below {rule_of_three(reached.trials):.1%} (95 %)"
            said = bound if not reached.hits else ""
            yield f"{name}: {reached.hits} of {reached.trials}{said}", reached.hits == 0
    failed = [t for t in trials if t.error]
    yield f"trials in which the tool failed: {len(failed)} of {len(trials)}", not failed
