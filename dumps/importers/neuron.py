"""vLLM-Neuron's tensor capture: a folder a step, in it a folder a module and a torch file a rank.

Format: docs/design/accuracy/tensor_capture_design.md of vLLM-Neuron:
``dp<d>/prefill_s<bucket>_<i>/<module>/rank<r>.pt`` and ``dp<d>/decode_b<batch>_<i>/...``, beside
``<step>_meta.json`` with ``req_ids``, ``positions`` and ``dp_rank``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from verify.dumps.importers.faults import broken, read_json
from verify.dumps.importers.names import natural
from verify.dumps.importers.observation import (
    Format,
    Imported,
    Observation,
    Options,
    Source,
    Tensor,
)
from verify.dumps.importers.tensor_files import read_tensors

_STEP: Final = re.compile(r"(prefill)_s(\d+)_(\d+)|(decode)_b(\d+)_(\d+)")
_RANK: Final = re.compile(r"rank(\d+)\.pt")


@dataclass(frozen=True, slots=True)
class _Step:
    folder: Path
    kind: str
    number: int
    meta: dict[str, Any]


def recognise(path: Path) -> bool:
    return path.is_dir() and any(
        _RANK.fullmatch(file.name) and _step_of(path, file) for file in path.rglob("rank*.pt")
    )


def _step_of(root: Path, file: Path) -> Path | None:
    """The folder of the step that a file lies in."""
    for folder in file.parents:
        if _STEP.fullmatch(folder.name):
            return folder
        if folder == root:
            return None
    return None


def read(path: Path, options: Options) -> Imported:
    found = {_step_of(path, file) for file in path.rglob("rank*.pt")}
    steps = [_step(folder) for folder in found if folder is not None]
    if not steps:
        raise broken(path, "no folder prefill_s<bucket>_<i> or decode_b<batch>_<i>")
    unknown = ["what each tensor was computed from", "the order of modules in a step", "token ids"]
    numbers = [step.number for step in steps]
    if len({*numbers}) < len(numbers):  # each kind counts for itself
        unknown.append("the order of prefill and decode steps (prefill stands first)")
        steps.sort(key=lambda step: (step.folder.parent.name, step.kind != "prefill", step.number))
    else:
        steps.sort(key=lambda step: step.number)
    files = [(i, step, file) for i, step in enumerate(steps) for file in _files(step.folder)]
    ranks = 1 + max(int(_RANK.fullmatch(file.name)[1]) for _, _, file in files)  # type: ignore[index]
    source = Source(format="vllm-neuron", path=path, unknown=unknown, ranks=ranks)
    if not all(step.meta for step in steps):
        source.unknown.append("requests and positions of steps without a _meta.json")
    return Imported(source, _observations(files))


def _files(folder: Path) -> list[Path]:
    files = [file for file in folder.rglob("rank*.pt") if _RANK.fullmatch(file.name)]
    return sorted(files, key=lambda file: natural(file.relative_to(folder).as_posix()))


def _step(folder: Path) -> _Step:
    match = _STEP.fullmatch(folder.name)
    assert match is not None
    name = f"{folder.name}_meta.json"
    places = [place for place in (folder / name, folder.parent / name) if place.is_file()]
    meta = read_json(places[0]) if places else {}
    if not isinstance(meta, dict):
        raise broken(places[0], "no table")
    return _Step(folder, match[1] or match[4], int(match[3] or match[6]), meta)


def _observations(files: list[tuple[int, _Step, Path]]) -> Iterator[Observation]:
    for number, step, file in files:
        match = _RANK.fullmatch(file.name)
        assert match is not None
        tap = file.parent.relative_to(step.folder).as_posix().replace("/", ".")
        for key, tensor in read_tensors(file):
            found = Observation(
                tap=f"{tap}.out.{key}" if key else f"{tap}.out",
                tensor=tensor,
                step=number,
                rank=int(match[1]),
            )
            _place(found, step.meta)
            yield found


def _place(found: Observation, meta: dict[str, Any]) -> None:
    """Rows as the positions say, in a tensor ``[tokens, ...]`` or ``[1, tokens, ...]``, where tokens
    behind the positions fill the bucket. One request a step; more are told apart by decode steps."""
    positions, names = meta.get("positions"), meta.get("req_ids")
    if not isinstance(positions, list) or not isinstance(names, list) or not names:
        return
    flat = np.asarray(positions).reshape(-1)
    if flat.dtype.kind not in "iu" or not len(flat):
        return
    owners = [str(name) for name in names]
    if len(owners) == 1:
        owners *= len(flat)
    axis = _token_axis(found.tensor, len(flat))
    if axis is None or len(owners) != len(flat):
        return
    shape = found.tensor.words.shape
    axes = [f"x{i}" for i in range(len(shape))]
    axes[axis] = "t"
    padding = shape[axis] - len(flat)
    found.axes = " ".join(axes)
    found.positions = np.append(flat.astype(np.int64), np.full(padding, -1))
    found.sequences = [*owners, *[None] * padding]


def _token_axis(tensor: Tensor, tokens: int) -> int | None:
    shape = tensor.words.shape
    for axis in range(min(2, len(shape))):
        if shape[axis] >= tokens and all(size == 1 for size in shape[:axis]):
            return axis
    return None


FORMAT = Format(name="vllm-neuron", title="vLLM-Neuron capture", recognise=recognise, read=read)
