"""The top of the page: verdict, summary, key facts and the way to the sections."""

from __future__ import annotations

from collections.abc import Iterable

from verify.bisect.result import BisectResult, Verdict
from verify.bisect.taps import layer_of
from verify.report.html.markup import Markup, tag
from verify.report.html.tables import bullets, code, definitions, section
from verify.report.names import shorten
from verify.report.numbers import count, measure, plural
from verify.report.words import (
    VERDICT_MEANING,
    exit_text,
    pairs,
    size_text,
    to_settle,
    token_text,
)

# The sign says the same as the colour, for print and for readers who do not see colours.
_SIGN: dict[Verdict, tuple[str, str]] = {
    Verdict.IDENTICAL: ("✓", "good"),
    Verdict.ROUNDING: ("✓", "good"),
    Verdict.INCOMPLETE: ("–", "open"),
    Verdict.NOT_COMPARABLE: ("–", "open"),
    Verdict.UNRESOLVED: ("?", "open"),
    Verdict.NON_REPEATABLE: ("?", "open"),
    Verdict.POST_LOGITS: ("✗", "bad"),
    Verdict.PRECISION: ("✗", "bad"),
    Verdict.OVERFLOW: ("✗", "bad"),
    Verdict.DEFECT: ("✗", "bad"),
}


def page_header(result: BisectResult, links: Iterable[tuple[str, str]]) -> Markup:
    sign, tone = _SIGN[result.verdict]
    if result.exit_code == 3 and tone == "good":
        sign, tone = "–", "open"  # equal, but something was left out
    badge = tag(
        "p",
        tag("strong", tag("span", sign, aria_hidden="true"), " ", str(result.verdict)),
        tag("span", VERDICT_MEANING[result.verdict]),
        class_=f"verdict {tone}",
    )
    runs = definitions((("A", code(result.comparison.a)), ("B", code(result.comparison.b))))
    return tag(
        "header",
        tag("p", "verify bisect", class_="kicker"),
        badge,
        tag("h1", result.summary),
        tag("div", runs, class_="runs"),
        _facts(result),
        tag("p", exit_text(result.exit_code), class_="exit"),
        tag(
            "nav",
            tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, title in links]),
            aria_label="Sections",
        ),
    )


def _facts(result: BisectResult) -> Markup:
    """Four numbers that a reader looks for first."""
    compared = result.comparison
    differing = sum(not tap.equal for tap in compared.taps)
    token = result.first_token
    facts = [
        ("taps that differ", f"{count(differing)} of {count(len(compared.taps))}", ""),
        ("first difference", *_first(result)),
        (
            "first differing token",
            "none" if token is None else f"number {token.index}",
            plural(len(result.tokens), "choice") + " compared"
            if token is None
            else f"{token_text(token, token.chosen_a)} became {token_text(token, token.chosen_b)}",
        ),
        (
            "margin there" if token else "rows compared",
            f"{measure(token.margin_a_steps)} steps" if token else count(compared.rows),
            f"{measure(token.margin_a)} against a shift of {measure(abs(token.pair_shift))}"
            if token
            else "",
        ),
    ]
    cards = [
        tag("li", tag("span", name, class_="name"), tag("strong", value), tag("small", note))
        for name, value, note in facts
    ]
    return tag("ul", cards, class_="facts")


def _first(result: BisectResult) -> tuple[str, str]:
    if not result.origins:
        return "none", ""
    tap = result.origins[0].tap
    layer = layer_of(tap)
    return (f"layer {layer}" if layer is not None else "outside the layers"), shorten([tap], 34)[
        tap
    ]


def findings_section(result: BisectResult) -> Markup:
    """The verdict's reasons, one article a finding."""
    if not result.findings:
        reasons = tag("p", f"{VERDICT_MEANING[result.verdict].capitalize()}.")
        return section("why", "Why", reasons)
    return section("why", "Why", [_finding(i, result) for i in range(len(result.findings))])


def _finding(index: int, result: BisectResult) -> Markup:
    finding = result.findings[index]
    return tag(
        "article",
        tag("h3", f"{finding.verdict}: {finding.title}"),
        bullets(finding.reasons) if finding.reasons else None,
        definitions(
            (
                ("Where", finding.support),
                ("Taps", [[code(tap), " "] for tap in finding.taps[:12]]),
                ("More taps", _more(len(finding.taps) - 12)),
                ("Sizes", size_text(finding)),
                *pairs(finding.numbers),
            )
        ),
    )


def _more(hidden: int) -> str:
    return f"{hidden} more in report.json" if hidden > 0 else ""


def settle_section(result: BisectResult) -> Markup | None:
    steps = to_settle(result)
    return section("settle", "What would settle it", bullets(steps)) if steps else None
