"""Polygraphy's RunResults and input files: JSON with arrays as base64.

Format: tools/Polygraphy/polygraphy/json/serde.py and comparator/struct.py of TensorRT.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.faults import broken, read_json
from verify.dumps.importers.observation import (
    Format,
    Imported,
    Observation,
    Options,
    Source,
    Tensor,
)
from verify.dumps.importers.tensor_files import load_torch, of_torch, read_npy

_MARKS: Final = (b'"polygraphy_class"', b'"polygraphy_serialized_json_type"')


def recognise(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(1) not in (b"{", b"["):
            return False
        file.seek(0)
        head = file.read(1 << 12)
        file.seek(max(0, path.stat().st_size - (1 << 12)))
        tail = file.read()
    return any(mark in head or mark in tail for mark in _MARKS)


def read(path: Path, options: Options) -> Imported:
    content = read_json(path)
    unknown = ["what each tensor was computed from", "sequences, positions and weights"]
    source = Source(format="polygraphy", path=path, unknown=unknown)
    if isinstance(content, list):  # --save-inputs: a table of arrays an iteration
        return Imported(source, _observations([("", content)], path))
    runners = content.get("lst") if isinstance(content, dict) else None
    if not isinstance(runners, list) or not all(_is_runner(entry) for entry in runners):
        raise broken(path, "no RunResults: a list of runners and their iterations under 'lst'")
    source.model = ", ".join(str(name) for name, _ in runners)
    if len(runners) > 1:
        source.notes.append("several runners: their names stand before those of the tensors")
    named = [(str(name) if len(runners) > 1 else "", each) for name, each in runners]
    return Imported(source, _observations(named, path))


def _is_runner(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list)


def _observations(runners: list[tuple[str, list[Any]]], path: Path) -> Iterator[Observation]:
    steps = max((len(iterations) for _, iterations in runners), default=0)
    for step in range(steps):
        for runner, iterations in runners:
            if step >= len(iterations):
                continue
            where = f"{path}: iteration {step}"
            found = iterations[step]
            outputs = found.get("outputs", found) if isinstance(found, dict) else None
            if not isinstance(outputs, dict):
                raise broken(where, "no table of outputs")
            for name, value in outputs.items():
                tensor = _tensor(value, f"{where}: {name}")
                tap = f"{runner}.{name}" if runner else name
                yield Observation(tap=tap, tensor=tensor, step=step)


def _tensor(value: Any, where: str) -> Tensor:
    """An array, a torch tensor, or one that is loaded late."""
    if isinstance(value, dict) and "values" in value:
        value = value["values"]
    for key in ("array", "tensor"):
        text = value.get(key) if isinstance(value, dict) else None
        if isinstance(text, str):
            try:
                data = io.BytesIO(base64.b64decode(text, validate=True))
            except binascii.Error as error:
                raise broken(where, error) from None
            if key == "array":
                return read_npy(data, where)
            return _torch(load_torch(data, where), where)
    raise broken(where, f"no array in {sorted(value) if isinstance(value, dict) else value!r}")


def _torch(value: Any, where: str) -> Tensor:
    import torch

    if not isinstance(value, torch.Tensor):
        raise broken(where, f"a {type(value).__name__} in the place of a tensor")
    return of_torch(value, where)


FORMAT = Format(name="polygraphy", title="Polygraphy JSON", recognise=recognise, read=read)
