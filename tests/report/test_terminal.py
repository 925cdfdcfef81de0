"""The terminal report: golden text at 80 columns, and what it never does."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.report.support.cases import CASES, HOSTILE, large
from tests.report.support.golden import check
from tests.report.support.parts import comparison, equal_tap, row, unequal_tap
from verify.report.terminal import render_bisect, render_comparison
from verify.report.terminal.sparkline import sparkline


def _text(render: Callable[..., None], result: Any, width: int = 80, **options: Any) -> str:
    out = io.StringIO()
    render(result, Console(file=out, width=width, color_system=None), **options)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("name", CASES)
def test_bisect_golden(name: str) -> None:
    check(f"{name}.bisect.txt", _text(render_bisect, CASES[name]()))


@pytest.mark.parametrize("name", CASES)
def test_comparison_golden(name: str) -> None:
    check(f"{name}.compare.txt", _text(render_comparison, CASES[name]().comparison))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", CASES)
def test_no_line_is_wider_than_the_console(name: str, width: int) -> None:
    result = CASES[name]()
    text = _text(render_bisect, result, width) + _text(render_comparison, result.comparison, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_colour_carries_nothing() -> None:
    result, out = CASES["precision"](), io.StringIO()
    render_bisect(
        result, Console(file=out, width=80, force_terminal=True, color_system="truecolor")
    )
    assert "\x1b[1m" in out.getvalue()  # bold, to show that styles were on
    assert not [code for code in ("\x1b[3", "\x1b[9") if code in out.getvalue()]


def test_control_characters_never_reach_the_terminal() -> None:
    result = CASES["hostile"]()
    text = _text(render_bisect, result) + _text(render_comparison, result.comparison)
    assert "\x1b" not in text and "\u202e" not in text
    assert r"\x1b[31m\u202e\n" in text
    assert "[bold]" in text  # not taken for console markup
    assert HOSTILE not in text


def test_the_verdict_leads_and_the_exit_code_ends() -> None:
    lines = _text(render_bisect, CASES["precision"]()).splitlines()
    assert lines[0].startswith("PRECISION")
    assert lines[-1].startswith("exit code 1")


def test_a_first_token_whose_choice_is_equal_in_both_runs_is_not_called_a_flip() -> None:
    text = _text(render_bisect, CASES["identical"]())
    assert "All 8 compared tokens are equal." in text


def test_every_tap_is_listed_on_request() -> None:
    compared = CASES["precision"]().comparison
    short, whole = (_text(render_comparison, compared, every=every) for every in (False, True))
    assert "bit for bit" in short and "differ\n" in short
    lines = [line for line in whole.splitlines() if "54/54" in line or " 0/54" in line]
    assert len(lines) == len(compared.taps)


def test_a_short_list_is_not_cut() -> None:
    taps = [unequal_tap(f"model.layers.{i}.out", i, 1e-3) for i in range(33)]
    assert "…" not in _text(render_comparison, comparison(taps))
    taps.append(unequal_tap("logits", 33, 1e-3))
    assert "… 2 taps, 2 differ" in _text(render_comparison, comparison(taps))


def test_incomplete_is_never_called_equal() -> None:
    taps = [equal_tap("model.layers.0.out", 0)]
    assert _text(render_comparison, comparison(taps)).startswith("EQUAL: 1 tap")
    said = _text(render_comparison, comparison(taps, complete_b=False))
    assert said.startswith("EQUAL WHERE COMPARED") and "B is a partial dump" in said
    assert _text(render_comparison, comparison([])).startswith("NOTHING COMPARED")


def test_large_results_stay_short() -> None:
    assert len(_text(render_bisect, large()).splitlines()) < 120


@pytest.mark.parametrize(
    ("values", "width", "wanted"),
    [
        ([], 10, ""),
        ([0.0, 0.0], 10, "··"),
        ([1e-7, 1e-3, 1e1], 10, "▁▅█"),
        ([0.0, 2.0], 10, "·█"),  # one size only
        ([1.0, float("nan"), float("inf"), 10.0], 10, "▁!!█"),
        ([0.0, 0.0, 0.0, 1.0], 2, "·█"),  # neighbours by their largest
        ([float("nan"), 1.0, 1.0, 1.0], 2, "!█"),
    ],
)
def test_sparkline(values: list[float], width: int, wanted: str) -> None:
    assert sparkline(values, width) == wanted


def test_the_first_difference_is_the_one_that_ran_first() -> None:
    late = unequal_tap("tokens.in", 0, 1.0, first=row(step=2))
    early = unequal_tap("model.layers.0.out", 7, 1e-3, first=row(step=0))
    text = _text(render_comparison, comparison([late, early]))
    assert "ran into ──" in text and " model.layers.0.out\n sequence" in text


def test_what_was_compared_by_digest_is_not_called_nan() -> None:
    tap = unequal_tap("model.layers.0.out", 0, 1e-3)
    tap.digest_rows, tap.max_abs, tap.ulp_max = 54, float("nan"), None
    text = _text(render_comparison, comparison([tap]))
    assert "NaN" not in text
    assert "1 tap compared by digest" in text
    assert "compared by digest, no words kept: 54 rows" in text


def test_rows_of_other_texts_keep_a_comparison_from_being_called_equal() -> None:
    taps = [equal_tap("model.layers.0.out", 0)]
    text = _text(render_comparison, comparison(taps, other_context_rows=3))
    assert text.startswith("EQUAL WHERE COMPARED")
