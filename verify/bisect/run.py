"""From two dumps to a verdict: validity, tokens, origins, growth, findings (docs/verdicts.md)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from verify.bisect import advice, remainder, statements, token_findings
from verify.bisect.artefacts import (
    Artefact,
    find_artefacts,
    misled,
    set_apart,
    state_artefacts,
    state_misled,
)
from verify.bisect.both_not_finite import state_both_not_finite
from verify.bisect.causal import is_causal
from verify.bisect.causes import known_causes
from verify.bisect.confounders import declared_formats, find_confounders
from verify.bisect.coverage import fold_unmatched, state_incomplete
from verify.bisect.evidence import Evidence, examine
from verify.bisect.fronts import Front, find_nonfinite_fronts
from verify.bisect.growth import by_position, growth, heatmaps
from verify.bisect.local import CHECKERS, Checker, LocalFinding, Op, check, check_all
from verify.bisect.local_findings import state_local
from verify.bisect.of_ranks import say_ranks, state_disagreements
from verify.bisect.origins import Origins, Place, find_origins
from verify.bisect.padding import find_padding_fronts, state_padding
from verify.bisect.refused import not_comparable, nothing_compared
from verify.bisect.result import BisectResult, Confounder, Finding, Verdict
from verify.bisect.size import SIZE_CHECKERS
from verify.bisect.statements import Judged
from verify.bisect.summary import summarise
from verify.bisect.taps import TOKENS
from verify.bisect.tokens import TokenReport, compare_tokens
from verify.bisect.validity import check_capture, check_workloads
from verify.bisect.verdict import SEVERITY, exit_code, say_accepted, worst
from verify.compare.run import RowComparison, compare_rows
from verify.dumps.format import Dump
from verify.env import say_changes

_ROUNDING = Verdict.ROUNDING

_MAX_PLACES = 64
"""Origins that are looked at word by word; the rest is counted."""


def bisect(
    a: Dump,
    b: Dump,
    *,
    accept: Sequence[Verdict] = (),
    fail_on_flip: bool = False,
    command: Sequence[str] = (),
    checkers: Sequence[Checker] = (),
    executor: Executor | None = None,
) -> BisectResult:
    """Find where run B parts from run A, and what that is.

    Args:
        accept: verdicts that do not fail the run.
        fail_on_flip: a flipped token fails the run even if every difference is explained.
        command: the command line, for the report.
        checkers: checks of single operations, asked before those that come with the package.
        executor: compares the tensors (:func:`verify.compare.run.compare`).

    Raises:
        CorruptDumpError: a dump is not what was stored.
    """
    confounders = find_confounders(a, b)
    if findings := check_workloads(a, b):
        return not_comparable(findings, confounders, nothing_compared(a, b), command)
    compared = compare_rows(a, b, executor=executor)
    if findings := check_capture(compared):
        return not_comparable(findings, confounders, compared.comparison, command)
    artefacts = find_artefacts(compared)
    set_apart(compared, artefacts)
    return _Bisect(compared, confounders, [*checkers, *CHECKERS], artefacts).run(
        accept, fail_on_flip, list(command)
    )


@dataclass(slots=True)
class _Begins:
    """Everything at which a difference begins."""

    proven: list[Judged]
    open: list[Evidence]
    by_weights: list[Evidence]
    fronts: list[Front]
    """Those that are no origins."""
    found: Origins


class _Bisect:
    def __init__(
        self,
        compared: RowComparison,
        confounders: list[Confounder],
        checkers: list[Checker],
        artefacts: list[Artefact],
    ) -> None:
        self.artefacts = artefacts
        self.misled = misled(compared, artefacts)
        self.padding = find_padding_fronts(compared)
        self.victims = {tap for front in self.padding for tap in front.victims}
        self.compared = compared
        self.confounders = confounders
        self.checkers = checkers
        self.declared = declared_formats(confounders)
        self.a, self.b = compared.alignment.a.dump, compared.alignment.b.dump

    def run(
        self, accept: Sequence[Verdict], fail_on_flip: bool, command: list[str]
    ) -> BisectResult:
        tokens = compare_tokens(self.compared)
        begins = self._find()
        findings = self._findings(begins, tokens)
        say_ranks(self.compared, findings)
        say_accepted(findings, accept)
        comparison = self.compared.comparison
        evidence = [*(j.evidence for j in begins.proven), *begins.open, *begins.by_weights]
        origins = sorted((e.origin for e in evidence), key=lambda o: o.order)
        flipped = tokens.first is not None
        return BisectResult(
            verdict=worst(findings),
            summary=summarise(self.compared, findings, tokens, origins),
            findings=findings,
            confounders=self.confounders,
            first_token=tokens.first,
            tokens=tokens.positions,
            origins=origins,
            growth=growth(comparison),
            positions=by_position(self.compared),
            heatmap=heatmaps(self.compared),
            comparison=comparison,
            not_compared=[
                *comparison.notes,
                *fold_unmatched(comparison.unmatched),
                *tokens.notes,
            ],
            exit_code=exit_code(findings, accept, fails_on_flip=fail_on_flip and flipped),
            command=command,
            flips=tokens.flips,
            changed_at_once=say_changes(self.confounders),
        )

    def _find(self) -> _Begins:
        causal = is_causal(self.compared.alignment.a) and is_causal(self.compared.alignment.b)
        found = find_origins(self.compared, causal)
        fronts = {f.place.tap: f for f in find_nonfinite_fronts(self.compared)}
        found.proven = [place for place in found.proven if place.tap not in self.victims]
        proven = [self._judge(p, fronts) for p in found.proven[:_MAX_PLACES]]
        at_origins = {judged.evidence.origin.tap for judged in proven}
        return _Begins(
            proven,
            [examine(self.compared, p, proven=False) for p in found.open[:_MAX_PLACES]],
            [examine(self.compared, p, proven=False) for p in found.by_weights[:_MAX_PLACES]],
            [f for tap, f in fronts.items() if tap not in at_origins | self.victims],
            found,
        )

    def _judge(self, place: Place, fronts: dict[str, Front]) -> Judged:
        evidence = examine(self.compared, place, proven=True)
        local = self._check(place, inputs_equal=True)
        cast, setting = statements.declared_cast(evidence.casts, self.declared)
        causes = known_causes(self.compared, place, self.confounders)
        return Judged(evidence, local, fronts.get(place.tap), cast, setting, causes)

    def _check(self, place: Place, *, inputs_equal: bool) -> LocalFinding | None:
        if place.tap in self.victims:
            return None  # what it read besides the compared rows is not finite
        checkers = [*self.checkers, *(SIZE_CHECKERS if inputs_equal else [])]
        return check(Op(self.compared, place, inputs_equal), checkers)

    def _findings(self, begins: _Begins, tokens: TokenReport) -> list[Finding]:
        comparison = self.compared.comparison
        judged = {j.evidence.origin.tap for j in begins.proven}
        judged |= {each.tap for each in self.artefacts} | self.victims
        others = [f for f in check_all(self.compared, self.checkers) if f.tap not in judged]
        judged |= {found.tap for found in others}
        wrong = [f.tap for f in others if f.tap in self.misled and f.verdict is not _ROUNDING]
        others = [found for found in others if found.tap not in wrong]
        checked = len(others)
        findings = [
            *self._of_places(begins, others, judged),
            *state_disagreements(self.a, self.b),
            *state_artefacts(self.artefacts),
            *state_misled(wrong),
            *map(state_padding, self.padding),
            *state_both_not_finite(self.compared),
            *self._of_weights(begins.by_weights),
            *token_findings.state_after_logits(tokens),
            *remainder.state_formats(comparison, self.declared),
            *remainder.state_unchecked(
                comparison, judged | set(TOKENS), checked, replayed=bool(self.checkers)
            ),
            *state_incomplete(self.compared),
        ]
        findings += token_findings.state_lead(tokens, _open_taps(findings))
        if self.checkers:
            advice.drop_replay(findings)
        advice.spell_commands(findings, self.a, self.b, parted=bool(self.compared.parted))
        return sorted(findings, key=lambda f: -SEVERITY.index(f.verdict))

    def _of_places(
        self, begins: _Begins, others: list[LocalFinding], judged: set[str]
    ) -> list[Finding]:
        """Origins, what checkers say elsewhere, fronts, and first observations."""
        accused = {found.tap for found in others if found.verdict is Verdict.DEFECT}
        fronts = {front.place.tap: front for front in begins.fronts}
        origins, others = statements.state_origins(
            [j for j in begins.proven if not _is_token(j.evidence)], others
        )
        return [
            *origins,
            *state_local(others, {tap: fronts[tap] for tap in fronts if tap in accused}),
            *(statements.state_front(fronts[tap]) for tap in fronts if tap not in accused),
            *(statements.state_open(e) for e in begins.open if e.origin.tap not in judged),
        ]

    def _of_weights(self, begins: list[Evidence]) -> list[Finding]:
        casts = [cast for evidence in begins[:1] for cast in evidence.casts]
        setting = statements.declared_cast(casts, self.declared)[1]
        return remainder.state_weights(self.a, self.b, begins, setting)


def _open_taps(findings: list[Finding]) -> list[str]:
    """Taps with a difference that is not explained, or that is a defect."""
    explained = (Verdict.ROUNDING, Verdict.PRECISION, Verdict.INCOMPLETE, Verdict.NOT_COMPARABLE)
    return [tap for f in findings if f.verdict not in explained for tap in f.taps]


def _is_token(evidence: Evidence) -> bool:
    return evidence.origin.tap in TOKENS
