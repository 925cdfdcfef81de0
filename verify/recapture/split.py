"""Where the first pass saw the runs part, and which steps and taps lie around that place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from verify.bisect.result import BisectResult
from verify.bisect.taps import LOGITS
from verify.compare.result import TapComparison
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.format.tokens import TOKENS_IN, TOKENS_OUT
from verify.dumps.window import Spans, spans_of
from verify.errors import ArgumentError
from verify.recapture.result import Split

_PORT = re.compile(r"\.?(out(\.\w+)?|in\.\w+|attn\.(in\.\w+|out)|cache\.in\.[kv])$")
OPERATION = "/"
"""What stands between module and operation in a tap below modules."""
_TOKENS = (TOKENS_IN, TOKENS_OUT)


def first_split(result: BisectResult, a: Dump) -> Split | None:
    """The first row that differs, in A's order of execution; None where none does."""
    found = [tap for tap in result.comparison.taps if tap.first is not None]
    if not found:
        return None
    places: dict[tuple[int, str], int] = {}
    for number, record in enumerate(a.records()):
        places.setdefault((record.step, record.tap), number)

    def order(tap: TapComparison) -> int:
        assert tap.first is not None
        return places.get((tap.first.step_a, tap.tap), len(places))

    return _split(min(found, key=order))


def _split(tap: TapComparison) -> Split:
    first = tap.first
    assert first is not None
    return Split(
        tap=tap.tap,
        step_a=first.step_a,
        step_b=first.step_b,
        sequence=first.sequence,
        position=first.position,
    )


def asked_split(text: str, result: BisectResult, a: Dump, b: Dump) -> Split:
    """The place that ``TAP@STEP``, ``TAP`` or ``@STEP`` names; steps are those of A.

    Without a step it is the first in which the tap differs, without a tap the first tap that
    differs in the step; where nothing differs, the first record.

    Raises:
        ArgumentError: no record of A is there, or none of B has the same rows.
    """
    tap, at, step = text.rpartition("@") if "@" in text else (text, "", "")
    if at and not step.isdigit():
        raise ArgumentError("not a place", where="--around", found=text, allowed="TAP@STEP")
    records = [
        record
        for record in a.records()
        if (not tap or fnmatchcase(record.tap, tap)) and (not step or record.step == int(step))
    ]
    if not tap:
        records = [record for record in records if record.tap not in _TOKENS]
    if not records:
        names = list(dict.fromkeys(record.tap for record in a.records()))
        near = difflib.get_close_matches(tap, names, n=4, cutoff=0.5) or names[:4]
        raise ArgumentError(
            "A has no record there", where="--around", found=text, allowed=", ".join(near) + ", ..."
        )
    firsts = {t.tap: t.first for t in result.comparison.taps if t.first is not None}
    differ = [r for r in records if (f := firsts.get(r.tap)) is not None and r.step == f.step_a]
    record = (differ or records)[0]
    return _at(record, a, b)


def _at(record: Record, a: Dump, b: Dump) -> Split:
    """The place of a record of A, and the step in which B computed its first row."""
    rows = a.rows(record)
    named = [n for n, name in enumerate(rows.sequence) if name is not None]
    sequence, position = (
        (str(rows.sequence[named[0]]), int(rows.position[named[0]])) if named else ("", -1)
    )
    for other in b.records():
        if (other.tap, other.occurrence) != (record.tap, record.occurrence):
            continue
        theirs = b.rows(other)
        if ((theirs.sequence == sequence) & (theirs.position == position)).any():
            step_b = other.step
            break
    else:
        raise ArgumentError(
            "B has no record with the same rows",
            where="--around",
            found=f"{record.tap}, {sequence} position {position}",
        )
    return Split(
        tap=record.tap, step_a=record.step, step_b=step_b, sequence=sequence, position=position
    )


@dataclass(frozen=True, slots=True)
class Around:
    """What to record around the splits: steps of either run, and tap globs."""

    steps_a: Spans
    steps_b: Spans
    taps: list[str]
    blocks: list[str]
    """Paths of the modules that the taps around the splits lie in."""


def around(splits: Sequence[Split], a: Dump, margin: int, margin_steps: int) -> Around:
    """The steps and taps around the splits.

    Args:
        margin: recorded taps before and after each split that belong to the window; of a tap
            inside a repeated block the whole block does.
        margin_steps: steps before and after.
    """
    steps_a: list[int] = []
    steps_b: list[int] = []
    globs: dict[str, None] = {}
    blocks: dict[str, None] = {}
    for split in splits:
        # A token that was fed differs because of the step that chose it.
        before = margin_steps + (split.tap == TOKENS_IN and margin_steps == 0)
        steps_a += range(max(0, split.step_a - before), split.step_a + margin_steps + 1)
        steps_b += range(max(0, split.step_b - before), split.step_b + margin_steps + 1)
        near = _near(split, a, margin)
        # Far from the split, logits would be one more tap that nothing in the window explains.
        globs |= {LOGITS: None} if LOGITS in near else {}
        own = dict.fromkeys(block_of(path) for path in near.values() if path)
        globs |= dict.fromkeys(f"default:{block}.*" for block in own)
        blocks |= own
        if not own:
            globs["default"] = None
        elif a.manifest.capture.get("taps") != ["default"]:
            # They need not be taps of the default selection.
            globs |= dict.fromkeys(t for t, path in near.items() if path and OPERATION not in t)
    return Around(spans_of(steps_a), spans_of(steps_b), list(globs), list(blocks))


def _near(split: Split, a: Dump, margin: int) -> dict[str, str]:
    """Tap -> path of its module, of the taps around a split; empty around token ids, and the path
    of what belongs to no module."""
    in_step = (r.tap for r in a.records() if r.step == split.step_a and r.tap not in _TOKENS)
    taps = list(dict.fromkeys(in_step))
    if split.tap not in taps:
        return {}
    at = taps.index(split.tap)
    near = taps[max(0, at - margin) : at + margin + 1]
    paths = {tap: _PORT.sub("", tap) for tap in near}
    return {t: "" if path == t else path.partition(OPERATION)[0] for t, path in paths.items()}


def block_of(path: str) -> str:
    """The repeated block that a module lies in, ``model.layers.7``; else the module itself."""
    parts = path.split(".")
    number = next((n for n, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[: number + 1])
