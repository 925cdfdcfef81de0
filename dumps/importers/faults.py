"""What goes wrong with foreign files, said by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verify.errors import DumpError


def broken(path: object, found: object, hint: str | None = None) -> DumpError:
    return DumpError(
        "a foreign dump cannot be read",
        where=path,
        found=found,
        hint=hint or "the file is truncated or of another kind; write it again",
    )


def refused(path: object, found: str) -> DumpError:
    """Something that only a full unpickler could read, which would run code from the file."""
    return DumpError(
        "a file holds more than tensors and plain values, and loading it would run code from it",
        where=path,
        found=found,
        allowed="tensors, numbers, text, lists and tables of them (torch.load with weights_only=True; "
        "numpy without pickle)",
        hint="save the tensors alone, as .pt, .npy or .safetensors; nothing in the file was run",
    )


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        DumpError: it cannot be read, or is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise broken(path, error) from None


def inside(root: Path, name: object, where: Path) -> Path:
    """The file ``name`` below ``root``.

    Raises:
        DumpError: a name that is no text, or that leads out of the folder.
    """
    if not isinstance(name, str):
        raise broken(where, f"a file name that is no text: {name!r}")
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise broken(where, f"the name of a file outside of the dump: {name}")
    return path
