"""The tables of the page of an endpoint comparison."""

from __future__ import annotations

from collections.abc import Sequence

from verify.endpoints.result import (
    CertificateCheck,
    EndpointComparison,
    PairCheck,
    ReferenceCheck,
    RelationCheck,
    RunCheck,
    SassCheck,
)
from verify.report.endpoints_words import (
    relation_states,
    route_names,
    sass_text,
    short_cases,
    speed_interval,
)
from verify.report.html.markup import Child, Markup, tag
from verify.report.html.tables import bullets, code, table
from verify.report.numbers import count, measure, ulps


def endpoints_table(result: EndpointComparison) -> Markup:
    rows = [
        (
            fact.name,
            "base" if number == 0 else "",
            route_names(
                [c for c in result.checks if isinstance(c, RunCheck) and c.endpoint == fact.name],
                fact,
            ),
        )
        for number, fact in enumerate(result.endpoints)
    ]
    return table("Endpoints", (("Endpoint", False), ("Role", False), ("Route", False)), rows)


def bits_table(result: EndpointComparison) -> Child:
    _, short = short_cases(result.cases)
    columns = (
        ("Case", False), ("Against", False), ("Result", False), ("Elements that differ", True),
        ("Largest difference", True), ("Relative L2", True), ("Median ULP", True),
        ("Largest ULP", True), ("Where", False),
    )  # fmt: skip
    rows = [
        (
            _with(short[pair.case], t.name), _keep(pair.b), str(pair.state),
            f"{count(t.differing_elements)} of {count(t.elements)}", measure(t.max_abs),
            measure(t.relative_l2), ulps(t.ulp_median), ulps(t.ulp_max), t.support or "-",
        )
        for pair in result.checks
        if isinstance(pair, PairCheck)
        for t in pair.tensors
    ]  # fmt: skip
    base = result.endpoints[0].name
    return table(f"Outputs against those of {base}", columns, rows) if rows else None


def errors_table(result: EndpointComparison) -> Child:
    _, short = short_cases(result.cases)
    columns = (
        ("Case", False), ("Endpoint", False), ("Relative L2", True), ("Floor", True),
        ("Error / floor", True), ("Limit", True), ("Largest error", True), ("In ULP", True),
    )  # fmt: skip
    rows = [
        (
            _with(short[check.case], t.name), _keep(check.endpoint),
            measure(t.relative_l2), measure(t.floor),
            measure(t.over_floor), measure(check.limit), measure(t.max_abs), measure(t.max_ulp),
        )
        for check in result.checks
        if isinstance(check, ReferenceCheck)
        for t in check.tensors
    ]  # fmt: skip
    return table("Errors against float64", columns, rows) if rows else None


def relations_table(result: EndpointComparison) -> Child:
    checks = [c for c in result.checks if isinstance(c, RelationCheck)]
    columns = (("Relation", False), ("Endpoint", False), ("Declared", False), ("Cases", False))
    return table("Relations", columns, relation_states(checks)) if checks else None


def certificates_table(result: EndpointComparison) -> Child:
    _, short = short_cases(result.cases)
    columns = (
        ("Case", False), ("Endpoint", False), ("Outcome", False), ("Rows judged", True),
        ("Declared arithmetic", False), ("Reasons", False),
    )  # fmt: skip
    rows = [
        (
            short[check.case], _keep(check.endpoint), _keep(check.outcome or check.reason[:60]),
            "all" if check.rows_judged in (None, check.rows)
            else f"{count(check.rows_judged)} of {count(check.rows)}",
            check.arithmetic, "; ".join(check.reasons) or "none",
        )
        for check in result.checks
        if isinstance(check, CertificateCheck)
    ]  # fmt: skip
    return table("Certificates", columns, rows) if rows else None


def speed_table(result: EndpointComparison) -> Child:
    _, short = short_cases(result.cases)
    columns = (
        ("Case", False), ("Endpoint", False), ("ms", True), ("Base, ms", True), ("Ratio", True),
        ("95 % interval", True), ("Pairs", True), ("Input sets", True), ("Clock", False),
        ("Note", False),
    )  # fmt: skip
    rows = [
        (
            short[check.case], _keep(check.b),
            measure(check.b_ms), measure(check.a_ms), f"{check.ratio:.3f}",
            speed_interval(check), count(check.pairs), count(check.input_sets), check.clock,
            check.reason,
        )
        for check in result.speed
    ]  # fmt: skip
    return table("Times, paired A B B A", columns, rows) if rows else None


def sass_blocks(sass: Sequence[SassCheck]) -> Child:
    return [
        tag("article", tag("h3", check.endpoint), bullets([code(t) for t in sass_text(check)]))
        for check in sass
    ]


def _keep(name: str) -> Markup:
    """A name that is not broken over lines."""
    return tag("span", name, class_="keep")


def _with(case: str, name: str) -> str:
    return f"{case} · {name}" if name else case
