"""`verify demo`: the main job on a real language model, from two runs to a verdict."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

if TYPE_CHECKING:
    from verify.demo.run import Pair, Secret

CLOSING = (
    "All three runs differ from the base run, and each time the first difference sits deep inside "
    "the model, where no text shows it. Whether a word changed says nothing: a harmless rounding "
    "can change one, and a defect can leave all of them alone. What counts is what the difference "
    "is, on inputs that are equal bit for bit. The 8-bit cache: exactly the other values, rounded; "
    "somebody chose that. The chunked prompt: the last bits of sums taken in another order; it may "
    "be called rounding because every operation that differs was run again on the other run's "
    "inputs and held against FP64. The planted defect: far larger than any order of summation "
    "could make it, so it is a defect, whatever the text looks like."
)


def demo(
    model: Annotated[
        str, typer.Option("--model", "-m", help="smollm2, a Hugging Face folder, or a GGUF file.")
    ] = "smollm2",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder; default: demo-out.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Where the defect is planted; default: a new draw each time.")
    ] = None,
) -> None:
    """Record one model four times, find where the runs part, and see the verdicts."""
    from verify.demo.run import Demo
    from verify.demo.scenario import PROMPT
    from verify.report.terminal import render_bisect

    console = Console(highlight=False)
    seed = secrets.randbelow(10_000) if seed is None else seed
    console.print(f'The question: "{PROMPT}"', style="bold")
    with console.status("loading the model (converted once, then cached)") as status:
        running = Demo(model, out or _free_folder(), seed)
        status.update("recording the base run: every layer, every step")
        base = running.record_base()
        console.print(f"\nThe base run answers:\n{_quoted(base)}")
        pairs: list[Pair] = []
        for pair in running.pairs(status.update):
            _announce(console, len(pairs) + 1, pair, base)
            render_bisect(pair.result, console)
            console.print(f"Report: {pair.report}")
            pairs.append(pair)
    _close(console, pairs, running.secret, seed)


def _announce(console: Console, number: int, pair: Pair, base: str) -> None:
    console.print()
    console.print(Rule(f"Pair {number}"))
    console.print(f"The other run: {pair.variant.title}.")
    if pair.text == base:
        console.print("Its answer is the same, word for word.")
    else:
        console.print(f"It answers:\n{_quoted(pair.text)}")
    console.print()


def _close(console: Console, pairs: list[Pair], secret: Secret, seed: int) -> None:
    """What was planted, and what a newcomer should take home."""
    console.print()
    console.print(Rule("What happened here"))
    for pair in pairs:
        tap = pair.result.origins[0].tap if pair.result.origins else "nowhere"
        line = Text.assemble(
            f"{pair.variant.name:<9}",
            (f"{pair.result.verdict.value:<12}", "bold"),
            f"first at {tap}",
        )
        console.print(line)
    console.print(f"\n{CLOSING}")
    console.print(f"\nPlanted was this: {secret.reveal()}.", style="bold")
    console.print(f"The draw can be repeated with: verify demo --seed {seed}")
    console.print("Open a report.html in a browser, or go on with: verify bisect --help")


def _quoted(text: str) -> str:
    return "  " + text.strip().replace("\n", "\n  ") + " ..."


def _free_folder() -> Path:
    """``demo-out``, numbered where that is taken."""
    number, folder = 1, Path("demo-out")
    while folder.exists() and any(folder.iterdir()):
        number += 1
        folder = Path(f"demo-out-{number}")
    return folder
