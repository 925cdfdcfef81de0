"""Captures of some steps and rows: what they keep is what a whole capture keeps there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.dump_reading import input_names, record_of, row_table
from tests.support.plain_models import Steps, TinyDecoder
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.compare import exit_codes
from verify.compare.run import compare
from verify.dumps import capture
from verify.dumps.format import Dump, open_dump
from verify.dumps.overview import overview
from verify.dumps.window import Spans, Window, spans_of
from verify.errors import ArgumentError

IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
TAPS = ["*.out", "*.in.0", "*.attn.in.*", "*.attn.out", "logits"]


def run(path: Path, *, model: Any = None, stale: int | None = None, **options: Any) -> Dump:
    """Prefill of three tokens, then one at a time. ``stale``: before this step somebody writes over
    the keys of position 0 in the first layer."""
    model = model or TinyDecoder()
    with torch.no_grad(), capture(model, path, **{"taps": TAPS, **options}):
        _, caches = model(IDS[:, :3])
        for step, column in enumerate((3, 4, 5), 1):
            if step == stale:
                caches[0][0][:, :, 0] += 1
            _, caches = model(IDS[:, column : column + 1], caches)
    return open_dump(path)


@pytest.mark.parametrize("edges", ["trace", "identity"])
@pytest.mark.parametrize("stale", [None, 1, 2])
def test_rows_of_a_window_are_those_of_the_whole(
    tmp_path: Path, edges: str, stale: int | None
) -> None:
    whole = row_table(run(tmp_path / "whole", edges=edges, stale=stale))
    dump = run(tmp_path / "window", edges=edges, stale=stale, steps="2:4")
    window = row_table(dump)
    assert {key: whole[key] for key in window} == window
    assert {r.step for r in dump.records() if r.tap != "tokens.in"} == {2, 3}
    assert {r.step for r in dump.records() if r.tap == "tokens.in"} == {0, 1, 2, 3}
    inside = {r.tap for r in dump.records() if r.step == 2}
    assert inside == {r.tap for r in open_dump(tmp_path / "whole").records() if r.step == 2}


def test_keys_of_earlier_steps_are_listed_where_the_window_reads_them(tmp_path: Path) -> None:
    dump = run(tmp_path / "run", steps="2,3")
    keys = record_of(dump, "layers.0.attn.attn.in.k", step=2)
    assert sorted(set(dump.rows(keys).position.tolist())) == [0, 1, 2, 3, 4] and keys.carried == 0
    after = record_of(dump, "layers.0.attn.attn.in.k", step=3)
    assert set(dump.rows(after).position.tolist()) == {5} and after.carried == 10


def test_what_was_computed_before_the_window_is_a_value(tmp_path: Path) -> None:
    dump = run(tmp_path / "run", steps="2")
    found = input_names(dump, record_of(dump, "layers.0.attn.attn.in.k", step=2))
    assert found == {"layers.0.attn.qkv.out", "value float32[2, 2, 4, 8]"}


def test_steps_between_two_windows_are_forgotten(tmp_path: Path) -> None:
    """Keys that were written to between two windows come with the digest that they have now."""
    clean = run(tmp_path / "clean", steps="1,3")
    stale = run(tmp_path / "stale", steps="1,3", stale=2)
    tap = "layers.0.attn.attn.in.k"
    values = [
        {i.digest for i in record_of(dump, tap, step=3).inputs if i.kind == "value"}
        for dump in (clean, stale)
    ]
    assert values[0] and values[1] and values[0] != values[1]


def test_tensors_without_a_position_keep_their_count(tmp_path: Path) -> None:
    model = Steps(lambda self, x: self.second(self.first(x.mean((0, 1)))))

    def visits(name: str, **options: Any) -> list[tuple[int, int]]:
        with capture(model, tmp_path / name, taps=["*.out"], **options):
            for _ in range(4):
                model(torch.randn(1, 3, 4))
        dump = open_dump(tmp_path / name)
        records = [r for r in dump.records() if r.tap == "first.out"]
        return [(r.step, int(dump.rows(r).visit[0])) for r in records]

    assert visits("whole") == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert visits("window", steps="1,3") == [(1, 1), (3, 3)]
    assert visits("lean", steps="1,3", edges="none", level="hash") == [(1, 1), (3, 3)]


def test_lean_window(tmp_path: Path) -> None:
    options = {"edges": "none", "level": "hash", "taps": ["*.out"]}
    whole, window = run(tmp_path / "a", **options), run(tmp_path / "b", steps="1:3", **options)
    assert {r.step for r in window.records() if r.tap != "tokens.in"} == {1, 2}
    expected = {(r.step, r.tap): whole.rows(r).digest.tolist() for r in whole.records()}
    for record in window.records():
        assert window.rows(record).digest.tolist() == expected[record.step, record.tap]


def test_rows_at_chosen_positions(tmp_path: Path) -> None:
    whole = row_table(run(tmp_path / "whole"))
    dump = run(tmp_path / "window", rows="1:3,5")
    window = row_table(dump)
    assert {key: whole[key] for key in window} == window
    positions = {
        (r.tap, p) for r in dump.records() for p in dump.rows(r).position.tolist()
        if "s" not in r.axes.split() and r.tap not in ("tokens.in", "embed.in.0")  # which are the ids
    }  # fmt: skip
    assert {p for _, p in positions} == {1, 2, 5}
    keys = record_of(dump, "layers.0.attn.attn.in.k")
    assert set(dump.rows(keys).position.tolist()) == {0, 1, 2}
    with pytest.raises(ArgumentError, match="a window of rows needs edges"):
        run(tmp_path / "lean", rows="1:3", edges="none", level="hash")


@pytest.mark.parametrize("window", [{"steps": "1"}, {"rows": "0:2"}, {"steps": "2:"}])
def test_a_window_is_never_the_whole(tmp_path: Path, window: dict[str, str]) -> None:
    a, b = run(tmp_path / "a", **window), run(tmp_path / "b", **window)
    result = bisect(a, b)
    assert (result.verdict, result.exit_code) == (Verdict.INCOMPLETE, exit_codes.INCOMPLETE)
    said = f"A holds a window of its run ({Window.of(a.manifest.capture)})"
    assert any(said in reason for finding in result.findings for reason in finding.reasons)
    assert exit_codes.of_comparison(compare(a, b)) == exit_codes.INCOMPLETE
    assert overview(a).window == str(Window.of(a.manifest.capture))


def test_difference_outside_of_the_window_is_not_called_equal(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a", steps="1"), run(tmp_path / "b", steps="1", stale=2)
    assert bisect(a, b).verdict is Verdict.INCOMPLETE
    whole = bisect(run(tmp_path / "c"), run(tmp_path / "d", stale=2))
    assert whole.verdict is not Verdict.IDENTICAL


def _other_first_position(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Position 0 differs from run to run, and every row reads the rows before it."""
    mixed = self.first(x)
    mixed[:, 0] += _other_first_position.added  # type: ignore[attr-defined]
    return self.second(mixed.cumsum(1))


