"""Torch files that hold a table with ``tensor`` and where it was taken: ``step``, ``layer_idx``,
``label``, ``pid``; one file a tensor, as patches of serving stacks write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verify.dumps.importers.faults import broken
from verify.dumps.importers.names import files_below, natural
from verify.dumps.importers.observation import Format, Imported, Observation, Options, Source
from verify.dumps.importers.tensor_files import kind_of, load_torch, tensors_in
from verify.errors import DumpError

_KEYS = ("tensor", "label")


def recognise(path: Path) -> bool:
    files = _files(path)
    if not files or kind_of(files[0]) != "torch":
        return False
    try:
        payload = load_torch(files[0])
    except DumpError:
        return False
    return isinstance(payload, dict) and all(key in payload for key in _KEYS)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else files_below(path, [".pt"])


def read(path: Path, options: Options) -> Imported:
    found = [(_payload(file), file) for file in _files(path)]
    processes = list(dict.fromkeys(str(payload.get("pid", "")) for payload, _ in found))
    order = sorted(
        found,
        key=lambda entry: (
            _integer(entry[0], "step", entry[1]),
            _integer(entry[0], "layer_idx", entry[1]),
            natural(entry[1].name),
        ),
    )
    source = Source(
        format="payload",
        path=path,
        ranks=len(processes),
        unknown=[
            "the order inside of a layer (tensors stand in the order of their file names)",
            "what each tensor was computed from",
            "sequences and positions",
        ],
    )
    if len(processes) > 1:
        source.unknown.append("ranks (processes are counted in the order of their file names)")
    return Imported(source, _observations([file for _, file in order], processes))


def _payload(file: Path) -> dict[str, Any]:
    payload = load_torch(file)
    if not isinstance(payload, dict) or any(key not in payload for key in _KEYS):
        raise broken(file, f"no table with {' and '.join(_KEYS)}")
    return {str(key): value for key, value in payload.items()} if isinstance(payload, dict) else {}


def _integer(payload: dict[str, Any], key: str, file: Path) -> int:
    value = payload.get(key)
    if value is None:
        return -1 if key == "layer_idx" else 0
    if not isinstance(value, int):
        raise broken(file, f"{key} is no number: {value!r}")
    return value


def _observations(files: list[Path], processes: list[str]) -> Iterator[Observation]:
    for file in files:
        payload = _payload(file)
        layer = _integer(payload, "layer_idx", file)
        tap = f"layers.{layer}.{payload['label']}" if layer >= 0 else str(payload["label"])
        for key, tensor in tensors_in(payload["tensor"], file):
            yield Observation(
                tap=f"{tap}.{key}" if key else tap,
                tensor=tensor,
                step=_integer(payload, "step", file),
                rank=processes.index(str(payload.get("pid", ""))),
            )


FORMAT = Format(name="payload", title="torch files with labels", recognise=recognise, read=read)
