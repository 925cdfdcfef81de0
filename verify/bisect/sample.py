"""A few rows of one tap in both runs, for recognisers to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.compare.elements import Pairing
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.schema import Record
from verify.formats import Format

Rows = NDArray[np.int64]
Values = NDArray[np.float64]

_ROWS = 16


@dataclass(slots=True)
class Sample:
    """A few rows of one tap in both runs, as values; the two runs' first records of them."""

    compared: RowComparison
    at: Rows
    a: Values
    b: Values
    record_a: Record
    record_b: Record
    coarser: Format | None

    @property
    def unit(self) -> float:
        """Unit roundoff of the coarser format."""
        return 2.0 ** -(self.coarser.mantissa_bits + 1) if self.coarser else 2.0**-9

    def entries(self, side: str) -> Rows:
        x = self.compared.alignment
        return (x.rows_a if side == "A" else x.rows_b)[self.at]

    def index(self, side: str) -> RowIndex:
        x = self.compared.alignment
        return x.a if side == "A" else x.b


def sample(compared: RowComparison, at: Rows) -> Sample | None:
    """The first rows of one record pair; None where their words were not kept."""
    x = compared.alignment
    first = at[np.argsort(x.rows_a[at], kind="stable")]
    number_a, number_b = x.a.record[x.rows_a[first]], x.b.record[x.rows_b[first]]
    first = first[(number_a == number_a[0]) & (number_b == number_b[0])][:_ROWS]
    a, b = x.a.records[int(number_a[0])], x.b.records[int(number_b[0])]
    if not (x.a.dump.holder(a).kept == "full" == x.b.dump.holder(b).kept):
        return None
    pairing = Pairing.of(a.dtype, b.dtype)
    words = read_entries(x.a, x.rows_a[first]), read_entries(x.b, x.rows_b[first])
    values_a, values_b = pairing.values(*words)
    return Sample(compared, first, values_a, values_b, a, b, pairing.common)
