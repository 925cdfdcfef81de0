"""From two dumps of digests to full tensors around their split, and a verdict on those."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from verify.bisect.local import Checker
from verify.bisect.result import BisectResult, Finding, Verdict
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.run import bisect
from verify.bisect.verdict import SEVERITY, exit_code, say_accepted, worst
from verify.compare.run import compare_rows
from verify.dumps.format import Dump, open_dump
from verify.dumps.window import Spans
from verify.errors import ArgumentError, DumpExistsError
from verify.recapture.commands import Order, run_again
from verify.recapture.jump import find_jump
from verify.recapture.repeated import hold_against
from verify.recapture.result import Again, Recaptured, Split
from verify.recapture.split import Around, around, asked_split, first_split
from verify.taps.apply import apply_map
from verify.taps.load import load_map
from verify.taps.types import TapMap

AROUND, JUMP = "around", "jump"
_SAME_NAMES = TapMap(format="verify-tap-map", version=1, name="same names", a="run A", b="run B")
Say = Callable[[str], None]
Check = Callable[[Dump, Dump], Sequence[Checker]]
"""Checks of single operations, made for the two dumps of the second pass."""

_SETTLE = (
    "find what does not repeat first: seeds, threads, deterministic algorithms; a capture that keeps "
    "everything of one run of each side needs no second pass"
)
_LISTED = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """What to record around which place, and how.

    ``around``: places as ``TAP@STEP``, and ``jump``; none: the first split. ``margin``: recorded taps before and
    after it; ``margin_steps``: steps. ``ops``: operations below modules (``around``: all inside the
    blocks of the window). ``tap_map``: of B's names onto A's. ``rows``: positions to keep; None: all. ``command_a``,
    ``command_b``: in place of the commands of the manifests.
    """

    around: Sequence[str] = ()
    margin: int = 1
    margin_steps: int = 0
    ops: Sequence[str] = ()
    rows: str | None = None
    edges: str = "trace"
    tap_map: str | None = None
    byte_budget: int | None = None
    command_a: str | None = None
    command_b: str | None = None


def recapture(
    a: Dump,
    b: Dump,
    out: Path,
    plan: Plan | None = None,
    *,
    accept: Collection[Verdict] = (),
    command: Sequence[str] = (),
    check: Check = lambda a, b: (),
    say: Say = lambda what: None,
) -> Recaptured:
    """Run both runs again, record full tensors around their first split, and bisect those.

    Args:
        out: new folder; the dumps of the second pass lie in ``a`` and ``b`` there, and what the
            commands print in ``a.log`` and ``b.log``.
        accept: verdicts that do not fail the run.
        command: the command line, for the report.
        check: see :data:`Check`.
        say: told what is going on.

    Raises:
        ArgumentError: a place that is not there, a margin below 0.
        DumpExistsError: there is something at ``out``.
        UsageError: a run that cannot be repeated, because its command is not known or fails.
        CorruptDumpError: a dump is not what was stored.
    """
    plan = plan or Plan()
    _check(plan, out)
    say("bisecting the first pass")
    named = presented(a, b, plan)
    first = bisect(*named, accept=list(accept), command=command)
    splits = _splits(plan, first, *named)
    if not splits or first.verdict is Verdict.NOT_COMPARABLE:
        return Recaptured(a=str(a.path), b=str(b.path), splits=[], taps=[], again=[], result=first)
    where = around(splits, a, plan.margin, plan.margin_steps)

    # Under other names, nobody knows which taps of B lie around: those of its first pass do.
    taps_b = [str(glob) for glob in b.manifest.capture.get("taps") or ["default"]]
    taps = {"A": where.taps, "B": taps_b if plan.tap_map else where.taps}

    def second(side: str, dump: Dump, steps: Spans, given: str | None) -> tuple[Dump, Again]:
        say(f"running {side} again, steps {steps}")
        order = Order(steps, taps[side], plan.edges, _ops(plan, where), plan.rows, plan.byte_budget)
        folder = out / side.lower()
        ran = run_again(dump, given, order, folder, f"--command-{side.lower()}")
        again = open_dump(folder)
        return again, hold_against(dump, again, side, ran)

    dump_a, again_a = second("A", a, where.steps_a, plan.command_a)
    dump_b, again_b = second("B", b, where.steps_b, plan.command_b)
    say("bisecting the second pass")
    checkers = check(dump_a, dump_b) if again_a.repeats and again_b.repeats else ()
    named = presented(dump_a, dump_b, plan)
    result = bisect(*named, accept=list(accept), command=command, checkers=list(checkers))
    result = apply_repeats(result, [again_a, again_b], accept)
    return Recaptured(
        a=str(a.path),
        b=str(b.path),
        splits=splits,
        taps=where.taps,
        again=[again_a, again_b],
        result=result,
    )


def presented(a: Dump, b: Dump, plan: Plan) -> tuple[Dump, Dump]:
    """Both runs under the names of A. Operations below modules, which one run alone may compute, are
    looked through as a map does it."""
    if plan.tap_map is not None:
        mapped = apply_map(a, b, load_map(plan.tap_map))
    elif plan.ops or a.manifest.capture.get("ops") or b.manifest.capture.get("ops"):
        mapped = apply_map(a, b, _SAME_NAMES)
    else:
        return a, b
    return mapped.a, mapped.b


def _ops(plan: Plan, where: Around) -> tuple[str, ...]:
    inside = [glob for block in where.blocks for glob in (block, f"{block}.*")]
    return tuple(g for ops in plan.ops for g in (inside if ops == AROUND else [ops]))


def _check(plan: Plan, out: Path) -> None:
    for name in ("margin", "margin_steps"):
        if getattr(plan, name) < 0:
            raise ArgumentError(
                "a number that is too small", where=f"--{name.replace('_', '-')}",
                found=getattr(plan, name), allowed=">= 0",
            )  # fmt: skip
    if plan.rows is not None:
        Spans.parse(plan.rows, "--rows")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise DumpExistsError(
            "a second pass is recorded into a new folder", where=out, hint="choose another --out"
        )


def _splits(plan: Plan, first: BisectResult, a: Dump, b: Dump) -> list[Split]:
    if plan.around:
        return [
            find_jump(compare_rows(a, b)) if text == JUMP else asked_split(text, first, a, b)
            for text in plan.around
        ]
    found = first_split(first, a)
    return [] if found is None else [found]


def apply_repeats(
    result: BisectResult, again: Sequence[Again], accept: Collection[Verdict] = ()
) -> BisectResult:
    """The bisect of two second passes with what is known of their repeats: where a side does not
    repeat, nothing else is claimed of the pair, and no origin is named."""
    varying = [each for each in again if not each.repeats]
    findings = [_varies(each) for each in varying]
    findings += [_unchecked(each) for each in again if each.repeats and not each.rows]
    findings += [_repeats(each) for each in again if each.repeats and each.rows]
    say_accepted(findings, accept)
    left_out = (Verdict.INCOMPLETE, Verdict.NOT_COMPARABLE)
    findings += [f for f in result.findings if not varying or f.verdict in left_out]
    findings.sort(key=lambda finding: -SEVERITY.index(finding.verdict))
    changed = {
        "findings": findings,
        "verdict": worst(findings),
        "exit_code": exit_code(findings, accept, fails_on_flip=False),
    }
    if varying:
        sides = " and ".join(each.side for each in varying)
        do = "do" if len(varying) > 1 else "does"
        changed["origins"] = []
        changed["summary"] = (
            f"{sides} {do} not repeat: run again, other bits come out in the window, so what "
            "differs there says nothing about the split of the first pass."
        )
    return msgspec.structs.replace(result, **changed)


def _repeats(again: Again) -> Finding:
    reason = (
        f"{again.rows:,} rows of {again.taps} taps in the window have the digests of the first pass, "
        "and the same tokens were fed"
    )
    return Finding(
        verdict=Verdict.IDENTICAL,
        title=f"{again.side} repeats itself",
        reasons=[reason],
        numbers={"rows checked": again.rows},
    )


def _varies(again: Again) -> Finding:
    reasons = [
        f"{each.tap}: {each.rows} rows have other digests than in the first pass, first {each.first}"
        for each in again.unlike[:_LISTED]
    ]
    reasons += again.lacking[:_LISTED]
    reasons += [
        f"another token is fed at position {position} of {sequence or 'the run'}"
        for sequence, position in again.parted.items()
    ]
    if again.exit_code:
        reasons.append(f"its command ended with exit code {again.exit_code}")
    taps = [each.tap for each in again.unlike] + (["tokens.in"] if again.parted else [])
    return Finding(
        verdict=decide(Measured(subject=Subject.REPEATS)),
        title=f"{again.side} does not repeat itself: its second pass differs from its first",
        reasons=[*reasons, *again.changed[:_LISTED]],
        taps=list(dict.fromkeys(taps)),
        support=again.unlike[0].first if again.unlike else "",
        numbers={
            "rows checked": again.rows,
            "rows unlike": sum(each.rows for each in again.unlike),
        },
        settle=[_SETTLE],
    )


def _unchecked(again: Again) -> Finding:
    return Finding(
        verdict=decide(Measured(subject=Subject.REST)),
        title=f"Whether {again.side} repeats itself is not known",
        reasons=["its first pass recorded none of the rows of the window"],
        settle=["record the first pass with taps around the place: --taps default"],
    )
