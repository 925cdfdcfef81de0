"""Debug trees of Hugging Face transformers: nested JSON, with tensors beside it or as statistics.

Format: src/transformers/model_debugging_utils.py (``model_addition_debugger_context``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.faults import broken, inside, read_json
from verify.dumps.importers.observation import (
    Format,
    Imported,
    Observation,
    Options,
    Source,
    statistics_of,
)
from verify.dumps.importers.tensor_files import read_tensors

_FULL: Final = "_debug_tree_FULL_TENSORS.json"
_SUMMARY: Final = "_debug_tree_SUMMARY.json"
_STATISTICS: Final = ["mean", "std", "min", "max"]
_NUMBER: Final = re.compile(r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan)")


def recognise(path: Path) -> bool:
    file = _file(path)
    if file is None:
        return False
    with file.open("rb") as opened:
        return b'"module_path"' in opened.read(4096)


def _file(path: Path) -> Path | None:
    if path.is_file():
        return path if path.name.endswith((_FULL, _SUMMARY)) else None
    found = sorted(path.glob(f"*{_FULL}")) or sorted(path.glob(f"*{_SUMMARY}"))
    return found[0] if found else None


def read(path: Path, options: Options) -> Imported:
    file = _file(path)
    if file is None:
        raise broken(path, f"no file *{_FULL}")
    tree = read_json(file)
    if not isinstance(tree, dict) or "module_path" not in tree:
        raise broken(file, "no tree of modules")
    source = Source(
        format="hf-tree",
        path=path,
        model=str(tree["module_path"]),
        unknown=[
            "what each tensor was computed from",
            "sequences and positions",
            "outputs of modules with children, and layers between the first and the last, unless "
            + "do_prune_layers=False",
        ],
    )
    return Imported(source, _observations(tree, file))


def _observations(node: Any, file: Path) -> Iterator[Observation]:
    """Inputs of a module, then what runs in it, then its outputs."""
    if not isinstance(node, dict):
        raise broken(file, f"a module that is no table: {node!r}"[:200])
    name = _name(str(node.get("module_path")))
    yield from _of_leaves(node.get("inputs"), f"{name}.in", file)
    for child in node.get("children") or ():
        yield from _observations(child, file)
    yield from _of_leaves(node.get("outputs"), f"{name}.out", file)


def _name(path: str) -> str:
    """The module path without the class of the model in front of it."""
    first, _, rest = path.partition(".")
    return rest or first.replace(" (top-level)", "")


def _of_leaves(value: Any, tap: str, file: Path) -> Iterator[Observation]:
    if isinstance(value, dict) and "shape" in value and "dtype" in value:
        yield from _of_leaf(value, tap, file)
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            # args and kwargs are told apart by their names: 0, 1, ... and words
            plain = key in ("args", "kwargs") and isinstance(value, dict)
            yield from _of_leaves(each, tap if plain else f"{tap}.{key}", file)


def _of_leaf(leaf: dict[str, Any], tap: str, file: Path) -> Iterator[Observation]:
    stored = leaf.get("value")
    if isinstance(stored, str) and stored.endswith(".safetensors"):
        for _, tensor in read_tensors(inside(file.parent, stored, file)):
            yield Observation(tap=tap, tensor=tensor)
        return
    values = [_number(leaf.get(name)) for name in _STATISTICS]
    if any(value is not None for value in values):
        about = {"of": tap, "dtype": str(leaf["dtype"]), "shape": str(leaf["shape"])}
        tensor, attributes = statistics_of([*_STATISTICS], values, **about)
        yield Observation(tap=f"{tap}.statistics", tensor=tensor, attributes=attributes)


def _number(text: Any) -> float | None:
    """The number in ``tensor(1.2500e-01)``."""
    match = _NUMBER.search(str(text).removeprefix("tensor(")) if isinstance(text, str) else None
    return float(match[0]) if match else None


FORMAT = Format(name="hf-tree", title="Hugging Face debug tree", recognise=recognise, read=read)
