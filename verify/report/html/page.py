"""The page as a whole: which sections, in which order, under which security policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from verify.bisect.result import BisectResult
from verify.report.html.compared import (
    confounders_section,
    left_out_section,
    reproduce_section,
    taps_section,
)
from verify.report.html.figures import (
    READOUT_CELLS,
    PageFigure,
    cell_count,
    depth_table,
    figure,
    heatmap_figure,
    heatmap_table,
)
from verify.report.html.head import findings_section, page_header, settle_section
from verify.report.html.markup import Child, Markup, join, tag
from verify.report.html.origins import origins_section
from verify.report.html.tables import section
from verify.report.html.tokens import tokens_section
from verify.report.numbers import plural

_LINKS = (
    ("why", "Why"),
    ("tokens", "Tokens"),
    ("origins", "Origins"),
    ("growth", "Growth"),
    ("heatmap", "Heatmap"),
    ("distributions", "Distributions"),
    ("confounders", "What else differs"),
    ("left-out", "Not compared"),
    ("settle", "What would settle it"),
    ("taps", "Every tap"),
    ("reproduce", "Reproduce"),
)
_NOTES = {
    "token-margins": "A token flips where the shift reaches A's margin.",
    "growth-depth": "The dashed line is the unit roundoff of the dtype: the relative size of one "
    "rounding.",
    "growth-positions": "Over the residual stream.",
    "ulp-distribution": "Bins are octaves; the equal share stands in the legend.",
    "relative-distribution": "The equal share stands in the legend.",
    "distribution-by-tap": "One line is one tap; the first column is its equal share.",
}


def render_page(result: BisectResult, figures: Sequence[PageFigure]) -> str:
    """The whole page as text. ``figures`` come from verify.report.plots, in any order."""
    by_name = {found.name: found for found in figures}
    sections = [
        part
        for part in (
            findings_section(result),
            tokens_section(result, _shown(by_name, "token-margins")),
            origins_section(result),
            _growth(result, by_name),
            _heatmaps(result, by_name),
            _distributions(by_name),
            confounders_section(result),
            left_out_section(result),
            settle_section(result),
            taps_section(result),
            reproduce_section(result),
        )
        if part is not None
    ]
    body = join(sections)
    links = [(name, title) for name, title in _LINKS if f'<section id="{name}"' in body]
    title = f"{result.verdict}: {result.comparison.a} against {result.comparison.b}"
    return document(title, Markup(page_header(result, links) + tag("main", body, id="main")))


def _shown(by_name: dict[str, PageFigure], *names: str) -> list[Markup]:
    return [figure(by_name[name], _NOTES[name]) for name in names if name in by_name]


def _growth(result: BisectResult, by_name: dict[str, PageFigure]) -> Markup | None:
    shown = _shown(by_name, "growth-depth", "growth-positions")
    if not shown:
        return None
    return section("growth", "Growth", shown, depth_table(result))


def _heatmaps(result: BisectResult, by_name: dict[str, PageFigure]) -> Markup | None:
    parts: list[Child] = []
    drawn = cells = 0
    for number, heatmap in enumerate(result.heatmap, 1):
        found = by_name.get("heatmap" if number == 1 else f"heatmap-{number}")
        if found is not None:
            cells += cell_count(heatmap)
            readable = cells <= READOUT_CELLS
            parts += [heatmap_figure(found, heatmap, readable), heatmap_table(heatmap)]
            drawn += 1
    if not parts:
        return None
    hidden = len(result.heatmap) - drawn
    if hidden:
        parts.append(tag("p", f"{plural(hidden, 'further sequence')}: see report.json."))
    return section("heatmap", "Layer by position", parts)


def _distributions(by_name: dict[str, PageFigure]) -> Markup | None:
    shown = _shown(by_name, "ulp-distribution", "relative-distribution", "distribution-by-tap")
    return section("distributions", "Distributions", shown) if shown else None


def document(title: str, body: Markup) -> str:
    """A page with the look and the security policy of every report."""
    style, script = _asset("page.css"), _asset("page.js")
    # No request can leave the page, and no script but ours can run, whatever a dump contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    skip = tag("a", "Skip to the report", href="#main", class_="skip")
    page = tag("html", head, tag("body", skip, body, tag("script", script)), lang="en")
    return f"<!doctype html>\n{page}\n"


def _asset(name: str) -> Markup:
    return Markup(resources.files(__package__).joinpath(name).read_text("utf-8"))
