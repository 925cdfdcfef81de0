"""The renderings of an endpoint comparison: golden text, JSON and schema, page, figures."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.report.support.endpoint_cases import ENDPOINT_CASES, HOSTILE, troubled
from tests.report.support.golden import check
from tests.report.support.pages import outline, parse
from tests.report.support.schemas import violations
from verify.endpoints.result import EndpointComparison
from verify.errors import UsageError
from verify.report.endpoints_words import headline
from verify.report.html.endpoints import render_endpoints_page, write_endpoints
from verify.report.html.figures import PageFigure
from verify.report.json import endpoints_schema, from_json, to_json
from verify.report.place import is_figure
from verify.report.plots.endpoints import draw_endpoint_plots
from verify.report.read_endpoints import read_endpoints
from verify.report.terminal.endpoints import render_endpoints
from verify.report.write_schema import schema_text

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "endpoints.schema.json"
FIGURES = {
    "equal": ["endpoint-floor", "endpoint-errors"],
    "explained": ["endpoint-ulps"],
    "incomplete": [],
    "troubled": ["endpoint-floor", "endpoint-errors", "endpoint-ulps", "endpoint-speed"],
}


def _text(result: EndpointComparison, width: int = 80) -> str:
    out = io.StringIO()
    render_endpoints(result, Console(file=out, width=width, color_system=None))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("name", ENDPOINT_CASES)
def test_terminal_golden(name: str) -> None:
    check(f"{name}.endpoints.txt", _text(ENDPOINT_CASES[name]()))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_console_and_nothing_steers_it(width: int) -> None:
    text = _text(troubled(), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text and "\u202e" not in text


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        ("equal", "EQUAL: 1 case, bit for bit", 0),
        ("explained", "EXPLAINED: bits differ, and declared rounding explains every difference", 0),
        ("incomplete", "INCOMPLETE: 2 checks could not be run", 3),
        ("troubled", "FAILED: ", 1),
    ],
)
def test_headline_and_exit_code(name: str, said: str, code: int) -> None:
    result = ENDPOINT_CASES[name]()
    assert headline(result).startswith(said) and result.exit_code == code


@pytest.mark.parametrize("name", ENDPOINT_CASES)
def test_json_round_trip_without_nan_or_infinity(name: str) -> None:
    data = to_json(ENDPOINT_CASES[name]())
    json.loads(data, parse_constant=pytest.fail)
    assert to_json(from_json(data, EndpointComparison)) == data


@pytest.mark.parametrize("name", ENDPOINT_CASES)
def test_json_follows_the_published_schema(name: str) -> None:
    schema = endpoints_schema()
    assert not violations(json.loads(to_json(ENDPOINT_CASES[name]())), schema, schema)


def test_the_published_schema_is_current() -> None:
    # python -m verify.report.write_schema docs/endpoints.schema.json
    assert PUBLISHED.read_text("utf-8") == schema_text(PUBLISHED.name)


@pytest.mark.parametrize("name", ENDPOINT_CASES)
def test_page_golden(name: str) -> None:
    figures = [
        PageFigure(n, f"Title of {n}", f"Alt of {n}.", "<svg ></svg>") for n in FIGURES[name]
    ]
    page = parse(render_endpoints_page(ENDPOINT_CASES[name](), figures))
    check(f"{name}.endpoints.html.txt", "\n".join(outline(page)) + "\n")


def test_a_page_holds_no_markup_of_a_spec(tmp_path: Path) -> None:
    page = write_endpoints(troubled(), tmp_path / "out").read_text("utf-8")
    assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page
    assert page.count("http://") == page.count('xmlns="http://') + page.count('xlink="http://')


@pytest.mark.parametrize("name", ENDPOINT_CASES)
def test_figures_of_a_result(name: str) -> None:
    plots = list(draw_endpoint_plots(ENDPOINT_CASES[name]()))
    assert [plot.name for plot in plots] == FIGURES[name]
    for plot in plots:
        assert plot.alt and plot.title and is_figure(Path(f"{plot.name}.pdf"))
        drawn = [axes for axes in plot.figure.axes if axes.axison]
        assert all(axes.get_xlabel() for axes in drawn)


def test_marks_of_the_floor_figure_stand_for_the_errors() -> None:
    result = ENDPOINT_CASES["equal"]()
    plot = next(draw_endpoint_plots(result))
    (axes,) = plot.figure.axes
    marks = [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() in "os"]
    wanted = [c.tensors[0].over_floor for c in result.checks if hasattr(c, "limit")]
    assert marks == wanted == [1.0, 1.0]


def test_everything_is_in_one_folder_and_is_read_back(tmp_path: Path) -> None:
    result = troubled()
    write_endpoints(result, tmp_path / "out", ("svg", "pdf"))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"endpoints.html", "endpoints.json", "endpoint-floor.svg", "endpoint-speed.pdf"} <= names
    ET.parse(tmp_path / "out" / "endpoint-errors.svg")
    assert to_json(read_endpoints(tmp_path / "out")) == to_json(result)
    assert read_endpoints(tmp_path / "out" / "endpoints.json").spec == HOSTILE


def test_a_second_report_replaces_the_first_and_its_figures(tmp_path: Path) -> None:
    write_endpoints(troubled(), tmp_path)
    write_endpoints(ENDPOINT_CASES["incomplete"](), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["endpoints.html", "endpoints.json"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(UsageError, match="not a report"):
        write_endpoints(ENDPOINT_CASES["equal"](), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no result"),
        ("{}", "not a result"),
        ("nonsense", "not a result"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "endpoints.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_endpoints(tmp_path)


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    data = to_json(ENDPOINT_CASES["equal"]()).replace(b"verify-endpoints/1", b"verify-endpoints/9")
    (tmp_path / "endpoints.json").write_bytes(data)
    with pytest.raises(UsageError, match="another version"):
        read_endpoints(tmp_path)
