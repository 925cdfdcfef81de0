"""What the terminal shows of a second pass."""

from __future__ import annotations

import io

from rich.console import Console

from tests.report.support.cases import identical, partial
from verify.recapture.result import Again, Recaptured, Split, Unlike
from verify.report.json import to_json
from verify.report.terminal.recapture import render_recaptured


def again(side: str, **changed: object) -> Again:
    values = {
        "side": side, "command": ["verify", "capture", "--prompt", "Why so?"], "exit_code": 0,
        "path": f"out/{side.lower()}", "steps": "2", "bytes": 2_150_000, "first_bytes": 1_750_000,
        "rows": 504, "taps": 14,
    }  # fmt: skip
    return Again(**{**values, **changed})  # type: ignore[arg-type]


def shown(found: Recaptured) -> str:
    console = Console(file=io.StringIO(), width=200)
    render_recaptured(found, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def found(**sides: Again) -> Recaptured:
    split = Split(tap="layers.1.mlp.out", step_a=2, step_b=3, sequence="text", position=6)
    return Recaptured(
        a="runs/a", b="runs/b", splits=[split], taps=["default:layers.1.*"],
        again=list(sides.values()), result=partial(),
    )  # fmt: skip


def test_place_size_and_command_of_both_sides() -> None:
    text = shown(found(a=again("A"), b=again("B", unlike=[Unlike(tap="x", rows=1, first="y")])))
    assert "layers.1.mlp.out, step 2 of A, step 3 of B, position 6" in text
    assert "2.15 MB (1.75 MB in the first pass); 504 rows of 14 taps came out as in" in text
    assert "504 rows of 14 taps came out NOT as in the first pass" in text
    assert "A: verify capture --prompt 'Why so?'" in text


def test_without_a_split_the_first_pass_is_shown() -> None:
    text = shown(Recaptured(a="a", b="b", splits=[], taps=[], again=[], result=identical(1)))
    assert text.startswith("No second pass") and "IDENTICAL" in text


def test_json_holds_everything() -> None:
    data = to_json(found(a=again("A"), b=again("B"))).decode()
    assert '"schema": "verify-recapture/1"' in data and '"schema": "verify-bisect/1"' in data
