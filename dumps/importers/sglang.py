"""SGLang's dumper: a torch file a tensor, named by tags; and its older hook: a torch file a pass.

Formats: python/sglang/srt/debug_utils/dumper.py and tensor_dump_forward_hook.py of SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.batches import Batch, Batches
from verify.dumps.importers.faults import broken
from verify.dumps.importers.names import files_below, natural
from verify.dumps.importers.observation import Format, Imported, Observation, Options, Source
from verify.dumps.importers.sglang_dims import Dims, parse_dims
from verify.dumps.importers.tensor_files import kind_of, load_torch, of_torch, tensors_in
from verify.dumps.layout import ATTRIBUTE

_PASS: Final = re.compile(r"Pass(\d+)\.pt")
_RANK: Final = re.compile(r"TP(\d+)_PP(\d+)_Rank(\d+)_pid(\d+)")
_HOOKED: Final = "non_intrusive__"
_BATCH: Final = ("input_ids", "positions", "seq_lens", "req_pool_indices", "rids")
_OLD_BATCH: Final = "model.forward_batch_info."
_NO_TAGS: Final = {"name", "step", "rank", "dump_index", "recompute_status"}
_UNKNOWN: Final = ["what each tensor was computed from", "weights, configuration and sampling"]


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    tags: dict[str, str]

    @property
    def step(self) -> int:
        return int(self.tags.get("step", self.tags.get("curr_step", "0")))

    @property
    def rank(self) -> int:
        return int(self.tags.get("rank", "0"))

    @property
    def order(self) -> tuple[int, int]:
        return self.step, int(self.tags.get("dump_index", "0"))


def _tagged(path: Path) -> list[_File]:
    found = []
    for file in files_below(path, [".pt"]):
        tags = dict(part.split("=", 1) for part in file.stem.split("___") if "=" in part)
        numbers = [tags.get(key, "0") for key in ("step", "curr_step", "rank", "dump_index")]
        named = "name" in tags and bool({"step", "curr_step"} & tags.keys())
        if named and all(number.isdecimal() for number in numbers):
            found.append(_File(file, tags))
    return sorted(found, key=lambda file: file.order)


def recognise(path: Path) -> bool:
    files = _tagged(path) if path.is_dir() else []
    return bool(files) and kind_of(files[0].path) == "torch"


def read(path: Path, options: Options) -> Imported:
    files = _tagged(path)
    if not files:
        raise broken(path, "no file named step=S___rank=R___dump_index=I___name=N.pt")
    source = Source(
        format="sglang", path=path, unknown=[*_UNKNOWN], ranks=1 + max(file.rank for file in files)
    )
    batches = Batches()
    for file in files:
        if file.tags["name"] in _BATCH and file.rank == files[0].rank:
            batches.enter(file.step, file.tags["name"], _value(file.path)[0])
    batches.finish()
    source.sequences = batches.sequences
    if not batches.steps:
        source.unknown.append("sequences and positions (input_ids, positions, seq_lens: mode core)")
    return Imported(source, _observations(files, batches, source))


def _value(path: Path) -> tuple[Any, dict[str, Any]]:
    payload = load_torch(path)
    if not isinstance(payload, dict) or "value" not in payload:
        return payload, {}  # dumps of an older version hold the value alone
    meta = payload.get("meta")
    return payload["value"], meta if isinstance(meta, dict) else {}


def _observations(files: list[_File], batches: Batches, source: Source) -> Iterator[Observation]:
    other = 0
    for file in files:
        value, meta = _value(file.path)
        tap, found = _tap(file.tags), False
        dims = parse_dims(meta.get("dims"), meta, source.ranks)
        about = {key: text for key, text in file.tags.items() if key not in _NO_TAGS}
        if meta.get("dims"):
            about["dims"] = str(meta["dims"])
        for key, tensor in _tensors(value, file.path):
            found = True
            batch = batches.steps.get(file.step)
            yield place(
                Observation(
                    tap=f"{tap}.{key}" if key else tap,
                    tensor=tensor,
                    step=file.step,
                    rank=file.rank,
                    attributes=dict(about),
                ),
                dims,
                batch,
            )
        other += not found
    if other:
        source.notes.append(f"{other} files hold no tensor (lists of requests, numbers)")


def _tensors(value: Any, where: Path) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield "", of_torch(value, where)
    else:
        yield from tensors_in(value, where)


def _tap(tags: dict[str, str]) -> str:
    """The tap of a name; a name that a program chose itself stands under its layer."""
    name = tags["name"]
    if name == "input_ids":
        return "tokens.in"
    if name.endswith("next_token_logits"):
        return "logits"
    if name.startswith(_HOOKED):
        name = name.removeprefix(_HOOKED)
        name = re.sub(r"(^|\.)output(?=$|\.\d+$)", r"\1out", name)
        return re.sub(r"(^|\.)inputs(?=\.[^.]+$)", r"\1in", name)
    layer = tags.get("layer_id")
    return name if layer is None else f"layers.{layer}.{name}"


def place(found: Observation, dims: Dims | None, batch: Batch | None) -> Observation:
    """Enter axes and rows: as the dims say, else with tokens (or requests) first where the first
    axis has as many entries."""
    shape = list(found.tensor.words.shape)
    if dims is not None and len(dims.axes) == len(shape):
        found.axes = " ".join(dims.axes)
        if dims.layout:
            found.attributes[ATTRIBUTE] = dims.layout
    elif batch is not None and shape and shape[0] in (batch.tokens, batch.requests):
        found.axes = " ".join(["t", *(f"x{i}" for i in range(1, len(shape)))])
    axes = (found.axes or "").split()
    if batch is None or "t" not in axes or "b" in axes:
        return found
    size = shape[axes.index("t")]
    if size == batch.tokens:
        found.positions, found.sequences = batch.positions, [*batch.owners]
    elif size == batch.requests:
        found.positions, found.sequences = batch.last_positions, [*batch.last_owners]
    elif size > batch.tokens:
        found.positions, found.sequences = batch.padded(size)
    return found


def recognise_passes(path: Path) -> bool:
    return path.is_dir() and any(_PASS.fullmatch(file.name) for file in path.rglob("Pass*.pt"))


def read_passes(path: Path, options: Options) -> Imported:
    folders = sorted({file.parent for file in path.rglob("Pass*.pt")}, key=_rank_of)
    files = [
        (int(match[1]), rank, file)
        for rank, folder in enumerate(folders)
        for file in folder.iterdir()
        if (match := _PASS.fullmatch(file.name))
    ]
    files.sort(key=lambda entry: (entry[0], entry[1]))
    source = Source(format="sglang-pass", path=path, unknown=[*_UNKNOWN], ranks=len(folders))
    batches = Batches()
    for step, rank, file in files:
        if rank == 0:
            for name, value in _table(file).items():
                if name.startswith(_OLD_BATCH):
                    batches.enter(step, name.removeprefix(_OLD_BATCH), value)
    batches.finish()
    source.sequences = batches.sequences
    return Imported(source, _of_passes(files, batches))


def _rank_of(folder: Path) -> tuple[int, list[Any]]:
    match = _RANK.fullmatch(folder.name)
    return int(match[3]) if match else 0, natural(folder.name)


def _table(file: Path) -> dict[str, Any]:
    value = load_torch(file)
    if not isinstance(value, dict):
        raise broken(file, f"a {type(value).__name__} in the place of a table of tensors")
    return {str(key): each for key, each in value.items()}


def _of_passes(files: list[tuple[int, int, Path]], batches: Batches) -> Iterator[Observation]:
    for step, rank, file in files:
        for name, value in _table(file).items():
            if name.startswith(_OLD_BATCH) and not name.endswith("input_ids"):
                continue
            tap = "tokens.in" if name.startswith(_OLD_BATCH) else f"{name}.out"
            for key, tensor in _tensors(value, file):
                found = Observation(
                    tap=f"{tap}.{key}" if key else tap, tensor=tensor, step=step, rank=rank
                )
                yield place(found, None, batches.steps.get(step))


FORMAT = Format(name="sglang", title="SGLang dumper", recognise=recognise, read=read)
PASSES = Format(
    name="sglang-pass",
    title="SGLang tensor dump, a file a pass",
    recognise=recognise_passes,
    read=read_passes,
)
