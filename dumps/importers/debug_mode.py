"""Logs of PyTorch's DebugMode as JSON: hashes of what every operation read and returned.

Format: torch/utils/_debug_mode/_calls.py of PyTorch, ``DebugMode.save_logs``, version 1. A log holds
no tensor. Every hash becomes a record of its own at the tap of its tensor, and an operation's
outputs are computed from the hashes of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.faults import broken, read_json
from verify.dumps.importers.observation import (
    Format,
    Imported,
    Observation,
    Options,
    Source,
    hash_of,
)

NAME: Final = "debug-mode"
_FORMAT: Final = "torch.utils._debug_mode.DebugMode.logs"
_SHAPES: Final = re.compile(r"\b[a-z]+\d*(?:_?e\d+m\d+\w*)?\[[^\]]*\]")
_PATH: Final = re.compile(r"\['?([^'\]]*)'?\]")
_SHOWN: Final = 200
"""Characters of the arguments that are kept, for people."""
_NONFINITE: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

Leaf = tuple[str, str, int | float]
"""Path in the arguments or results, algorithm, value of the hash."""


@dataclass(slots=True)
class Call:
    """One line of a log that has hashes."""

    name: str
    depth: int
    shapes: str
    arguments: str
    inputs: list[Leaf] = field(default_factory=list)
    outputs: list[Leaf] = field(default_factory=list)


def recognise(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _FORMAT.encode() in file.read(4096)


def read(path: Path, options: Options) -> Imported:
    log = read_json(path)
    if (
        not isinstance(log, dict)
        or log.get("version") != 1
        or not isinstance(log.get("logs"), list)
    ):
        raise broken(path, f"no DebugMode log of version 1: version {_version(log)}")
    calls = [
        call for number, entry in enumerate(log["logs"]) if (call := _call(entry, number, path))
    ]
    source = Source(
        format=NAME,
        path=path,
        unknown=[
            "the tensors: a log holds hashes alone, and equal hashes prove nothing (norm and "
            + "hash_tensor cannot see an exchange of elements)",
            "modules, sequences, positions and weights",
        ],
    )
    if not any(call.inputs for call in calls):
        source.unknown.append("hashes of inputs (log_tensor_hashes(hash_inputs=True) records them)")
    return Imported(source, _observations(calls))


def _version(log: Any) -> object:
    return log.get("version") if isinstance(log, dict) else type(log).__name__


def _observations(calls: list[Call]) -> Iterator[Observation]:
    count = 0
    for number, call in enumerate(calls):
        about = {
            "call": number,
            "op": call.name,
            "depth": call.depth,
            "shapes": call.shapes,
            "arguments": call.arguments,
        }
        seen: dict[str, list[int]] = {}
        for path, algorithm, value in call.inputs:
            seen.setdefault(algorithm, []).append(count)
            yield _observation(number, call.name, _port("in", path), algorithm, value, about, None)
            count += 1
        for path, algorithm, value in call.outputs:
            inputs = seen.get(algorithm)
            port = _port("out", path)
            yield _observation(number, call.name, port, algorithm, value, about, inputs)
            count += 1


def _port(side: str, path: str) -> str:
    return f"{side}.{path}" if path else side


def _observation(
    number: int,
    name: str,
    port: str,
    algorithm: str,
    value: float,
    about: dict[str, Any],
    inputs: list[int] | None,
) -> Observation:
    tensor, attributes = hash_of(algorithm, value, **about)
    tap = f"{number:05d}.{name}.{port}.{algorithm}"
    return Observation(tap=tap, tensor=tensor, inputs=inputs, attributes=attributes)


def _call(entry: Any, number: int, path: Path) -> Call | None:
    """The call of a line; None for lines that hash nothing."""
    where = f"{path}: logs[{number}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("call_depth"), int):
        raise broken(where, "a line without call_depth")
    kind = entry.get("type")
    if kind == "op":
        call = _begin(str(entry.get("op_name")), entry)
        leaves = _table(entry.get("tensor_hash_leaves"), where)
        logged = _table(entry.get("log"), where)
        call.inputs = _given(leaves, "input", where) or _inputs(logged.get("input_hash"))
        call.outputs = _given(leaves, "output", where) or list(_leaves(logged.get("hash"), ""))
    elif kind == "triton_kernel":
        call = _begin(f"triton.{entry.get('kernel_name')}", entry)
        call.inputs = list(_leaves(_plain(entry.get("pre_hashes"), where), ""))
        call.outputs = list(_leaves(_plain(entry.get("post_hashes"), where), ""))
    elif kind in ("redistribute", "output_placement", "annotate"):
        return None
    else:
        raise broken(where, f"a line of unknown type {kind!r}")
    return call if call.inputs or call.outputs else None


def _begin(name: str, entry: dict[str, Any]) -> Call:
    """A call without its hashes. Its shapes are dtypes and shapes of arguments and results, without
    the scalars beside them."""
    arguments = "".join(str(entry.get(key) or "") for key in ("args_str", "kwargs_str"))
    shapes = _SHAPES.findall(f"{arguments} {entry.get('output_str') or ''}")
    return Call(name, entry["call_depth"], " ".join(shapes), arguments[:_SHOWN])


def _table(value: Any, where: str) -> dict[str, Any]:
    """A typed value that has to be a table; nothing is an empty one."""
    found = _plain(value, where)
    if found is not None and not isinstance(found, dict):
        raise broken(where, f"{type(found).__name__} where a table of hashes stands")
    return found or {}


def _plain(value: Any, where: str) -> Any:
    """A typed value of the log as the value itself."""
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "scalar":
        return value.get("value")
    if kind == "nonfinite_float" and str(value.get("value")) in _NONFINITE:
        return _NONFINITE[str(value["value"])]
    items = value.get("items") if isinstance(value, dict) else None
    if kind in ("tuple", "list") and isinstance(items, list):
        return tuple(_plain(item, where) for item in items)
    if kind == "dict" and isinstance(items, list):
        if not all(isinstance(item, list) and len(item) == 2 for item in items):
            raise broken(where, "a table whose entries are no pairs")
        return {str(key): _plain(item, where) for key, item in items}
    raise broken(where, f"a value of unknown type {kind!r}")


def _inputs(value: Any) -> list[Leaf]:
    """Hashes of ``(args, kwargs)``: positional ones by number, others by name."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        arguments = value[0] if isinstance(value[0], tuple) else (value[0],)
        named = [*((str(i), each) for i, each in enumerate(arguments)), *value[1].items()]
        return [leaf for name, each in named for leaf in _leaves(each, name)]
    return list(_leaves(value, ""))


