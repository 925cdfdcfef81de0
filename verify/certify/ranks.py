"""Sums over ranks against FP64: the part of each rank, and the sum that a collective forms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.certify.declare import declare
from verify.certify.inputs import check_rows, only_input, read_values
from verify.certify.weights import WeightSource
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError
from verify.formats import get_format
from verify.ranks.disagree import is_collective
from verify.ranks.join import Joined, Part
from verify.reference.certificates.certify import certify
from verify.reference.certificates.result import Outcome

Judged = tuple[Outcome, float, str, tuple[int, ...]]
"""Outcome, share of the bound, reason, ranks that break it."""


def certify_parts(
    dump: Joined, record: Record, rows: NDArray[np.int64], weights: WeightSource
) -> Judged | None:
    """What several ranks computed of a joined record; None where it is no sum over ranks.

    Args:
        rows: of the record, to be judged.

    Raises:
        ArgumentError: an operation, input or weight that is not known.
    """
    part = dump.parts[record.seq]
    if part.layout.kind == "partial" and len(part.records) > 1:
        return _partial_products(dump, record, part, rows, weights)
    if is_collective(record):
        return _sum(dump, record, rows)
    return None


def _partial_products(
    dump: Joined, record: Record, part: Part, rows: NDArray[np.int64], weights: WeightSource
) -> Judged:
    """Every rank's product of its part of the input with its part of the weight."""
    first = part.records[0]
    op = declare(first, dump.manifest, None, {})
    names = [source.name for source in first.inputs if source.kind == "weight" and source.name]
    if op.name != "linear" or len(names) != 1:
        raise ArgumentError(
            "no reference for this partial sum", where=record.tap, found=op.name, allowed="linear"
        )
    source = only_input(dump, record)
    check_rows(dump, record, source)
    x = read_values(dump, source)[rows]
    columns = dump.parts[dump.holder(source).seq].columns_of()
    weight = weights.get(names[0]).detach()
    worst, broken, outcome = 0.0, [], Outcome.EXPLAINED
    for own in part.records:
        held = columns[own.rank]
        output = read_values(dump.stored, own)[rows]
        inputs = {"x": x[:, held], "weight": weight[:, held]}
        found = certify(output, inputs, op, store=own.dtype)
        worst = max(worst, found.numbers.get("budget_used", 0.0))
        if found.outcome is Outcome.DEFECT:
            broken.append(own.rank)
        elif found.outcome is Outcome.SUSPECT and outcome is Outcome.EXPLAINED:
            outcome = Outcome.SUSPECT
    outcome = Outcome.DEFECT if broken else outcome
    return outcome, worst, f"partial products use {worst:.3g} of their bound", tuple(broken)


def _sum(dump: Joined, record: Record, rows: NDArray[np.int64]) -> Judged | None:
    """A sum that a collective formed. Each of its N - 1 additions, in whatever order, rounds once to
    the format, so it is within N - 1 units of rounding of the sum of the magnitudes (Higham, Accuracy
    and Stability of Numerical Algorithms, 2nd ed., 4.2), to first order, and one more for storing it."""
    read = [source.seq for source in record.inputs if source.kind == "record"]
    if len(read) != 1 or read[0] is None or read[0] not in dump.parts:
        return None
    part = dump.parts[read[0]]
    if part.layout.kind != "partial":
        return None
    terms = np.stack([read_values(dump.stored, own)[rows] for own in part.records])
    fmt = get_format(record.dtype)
    unit = 2.0 ** -(fmt.mantissa_bits + 1)
    limit = len(terms) * unit * np.abs(terms).sum(axis=0) + fmt.min_subnormal
    broken, worst = [], 0.0
    for own in dump.parts[record.seq].records:
        error = np.abs(read_values(dump.stored, own)[rows] - terms.sum(axis=0))
        share = float(np.nan_to_num(error / limit, nan=np.inf).max(initial=0.0))
        worst = max(worst, share)
        if share > 1.0:
            broken.append(own.rank)
    outcome = Outcome.DEFECT if broken else Outcome.EXPLAINED
    return outcome, worst, f"the sum over ranks uses {worst:.3g} of its bound", tuple(broken)
