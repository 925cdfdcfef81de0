"""What goes wrong with foreign files, said by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from verify.errors import DumpError, VerifyError

_TRIPS: Final = (
    ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
)  # fmt: skip


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


def read_bytes(path: Path) -> bytes:
    """What a file holds.

    Raises:
        DumpError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise broken(path, error.strerror) from None


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        DumpError: it cannot be read, or is no JSON.
    """
    data = read_bytes(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise broken(path, error) from None


@contextmanager
def unexpected_shapes(path: Path) -> Iterator[None]:
    """What a reader trips over inside a foreign file is a fault of that file, not of the program:
    well-formed JSON holds anything, a number where a table stands included.

    Raises:
        DumpError: in the place of the errors that values of another type raise.
    """
    try:
        yield
    except VerifyError:
        raise
    except _TRIPS as error:
        raise broken(path, f"a value of another kind than expected ({error})"[:300]) from error


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