def _given(leaves: dict[str, Any], side: str, where: str) -> list[Leaf]:
    """Hashes that a newer log lists with their paths in the tree."""
    found: list[Leaf] = []
    pairs = leaves.get(side)
    if pairs is not None and not isinstance(pairs, tuple):
        raise broken(where, f"{type(pairs).__name__} where a list of hashes stands")
    for pair in pairs or ():
        if isinstance(pair, tuple) and len(pair) == 2:
            parts = _PATH.findall(str(pair[0]))
            if side == "input" and parts:  # the first part tells args from kwargs
                parts = parts[1:]
            found += _leaves(pair[1], ".".join(parts))
    return found


def _leaves(value: Any, path: str) -> Iterator[Leaf]:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int | float):
        yield path, _algorithm(value), value
    elif _is_several(value):
        for each in value:
            yield path, _algorithm(each), each
    else:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            yield from _leaves(each, f"{path}.{key}" if path else str(key))


def _is_several(value: Any) -> bool:
    """Two hashes of one tensor (a real number and an integer) against hashes of two tensors."""
    kinds = {type(each) for each in value} if isinstance(value, tuple) else set()
    return len(value) == 2 and kinds == {int, float}


def _algorithm(value: float) -> str:
    return "norm" if isinstance(value, float) else "hash_tensor"


FORMAT = Format(name=NAME, title="PyTorch DebugMode JSON log", recognise=recognise, read=read)
