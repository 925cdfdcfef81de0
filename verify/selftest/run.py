"""Run planned trials, keep each as it comes, and go on where an earlier run stopped."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from verify.errors import ArgumentError, DumpError
from verify.selftest.rates import INNOCENT, conclude
from verify.selftest.result import SelftestResult, Trial
from verify.selftest.sizes import Size
from verify.selftest.subject import Subject
from verify.selftest.trials import FAULTS, Planned, plan

TRIALS = "trials.jsonl"

Progress = Callable[[int, int, Trial], None]
"""Told after each trial: how many are done, of how many, and how it went."""


def selftest(
    model: str,
    *,
    kinds: Sequence[str] = (),
    sizes: Sequence[str] = (),
    innocents: int = 0,
    seed: int = 0,
    sample: int | None = None,
    out: Path | None = None,
    progress: Progress = lambda done, total, trial: None,
) -> SelftestResult:
    """Plant faults into a model, let bisect and replay judge them blind, and count.

    Args:
        model: ``toy``, or as for ``verify capture --model``.
        kinds: ``K04`` and so on; empty: all.
        sizes: of :class:`verify.selftest.sizes.Size`; empty: all.
        innocents: how many innocent pairs.
        sample: try only so many of the faults, drawn from all; None: all.
        out: folder for ``trials.jsonl``; trials that it holds already are not run again.

    Raises:
        ArgumentError: unknown kinds or sizes, or nothing to try.
        ModelError: the model cannot be had.
        DumpError: ``trials.jsonl`` of something else.
    """
    _check(kinds, sizes, innocents)
    chosen = [Size(size) for size in sizes] or list(Size)
    with tempfile.TemporaryDirectory(prefix="verify-selftest-") as folder:
        subject = Subject(model, Path(folder))
        planned = list(plan(subject, kinds=kinds, sizes=chosen, innocents=innocents, seed=seed))
        if sample is not None:
            planned = _drawn(planned, sample, seed)
        known = {trial.key: trial for trial in _earlier(out)}
        done: list[Trial] = []
        for each in planned:
            trial = known.get(each.trial.key) or _keep(each.run(subject), out)
            done.append(trial)
            progress(len(done), len(planned), trial)
    return conclude(model, done)


def _drawn(planned: list[Planned], count: int, seed: int) -> list[Planned]:
    """``count`` of the faults, in their order, and all innocent pairs."""
    faults = [n for n, each in enumerate(planned) if each.trial.kind != INNOCENT]
    kept = set(random.Random(seed).sample(faults, min(count, len(faults))))
    return [p for n, p in enumerate(planned) if p.trial.kind == INNOCENT or n in kept]


def _check(kinds: Sequence[str], sizes: Sequence[str], innocents: int) -> None:
    allowed = sorted({fault.kind for fault in FAULTS})
    for name, given, known in (("kinds", kinds, [*allowed, "none"]), ("sizes", sizes, list(Size))):
        for value in given:
            if value not in known:
                raise ArgumentError(
                    "no such choice", where=name, found=value, allowed=", ".join(known)
                )
    if "none" in kinds and not innocents:
        raise ArgumentError("nothing to try", where="kinds", hint="give kinds, or innocent pairs")


def _earlier(out: Path | None) -> Iterable[Trial]:
    path = None if out is None else out / TRIALS
    if path is None or not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        # A killed run leaves a last line without its end: that trial runs again.
        return [msgspec.json.decode(line, type=Trial) for line in lines if line.endswith(b"\n")]
    except msgspec.MsgspecError as error:
        raise DumpError(
            "not the trials of a selftest", where=path, found=error, hint="choose another --out"
        ) from error


def _keep(trial: Trial, out: Path | None) -> Trial:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / TRIALS).open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")
    return trial
