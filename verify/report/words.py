"""Sentences that the terminal and the HTML report share: one wording for one fact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from verify.bisect.result import (
    BisectResult,
    Confounder,
    Finding,
    Origin,
    TokenPosition,
    Verdict,
)
from verify.compare import exit_codes
from verify.compare.result import Comparison, RowRef, TapComparison, Unmatched
from verify.compare.stand_ins import BY
from verify.report.names import printable, quoted, shorten
from verify.report.numbers import anything, count, measure, plural, size

VERDICT_MEANING: dict[Verdict, str] = {
    Verdict.IDENTICAL: "every compared bit is equal",
    Verdict.ROUNDING: "every difference is within its rounding budget",
    Verdict.INCOMPLETE: "nothing is unexplained, but not everything could be compared",
    Verdict.NOT_COMPARABLE: "what was recorded cannot be compared",
    Verdict.UNRESOLVED: "a difference that is not explained",
    Verdict.NON_REPEATABLE: "a run does not repeat itself",
    Verdict.POST_LOGITS: "equal logits, different tokens",
    Verdict.PRECISION: "a declared rounding convention differs",
    Verdict.OVERFLOW: "values left the range of their format",
    Verdict.DEFECT: "a difference that rounding does not explain",
}

EXIT_MEANING: dict[int, str] = {
    0: "no difference, or every difference is explained",
    1: "a difference was found that is not explained as rounding",
    2: "the comparison could not be carried out",
    3: "no difference was found, but the comparison is incomplete or impossible",
}

_CLOSENESS = {
    "exact tie": "an exact tie",
    "near tie": "a near tie (margin up to 3 sigma)",
    "unlikely": "a margin of 3 to 6 sigma",
    "beyond rounding": "a margin above 6 sigma",
}

WEIGHTS = ("declared", "likely", "possible", "unlikely")


def exit_text(code: int) -> str:
    meaning = EXIT_MEANING.get(code)
    return f"exit code {code}" + (f": {meaning}" if meaning else "")


def comparison_headline(result: Comparison) -> str:
    """What a comparison found, in a few words; never "equal" where something was left out."""
    differing = sum(not tap.equal for tap in result.taps)
    if differing:
        return f"DIFFERENT: {differing} of {plural(len(result.taps), 'tap')} differ"
    if not result.rows:
        return "NOTHING COMPARED: the two runs have no row in common"
    if exit_codes.of_comparison(result) == exit_codes.INCOMPLETE:
        return "EQUAL WHERE COMPARED, but the comparison is incomplete"
    return f"EQUAL: {plural(len(result.taps), 'tap')}, {plural(result.rows, 'row')}, bit for bit"


def completeness(result: Comparison) -> list[str]:
    """Which of the two dumps are partial, and which hold a window of their run."""
    sides = (("A", result.complete_a), ("B", result.complete_b))
    windows = (("A", result.window_a), ("B", result.window_b))
    return [
        *(
            f"{side} is a partial dump: only its finished parts were compared"
            for side, complete in sides
            if not complete
        ),
        *(
            f"{side} holds a window of its run ({window}): nothing outside of it was compared"
            for side, window in windows
            if window
        ),
    ]


def row_text(row: RowRef | None) -> str:
    """Where a row stands in either run, and its first differing element."""
    if row is None:
        return "-"
    where = f"position {row.position}" if row.position >= 0 else "the whole tensor"
    parts = [f"sequence {printable(row.sequence)}"] if row.sequence else []
    parts += [where, f"step A {row.step_a}, B {row.step_b}"]
    if row.visit:
        parts.append(f"visit {row.visit}")
    if row.element is not None:
        parts.append(f"element {count(row.element)}")
    return ", ".join(parts)


def token_text(token: TokenPosition, chosen: int) -> str:
    """Text of a chosen id as far as the candidates show it, for example ``" sky"``."""
    for candidate in (*token.a, *token.b):
        if candidate.id == chosen and candidate.text:
            return quoted(candidate.text)
    return f"id {chosen}"


def token_headline(result: BisectResult) -> str:
    """One sentence on the first differing token, also where there is none."""
    token = result.first_token
    if token is None:
        if not result.tokens:
            return "No token choice was compared."
        return f"All {plural(len(result.tokens), 'compared token')} are equal."
    return (
        f"Generated token {token.index} of sequence {printable(token.sequence)}, chosen at position"
        f" {token.position}, is the first that differs."
    )


def token_reasons(token: TokenPosition) -> list[str]:
    """Why the choice changed at this position, as far as the margins say it."""
    rival = "B's choice" if token.chosen_a != token.chosen_b else "the next best"
    margin = f"{measure(token.margin_a)} ({measure(token.margin_a_steps)} logit steps)"
    said = [
        f"A's choice moved by {measure(token.pair_shift)} against {rival}; A's margin is {margin}.",
        f"The largest shift of any logit is {measure(token.logit_shift)}.",
    ]
    if token.closeness and token.flip_chance is not None:
        said.append(
            f"That is {_CLOSENESS[token.closeness]}: rounding of this size flips it with a chance of "
            f"{measure(token.flip_chance)}."
        )
    ties = [side for side, tie in (("A", token.tie_a), ("B", token.tie_b)) if tie]
    if ties:
        said.append(
            f"Exact tie in {' and '.join(ties)}: the two best logits are equal, so the rule that breaks"
            " ties decides, not the numbers."
        )
    said.append(
        "All tokens before it are equal, so the difference is numeric."
        if token.same_context
        else "Tokens before it differ, so this may only be a consequence of them."
    )
    return said


def flip_lines(result: BisectResult) -> list[str]:
    """Expected against observed flips, and how near the choices were; empty without logits that
    moved."""
    flips = result.flips
    if flips is None or not flips.sigma:
        return []
    counted = (
        f"{plural(flips.observed, 'flip')} in {plural(flips.positions, 'choice')}; "
        f"{measure(flips.expected)} expected from how far the logits moved "
        f"(sigma {measure(flips.sigma)}; chance of as many or more {measure(flips.p_more)})."
    )
    kinds = filter(None, (_kind_line(result, kind) for kind in _CLOSENESS))
    left = f"{plural(flips.left_out, 'choice')} left out: no logits to compare."
    return [counted, *kinds, *([left] if flips.left_out else [])]


def _kind_line(result: BisectResult, kind: str) -> str:
    """How many choices were as near as that; wide margins only where one of them flipped."""
    of_kind = [token for token in result.tokens if token.closeness == kind]
    flipped = sum(token.chosen_a != token.chosen_b for token in of_kind)
    if not flipped and (not of_kind or kind not in ("exact tie", "near tie")):
        return ""
    return f"{plural(len(of_kind), 'choice')} with {_CLOSENESS[kind]}, of which {flipped} flipped."


def size_text(finding: Finding) -> str:
    """What the taps of a finding add themselves, as a range with its ends named; empty for one."""
    if len(finding.sizes) < 2:
        return ""
    ends = sorted(finding.sizes, key=lambda tap: finding.sizes[tap])
    short = shorten([ends[0], ends[-1]], 34)
    least, most = (f"{measure(finding.sizes[tap])} ({short[tap]})" for tap in (ends[0], ends[-1]))
    return f"{least} to {most}, relative L2 that each adds"


def origin_status(origin: Origin) -> str:
    if origin.proven:
        return "origin: it differs while every recorded input is equal"
    return "first observed here: an input was not recorded, so the cause may lie before it"


def attribute_rows(origin: Origin) -> list[tuple[str, str, str, bool]]:
    """Name, value in A, value in B, and whether they differ; the differing ones first."""
    names = dict.fromkeys((*origin.attributes_a, *origin.attributes_b))
    rows = []
    for name in names:
        a = _attribute(origin.attributes_a, name)
        b = _attribute(origin.attributes_b, name)
        rows.append((printable(name), a, b, a != b))
    return sorted(rows, key=lambda row: not row[3])


def interval_lines(origin: Origin) -> list[str]:
    """The operations of the interval: one chain, or one line a run where they differ."""
    steps = [printable(step) for step in origin.interval]
    if steps and all(step.startswith(("A: ", "B: ")) for step in steps):
        return steps
    return [" → ".join(steps)] if steps else []


def ordered(confounders: Iterable[Confounder]) -> list[Confounder]:
    """The most suspicious first; what the user set out to compare leads."""
    place = {weight: i for i, weight in enumerate(WEIGHTS)}
    return sorted(confounders, key=lambda each: place.get(each.weight, len(WEIGHTS)))


def unmatched_text(item: Unmatched) -> str:
    if item.reason.startswith(BY):
        return f"{plural(item.rows, 'row')}, the first of {printable(item.tap)}: {item.reason}"
    return (
        f"only in {item.side.upper()}: {printable(item.tap)}, {plural(item.rows, 'row')}"
        f" ({printable(item.reason)}; for example {printable(item.example)})"
    )


def first_difference(result: Comparison) -> TapComparison | None:
    """The differing tap whose first differing row ran first in A."""
    differing = [tap for tap in result.taps if not tap.equal]
    return min(
        differing,
        key=lambda tap: (math.inf if tap.first is None else tap.first.step_a, tap.order),
        default=None,
    )


def dtype_text(tap: TapComparison) -> str:
    return tap.dtype_a if tap.dtype_a == tap.dtype_b else f"{tap.dtype_a} against {tap.dtype_b}"


def oddities(tap: TapComparison) -> list[str]:
    """Differences that no error measure covers: NaN, infinities, the sign of zero."""
    said = []
    if tap.nonfinite_mismatches:
        many = plural(tap.nonfinite_mismatches, "element")
        said.append(f"NaN or infinity on one side only: {many}")
    if tap.signed_zero_only:
        said.append(f"differ only in the sign of zero: {plural(tap.signed_zero_only, 'element')}")
    if tap.nan_payload_only:
        said.append(f"NaN on both sides, other bits: {plural(tap.nan_payload_only, 'element')}")
    if tap.digest_rows:
        said.append(f"compared by digest, no words kept: {plural(tap.digest_rows, 'row')}")
    return said


def throughput(result: Comparison) -> str:
    """Rows and bytes compared, and how fast."""
    text = f"{plural(result.rows, 'row')} and {size(result.bytes_read)} read"
    if result.seconds > 0:
        rate = size(round(result.bytes_read / result.seconds))
        text += f" in {measure(result.seconds)} s ({rate}/s)"
    return text


def left_out(result: Comparison, said: Iterable[str] = ()) -> list[str]:
    """Everything that was not compared, one line each, without repeats.

    Args:
        said: the same in the words of a bisect, which folds what stands alone.
    """
    lines = completeness(result)
    lines += [printable(line) for line in said] or [unmatched_text(u) for u in result.unmatched]
    if result.padding_rows:
        lines.append(f"{plural(result.padding_rows, 'padding row')}, which never count")
    return list(dict.fromkeys(lines))


def left_out_or_nothing(result: BisectResult) -> list[str]:
    """What was not compared, or that nothing was left out; never an empty list."""
    lines = left_out(result.comparison, result.not_compared)
    if lines:
        return lines
    if not result.comparison.rows:
        return ["Everything: no row of the two runs was compared."]
    return ["Nothing: every row of either run has its counterpart."]


def no_origin_text(result: BisectResult) -> str:
    return "No tap differs." if result.comparison.rows else "No tap was compared."


def to_settle(result: BisectResult) -> list[str]:
    """What would decide the open questions, over all findings, each once."""
    return list(dict.fromkeys(step for finding in result.findings for step in finding.settle))


def pairs(numbers: Mapping[str, float | int | str | None]) -> list[tuple[str, str]]:
    """Names and formatted values of a free-form field of numbers."""
    return [(printable(name), printable(anything(value))) for name, value in numbers.items()]


def _attribute(attributes: dict[str, object], name: str) -> str:
    return printable(anything(attributes[name])) if name in attributes else "not recorded"
