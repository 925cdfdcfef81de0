"""`verify capture`: generate with a model and record every step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from verify.cli.capture_command import capture_command, new_folder
from verify.cli.engines import ENGINES, capture_engine
from verify.dumps.sizes import parse_bytes
from verify.errors import ArgumentError, DumpExistsError

if TYPE_CHECKING:
    from verify.dumps.hf.generate import Progress
    from verify.dumps.hf.record import Recorded


def capture(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="After `--`: your own program; the first model that it calls is recorded. With"
            " --engine: the model file.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="smollm2, gemma3-270m, a Hugging Face folder, or a GGUF file."
        ),
    ] = "smollm2",
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", "-p", help="Prompt; repeat for several.")
    ] = None,
    prompt_file: Annotated[
        list[Path] | None,
        typer.Option("--prompt-file", help="File that is one prompt; repeat for several."),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Tokens to generate for each prompt.")] = 32,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    attn: Annotated[str, typer.Option(help="Attention: sdpa or eager.")] = "sdpa",
    prefill_chunk: Annotated[
        int | None, typer.Option(help="Prompt positions a prefill step; default: all at once.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Rows of the batch; the prompts are cycled to fill it.")
    ] = None,
    kv_cache: Annotated[
        str, typer.Option(help="native, or e4m3: keys and values rounded to float8_e4m3fn.")
    ] = "native",
    taps: Annotated[
        list[str] | None,
        typer.Option(help="Glob on tap names, repeatable; 'default' is the default selection."),
    ] = None,
    ops: Annotated[
        list[str] | None,
        typer.Option(
            help="Glob on module paths, and after a colon on operations inside them; repeatable."
        ),
    ] = None,
    level: Annotated[str, typer.Option(help="What is kept: full, digest or stats.")] = "full",
    edges: Annotated[
        str, typer.Option(help="How inputs are known: trace, or identity (cheaper).")
    ] = "trace",
    byte_budget: Annotated[
        str | None, typer.Option(help="Bytes the dump may take, for example 500M or 2G.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Only these steps, for example 0:3,7; default: all.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Only rows at these positions, for example 0:112.")
    ] = None,
    tape: Annotated[Path | None, typer.Option(help="Force the tokens of this earlier run.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="No chat template.")] = False,
    threads: Annotated[int | None, typer.Option(help="Threads that torch may use.")] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Record which kernels ran, by torch's profiler.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(help=f"Another engine than PyTorch: {', '.join(ENGINES)}."),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="npz with the inputs of a model, for engines that need it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE, a setting of the engine; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder; default: runs/<name>.")
    ] = None,
) -> None:
    """Record a greedy generation run of a real model, every step and every selected tap; or a
    program of your own."""
    if engine is not None:
        for line in capture_engine(context, engine, command or [], out, settings or []):
            typer.echo(line)
        return
    if settings or inputs is not None:
        raise ArgumentError(
            "an option of an engine", where="--set" if settings else "--inputs", allowed="--engine"
        )
    budget = None if byte_budget is None else parse_bytes(byte_budget, "--byte-budget")
    if command:
        from verify.dumps.program.settings import Settings

        raise typer.Exit(
            capture_command(
                context,
                command,
                Settings(
                    out=new_folder(out, command).absolute(),
                    level=level,
                    edges=edges,
                    taps=tuple(taps or ()),
                    ops=tuple(ops or ()),
                    steps=steps,
                    rows=rows,
                    byte_budget=budget,
                ),
            )
        )
    # The model, its library and torch load here: `verify --help` does without.
    from verify.dumps.hf.record import Request, check_request, record_generation

    request = Request(
        model=model,
        prompts=(*(prompt or ()), *map(_read_prompt, prompt_file or ())),
        tokens=tokens,
        dtype=dtype,
        attn=attn,
        prefill_chunk=prefill_chunk,
        batch=batch,
        kv_cache=kv_cache,
        taps=tuple(taps or ()),
        ops=tuple(ops or ()),
        level=level,
        edges=edges,
        byte_budget=budget,
        steps=steps,
        rows=rows,
        tape=tape,
        raw=raw,
        threads=threads,
        kernels=kernels,
    )
    check_request(request)
    target = out or _free_folder(f"{Path(model).stem}-{dtype}-{attn}")
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise DumpExistsError(
            "there is something already, and a dump never overwrites",
            where=target,
            hint="choose another --out, or remove the old one yourself",
        )
    with _progress_bar() as progress:
        recorded = record_generation(request, target, progress=progress)
    _print_summary(recorded)


def _read_prompt(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            "a prompt file cannot be read as UTF-8 text", where=path, found=error
        ) from error


def _free_folder(name: str) -> Path:
    """``runs/<name>``, numbered where that is taken."""
    base = Path("runs") / name
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{name}-{number}"), number + 1
    return path


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield show


def _print_summary(recorded: Recorded) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for sequence, text in recorded.texts.items():
        console.print(f"[bold]{sequence}[/]  {recorded.tokens[sequence]} tokens")
        console.print(text.strip(), markup=False)
    size = recorded.bytes / 1e6
    console.print(
        f"\n{recorded.records} records, {size:.1f} MB, {recorded.seconds:.1f} s  ->  {recorded.path}"
    )
