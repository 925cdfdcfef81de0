"""`verify inspect` on a terminal: golden outputs at 80 columns, and the grouping of layers."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tests.dumps.format.small_dumps import write_dump
from tests.report.support.golden import check
from verify.dumps.format import open_dump
from verify.dumps.overview import Overview, TapView, overview
from verify.dumps.tensor_numbers import numbers
from verify.report.inspect_text import group_layers, render_numbers, render_overview, shape_text


def shown(render: object, *args: object, width: int = 80, **options: object) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    render(*args, console, **options)  # type: ignore[operator]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


@pytest.fixture
def view(tmp_path: Path) -> Overview:
    found = overview(open_dump(write_dump(tmp_path / "run")), check=True)
    found.path, found.total_bytes = "runs/toy", 12_345  # Parquet's size depends on its version
    found.settings = {"dtype": "fp32", "batch": None, "source": {"file": "a.gguf", "parts": [1, 2]}}
    found.command = ["verify", "capture", "--out", "runs/toy"]
    return found


def test_overview_of_a_whole_dump(view: Overview) -> None:
    check("inspect.txt", shown(render_overview, view))


def test_overview_of_a_partial_and_empty_dump(tmp_path: Path) -> None:
    found = overview(open_dump(write_dump(tmp_path / "run", steps=0, close=False)))
    found.path, found.total_bytes = "runs/toy", 321
    check("inspect.empty.txt", shown(render_overview, found))


def test_numbers(tmp_path: Path) -> None:
    dump = open_dump(write_dump(tmp_path / "run"))
    found = [numbers(dump, record) for record in dump.records()[:3]]
    check("inspect.numbers.txt", shown(render_numbers, found, left_out=6))


def test_texts_of_a_dump_cannot_steer_the_terminal(view: Overview) -> None:
    evil = "\x1b[2J\u202e[red]"
    view.problems, view.model, view.path, view.settings = [evil], evil, evil, {evil: evil}
    view.sequences[0].id = view.sequences[0].prompt_text = evil
    view.taps[0].tap = view.taps[0].dtypes[0] = view.taps[0].axes = evil
    view.taps[0].kept = {evil: 1}
    text = shown(render_overview, view)
    assert "\x1b" not in text and "\u202e" not in text and "[red]" in text


def tap(name: str, **fields: object) -> TapView:
    known: dict[str, object] = {
        "axes": "b t d",
        "dtypes": ["float32"],
        "shapes": [[1, 4, 8]],
        "kept": {"full": 2},
        "records": 2,
        "rows": 8,
        "row_length": 8,
        "word_bytes": 256,
    }
    return msgspec.convert({**known, **fields, "tap": name}, TapView)


def test_only_layers_that_agree_are_put_together() -> None:
    taps = [
        tap("m.layers.0.mlp.out"),
        tap("m.layers.1.mlp.out"),
        tap("m.layers.2.mlp.out", shapes=[[1, 4, 9]]),  # another shape stands alone
        tap("m.layers.0.mlp.out.1"),  # the number of a port is no layer
        tap("m.layers.0.norm.in.0"),
        tap("m.layers.0.norm.in.1"),
    ]
    assert [(name, len(members)) for name, members in group_layers(taps)] == [
        ("m.layers.*.mlp.out", 2),
        ("m.layers.2.mlp.out", 1),
        ("m.layers.0.mlp.out.1", 1),
        ("m.layers.0.norm.in.0", 1),
        ("m.layers.0.norm.in.1", 1),
    ]


def test_shapes_name_their_axes() -> None:
    assert shape_text("b t d", [[1, 46, 8], [1, 1, 8]]) == "b1 t1-46 d8"
    assert shape_text("", [[]]) == "scalar"
    assert shape_text("b t", [[1, 2], [3]]) == "[1, 2] or [3]"
