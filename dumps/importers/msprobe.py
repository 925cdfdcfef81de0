"""Huawei msprobe: dump.json with statistics or CRC-32, and torch files where tensors were kept.

Format: docs/en/dump/pytorch_data_dump_instruct.md of Ascend/msprobe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.faults import broken, inside, read_json
from verify.dumps.importers.names import natural
from verify.dumps.importers.observation import (
    Format,
    Imported,
    Observation,
    Options,
    Source,
    hash_of,
    statistics_of,
)
from verify.dumps.importers.tensor_files import read_tensors

_JSON: Final = "dump.json"
_DATA: Final = "dump_tensor_data"
_STATISTICS: Final = ["Max", "Min", "Mean", "Norm"]
_SIDES: Final = {
    "input_args": "in", "input_kwargs": "in", "input": "in", "output": "out",
    "parameters": "parameters", "parameters_grad": "grad",
}  # fmt: skip


def recognise(path: Path) -> bool:
    for file in _files(path)[:1]:
        with file.open("rb") as opened:
            head = opened.read(4096)
        return b'"task"' in head and b'"data"' in head
    return False


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.name == _JSON else []
    return sorted(path.rglob(_JSON), key=lambda file: natural(str(file)))


def read(path: Path, options: Options) -> Imported:
    files = _files(path)
    if not files:
        raise broken(path, f"no {_JSON}")
    workers = sorted({_worker(file) for file in files}, key=natural)
    entries = sorted(
        ((_step(file), workers.index(_worker(file)), file) for file in files),
        key=lambda entry: (entry[0], entry[1]),
    )
    source = Source(
        format="msprobe",
        path=path,
        ranks=len(workers),
        unknown=[
            "what each tensor was computed from",
            "sequences and positions",
            "tensors of which statistics or a CRC alone were kept",
        ],
    )
    return Imported(source, _observations(entries))


def _worker(file: Path) -> str:
    name = file.parent.name
    return name if re.match(r"(rank|proc)\d*$", name) else "rank"


def _step(file: Path) -> int:
    numbers = [re.fullmatch(r"step(\d+)", part) for part in file.parts]
    return next((int(match[1]) for match in numbers[::-1] if match), 0)


def _observations(entries: list[tuple[int, int, Path]]) -> Iterator[Observation]:
    for step, rank, file in entries:
        content = read_json(file)
        data = content.get("data") if isinstance(content, dict) else None
        if not isinstance(data, dict):
            raise broken(file, "no table 'data'")
        for key, call in data.items():
            if not isinstance(call, dict):
                raise broken(f"{file}: {key}", "no table of inputs and outputs")
            for side, port in _SIDES.items():
                for path, leaf in _leaves(call.get(side), ""):
                    tap = ".".join(part for part in (_tap(key), port, path) if part)
                    yield from _of_leaf(tap, leaf, step, rank, file)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and isinstance(value.get("dtype"), str) and "shape" in value:
        yield path, value
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            yield from _leaves(each, f"{path}.{key}" if path else str(key))


def _tap(key: str) -> str:
    """``Module.<path>.<Class>.forward.<n>`` is the path; of an API the number of the call goes."""
    parts = key.split(".")
    if parts[0] in ("Module", "Cell") and len(parts) > 4:
        path, direction = ".".join(parts[1:-3]), parts[-2]
    else:
        path, direction = ".".join(part for part in parts[:-1] if not part.isdecimal()), parts[-1]
    return path if direction == "forward" else f"{path}.{direction}"


def _of_leaf(
    tap: str, leaf: dict[str, Any], step: int, rank: int, file: Path
) -> Iterator[Observation]:
    name = leaf.get("data_name")
    if isinstance(name, str) and name:
        path = inside(file.parent, f"{_DATA}/{name}", file)
        if path.is_file():
            for _, tensor in read_tensors(path):
                yield Observation(tap=tap, tensor=tensor, step=step, rank=rank)
            return
    about = {"of": tap, "dtype": leaf["dtype"], "shape": leaf["shape"]}
    if isinstance(leaf.get("md5"), str):
        try:
            number = int(leaf["md5"], 16)
        except ValueError:
            raise broken(
                f"{file}: {tap}", f"a CRC that is no hexadecimal number: {leaf['md5']!r}"
            ) from None
        tensor, attributes = hash_of("crc32", number, **about)
        yield Observation(
            tap=f"{tap}.crc32", tensor=tensor, step=step, rank=rank, attributes=attributes
        )
    values = [_number(leaf.get(each)) for each in _STATISTICS]
    if any(value is not None for value in values):
        tensor, attributes = statistics_of([*_STATISTICS], values, **about)
        yield Observation(
            tap=f"{tap}.statistics", tensor=tensor, step=step, rank=rank, attributes=attributes
        )


def _number(value: Any) -> float | None:
    if isinstance(value, str):  # infinities and NaN may be spelled
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, bool | int | float) else None


FORMAT = Format(name="msprobe", title="msprobe dump", recognise=recognise, read=read)
