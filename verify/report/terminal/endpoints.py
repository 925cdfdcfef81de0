"""The report of ``verify endpoints``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console

from verify.endpoints.result import (
    CertificateCheck,
    EndpointComparison,
    PairCheck,
    ReferenceCheck,
    RelationCheck,
    RunCheck,
    SassCheck,
    SpeedCheck,
    State,
    TensorDifference,
)
from verify.report.endpoints_words import (
    ENDPOINTS_EXIT,
    check_name,
    headline,
    pair_sizes,
    relation_states,
    route_names,
    sass_text,
    short_cases,
    speed_interval,
)
from verify.report.names import printable, shorten
from verify.report.numbers import count, measure, plural
from verify.report.terminal.blocks import Justify, heading, labelled, line, table

TROUBLE_SHOWN = 12
PAIRS_SHOWN = 24
NAME_WIDTH, RELATION_WIDTH = 24, 28

_PAIRS: tuple[tuple[str, Justify], ...] = (
    ("case", "left"),
    ("against", "left"),
    ("elements ≠", "right"),
    ("max abs", "right"),
    ("rel L2", "right"),
    ("ULP max", "right"),
)
_ERRORS: tuple[tuple[str, Justify], ...] = (
    ("case", "left"),
    ("endpoint", "left"),
    ("rel L2", "right"),
    ("floor", "right"),
    ("error/floor", "right"),
    ("ULP max", "right"),
)
_SPEED: tuple[tuple[str, Justify], ...] = (
    ("case", "left"),
    ("endpoint", "left"),
    ("ms", "right"),
    ("base ms", "right"),
    ("ratio", "right"),
    ("95 % interval", "right"),
)


def render_endpoints(result: EndpointComparison, console: Console) -> None:
    """Print the verdict, what is wrong, then the tables."""
    line(console, headline(result), "bold")
    line(console, printable(result.summary))
    console.print()
    labelled(console, "spec", printable(result.spec), 0)
    labelled(console, "device", printable(result.device), 0)
    common, short = short_cases(result.cases)
    labelled(console, "all cases", printable(common), 0)
    _render_endpoints(result, console)
    _render_trouble(result, short, console)
    _render_pairs(result, short, console)
    _render_errors(result, short, console)
    _render_relations(result, console)
    _render_certificates(result, short, console)
    _render_speed(result.speed, short, console)
    _render_sass(result.sass, console)
    console.print()
    line(console, f"exit code {result.exit_code}: {ENDPOINTS_EXIT[result.exit_code]}")


def _render_endpoints(result: EndpointComparison, console: Console) -> None:
    heading(console, "Endpoints")
    for number, fact in enumerate(result.endpoints):
        runs = [c for c in result.checks if isinstance(c, RunCheck) and c.endpoint == fact.name]
        base = " (base)" if number == 0 else ""
        line(console, f"{printable(fact.name)}{base}: {printable(route_names(runs, fact))}", "", 1)


def _render_trouble(result: EndpointComparison, short: Mapping[str, str], console: Console) -> None:
    """Everything that did not pass, the worst kind first."""
    for state, title in (
        (State.FAILED, "Failed"),
        (State.DIFFERENT, "Different"),
        (State.NOT_RUN, "Not run"),
        (State.EXPLAINED, "Different, and explained"),
    ):
        found = result.of(state)
        if not found:
            continue
        heading(console, f"{title}: {count(len(found))}")
        for check in found[:TROUBLE_SHOWN]:
            line(console, printable(check_name(check, short)), "bold", 1)
            line(console, printable(check.reason), "", 3)
            for tensor in getattr(check, "tensors", []):
                if isinstance(tensor, TensorDifference) and tensor.support:
                    line(console, printable(f"where: {tensor.support}"), "", 3)
        _more(len(found) - TROUBLE_SHOWN, console)


def _render_pairs(result: EndpointComparison, short: Mapping[str, str], console: Console) -> None:
    pairs = [c for c in result.checks if isinstance(c, PairCheck) and c.tensors]
    if not pairs:
        return
    heading(console, f"Bits against {printable(result.endpoints[0].name)}")
    rows = [
        (_with(short[pair.case], tensor.name), pair.b, *_pair_cells(tensor))
        for pair in pairs
        for tensor in pair.tensors
    ]
    _table(console, _PAIRS, rows)


def _pair_cells(tensor: TensorDifference) -> tuple[str, ...]:
    if tensor.equal:
        return "0", "equal", "equal", "0"
    return (
        count(tensor.differing_elements),
        *(size if tensor.nonfinite_mismatches == 0 else "NaN/inf" for size in pair_sizes(tensor)),
    )


def _render_errors(result: EndpointComparison, short: Mapping[str, str], console: Console) -> None:
    checks = [c for c in result.checks if isinstance(c, ReferenceCheck) and c.tensors]
    if not checks:
        return
    heading(console, "Errors against FP64")
    rows = [
        (
            _with(short[check.case], tensor.name),
            check.endpoint,
            measure(tensor.relative_l2),
            measure(tensor.floor),
            measure(tensor.over_floor),
            measure(tensor.max_ulp),
        )
        for check in checks
        for tensor in check.tensors
    ]
    _table(console, _ERRORS, rows)


def _render_relations(result: EndpointComparison, console: Console) -> None:
    checks = [c for c in result.checks if isinstance(c, RelationCheck)]
    if not checks:
        return
    heading(console, "Relations")
    columns: tuple[tuple[str, Justify], ...] = (
        ("relation", "left"),
        ("endpoint", "left"),
        ("declared", "left"),
        ("cases", "left"),
    )
    rows = [
        (relation, endpoint, declared.split(":")[0], states)
        for relation, endpoint, declared, states in relation_states(checks)
    ]
    _table(console, columns, rows, RELATION_WIDTH)


def _render_certificates(
    result: EndpointComparison, short: Mapping[str, str], console: Console
) -> None:
    checks = [c for c in result.checks if isinstance(c, CertificateCheck)]
    if not checks:
        return
    heading(console, "Certificates")
    columns: tuple[tuple[str, Justify], ...] = (
        ("case", "left"),
        ("endpoint", "left"),
        ("outcome", "left"),
        ("rows", "right"),
        ("declared arithmetic", "left"),
    )
    rows = [
        (
            short[check.case],
            check.endpoint,
            check.outcome or "none",
            "all"
            if check.rows_judged in (None, check.rows)
            else f"{count(check.rows_judged)}/{count(check.rows)}",
            check.arithmetic,
        )
        for check in checks
    ]
    _table(console, columns, rows)


def _render_speed(speed: Sequence[SpeedCheck], short: Mapping[str, str], console: Console) -> None:
    timed = [check for check in speed if check.pairs]
    if not timed:
        return
    heading(console, f"Time ({timed[0].clock}, ABBA, {plural(timed[0].pairs, 'pair')})")
    rows = [
        (
            short[check.case],
            check.b,
            measure(check.b_ms),
            measure(check.a_ms),
            f"{check.ratio:.3f}",
            speed_interval(check),
        )
        for check in timed
    ]
    _table(console, _SPEED, rows)
    warm = [check for check in timed if check.reason]
    if warm:
        line(console, f"{plural(len(warm), 'case')}: {warm[0].reason}", "", 1)


def _render_sass(sass: Sequence[SassCheck], console: Console) -> None:
    if not sass:
        return
    heading(console, "Machine code")
    for check in sass:
        line(console, printable(check_name(check)), "bold", 1)
        for text in sass_text(check):
            line(console, printable(text), "", 3)


def _table(
    console: Console,
    columns: Sequence[tuple[str, Justify]],
    rows: Iterable[Sequence[str]],
    width: int = NAME_WIDTH,
) -> None:
    """A table whose first column is a name, shortened to leave room for the rest."""
    wanted = list(rows)
    shown = wanted[:PAIRS_SHOWN]
    cells = [tuple(map(printable, row)) for row in shown]
    names = shorten((row[0] for row in shown), width)
    table(
        console,
        columns,
        [(names[row[0]], *cell[1:]) for row, cell in zip(shown, cells, strict=True)],
    )
    _more(len(wanted) - len(shown), console)


def _more(hidden: int, console: Console) -> None:
    if hidden > 0:
        line(console, f"… and {hidden} more (endpoints.json lists them all)", "", 1)


def _with(case: str, name: str) -> str:
    return f"{case} · {name}" if name else case
