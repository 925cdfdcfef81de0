"""Each side of a pair of runs held against FP64 on what it read itself: no model has to run.

A tap at which both sides are within the roundings of their own operation, on their own inputs, adds
nothing that rounding does not. So every difference of a pair can be accounted for from the dumps and
the weights alone, also where the runs are of different implementations or on several ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from verify.bisect.local import Checker, LocalFinding, Op
from verify.bisect.result import Verdict
from verify.bounds import Bound
from verify.certify.attention import certify_core, is_attention
from verify.certify.counterpart import (
    as_computed,
    as_counterpart,
    is_exported,
    without_own_scalars,
)
from verify.certify.declare import declare
from verify.certify.inputs import (
    check_rows,
    gather_inputs,
    places_in,
    read_values,
)
from verify.certify.llamacpp.node import is_llamacpp, judge_node
from verify.certify.moved import judge_moved, only_moves
from verify.certify.ranks import certify_parts
from verify.certify.rotary_tables import is_rotary_table, rotary_share
from verify.certify.weights import WeightSource, gguf_path
from verify.compare.index import RowIndex
from verify.dumps.format import Dump
from verify.dumps.format.schema import Manifest, Record
from verify.errors import ArgumentError, VerifyError
from verify.ranks.disagree import is_collective
from verify.ranks.join import Joined
from verify.reference.certificates.certify import certify
from verify.reference.certificates.result import Certificate, Outcome
from verify.taps.view import View
from verify.taps.words import same_places

_CALLS = 3
"""Records of a tap that are judged, those with the largest differences."""
_ROWS = 24
"""Rows of a record that are judged: those that differ most, and some of all."""
_HEAD_ROWS = 8
_SHARE = Bound(1.0, "share of what the roundings of each side allow, from FP64 on its own inputs")

_VERDICTS = {
    Outcome.EXPLAINED: Verdict.ROUNDING,
    Outcome.SUSPECT: Verdict.UNRESOLVED,
    Outcome.DEFECT: Verdict.DEFECT,
}
_TITLES = {
    Verdict.ROUNDING: "each side is within the roundings of its own operation on its own inputs",
    Verdict.UNRESOLVED: "inside the bound of its roundings, but not as rounding would have it",
    Verdict.DEFECT: "no rounding of its own inputs gives it",
}


@dataclass(frozen=True, slots=True)
class _Side:
    """What the records of one run are held against."""

    name: str
    weights: WeightSource
    manifest: Manifest
    """Of the run whose configuration counts."""
    gguf: Path | None


@dataclass(frozen=True, slots=True)
class _Found:
    side: str
    outcome: Outcome
    used: float
    reason: str
    ranks: tuple[int, ...] = ()
    convention: str = ""
    """What the side computes by design where it is no plain operation."""


def own_roundings(a: Dump, b: Dump, weights: str | None) -> Checker:
    """Answers for every tap whose operation, inputs and weights are known on both sides; a side that
    breaks its bound is named where the other is not known.

    Args:
        weights: as :class:`WeightSource` takes them; None: only operations without weights.

    Raises:
        ArgumentError, ModelError: the weights cannot be read.
    """
    gguf = gguf_path(weights) if is_llamacpp(a) or is_llamacpp(b) else None
    of_a, of_b = (
        # An exported model is held against its source, whose weights and configuration these are.
        other.manifest if is_exported(run) and not is_exported(other) else run.manifest
        for run, other in ((a, b), (b, a))
    )
    side_a = _Side("A", WeightSource(weights, of_a), of_a, gguf)
    side_b = _Side("B", WeightSource(weights, of_b), of_b, gguf)
    for side in (side_a, side_b):
        side.weights.check()

    def check(op: Op) -> LocalFinding | None:
        x = op.compared.alignment
        rows = op.largest(_ROWS)
        rows_a, rows_b = (x.a, x.rows_a[rows]), (x.b, x.rows_b[rows])
        found = [_judge(side_a, *rows_a, *rows_b), _judge(side_b, *rows_b, *rows_a)]
        return _conclude(op, [each for each in found if each is not None])

    return check


def _conclude(op: Op, found: list[_Found]) -> LocalFinding | None:
    broken = [each for each in found if each.outcome is Outcome.DEFECT]
    if not broken and len(found) < 2:
        return None
    worst = max(broken or found, key=lambda each: each.used)
    suspect = any(each.outcome is Outcome.SUSPECT for each in found)
    outcome = Outcome.DEFECT if broken else Outcome.SUSPECT if suspect else Outcome.EXPLAINED
    verdict = _VERDICTS[outcome]
    conventions = sorted({each.convention for each in found} - {""})
    if verdict is Verdict.ROUNDING and len({each.convention for each in found}) > 1:
        verdict = Verdict.PRECISION
    named = "".join(f"{each.side}: {each.reason}. " for each in (broken or found)).strip()
    title = _TITLES[verdict] if verdict in _TITLES else f"by design: {'; '.join(conventions)}"
    if broken:
        title = f"{' and '.join(each.side for each in broken)}: {title}"
    ranks = sorted({rank for each in broken for rank in each.ranks})
    return LocalFinding(
        tap=op.place.tap,
        verdict=verdict,
        reason=named,
        bound=_SHARE,
        error=worst.used,
        row=int(op.largest(1)[0]),
        element=0,
        title=title,
        share=True,
        support=f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        if ranks
        else "",
    )


def _judge(
    side: _Side, index: RowIndex, entries: np.ndarray, other: RowIndex, paired: np.ndarray
) -> _Found | None:
    """The worst of the records that hold these rows; None where one cannot be judged.

    Args:
        paired: the entries of the other run that stand for ``entries``.
    """
    dump = index.dump
    exported = is_exported(dump) and not is_exported(other.dump)
    numbers = list(dict.fromkeys(index.record[entries].tolist()))[:_CALLS]
    found = []
    for number in numbers:
        record = dump.holder(index.records[number])
        here = index.record[entries] == number
        like = other.dump.holder(other.records[int(other.record[paired[here][0]])])
        try:
            if exported:
                record = as_counterpart(dump, record, other.dump, like)
            else:
                record = without_own_scalars(record, like)
            found.append(_judge_shown(side, dump, record, index.rows(entries[here])))
        except VerifyError:
            return None  # an operation, inputs or weights that no reference has
    return max(found, key=lambda each: (each.outcome is Outcome.DEFECT, each.used), default=None)


def _judge_shown(side: _Side, dump: Dump, record: Record, rows: np.ndarray) -> _Found:
    """A record as it is shown, or else as the run made it: a map leaves out taps that its operations
    read."""
    try:
        return _judge_record(side, dump, record, rows)
    except VerifyError:
        if not isinstance(dump, View) or isinstance(dump, Joined):
            raise
        making = dump.making(record)
        if not making.is_stored or making.sources[0].tap != record.tap:
            raise
        return _judge_record(side, dump.stored, making.sources[0], rows)


def _judge_record(side: _Side, dump: Dump, record: Record, rows: np.ndarray) -> _Found:
    name = side.name
    if side.gguf is not None and is_llamacpp(dump):
        node = judge_node(dump, record, rows, side.gguf)
        return _Found(name, node.outcome, node.used, node.reason, convention=node.convention)
    if isinstance(dump, Joined):
        if any(source.kind == "unknown" for source in record.inputs) and not is_collective(record):
            raise ArgumentError(
                "the ranks read different copies", where=record.tap, allowed="equal copies"
            )
        of_ranks = certify_parts(dump, record, rows, side.weights)
        if of_ranks is not None:
            return _Found(name, *of_ranks)
    if is_rotary_table(record):
        return _table(side, dump, record, rows)
    if only_moves(dump, record):
        return _moved(name, dump, record)
    if is_attention(record):
        _, certificate = certify_core(dump, record, _HEAD_ROWS)
        return _found(name, certificate)
    named = with_weights(dump, record)
    op = as_computed(dump, declare(named, side.manifest, None, {}))
    inputs = gather_inputs(dump, named, op, side.weights, {})
    for source in record.inputs:
        if source.kind != "record" or source.seq is None:
            continue
        read = dump.record(source.seq, record.rank)
        if op.name == "linear" and not same_places(dump.rows(record), dump.rows(read)):
            # Of the last position alone, where that chooses a token.
            inputs["x"] = inputs["x"][places_in(dump, record, read)]
        else:
            check_rows(dump, record, read)
    output = read_values(dump, record)
    some = _some(rows, len(output))
    if "x" in inputs and getattr(inputs["x"], "ndim", 2) == 3:
        output = output.reshape(inputs["x"].shape)
    cut = {
        name: value[some] if name not in ("weight", "bias", "table") else value
        for name, value in inputs.items()
    }
    return _found(name, certify(output[some], cut, op, store=record.dtype))


def _table(side: _Side, dump: Dump, record: Record, rows: np.ndarray) -> _Found:
    used = rotary_share(dump, record, rows, side.manifest)
    outcome = Outcome.EXPLAINED if used <= 1.0 else Outcome.DEFECT
    return _Found(side.name, outcome, used, f"rotary table uses {used:.3g} of its bound")


def _moved(name: str, dump: Dump, record: Record) -> _Found:
    same, reason = judge_moved(dump, record)
    outcome = Outcome.EXPLAINED if same else Outcome.DEFECT
    return _Found(name, outcome, 0.0 if same else math.inf, reason)


def with_weights(dump: Dump, record: Record) -> Record:
    """The record with all weights that its operation read, also those that a view leaves out. A
    tap that a tap map renames has its weights under the names of the other run, and all of them."""
    if not isinstance(dump, View):
        return record
    held = {source.name for source in record.inputs if source.kind == "weight"}
    stored = dump.making(record).sources[0]
    if stored.tap != record.tap:
        return record
    left = [s for s in stored.inputs if s.kind == "weight" and s.name not in held]
    return msgspec.structs.replace(record, inputs=[*record.inputs, *left])


def _some(rows: np.ndarray, count: int) -> np.ndarray:
    spread = np.linspace(0, count - 1, min(count, _ROWS // 2)).astype(np.int64)
    return np.unique(np.concatenate([rows[: _ROWS // 2], spread]))


def _found(side: str, certificate: Certificate) -> _Found:
    used = certificate.numbers.get("budget_used", 0.0)
    failed = [check.name for check in certificate.failed]
    reason = f"{certificate.op} uses {used:.3g} of its bound"
    if certificate.outcome is Outcome.DEFECT and used <= 1.0:  # an exact operation has none to use
        reason = f"{certificate.op} is not what it computes"
    if failed:
        reason += f" ({'; '.join(failed[:2])})"
    named = f"{certificate.op} with {', '.join(certificate.conventions)}"
    convention = named if certificate.outcome is Outcome.PRECISION else ""
    return _Found(side, certificate.outcome, used, reason, convention=convention)
