"""Environments and their differences on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console

from verify.report.names import printable
from verify.report.numbers import plural
from verify.report.terminal.blocks import bullets, heading, labelled, line, table


class Shown(Protocol):
    """A difference as both environments and runs have it."""

    @property
    def name(self) -> str: ...
    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def weight(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def subject(self) -> str: ...


def render_environment(facts: Mapping[str, Any], console: Console) -> None:
    """The parts that a person reads first; --json has everything."""
    labelled(console, "python", f"{facts.get('python')} on {facts.get('system')}")
    cores = f"{facts.get('cpu')}, {plural(facts.get('cores') or 0, 'core')}"
    labelled(console, "processor", printable(cores))
    for label, text in summary_lines(facts):
        labelled(console, label, printable(text))


def summary_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and text of what an environment holds, short enough for a few lines; for records of
    any edition."""
    torch = facts.get("torch") or {}
    parts = [f"{key} {value}" for key, value in torch.items() if key in _TORCH]
    libraries, packages = facts.get("libraries") or {}, facts.get("packages") or {}
    loaded = []
    if packages:
        loaded.append(plural(len(packages), "package"))
    if libraries:
        loaded.append(f"{plural(len(libraries), 'shared object')} loaded")
    lines = [
        ("torch", ", ".join(parts)),
        ("loaded", ", ".join(loaded)),
        ("GPU", _pairs({k: facts[k] for k in ("driver", "boards") if k in facts})),
        ("CUDA", _pairs(facts.get("cuda_libraries"))),
        ("sources", ", ".join(facts.get("installed_from") or {})),
        ("git", "; ".join(_repository(n, s) for n, s in (facts.get("repositories") or {}).items())),
        ("variables", _pairs(facts.get("variables"), "=")),
        ("seeds", _pairs(facts.get("seeds"))),
        ("routes", _pairs(facts.get("routes"), " ×")),
        (
            "kernels",
            plural(len(facts.get("kernels") or {}), "name") if facts.get("kernels") else "",
        ),
    ]
    return [(label, text) for label, text in lines if text]


_TORCH = ("version", "threads", "cpu_capability", "gpu", "matmul_precision", "deterministic")


def _pairs(table_: Mapping[str, Any] | None, between: str = " ") -> str:
    return ", ".join(f"{key}{between}{value}" for key, value in (table_ or {}).items())


def _repository(name: str, state: Mapping[str, Any]) -> str:
    dirty = " with changes" if state.get("dirty") else ""
    return f"{name} at {str(state.get('commit') or 'no commit')[:12]}{dirty}"


def render_differences(found: Sequence[Shown], sentence: str, console: Console) -> None:
    """One table a weight, then the notes, then whether several things changed at once."""
    if not found:
        line(console, "Nothing that was recorded differs.")
        return
    for weight in dict.fromkeys(each.weight for each in found):
        group = [each for each in found if each.weight == weight]
        heading(console, _TITLES.get(weight, weight))
        rows = [tuple(map(printable, (each.name, each.a, each.b))) for each in group]
        table(console, (("what", "left"), ("A", "left"), ("B", "left")), rows)
        notes = (f"{each.subject}: {each.note}" for each in group if each.note)
        bullets(console, map(printable, dict.fromkeys(notes)))
    if sentence:
        console.print()
        line(console, printable(sentence), "bold")


_TITLES = {
    "declared": "Declared: what the runs set out to compare",
    "likely": "Likely to change results",
    "possible": "May change results",
    "unlikely": "Unlikely to change results",
}
