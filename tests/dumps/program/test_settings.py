"""What environment variables and files may say, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.dumps.program.settings import Settings, read_settings
from verify.errors import ArgumentError

OUT = {"VERIFY_CAPTURE": "/runs/a"}


def test_a_folder_alone_means_the_lean_capture() -> None:
    found = read_settings(OUT)
    assert (found.level, found.edges, found.taps) == ("digest", "none", ())


def test_full_tensors_and_rows_are_traced_unless_said_otherwise() -> None:
    assert read_settings({**OUT, "VERIFY_CAPTURE_LEVEL": "full"}).edges == "trace"
    assert read_settings({**OUT, "VERIFY_CAPTURE_ROWS": "0:3"}).edges == "trace"
    chosen = {**OUT, "VERIFY_CAPTURE_LEVEL": "full", "VERIFY_CAPTURE_EDGES": "identity"}
    assert read_settings(chosen).edges == "identity"


def test_a_file_says_the_same_and_variables_stand_above_it(tmp_path: Path) -> None:
    file = tmp_path / "capture.toml"
    file.write_text(
        'out = "/runs/file"\nedges = "trace"\ntaps = ["default", "*.mlp.out"]\nsteps = [1, 4]\n'
        'byte_budget = "2M"\n[level]\n"*.mlp.out" = "full"\n"*" = "digest"\n'
    )
    found = read_settings({"VERIFY_CAPTURE_CONFIG": str(file), "VERIFY_CAPTURE_STEPS": "7"})
    assert found == Settings(
        out=Path("/runs/file"),
        edges="trace",
        taps=("default", "*.mlp.out"),
        steps="7",
        byte_budget=2_000_000,
        level={"*.mlp.out": "full", "*": "digest"},
    )
    assert read_settings({"VERIFY_CAPTURE_CONFIG": str(file)}).steps == "1,4"


def test_variables_come_back_as_settings() -> None:
    given = Settings(
        out=Path("/runs/b"),
        level="full",
        edges="identity",
        taps=("default", "x.*"),
        steps="0:3,7",
        rows="0:9",
        byte_budget=5,
        model="Llama*",
    )
    assert read_settings(given.variables()) == given


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"VERIFY_CAPTURE_LEVLE": "full"}, "an unknown variable"),
        ({"VERIFY_CAPTURE_LEVEL": "all"}, "this level cannot be had"),
        ({"VERIFY_CAPTURE_LEVEL": "hash", "VERIFY_CAPTURE_EDGES": "trace"}, "cannot be had"),
        ({"VERIFY_CAPTURE_LEVEL": "full", "VERIFY_CAPTURE_EDGES": "none"}, "cannot be had"),
        ({"VERIFY_CAPTURE_EDGES": "traced"}, "unknown edges"),
        ({"VERIFY_CAPTURE_STEPS": "3-5"}, "not a list of spans"),
        ({"VERIFY_CAPTURE_ROWS": "5:5"}, "an empty span"),
        ({"VERIFY_CAPTURE_ROWS": "0:5", "VERIFY_CAPTURE_EDGES": "none"}, "rows needs edges"),
        ({"VERIFY_CAPTURE_BYTE_BUDGET": "much"}, "not a number of bytes"),
        ({"VERIFY_CAPTURE_CONFIG": "/no/such/file.toml"}, "cannot be read as TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused(variables: dict[str, str], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        read_settings({**OUT, **variables})


@pytest.mark.parametrize(
    ("text", "said"), [("levle = 'full'", "an unknown key"), ("level = ", "cannot be read as TOML")]
)
def test_files_that_cannot_be_meant(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "capture.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        read_settings({**OUT, "VERIFY_CAPTURE_CONFIG": str(file)})


def test_a_file_without_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "capture.toml"
    file.write_text("level = 'hash'")
    with pytest.raises(ArgumentError, match="no folder to record into"):
        read_settings({"VERIFY_CAPTURE_CONFIG": str(file)})
