"""The page: golden structure, nothing from outside, nothing that a dump could inject."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.report.support.cases import CASES, HOSTILE, SMALL, large
from tests.report.support.golden import check
from tests.report.support.pages import Element, outline, parse
from verify.bisect.result import BisectResult
from verify.errors import UsageError
from verify.report.html import render_page, write_report
from verify.report.html.figures import READOUT_CELLS, PageFigure
from verify.report.html.markup import Markup, join, tag
from verify.report.json import from_json

FRAME = (0.1, 0.1, 0.8, 0.8)
NAMES = (
    "token-margins", "growth-depth", "growth-positions", "heatmap", "ulp-distribution",
    "relative-distribution", "distribution-by-tap",
)  # fmt: skip


def _page(result: BisectResult) -> Element:
    """The page with stand-ins for its figures."""
    figures = [PageFigure(n, f"Title of {n}", f"Alt of {n}.", "<svg ></svg>", FRAME) for n in NAMES]
    return parse(render_page(result, figures))


@pytest.mark.parametrize("name", SMALL)
def test_golden_structure(name: str) -> None:
    check(f"{name}.html.txt", "\n".join(outline(_page(SMALL[name]()))) + "\n")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole report of the hostile case, figures included."""
    return write_report(CASES["hostile"](), tmp_path_factory.mktemp("report"))


def test_everything_is_in_one_folder(written: Path) -> None:
    names = {path.name for path in written.parent.iterdir()}
    assert {"report.html", "report.json", "heatmap.png"} <= names
    assert not [name for name in names if name.startswith(".")]
    back = from_json((written.parent / "report.json").read_bytes(), BisectResult)
    assert back.summary == HOSTILE


def test_no_text_of_a_dump_becomes_markup(written: Path) -> None:
    page = written.read_text("utf-8")
    assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page
    root = parse(page)
    kinds = Counter(element.attributes.get("type") for element in root.find("script"))
    assert kinds == {"application/json": 1, None: 1}
    handlers = [a for e in root.walk() for a in e.attributes if a.startswith("on")]
    assert handlers == []
    assert root.find("h1")[0].text == r'<script>alert("x")</script>[bold]&\x1b[31m\u202e\n'


