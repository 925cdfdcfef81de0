"""What the runs were really given, row by row: ids and positions against the prompts and each other.

A capture may name rows wrongly: padding taken as text, positions counted from another start. Every
row then stands against a row of another token, and all differences are consequences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verify.bisect.shifts import shift_between
from verify.compare.index import PADDING, RowIndex
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.tokens import TOKENS_IN
from verify.formats import decode

POSITIONS_IN = "positions.in"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why rows of a run do not stand for what they are compared as."""

    title: str
    reason: str
    settle: str
    tap: str = TOKENS_IN


@dataclass(frozen=True, slots=True)
class _Row:
    position: int
    step: int
    value: int


_NAME_ROWS = (
    "name the rows as they are: positions [b, t] with -1 for padding "
    "(verify.dumps.capture: `with run.step(positions)`)"
)


def check_fed(compared: RowComparison) -> list[Fault]:
    """Rows that contradict the prompt of their run, and positions that differ between the runs.

    Raises:
        CorruptDumpError: ids are not those that were stored.
    """
    x = compared.alignment
    found: list[Fault] = []
    given = {"A": _given(x.a, TOKENS_IN), "B": _given(x.b, TOKENS_IN)}
    alike = [s for s in given["A"] if _placed(given["A"][s]) == _placed(given["B"].get(s, []))]
    for side, index in (("A", x.a), ("B", x.b)):
        prompts = {s.id: s.prompt for s in index.dump.manifest.workload.sequences}
        for sequence, rows in given[side].items():
            if sequence in alike:
                continue  # whatever the manifests say, the same tokens stand at the same rows
            if fault := _against_prompt(side, sequence, rows, prompts.get(sequence, [])):
                found.append(fault)
                break  # one sequence says it
    return found or [*_other_ids(compared), *_other_positions(compared)]


def _placed(rows: list[_Row]) -> set[tuple[int, int]]:
    return {(row.position, row.value) for row in rows}


def _given(index: RowIndex, tap: str) -> dict[str, list[_Row]]:
    """Sequence -> what its rows were given, in execution order."""
    found: dict[str, list[_Row]] = defaultdict(list)
    numbers = index.records.where(lambda kind: kind.tap == tap and kind.row_length == 1)
    for number in numbers[index.full[numbers]].tolist():
        record = index.records[number]
        if not record.n_rows:
            continue
        own = index.entries(number)
        entries = np.arange(own.start, own.stop)
        values = decode(read_entries(index, entries), record.dtype)[:, 0]
        for entry, value in zip(entries, values, strict=True):
            if (code := int(index.sequence[entry])) != PADDING:
                row = _Row(int(index.position[entry]), record.step, int(value))
                found[index.sequences[code]].append(row)
    return found


def _against_prompt(side: str, sequence: str, rows: list[_Row], prompt: list[int]) -> Fault | None:
    inside = {row.position: row.value for row in rows if 0 <= row.position < len(prompt)}
    if any(prompt[position] != value for position, value in inside.items()):
        return _shifted(side, sequence, rows, prompt)
    last = len(prompt) - 1
    step = next((row.step for row in rows if row.position == last), None)
    behind = [row for row in rows if row.position > last and row.step == step]
    # Drafts of speculative decoding stand there rightly; padding is one id over and over.
    if len(behind) > 1 and len({row.value for row in behind}) == 1:
        return _padding(side, sequence, behind)
    return None


def _shifted(side: str, sequence: str, rows: list[_Row], prompt: list[int]) -> Fault | None:
    first = min(row.step for row in rows)
    ids = {row.position: row.value for row in rows if row.step == first}
    listed = [ids.get(position, -1) for position in range(max(ids) + 1)]
    shift = shift_between(prompt, listed)
    if shift is None or shift < 1:
        return Fault(
            f"Run {side} was given other tokens than its manifest says",
            f"of {sequence}: the prompt does not stand at the positions of its rows",
            _NAME_ROWS,
        )
    before = set(listed[:shift]) - {-1}
    if shift > 1 and len(before) == 1:
        return _padding(side, sequence, [row for row in rows if row.position < shift])
    return Fault(
        f"The positions of run {side} are shifted by {_number(shift)}",
        f"token 0 of {sequence} stands at position {shift}",
        _NAME_ROWS,
    )


def _padding(side: str, sequence: str, rows: list[_Row]) -> Fault:
    positions = sorted({row.position for row in rows})
    return Fault(
        f"Padding rows of run {side} are taken as text",
        f"positions {positions[0]} to {positions[-1]} of {sequence} hold token {rows[0].value} in "
        "every row, and the prompt says otherwise",
        _NAME_ROWS,
    )


def _other_ids(compared: RowComparison) -> list[Fault]:
    """Runs without a prompt in the manifest: the ids of their first steps."""
    x = compared.alignment
    if any(index.dump.manifest.workload.sequences for index in (x.a, x.b)):
        return []
    a, b = _given(x.a, TOKENS_IN), _given(x.b, TOKENS_IN)
    for sequence in a.keys() & b.keys():
        ids_a, ids_b = (_first_step(rows) for rows in (a[sequence], b[sequence]))
        if all(ids_b.get(position, value) == value for position, value in ids_a.items()):
            continue
        shift = shift_between(list(ids_a.values()), list(ids_b.values()))
        what = "other tokens" if shift is None else f"tokens shifted by {_number(abs(shift))}"
        at = min(p for p, v in ids_a.items() if ids_b.get(p, v) != v)
        reason = (
            f"position {at} of {sequence or 'the run'} is {ids_a[at]} in A and {ids_b[at]} in B"
        )
        return [Fault(f"The runs were given {what}", reason, "give both runs the same token ids")]
    return []


def _other_positions(compared: RowComparison) -> list[Fault]:
    """Position ids that the models were given for the same rows."""
    x = compared.alignment
    a, b = _given(x.a, POSITIONS_IN), _given(x.b, POSITIONS_IN)
    for sequence, differing in _differing(a, b):
        (position, (given_a, given_b)), *rest = differing
        return [
            Fault(
                "The runs were given other positions",
                f"the token at position {position} of {sequence} was position {given_a} for A's "
                f"model and {given_b} for B's; {len(rest)} more rows",
                "give both models the same position ids, counted from the first token that is no "
                "padding",
                POSITIONS_IN,
            )
        ]
    return []


def _differing(
    a: dict[str, list[_Row]], b: dict[str, list[_Row]]
) -> Iterator[tuple[str, list[tuple[int, tuple[int, int]]]]]:
    for sequence in a.keys() & b.keys():
        given_b = {row.position: row.value for row in b[sequence]}
        found = [
            (row.position, (row.value, given_b[row.position]))
            for row in a[sequence]
            if given_b.get(row.position, row.value) != row.value
        ]
        if found:
            yield sequence, found


def _first_step(rows: list[_Row]) -> dict[int, int]:
    return {row.position: row.value for row in rows if row.step == rows[0].step}


def _number(count: int) -> str:
    return "one" if count == 1 else str(count)
