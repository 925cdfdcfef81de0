"""Whether a difference at a tap reaches the operations that read it.

A tap may hold something else than what the model went on with: a view that was overwritten before
it was copied, the tensor before a residual addition or a norm, other axes. Its difference is then
gross, and the operations after it do not carry it. Readers tell by how they work:

- a product with a weight, or a copy: the relative size of a difference passes on, up to the
  ratio of two gains;
- an addition: its absolute size passes on;
- a norm takes the length away, so only a difference in direction tells.

Nothing is concluded from readers that may rightly ignore what they read (attention, gates).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verify.bisect.edges import RunEdges
from verify.bisect.marks import is_keyed
from verify.bisect.moves import MOVES
from verify.bisect.taps import LOGITS, TOKENS
from verify.compare.align import rows_by_pair, rows_by_tap
from verify.compare.elements import Pairing
from verify.compare.pairs import pairs_of, read_pair
from verify.compare.run import RowComparison
from verify.compare.stand_ins import holds_floats
from verify.dumps.format.schema import Record
from verify.formats import get_format

Rows = NDArray[np.int64]

GROSS = 2.0**-6
"""Relative size of a row's difference from which on a reader must show it: eight times the unit
roundoff of bfloat16, so that no rounding of an output hides it."""

PASSED = 2.0**-8
"""A reader that shows less than this share of a difference did not read it: a projection may pass a
random direction on less well than its own input, by factors of tens but not of hundreds."""

PASSED_IF_KNOWN = 2.0**-3
"""The same where the values themselves say what was recorded instead. Above rounding of bfloat16 in
earlier layers the readers differ by some hundredths on their own."""

# fmt: off
_PRODUCTS = {"aten.mm", "aten.addmm", "aten.linear", "aten.matmul", "aten._scaled_mm",
             "aten._int_mm"}
_NORMS = {"aten.rsqrt", "aten.native_layer_norm", "aten.rms_norm", "aten.layer_norm",
          "aten._fused_rms_norm"}
_ADDITIONS = {"aten.add", "aten.add_", "aten.sub"}
# fmt: on
_ROWS = 64


@dataclass(slots=True)
class Carried:
    """What the readers of a tap say about its gross rows. ``at`` counts in the alignment."""

    tap: str
    at: Rows
    largest: float
    """Relative size of its largest difference."""
    share: float | None = None
    """Largest share of the difference that a reader shows; None where no reader can tell."""
    readers: list[str] = field(default_factory=list)
    """These readers, with how much they differ, in words."""
    by_order: bool = False
    """No edges were recorded: judged by what was computed later at these positions."""

    def add(self, reader: str, share: float) -> None:
        self.share = max(share, self.share or 0.0)
        self.readers.append(reader)


def follow(compared: RowComparison) -> list[Carried]:
    """Every tap with gross differences, in A's execution order, and what its readers show.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    return _Readers(compared).run()


