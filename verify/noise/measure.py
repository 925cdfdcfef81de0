"""From recorded repeats to their noise: every run against the first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import xxhash

from verify.bisect.taps import TOKENS
from verify.bisect.tokens import compare_tokens
from verify.compare.result import TapComparison
from verify.compare.run import RowComparison, compare_rows
from verify.dumps.format import Dump
from verify.dumps.format.schema import Manifest
from verify.errors import ArgumentError, NotComparableError
from verify.noise.intervals import clopper_pearson, rule_of_three
from verify.noise.result import FlipRate, NoiseGroup, NoiseResult, TapNoise

REPEATS = "repeats"


def measure(
    base: Dump, groups: Mapping[str, Sequence[Dump]], command: Sequence[str] = ()
) -> NoiseResult:
    """Compare every run with ``base``.

    Args:
        groups: name of what was changed -> runs; ``repeats`` for those in which nothing was.

    Raises:
        ArgumentError: no repeats.
        NotComparableError: a run of another model or other prompts.
        CorruptDumpError: a dump is not what was stored.
    """
    if not groups.get(REPEATS):
        raise ArgumentError(
            "noise needs repeats of the first run",
            where="runs",
            found="one run",
            allowed="two or more of one configuration",
            hint="verify noise --runs 5 --out FOLDER -- (options of verify capture)",
        )
    for runs in groups.values():
        for run in runs:
            _check_same(base, run)
    found = [
        _group(name, base, groups[name]) for name in sorted(groups, key=lambda n: n != REPEATS)
    ]
    return NoiseResult(
        base=str(base.path),
        workload=workload_digest(base.manifest),
        weights=base.manifest.model.weights_digest,
        settings=base.manifest.settings,
        groups=found,
        summary=describe(found[0]),
        exit_code=0 if found[0].equal else 1,
        command=list(command),
    )


def workload_digest(manifest: Manifest) -> str:
    """xxh3-128 hex of the prompts by sequence, in their order, and of forced tokens."""
    sequences = [(s.id, s.prompt) for s in manifest.workload.sequences]
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(sequences))


def describe(group: NoiseGroup) -> str:
    """What the repeats show, with the number that the statement rests on."""
    runs = group.repeats + 1
    if group.equal:
        bound = rule_of_three(group.repeats)
        return (
            f"{runs} runs are equal in every bit; a run that differs has a chance of at most "
            f"{bound:.2g} (95 %), which is all that {group.repeats} repeats can say"
        )
    parts = []
    if group.taps:
        most = max(tap.differing_runs for tap in group.taps)
        parts.append(
            f"{len(group.taps)} taps vary, first {group.taps[0].tap}, in up to {most} of "
            f"{group.repeats} repeats"
        )
    if group.flips:
        parts.append(f"{len(group.flips)} of {group.positions} choices flip")
    if group.unmatched:
        parts.append(f"{group.unmatched} rows have no counterpart")
    return f"{runs} runs do not repeat: " + "; ".join(parts)


def _check_same(base: Dump, run: Dump) -> None:
    for what, ours, theirs in (
        ("prompts", workload_digest(base.manifest), workload_digest(run.manifest)),
        ("weights", base.manifest.model.weights_digest, run.manifest.model.weights_digest),
    ):
        if ours != theirs:
            raise NotComparableError(
                f"this run has other {what} than the first, so it is no repeat",
                where=run.path,
                allowed=f"the {what} of {base.path}",
                hint="verify bisect compares different runs",
            )


def _group(name: str, base: Dump, runs: Sequence[Dump]) -> NoiseGroup:
    compared = [compare_rows(base, run) for run in runs]
    flips, positions = _flips(compared)
    return NoiseGroup(
        name=name,
        runs=[str(run.path) for run in runs],
        taps=_taps([each.comparison.taps for each in compared]),
        flips=flips,
        positions=positions,
        unmatched=sum(each.rows for one in compared for each in one.comparison.unmatched),
    )


def _taps(runs: Sequence[Sequence[TapComparison]]) -> list[TapNoise]:
    found: dict[str, list[TapComparison]] = {}
    for run in runs:
        for tap in run:
            if not tap.equal and tap.tap not in TOKENS:  # choices are counted as flips
                found.setdefault(tap.tap, []).append(tap)
    noise = [
        TapNoise(
            tap=name,
            order=taps[0].order,
            differing_runs=len(taps),
            differing_rows=max(tap.differing_rows for tap in taps),
            max_ulp=max((tap.ulp_max for tap in taps if tap.ulp_max is not None), default=None),
            relative_l2=_largest(tap.relative_l2 for tap in taps),
        )
        for name, taps in found.items()
    ]
    return sorted(noise, key=lambda tap: tap.order)


def _largest(values: Iterable[float]) -> float:
    """The largest; NaN where one is not known."""
    listed = list(values)
    return math.nan if any(math.isnan(v) for v in listed) else float(max(listed))


def _flips(compared: Sequence[RowComparison]) -> tuple[list[FlipRate], int]:
    trials: Counter[tuple[str, int]] = Counter()
    flips: Counter[tuple[str, int]] = Counter()
    for run in compared:
        for choice in compare_tokens(run).positions:
            key = (choice.sequence, choice.position)
            trials[key] += 1
            flips[key] += choice.chosen_a != choice.chosen_b
    return [_rate(key, n, trials[key]) for key, n in sorted(flips.items()) if n], len(trials)


def _rate(key: tuple[str, int], flips: int, trials: int) -> FlipRate:
    low, high = clopper_pearson(flips, trials)
    return FlipRate(
        sequence=key[0], position=key[1], flips=flips, trials=trials, low=low, high=high
    )