def test_only_our_script_may_run_and_nothing_may_be_loaded(written: Path) -> None:
    root = parse(written.read_text("utf-8"))
    policy = next(
        e.attributes["content"] or "" for e in root.find("meta")
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    )  # fmt: skip
    ours = next(e for e in root.find("script") if "type" not in e.attributes)
    digest = base64.b64encode(hashlib.sha256(ours.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    targets = [
        value or "" for e in root.walk() for name, value in e.attributes.items()
        if name in ("src", "href", "xlink:href", "action", "data")
    ]  # fmt: skip
    assert {t for t in targets if not t.startswith(("#", "data:image/png;"))} == {"report.json"}
    style = "".join(e.text for e in root.find("style"))
    assert "@import" not in style and not re.search(r"url\((?!#)", written.read_text("utf-8"))


def test_the_structure_is_what_assistive_software_needs(written: Path) -> None:
    root = parse(written.read_text("utf-8"))
    ids = [e.attributes["id"] for e in root.walk() if "id" in e.attributes]
    assert [name for name, times in Counter(ids).items() if times > 1] == []
    for table in root.find("table"):
        assert table.find("caption")[0].text
        assert all(e.attributes.get("scope") in ("col", "row") for e in table.find("th"))
        assert all(e.text for e in table.find("th"))
    for text in re.findall(r"<svg .*?</svg>", written.read_text("utf-8"), re.DOTALL):
        ET.fromstring(text)  # well-formed
    for picture in root.find("svg"):
        assert picture.attributes["role"] == "img"
        assert picture.attributes["aria-labelledby"] in ids
    levels = [int(e.name[1]) for e in root.walk() if re.fullmatch("h[1-6]", e.name)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    for link in root.find("a"):
        target = link.attributes["href"] or ""
        assert target == "report.json" or target[1:] in ids
    assert root.find("html")[0].attributes["lang"] == "en"
    assert len(root.find("main")) == len(root.find("header")) == len(root.find("nav")) == 1


def test_light_dark_and_print_are_provided_for(written: Path) -> None:
    style = "".join(e.text for e in parse(written.read_text("utf-8")).find("style"))
    assert "prefers-color-scheme: dark" in style and "@media print" in style
    used = set(re.findall(r"var\((--[a-z0-9-]+)", written.read_text("utf-8")))
    optional = {f"--series-{i}" for i in range(1, 8)}  # these carry their light colour with them
    light = style[: style.index("@media screen")]
    assert used - optional <= set(re.findall(r"(--[a-z0-9-]+):", light))


def test_the_values_under_the_pointer_are_those_of_the_heatmap() -> None:
    result = CASES["hostile"]()
    root = _page(result)
    data = next(e for e in root.find("script") if e.attributes.get("type") == "application/json")
    found = json.loads(data.text)

    for shown, wanted in zip(found["values"], result.heatmap[0].values, strict=True):
        for cell, value in zip(shown, wanted, strict=True):
            if value is None:
                assert cell is None
            elif isinstance(cell, str):
                assert cell in ("inf", "NaN")
            else:
                assert cell == pytest.approx(value, rel=5e-3)  # three digits are kept
    assert found["positions"] == result.heatmap[0].positions


def test_heatmaps_beyond_the_budget_are_pictures_and_tables_only() -> None:
    result = CASES["precision"]()
    cells = result.heatmap[0]
    columns = READOUT_CELLS // len(cells.taps) + 1
    cells.positions = list(range(columns))
    cells.values = [[None] * columns for _ in cells.taps]
    root = _page(result)
    assert [e for e in root.find("script") if "type" in e.attributes] == []
    assert "Heatmap as a table" in root.text


@pytest.mark.parametrize("name", SMALL)
def test_every_number_that_decides_is_on_the_page(name: str) -> None:
    result = SMALL[name]()
    text = _page(result).text
    assert str(result.verdict) in text and f"exit code {result.exit_code}" in text
    if name != "hostile":
        for finding in result.findings:
            assert all(said in text for said in (*finding.reasons, *finding.settle))
        for line in result.not_compared:
            assert line in text
        for other in result.confounders:
            assert other.name in text and other.weight in text


def test_an_incomplete_identical_result_does_not_look_good() -> None:
    badge = [e for e in _page(SMALL["partial"]()).walk() if "verdict" in _classes(e)]
    assert _classes(badge[0]) == {"verdict", "open"}
    badge = [e for e in _page(SMALL["identical"]()).walk() if "verdict" in _classes(e)]
    assert _classes(badge[0]) == {"verdict", "good"}


def _classes(element: Element) -> set[str]:
    return set((element.attributes.get("class") or "").split())


def test_24_layers_and_500_positions_stay_under_5_megabytes(tmp_path: Path) -> None:
    page = write_report(large(), tmp_path / "x", formats=())
    assert page.stat().st_size < 5_000_000
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "report.json"]


def test_a_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    page = write_report(CASES["empty"](), tmp_path / "x")
    before = page.read_bytes()
    assert write_report(CASES["not_comparable"](), tmp_path / "x").read_bytes() != before
    assert write_report(CASES["empty"](), tmp_path / "x").read_bytes() == before


def test_a_foreign_folder_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(UsageError, match="not a report"):
        write_report(CASES["empty"](), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_markup_is_escaped_where_it_enters() -> None:
    assert tag("p", "<b>&\"'") == "<p>&lt;b&gt;&amp;&quot;&#x27;</p>"
    assert tag("p", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;"></p>'
    assert tag("p", tag("b", "x"), None, ["y", Markup("<br>")]) == "<p><b>x</b>y<br></p>"
    assert tag("input", type="search", hidden=True, value=None) == '<input type="search" hidden>'
    assert tag("p", class_="a", aria_label="b") == '<p class="a" aria-label="b"></p>'
    assert join(["a", "<"]) == "a&lt;"