def test_rows_left_out_are_nobodys_proof(tmp_path: Path) -> None:
    model = Steps(lambda self, x: _other_first_position(self, x))
    x = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(1))

    def recorded(name: str, added: float, **options: Any) -> Dump:
        _other_first_position.added = added  # type: ignore[attr-defined]
        taps = {"taps": ["first.out", "second.in.0", "second.out"]}
        with torch.no_grad(), capture(model, tmp_path / name, **taps, **options):
            model(x)
        return open_dump(tmp_path / name)

    whole = bisect(recorded("a", 0.0), recorded("b", 1.0))
    assert [(o.tap, o.proven) for o in whole.origins] == [("second.in.0", True)]
    # Row 2 of first.out is equal in both, and yet row 2 of second.in.0 is no origin: it reads row 0.
    part = bisect(recorded("c", 0.0, rows="2:4"), recorded("d", 1.0, rows="2:4"))
    assert [(o.tap, o.proven) for o in part.origins] == [("second.in.0", False)]
    front = bisect(recorded("e", 0.0, rows="0:2"), recorded("f", 1.0, rows="0:2"))
    assert [(o.tap, o.proven) for o in front.origins] == [("second.in.0", True)]


def test_two_values_of_one_shape_are_both_compared(tmp_path: Path) -> None:
    model = Steps(lambda self, x: self.second(self.first(x) + self.one + self.two))

    def recorded(name: str, one: float) -> Dump:
        model.one, model.two = torch.full((4,), one), torch.ones(4)
        with torch.no_grad(), capture(model, tmp_path / name, taps=["*.out", "second.in.0"]):
            model(torch.ones(1, 2, 4))
        return open_dump(tmp_path / name)

    origins = bisect(recorded("a", 1.0), recorded("b", 2.0)).origins
    assert [(o.tap, o.proven) for o in origins] == [("second.in.0", False)]


def test_taps_of_the_default_selection_within_a_glob(tmp_path: Path) -> None:
    dump = run(tmp_path / "run", taps=["default:layers.1.*"])
    taps = {r.tap for r in dump.records()} - {"tokens.in"}
    assert taps and all(tap.startswith("layers.1.") for tap in taps)
    everything = {r.tap for r in run(tmp_path / "all", taps=None).records()}
    assert taps == {tap for tap in everything if tap.startswith("layers.1.")}


@pytest.mark.parametrize(
    ("text", "spelled", "inside", "outside"),
    [
        ("0:3,7", "0:3,7", [0, 2, 7], [3, 6, 8]),
        ("5:", "5:", [5, 900], [0, 4]),
        ("7, 3:5,4:8", "3:8", [3, 7], [2, 8]),
        ("2:4,3:", "2:", [2, 99], [1]),
    ],
)
def test_spans(text: str, spelled: str, inside: list[int], outside: list[int]) -> None:
    spans = Spans.parse(text, "steps")
    assert str(spans) == spelled
    assert all(n in spans for n in inside) and not any(n in spans for n in outside)


@pytest.mark.parametrize("text", ["", "a", "3:3", "5:2", "-1", ":4", "1,,2", "1:2:3"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="span"):
        Spans.parse(text, "steps")


@pytest.mark.parametrize("window", ["0:3", [1], {"steps": "x"}, {"rows": 1.5}])
def test_manifest_that_names_no_window_is_refused(window: object) -> None:
    with pytest.raises(ArgumentError):
        Window.of({"window": window})


def test_spans_of_numbers() -> None:
    assert str(spans_of([4, 2, 3, 9])) == "2:5,9"
    assert spans_of([0, 1]).first_missing == 2 and spans_of([3]).first_missing == 0
    assert Spans.parse("0:", "rows").first_missing is None
