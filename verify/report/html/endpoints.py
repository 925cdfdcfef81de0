"""The page and the files of an endpoint comparison."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from verify.endpoints.result import (
    Check,
    EndpointComparison,
    PairCheck,
    ReferenceCheck,
    SassCheck,
    SpeedCheck,
    State,
    TensorDifference,
)
from verify.report.endpoints_words import (
    ENDPOINTS_EXIT,
    STATE_MEANING,
    check_name,
    headline,
    short_cases,
)
from verify.report.html.endpoint_tables import (
    bits_table,
    certificates_table,
    endpoints_table,
    errors_table,
    relations_table,
    sass_blocks,
    speed_table,
)
from verify.report.html.figures import PageFigure, figure
from verify.report.html.markup import Child, Markup, join, tag
from verify.report.html.page import document
from verify.report.html.tables import bullets, code, definitions, folded, section
from verify.report.json import to_json
from verify.report.numbers import count, measure, plural
from verify.report.place import prepare, write_file

_TITLES = {
    "trouble": "What did not pass",
    "endpoints": "Endpoints",
    "bits": "Bits",
    "errors": "Errors against FP64",
    "relations": "Relations",
    "certificates": "Certificates",
    "speed": "Time",
    "sass": "Machine code",
    "reproduce": "Reproduce",
}
_NOTES = {
    "endpoint-floor": "1 is the error of rounding the exact answer once.",
    "endpoint-errors": "The vertical line is half a ULP, the most that one rounding can add.",
    "endpoint-ulps": "Bins are octaves; the equal share stands in the legend.",
    "endpoint-speed": "Below 1 the endpoint is faster than the base.",
}


def write_endpoints(
    result: EndpointComparison, directory: str | Path, formats: tuple[str, ...] = ("png",)
) -> Path:
    """Write endpoints.html, endpoints.json and the figures; give back the path of the page.

    Args:
        directory: new, empty, or holding an earlier report of this package, which is replaced.
        formats: of the figure files (png, svg, pdf); the page has its own copies inside.

    Raises:
        ArgumentError: an unknown figure format.
        UsageError: the directory holds something else.
        StorageError: the disk did not take a file.
    """
    from verify.report.plots import checked_formats, inline_svg, save_plot
    from verify.report.plots.endpoints import draw_endpoint_plots

    wanted = checked_formats(formats)
    target = prepare(directory)
    write_file(target / "endpoints.json", to_json(result))  # first: it marks the directory as ours
    figures = []
    for plot in draw_endpoint_plots(result):
        save_plot(plot, target, wanted)
        figures.append(PageFigure(plot.name, plot.title, plot.alt, inline_svg(plot)))
    page = target / "endpoints.html"
    write_file(page, render_endpoints_page(result, figures).encode())
    return page


def render_endpoints_page(result: EndpointComparison, figures: Sequence[PageFigure]) -> str:
    """The whole page as text. ``figures`` come from verify.report.plots.endpoints."""
    shown = {found.name: figure(found, _NOTES[found.name]) for found in figures}
    parts = {
        "trouble": _trouble(result),
        "endpoints": endpoints_table(result),
        "bits": [bits_table(result), shown.get("endpoint-ulps")],
        "errors": [shown.get("endpoint-floor"), shown.get("endpoint-errors"), errors_table(result)],
        "relations": relations_table(result),
        "certificates": certificates_table(result),
        "speed": [shown.get("endpoint-speed"), speed_table(result)],
        "sass": sass_blocks(result.sass),
        "reproduce": _reproduce(result),
    }
    filled = {name: part for name, part in parts.items() if join([part])}
    body = join(section(name, _TITLES[name], part) for name, part in filled.items())
    title = f"{headline(result)} · {result.spec}"
    header = _header(result, [(name, _TITLES[name]) for name in filled])
    return document(title, Markup(header + tag("main", body, id="main")))


def _header(result: EndpointComparison, links: Sequence[tuple[str, str]]) -> Markup:
    word, _, rest = headline(result).partition(": ")
    signs = {0: ("✓", "good"), 1: ("✗", "bad"), 3: ("–", "open")}
    sign, tone = signs[result.exit_code]
    mark = tag("strong", tag("span", sign, aria_hidden="true"), " ", word)
    badge = tag("p", mark, tag("span", rest), class_=f"verdict {tone}")
    exit_text = f"exit code {result.exit_code}: {ENDPOINTS_EXIT[result.exit_code]}"
    return tag(
        "header",
        tag("p", "verify endpoints", class_="kicker"),
        badge,
        tag("h1", result.summary),
        tag("p", "Spec ", code(result.spec)),
        _common(result),
        _facts(result),
        tag("p", exit_text, class_="exit"),
        tag(
            "nav",
            tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, title in links]),
            aria_label="Sections",
        ),
    )


def _common(result: EndpointComparison) -> Markup | None:
    common, _ = short_cases(result.cases)
    return tag("p", "All cases: ", common) if common else None


def _facts(result: EndpointComparison) -> Markup:
    pairs = [c for c in result.checks if isinstance(c, PairCheck)]
    equal = sum(pair.state is State.PASSED for pair in pairs)
    errors = [
        (tensor.over_floor, check.endpoint)
        for check in result.checks
        if isinstance(check, ReferenceCheck)
        for tensor in check.tensors
    ]
    worst = max(errors, default=None)
    facts = [
        ("pairs with equal bits", f"{count(equal)} of {count(len(pairs))}", ""),
        (
            "largest error over floor",
            measure(worst[0]) if worst else "-",
            worst[1] if worst else "no reference",
        ),
        ("cases", count(len(result.cases)), plural(len(result.endpoints), "endpoint")),
        ("device", result.device, f"{measure(result.seconds)} s"),
    ]
    cards = [
        tag("li", tag("span", name, class_="name"), tag("strong", value), tag("small", note))
        for name, value, note in facts
    ]
    return tag("ul", cards, class_="facts")


def _trouble(result: EndpointComparison) -> Child:
    """One block a state, the worst first; short lists are open."""
    blocks: list[Child] = []
    _, short = short_cases(result.cases)
    for state in (State.FAILED, State.DIFFERENT, State.NOT_RUN, State.EXPLAINED):
        found = result.of(state)
        if not found:
            continue
        items = [
            [tag("strong", check_name(check, short)), ": ", check.reason, *_where(check)]
            for check in found
        ]
        title = f"{str(state).capitalize()}: {count(len(found))}"
        meaning = tag("p", f"{STATE_MEANING[state].capitalize()}.")
        many = len(found) > 12
        rest = folded(f"{len(found) - 12} more", bullets(items[12:])) if many else None
        blocks.append(tag("article", tag("h3", title), meaning, bullets(items[:12]), rest))
    return blocks


def _where(check: Check | SpeedCheck | SassCheck) -> list[Child]:
    tensors = [t for t in getattr(check, "tensors", []) if isinstance(t, TensorDifference)]
    return [tag("span", f". Where: {t.support}.") for t in tensors if t.support]


def _reproduce(result: EndpointComparison) -> Child:
    settings = {k: v for k, v in result.environment.items() if isinstance(v, str | int) and v}
    return [
        tag("pre", code(shlex.join(result.command)), tabindex=0),
        tag(
            "p",
            "Every number of this page stands in ",
            tag("a", "endpoints.json", href="endpoints.json"),
            " beside it.",
        ),
        definitions((name, str(value)) for name, value in settings.items()),
    ]
