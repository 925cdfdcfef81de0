"""Tensors of TensorRT-LLM's PyTorch backend, one torch file an argument.

Format: ``rank<ID>/<loop>.<model>-<i>.<layer>-...-input|output.<arg>.pt``, as the debug hook of
tensorrt_llm/_torch names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verify.dumps.importers.faults import broken
from verify.dumps.importers.names import natural
from verify.dumps.importers.observation import Format, Imported, Observation, Options, Source
from verify.dumps.importers.tensor_files import read_tensors

_RANK: Final = re.compile(r"rank_?(\d+)")
_FILE: Final = re.compile(r"(\d+)\.(.+)-(input|output)\.(.+)\.pt")


def recognise(path: Path) -> bool:
    return path.is_dir() and bool(_files(path))


def _files(path: Path) -> list[tuple[int, int, str, Path]]:
    """Step, rank, tap and file, in the order in which they are yielded."""
    found = []
    for file in path.rglob("*.pt"):
        match, folder = _FILE.fullmatch(file.name), _RANK.fullmatch(file.parent.name)
        if match and folder:
            port = "in" if match[3] == "input" else "out"
            name = match[2].replace("-", ".")
            found.append((int(match[1]), int(folder[1]), name, f"{port}.{match[4]}", file))
    found.sort(key=lambda entry: (entry[0], natural(entry[2]), entry[3]))
    return [(step, rank, f"{name}.{port}", file) for step, rank, name, port, file in found]


def read(path: Path, options: Options) -> Imported:
    files = _files(path)
    if not files:
        raise broken(path, "no file rank<ID>/<loop>.<layer>-input|output.<arg>.pt")
    source = Source(
        format="tensorrt-llm",
        path=path,
        ranks=1 + max(rank for _, rank, _, _ in files),
        unknown=[
            "the order of layers in a step (they stand in the order of their names)",
            "what each tensor was computed from",
            "sequences, positions and token ids",
        ],
    )
    return Imported(source, _observations(files))


def _observations(files: list[tuple[int, int, str, Path]]) -> Iterator[Observation]:
    steps = {step: i for i, step in enumerate(sorted({step for step, _, _, _ in files}))}
    for step, rank, tap, file in files:
        for key, tensor in read_tensors(file):
            yield Observation(
                tap=f"{tap}.{key}" if key else tap, tensor=tensor, step=steps[step], rank=rank
            )


FORMAT = Format(
    name="tensorrt-llm", title="TensorRT-LLM tensors an operation", recognise=recognise, read=read
)
