"""A report never overwrites what is not a report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verify.errors import StorageError, UsageError
from verify.report.place import check, is_figure, prepare, write_file

OURS = '{"schema": "verify-bisect/1", "verdict": "IDENTICAL"}'


def _fill(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_a_new_folder_and_an_empty_one_are_taken(tmp_path: Path) -> None:
    assert check(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()  # a check writes nothing
    assert prepare(tmp_path / "a" / "b").is_dir()
    assert prepare(tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(
    "files",
    [
        {"notes_txt": "mine"},
        {"heatmap_png": "a picture of somebody's"},
        {"report_html": "<html>"},
        {"report_json": "[]"},
        {"report_json": "not JSON"},
        {"report_json": '{"schema": "something-else/1"}'},
    ],
)
def test_what_is_not_a_report_stays(tmp_path: Path, files: dict[str, str]) -> None:
    folder = _fill(tmp_path / "x", **files)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UsageError, match="holds something that is not a report"):
        prepare(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_an_earlier_report_is_replaced_and_what_lies_beside_it_stays(tmp_path: Path) -> None:
    folder = _fill(tmp_path / "x", report_json=OURS, heatmap_png="old", notes_txt="mine")
    (folder / "heatmap-2.svg").write_text("old")
    prepare(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "report.json"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="needs a directory"):
        prepare(tmp_path / "x")


def test_a_full_disk_is_told_and_leaves_nothing_half(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    target = tmp_path / "report.html"
    target.write_text("the report before")
    (tmp_path / ".report.html.tmp").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="cannot be written"):
        write_file(target, b"x" * 100_000)
    assert target.read_text() == "the report before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("name", "ours"),
    [("heatmap.png", True), ("heatmap-12.pdf", True), ("growth-depth.svg", True),
     ("heatmap-.png", False), ("heatmap-a.png", False), ("heatmap.jpg", False),
     ("my-heatmap.png", False), ("report.json", False)],
)  # fmt: skip
def test_names_of_figures(name: str, ours: bool) -> None:
    assert is_figure(Path(name)) is ours
