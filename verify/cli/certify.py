"""`verify certify`: is a recorded tensor what its operation gives, by FP64 and declared rounding?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from verify.errors import ArgumentError

if TYPE_CHECKING:
    from verify.certify.run import CertifyResult, RecordCertificate


def certify(
    records: Annotated[
        list[str],
        typer.Argument(
            help="RUN::TAP for every step, RUN::TAP@STEP for one.",
            metavar="RECORD...",
            show_default=False,
        ),
    ],
    pair: Annotated[
        bool, typer.Option("--pair", help="Two records: the second against the first.")
    ] = False,
    op: Annotated[
        str | None,
        typer.Option("--op", help="The operation, where the recorded ones do not tell it."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter, for example eps=1e-6; repeatable."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="An input, as NAME=RUN::TAP[@STEP]; repeatable."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", help="safetensors file or folder, or a model name."),
    ] = None,
    accumulate: Annotated[
        str,
        typer.Option(
            "--accumulate",
            help="How products are added: fp32, fp32-ascending, bf16-ascending, v100, a100, h200.",
        ),
    ] = "fp32",
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Judge recorded tensors against FP64 of the same operation on the same recorded inputs.

    Exit code 0: rounding explains every output; 1: another declared convention, a suspicious
    output or a defect; 2: something cannot be read or does not fit.
    """
    from verify.certify.run import Options, certify_records

    options = Options(
        op=op,
        settings=_pairs(settings, "--set"),
        inputs=_pairs(inputs, "--input"),
        weights=weights,
        accumulate=accumulate,
        pair=pair,
    )
    result = certify_records(records, options)
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        _render(result, Console(highlight=False, soft_wrap=True))
    raise typer.Exit(result.exit_code)


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in given or []:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise ArgumentError(
                "not a name and a value", where=option, found=repr(text), allowed="NAME=VALUE"
            )
        pairs[name] = value
    return pairs


def _render(result: CertifyResult, console: Console) -> None:
    for one in result.records:
        _render_one(one, console)


def _render_one(one: RecordCertificate, console: Console) -> None:
    certificate = one.certificate
    against = f" against {one.against}" if one.against else ""
    console.print(f"{certificate.outcome.value}  {one.record}{against}", markup=False)
    console.print(f"  declared  {one.declared}, {certificate.arithmetic}", markup=False)
    for convention in certificate.conventions:
        console.print(f"  convention  {convention}", markup=False)
    for reason in certificate.reasons:
        console.print(f"  - {reason}", markup=False)
    numbers = "  ".join(f"{name} {value:.4g}" for name, value in certificate.numbers.items())
    console.print(f"  {numbers}", markup=False)
    passed = sum(check.passed for check in certificate.checks)
    console.print(f"  {passed} of {len(certificate.checks)} checks passed", markup=False)
