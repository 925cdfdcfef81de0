"""FlashInfer's flight recorder: a folder a call, with the tensors that went in and came out.

Format: flashinfer/api_logging.py and docs/logging.rst of FlashInfer (level 10).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.faults import broken
from verify.dumps.importers.names import natural
from verify.dumps.importers.observation import Format, Imported, Observation, Options, Source
from verify.dumps.importers.tensor_files import read_tensors

_METADATA: Final = ("metadata.jsonl", "metadata.json")
_FLUSHES: Final = "graph_flushes"


@dataclass(frozen=True, slots=True)
class _Call:
    """One call, or one replay of it in a graph (``step`` counts replays)."""

    folder: Path
    about: dict[str, Any]
    step: int
    rank: int


def recognise(path: Path) -> bool:
    return path.is_dir() and any(
        b'"function_name"' in file.read_bytes()[: 1 << 20] for file in _metadata(path)[:1]
    )


def _metadata(path: Path) -> list[Path]:
    found = [path / name for name in _METADATA if (path / name).is_file()]
    return found or sorted(file for name in _METADATA for file in path.glob(f"*/{name}"))


def read(path: Path, options: Options) -> Imported:
    entries = [(file.parent, _last_line(file)) for file in _metadata(path)]
    if not entries:
        raise broken(path, "no folder of a call with its metadata.jsonl")
    entries.sort(key=lambda entry: (str(entry[1].get("timestamp")), natural(entry[0].name)))
    processes = list(dict.fromkeys(about.get("process_id") for _, about in entries))
    source = Source(
        format="flashinfer",
        path=path,
        ranks=len(processes),
        unknown=["forward passes, sequences and positions", "where the inputs of a call come from"],
        env={"versions": entries[0][1].get("versions", {})},
    )
    if len(processes) > 1:
        source.unknown.append("ranks (processes are counted in the order of their first call)")
    calls = []
    for folder, about in entries:
        rank = processes.index(about.get("process_id"))
        calls += [_Call(place, about, step, rank) for step, place in _places(folder)]
    calls.sort(key=lambda call: call.step)
    open_calls = [c.about for c in calls if not _file(c.folder, "outputs")]
    source.complete = not (calls and calls[-1].about.get("execution_status") == "inputs_saved")
    if open_calls:
        name = open_calls[0].get("function_name")
        source.notes.append(f"{len(open_calls)} calls have no outputs, the first: {name}")
    return Imported(source, _observations(calls))


def _places(folder: Path) -> list[tuple[int, Path]]:
    """Where the tensors of a call lie: in its folder, or once a replay of its graph."""
    flushes = sorted((folder / _FLUSHES).glob("flush_*"), key=lambda path: natural(path.name))
    return list(enumerate(flushes)) or [(0, folder)]


def _last_line(file: Path) -> dict[str, Any]:
    """What is known of a call: lines are added as it goes on, and the last whole one says most."""
    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        raise broken(file, error) from None
    for line in [text] if file.suffix == ".json" else text.splitlines()[::-1]:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # a process that dies may leave half a line
        if isinstance(found, dict) and "function_name" in found:
            return found
    raise broken(file, "no whole line with a function_name")


def _file(folder: Path, name: str) -> Path | None:
    for suffix in (".pt", ".safetensors"):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    return None


def _observations(calls: list[_Call]) -> Iterator[Observation]:
    counts: dict[int, int] = {}
    for call in calls:
        name = str(call.about["function_name"])
        about = {"arguments": _scalars(call.about.get("input_metadata"))}
        read: list[int] = []
        for side, file in (
            ("in", _file(call.folder, "inputs")),
            ("out", _file(call.folder, "outputs")),
        ):
            if file is None:
                continue
            # An object keeps state of its own (a plan, a workspace), which no call records.
            known = side == "out" and "self_id" not in call.about
            for key, tensor in read_tensors(file):
                number = counts.get(call.rank, 0)
                counts[call.rank] = number + 1
                yield Observation(
                    tap=f"{name}.{side}.{key}",
                    tensor=tensor,
                    step=call.step,
                    rank=call.rank,
                    inputs=[*read] if known and read else None,
                    attributes=about if side == "out" else {},
                )
                if side == "in":
                    read.append(number)


def _scalars(table: Any) -> dict[str, Any]:
    """Arguments that are no tensors."""
    items = table.items() if isinstance(table, dict) else ()
    return {str(k): v for k, v in items if isinstance(v, bool | int | float | str)}


FORMAT = Format(
    name="flashinfer", title="FlashInfer flight recorder", recognise=recognise, read=read
)
