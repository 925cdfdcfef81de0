"""`verify bisect`: where two runs part, why, and whether that can be rounding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from verify.cli.executors import ExecutorOption, SchedulerOption, WorkersOption
from verify.cli.import_run import say_imported
from verify.errors import ArgumentError, VerifyError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from verify.bisect.local import Checker, LocalFinding, Op
    from verify.bisect.result import BisectResult
    from verify.dumps.format import Dump


def bisect(
    a: Annotated[str, typer.Argument(help="Run A.", metavar="A", show_default=False)],
    b: Annotated[str, typer.Argument(help="Run B.", metavar="B", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for report.html and its figures.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", help="A verdict that does not fail the run, repeatable."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", help="tokens: a flipped token fails, even if explained."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Run both models again, as recorded: what each op adds."),
    ] = False,
    model_a: Annotated[
        str | None,
        typer.Option("--model-a", help="Model of A, as for capture --model; implies --replay."),
    ] = None,
    model_b: Annotated[
        str | None, typer.Option("--model-b", help="Model of B; default: that of A.")
    ] = None,
    tap_map: Annotated[
        str | None,
        typer.Option("--map", help="Tap map that relates B's taps to A's: a name or a file."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            help="Hold each side against FP64 on its own inputs: safetensors file, folder or model.",
        ),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option("--layout", help="GLOB=replicated|partial|shard:D over ranks, repeatable."),
    ] = None,
    noise: Annotated[
        list[Path] | None,
        typer.Option("--noise", help="Result of verify noise for A or for B, repeatable."),
    ] = None,
    executor: ExecutorOption = "serial",
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    bisect_exit: Annotated[
        bool, typer.Option("--bisect-exit", help="Exit codes for `git bisect run`: 2, 3 -> 125.")
    ] = False,
) -> None:
    """Find the first difference of two runs in execution order, its origin, and a verdict.

    Exit code 0: identical, or every difference explained; 1: another difference; 3: no difference
    found, but something was not compared; 2: a dump cannot be read.
    """
    from verify.compare import exit_codes
    from verify.compare.executor import open_executor

    try:
        wanted = replay or model_a is not None or model_b is not None
        models = (model_a, model_b) if wanted else None
        check_map(tap_map, models is not None or bool(noise))
        pair = _open(a, b, tap_map, layout or [])
        checkers = [] if models is None else [replayed(*pair, *models)]
        if weights is not None:
            checkers.append(_own_roundings(*pair, weights))
        with open_executor(executor, workers, scheduler) as pool:
            result = _bisect(*pair, accept or [], fail_on or [], checkers, noise or [], pool)
        written = _write(result, out)
    except VerifyError as error:
        if bisect_exit:
            error.exit_code = exit_codes.CANNOT_TEST
        raise
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal import render_bisect

        render_bisect(result, Console())
        if written:
            Console().print(f"report: {written}", highlight=False, soft_wrap=True)
    code = exit_codes.for_git_bisect(result.exit_code) if bisect_exit else result.exit_code
    raise typer.Exit(code)


def check_map(tap_map: str | None, needs_names: bool) -> None:
    if tap_map is not None and needs_names:
        raise ArgumentError(
            "a tap map cannot be used there",
            where="--map",
            found="--map with --replay, --model-a, --model-b or --noise",
            hint="a replay and a noise file speak of the taps of each run by its own names: give "
            "one or the other",
        )


def _open(a: str, b: str, tap_map: str | None, layouts: list[str]) -> tuple[Dump, Dump]:
    from verify.dumps.layout import parse_layouts
    from verify.taps.open import open_mapped

    return open_mapped(a, b, tap_map, parse_layouts(layouts), say_imported)


def _own_roundings(a: Dump, b: Dump, weights: str) -> Checker:
    from verify.certify.own import own_roundings

    return own_roundings(a, b, weights)


def _bisect(
    first: Dump,
    second: Dump,
    accept: list[str],
    fail_on: list[str],
    checkers: list[Checker],
    noise: list[Path],
    executor: Executor,
) -> BisectResult:
    from verify.bisect.run import bisect as bisect_dumps
    from verify.bisect.verdict import parse_accept
    from verify.env import command_line
    from verify.noise.apply import apply_noise
    from verify.noise.store import read_noise

    if unknown := [name for name in fail_on if name != "tokens"]:
        raise ArgumentError(
            "nothing of that name can fail a run",
            where="--fail-on",
            found=unknown[0],
            allowed="tokens",
        )
    accepted = parse_accept(accept)
    repeats = [read_noise(path) for path in noise]
    result = bisect_dumps(
        first,
        second,
        accept=accepted,
        fail_on_flip=bool(fail_on),
        command=command_line(),
        checkers=checkers,
        executor=executor,
    )
    return apply_noise(result, first, second, repeats, accepted, fails_on_flip=bool(fail_on))


def replayed(a: Dump, b: Dump, model_a: str | None, model_b: str | None) -> Checker:
    """Answers from running both models again, which happens once there is something to ask: runs
    that cannot be compared, or that agree in every bit, load nothing."""
    answer: Checker | None = None

    def ask(op: Op) -> LocalFinding | None:
        nonlocal answer
        if answer is None:
            answer = _run_again(a, b, model_a, model_b)
        return answer(op)

    return ask


def _run_again(a: Dump, b: Dump, model_a: str | None, model_b: str | None) -> Checker:
    from verify.replay.checker import checker
    from verify.replay.load import load_models
    from verify.replay.refuse import check_dumps
    from verify.replay.run import replay

    check_dumps(a, b)
    console = Console(stderr=True)
    models = load_models(a, b, model_a, model_b)
    found = replay(a, b, models, progress=lambda what: console.print(what, style="dim"))
    return checker(found, a, b)


def _write(result: BisectResult, out: Path | None) -> Path | None:
    if out is None:
        return None
    from verify.report.html import write_report

    return write_report(result, out)