class _Readers:
    def __init__(self, compared: RowComparison) -> None:
        self.compared = compared
        self.alignment = compared.alignment
        m = compared.measures
        self.differs = compared.compared & (m.differing > 0)
        at = np.flatnonzero(self.differs)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.sqrt(m.diff_sq[at] / m.ref_sq[at])
        self.relative = np.zeros(len(self.differs))
        self.relative[at] = np.where(np.isnan(size) | (m.nonfinite[at] > 0), np.inf, size)

    @cached_property
    def sides(self) -> tuple[RunEdges, RunEdges]:
        x, compared = self.alignment, self.compared.compared
        return RunEdges.of(x.a, x.rows_a, compared), RunEdges.of(x.b, x.rows_b, compared)

    def run(self) -> list[Carried]:
        x = self.alignment
        judged = x.a.is_of(_is_judged)
        gross = np.flatnonzero(self.differs & (self.relative > GROSS))
        found: list[Carried] = []
        for tap, at in rows_by_tap(x, gross[judged[x.a.record[x.rows_a[gross]]]]).items():
            found.append(carried := Carried(tap, at, float(self.relative[at].max())))
            for a, b, some in rows_by_pair(x, at):
                self._ask(carried, a, b, some)
                if carried.share is not None and carried.share > PASSED_IF_KNOWN:
                    break  # it was read, whatever others show
        return found

    def _ask(self, tap: Carried, a: int, b: int, at: Rows) -> None:
        asked: set[str] = set()
        entries = (self.alignment.rows_a[at], self.alignment.rows_b[at])
        for side, number, own in zip(self.sides, (a, b), entries, strict=True):
            for reader in side.readers(number):
                record = side.index.records[reader]
                if record.tap in asked:
                    continue
                asked.add(record.tap)
                mine, theirs = side.same_rows(reader, own)
                if mine.size:
                    others = [o for o in side.inputs(reader) if o != number]
                    rows = [side.same_rows(o, own)[1] for o in others]
                    alone = not any(self.differs[r].any() for r in rows)
                    self._judge(tap, record, at[mine], theirs, alone)
        if not any(side.has_edges for side in self.sides):
            self._by_order(tap, a, at, entries[0])

    def _judge(self, tap: Carried, reader: Record, at: Rows, theirs: Rows, alone: bool) -> None:
        share = self._share(reader, at, theirs, alone)
        if share is not None:
            size = float(self.relative[theirs].max())
            how = "agrees in every bit" if size == 0.0 else f"differs by {size:.2g} of its size"
            tap.add(f"{reader.tap} {how}", share)

    def _share(self, reader: Record, at: Rows, theirs: Rows, alone: bool) -> float | None:
        """Share of the difference of the rows ``at`` that a reader shows; None: it cannot tell.

        Args:
            alone: no other input of the reader differs at these rows.
        """
        ops = {op.partition("[")[0] for op in reader.ops}
        single = sum(source.kind == "record" for source in reader.inputs) == 1
        m = self.compared.measures
        shown = self.relative[theirs] / np.minimum(self.relative[at], 1.0)
        if single and ops & _NORMS:
            turned = self._turned(at)
            return float(shown[turned].max()) if turned is not None and turned.any() else None
        if single and (ops & _PRODUCTS or not ops - MOVES):
            return float(shown.max())
        if not ops & _ADDITIONS or ops - MOVES - _ADDITIONS:
            return None
        own, other = np.sqrt(m.diff_sq[at]), np.sqrt(m.diff_sq[theirs])
        u = 2.0 ** -(get_format(reader.dtype).mantissa_bits + 1)
        tells = (own > 64 * u * np.sqrt(m.ref_sq[theirs])) | (m.nonfinite[at] > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(m.nonfinite[theirs] > 0, np.inf, other / own)[tells]
        share = np.where(np.isnan(share), 0.0, share)  # infinite rows whose sum is finite
        largest = float(share.max(initial=0.0))
        return largest if tells.any() and (alone or largest <= PASSED) else None

    def _turned(self, at: Rows) -> NDArray[np.bool_] | None:
        """For each row whether its direction differs, the length apart; None without words."""
        x = self.alignment
        turned = np.zeros(len(at), np.bool_)
        for pair in pairs_of(x, at[:_ROWS]):
            if not (x.a.dump.holder(pair.a).kept == "full" == x.b.dump.holder(pair.b).kept):
                return None
            pairing = Pairing.of(pair.a.dtype, pair.b.dtype)
            for some, words_a, words_b in read_pair(x.a.dump, x.b.dump, pair):
                a, b = pairing.values(words_a, words_b)
                with np.errstate(invalid="ignore", divide="ignore"):
                    along = (a * b).sum(axis=1) / (a * a).sum(axis=1)
                    rest = np.linalg.norm(b - along[:, None] * a, axis=1)
                    share = rest / np.linalg.norm(b, axis=1)
                turned[np.isin(at, pair.at[some])] = ~(share <= GROSS)
        return turned

    def _by_order(self, tap: Carried, a: int, at: Rows, entries: Rows) -> None:
        """Without edges: what ran later, in the same step and at the same positions."""
        side = self.sides[0]
        steps = side.index.records.step  # never falls in execution order
        end = int(np.searchsorted(steps, steps[a], side="right"))
        equal = 0
        for number in range(a + 1, end):
            record = side.index.records[number]
            if not _is_judged(record, logits=True):
                continue
            mine, theirs = side.same_rows(number, entries)
            if not mine.size:
                continue
            if self.differs[theirs].any():
                tap.add(f"{record.tap} differs", np.inf)
                return
            equal += 1
        if equal and not tap.by_order:
            tap.by_order = True
            tap.add(f"all {equal} taps after it in its step agree in every bit", 0.0)


def _is_judged(record: Record, logits: bool = False) -> bool:
    """Floating-point rows that stand for tokens."""
    if record.tap in TOKENS or (record.tap == LOGITS and not logits) or is_keyed(record):
        return False
    return holds_floats(record)
