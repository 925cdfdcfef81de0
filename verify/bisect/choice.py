"""One choice of either run: candidates, margins, shifts, and whether the logits explain it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verify.bisect.flips import measure_shift
from verify.bisect.logits import Logits, Ranking, rank
from verify.bisect.result import TokenPosition, TopToken
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.tokens import TokenTrack
from verify.formats import decode, get_format

if TYPE_CHECKING:
    from verify.reference.tokens import TokenShift

Values = NDArray[np.float64]

GREEDY = "greedy"


@dataclass(slots=True)
class Choice:
    """A position with the measurements that its description does not hold."""

    position: TokenPosition
    shift: TokenShift | None
    against: list[str]
    """Greedy runs whose choice is none of their best logits, in words."""
    tie_rule: bool
    """Both runs' logits tie between both choices, so that the rule for ties made them differ."""
    at_rank: str = ""
    """Sampling among the k best: what ties at rank k, in words."""


class Describer:
    """Describes positions of two runs."""

    def __init__(self, compared: RowComparison) -> None:
        x = self.alignment = compared.alignment
        self.tracks: dict[str, TokenTrack] = x.a.dump.tokens()
        workloads = (x.a.dump.manifest.workload, x.b.dump.manifest.workload)
        self.texts = {**workloads[1].token_text, **workloads[0].token_text}
        self.sampling = [workload.sampling for workload in workloads]

    def describe(
        self, sequence: str, position: int, ids: tuple[int, int], at: int | None
    ) -> Choice:
        """``at``: row of the logits in the alignment; None where they were not compared."""
        sides = None if at is None else self._read(at)
        nothing = Ranking([], [], math.nan)
        a, b = (rank(s.values, s.fmt) for s in sides) if sides else (nothing, nothing)
        track = self.tracks.get(sequence)
        found = TokenPosition(
            sequence=sequence,
            position=position,
            index=position - (track.first_choice if track else -1),
            a=self._candidates(a),
            b=self._candidates(b),
            chosen_a=ids[0],
            chosen_b=ids[1],
            margin_a=a.margin,
            margin_b=b.margin,
            margin_a_steps=a.margin_steps,
            margin_b_steps=b.margin_steps,
            tie_a=a.tie,
            tie_b=b.tie,
            logit_shift=_shift(sides[0].values, sides[1].values) if sides else math.nan,
            pair_shift=_pair_shift(sides[0].values, sides[1].values, ids, a) if sides else math.nan,
            same_context=True,
        )
        if sides is None:
            return Choice(found, None, [], False)
        shift = measure_shift(*sides)
        if ids[0] == ids[1]:
            return Choice(found, shift, [], False)
        tied = all(set(ids) <= logits.best for logits in sides)
        return Choice(found, shift, self._against(sides, ids), tied, self._at_rank(sides[0]))

    def _read(self, at: int) -> tuple[Logits, Logits] | None:
        x = self.alignment
        a = _logits(x.a, x.rows_a[at : at + 1])
        b = _logits(x.b, x.rows_b[at : at + 1])
        return None if a is None or b is None else (a, b)

    def _candidates(self, ranking: Ranking) -> list[TopToken]:
        return [
            TopToken(id=token, text=self.texts.get(str(token), ""), logit=logit)
            for token, logit in zip(ranking.ids, ranking.logits, strict=True)
        ]

    def _against(self, sides: tuple[Logits, Logits], ids: tuple[int, int]) -> list[str]:
        return [
            f"{name} chose id {token}, whose logit is {logits.below_best(token):.6g} below its best"
            for name, logits, token, sampling in zip("AB", sides, ids, self.sampling, strict=True)
            if sampling.get("kind") == GREEDY and 0.0 < logits.below_best(token) < np.inf
        ]

    def _at_rank(self, logits: Logits) -> str:
        """Whether candidates tie at the last rank of a top-k choice, so that rules differ."""
        ranks = {s.get("top_k") for s in self.sampling}
        k = next(iter(ranks)) if len(ranks) == 1 else None
        usable = np.sort(logits.values[~np.isnan(logits.values)])
        if not isinstance(k, int) or not 0 < k < len(usable) or usable[-k] != usable[-k - 1]:
            return ""
        kept = int((usable >= usable[-k]).sum())
        return (
            f"{kept} candidates reach the logit of rank {k}: a filter that keeps ties samples from "
            f"{kept}, one that keeps exactly top_k from {k}"
        )


def kept_in_full(index: RowIndex, entries: NDArray[np.int64]) -> bool:
    """Whether the words of these rows are in the dump."""
    return bool(index.full[index.record[entries]].all())


def _logits(index: RowIndex, entry: NDArray[np.int64]) -> Logits | None:
    if not kept_in_full(index, entry):
        return None
    fmt = get_format(index.records[int(index.record[entry[0]])].dtype)
    values = decode(read_entries(index, entry), fmt)[0]
    return Logits(np.asarray(values, np.float64), fmt) if fmt.kind == "float" else None


def _pair_shift(a: Values, b: Values, ids: tuple[int, int], ranking: Ranking) -> float:
    """(b[x] - b[y]) - (a[x] - a[y]); y is A's runner-up where the choices agree."""
    x, y = ids
    if x == y:
        others = [token for token in ranking.ids if token != x]
        y = others[0] if others else x
    if not (0 <= x < len(a) and 0 <= y < len(a)):
        return math.nan
    with np.errstate(invalid="ignore"):  # infinite logits have no shift
        return float((b[x] - b[y]) - (a[x] - a[y]))


def _shift(a: Values, b: Values) -> float:
    """max |b - a|; infinite where one side alone is NaN or infinite."""
    with np.errstate(invalid="ignore"):
        size = np.abs(b - a)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    size = np.where(same, 0.0, np.where(np.isnan(size), math.inf, size))
    return float(size.max(initial=0.0))
