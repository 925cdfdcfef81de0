"""`verify decode-table` at 80 columns, as JSON, and with wrong arguments."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from verify.cli.decode_table import decode_table
from verify.errors import ArgumentError

APP = typer.Typer()
APP.command()(decode_table)


def run(*args: str) -> str:
    result = CliRunner().invoke(APP, list(args), env={"COLUMNS": "80"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_rows_fit_in_80_columns() -> None:
    lines = run("float8_e4m3fn", "--scale", "0.003").splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "float8_e4m3fn to float16, fp32_multiply"
    assert (
        lines[1] == "scale 0.003000000026077032 (float32 of 0.003), 23 significant bits"
    )  # 0x1.89374cp-9
    assert len(lines) == 256 + 4  # three lines of summary and the heading
    row = next(line.split() for line in lines if line.startswith("0x7e"))
    assert row == ["0x7e", "448", "1.34400001", "0x3d60", "1.34375", "rounded"]


def test_summary() -> None:
    output = run("float8_e4m3fn", "-s", "0.0000152587890625", "--summary")
    assert output.splitlines()[2:] == [
        # 71 codes of each sign lie below 4 = 2^-14 / 2^-16; 8 of them are odd multiples of 2^-9.
        "112 exact, 0 rounded, 142 subnormal, 0 overflow, 2 nan",
        "2 at most half the smallest float16, became zero",
        "126 subnormal but exact",
    ]


def test_json_is_strict() -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    output = json.loads(run("float8_e5m2", "-s", "2", "--json"), parse_constant=refuse)
    assert output["counts"]["overflow"] == 8 and output["scale_bits"] == 1
    assert output["codes"][0x7C]["value"] == "Infinity"
    assert output["codes"][0x7D]["result"] == "NaN"
    assert "codes" not in json.loads(run("float4_e2m1fn", "--json", "--summary"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fp8"], "unknown number format"),
        (["float16"], "at most 8 bits"),
        (["float8_e4m3fn", "--scale", "nan"], "not a usable scale"),
        (["float8_e4m3fn", "--scale", "-1"], "not a usable scale"),
        (["float8_e4m3fn", "-c", "bf16"], "unknown rounding convention"),
    ],
)
def test_wrong_arguments_are_typed_errors(args: list[str], message: str) -> None:
    result = CliRunner().invoke(APP, args)
    assert isinstance(result.exception, ArgumentError)
    assert message in str(result.exception)
