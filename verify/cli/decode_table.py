"""`verify decode-table`: every code of a narrow format under a scale, and what rounding does."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from verify.reference.scaled_decode import ScaledDecode


def decode_table(
    format: Annotated[str, typer.Argument(help="For example float8_e4m3fn; at most 8 bits.")],
    scale: Annotated[
        float, typer.Option("--scale", "-s", help="Positive; rounded to float32 before use.")
    ] = 1.0,
    convention: Annotated[
        str,
        typer.Option(
            "--convention",
            "-c",
            help="Where the rounding is: fp32_multiply (float32 product, then float16), "
            "fp16_multiply (scale and product in float16), or single_rounding.",
        ),
    ] = "fp32_multiply",
    summary: Annotated[bool, typer.Option("--summary", help="The counts only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what each code becomes in float16: exact, rounded, subnormal, overflow or NaN."""
    from verify.reference import scaled_decode

    # A convention that does not exist is the library's error to report.
    table = scaled_decode.decode_table(format, scale, convention)  # type: ignore[arg-type]
    if as_json:
        typer.echo(json.dumps(_plain(table, with_codes=not summary), indent=1))
        return
    console = Console(highlight=False)
    _print_summary(console, table)
    if not summary:
        console.print(_rows(table))


def _print_summary(console: Console, table: ScaledDecode) -> None:
    used = "" if table.scale == table.scale_given else f" (float32 of {table.scale_given!r})"
    console.print(f"{table.format} to float16, {table.convention}")
    console.print(f"scale {table.scale!r}{used}, {table.scale_bits} significant bits")
    console.print(", ".join(f"{count} {state}" for state, count in table.counts.items()))
    notes = {
        "at most half the smallest float16, became zero": int(table.is_flushed.sum()),
        "subnormal but exact": int((table.is_exact & (table.states == "subnormal")).sum()),
    }
    for note, count in notes.items():
        if count:
            console.print(f"{count} {note}")


def _rows(table: ScaledDecode) -> Table:
    rows = Table(box=None, pad_edge=False)
    for heading in ("code", "value", "value * scale", "float16", "result"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column("state", no_wrap=True)
    digits = 1 if len(table.words) <= 16 else 2
    for code, word in enumerate(table.words):
        numbers = (table.values[code], table.products[code], table.results[code])
        value, product, result = (f"{number:.9g}" for number in numbers)
        state = str(table.states[code])
        rows.add_row(f"0x{code:0{digits}x}", value, product, f"0x{word:04x}", result, state)
    return rows


def _plain(table: ScaledDecode, *, with_codes: bool) -> dict[str, Any]:
    """The table as JSON values; what is not finite becomes a string."""
    plain: dict[str, Any] = {
        "format": table.format,
        "target": "float16",
        "convention": table.convention,
        "scale_given": table.scale_given,
        "scale": table.scale,
        "scale_bits": table.scale_bits,
        "counts": table.counts,
        "flushed": int(table.is_flushed.sum()),
        "all_exact": table.all_exact,
    }
    if with_codes:
        plain["codes"] = [
            {
                "code": code,
                "value": _number(table.values[code]),
                "product": _number(table.products[code]),
                "word": int(word),
                "result": _number(table.results[code]),
                "state": str(table.states[code]),
                "exact": bool(table.is_exact[code]),
            }
            for code, word in enumerate(table.words)
        ]
    return plain


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)
