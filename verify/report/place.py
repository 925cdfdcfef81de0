"""Where reports go: never over something that is not an earlier report."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from verify.errors import StorageError, UsageError

_FIGURE = re.compile(
    r"(token-margins|growth-depth|growth-positions|heatmap(-\d+)?|ulp-distribution"
    r"|relative-distribution|distribution-by-tap|endpoint-[a-z]+)\.(png|svg|pdf)"
)
_MARKS = {"report.json": "verify-bisect/", "endpoints.json": "verify-endpoints/"}
"""File that marks a directory as ours -> what its schema begins with."""


class _Head(msgspec.Struct):
    """The one field of a result that says whose it is."""

    schema: str


def check(directory: str | Path) -> Path:
    """Refuse a place where a report would overwrite something that is not one. Writes nothing.

    Raises:
        UsageError: it is a file, or holds things but no earlier report.
        StorageError: it cannot be read.
    """
    target = Path(directory)
    try:
        present = sorted(path.name for path in target.iterdir())
    except FileNotFoundError:
        return target
    except NotADirectoryError:
        raise UsageError(
            "a report needs a directory", where=target, found="a file", hint="choose another --out"
        ) from None
    except OSError as error:
        raise StorageError("the directory cannot be read", where=target, found=error) from error
    if present and not _holds_report(target):
        raise UsageError(
            "the directory holds something that is not a report",
            where=target,
            found=", ".join(present[:3]),
            allowed="a new or empty directory, or one with an earlier report",
            hint="choose another --out; nothing was written",
        )
    return target


def prepare(directory: str | Path) -> Path:
    """Make ``directory`` if it is new, and take the figures of an earlier report away, so that
    none is left that the new one does not have. Other files beside a report stay.

    Raises:
        UsageError: it is a file, or holds things but no earlier report.
        StorageError: it cannot be made, read or cleared.
    """
    target = check(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in filter(is_figure, target.iterdir()):
            path.unlink()
    except OSError as error:
        raise StorageError("the directory cannot be used", where=target, found=error) from error
    return target


def write_file(path: Path, data: bytes) -> None:
    """Write beside the place and rename: readers see the old file or the new one, never half.

    Raises:
        StorageError: the disk did not take it.
    """
    partial = path.with_name(f".{path.name}.tmp")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError("the report cannot be written", where=path, found=error) from error


def is_figure(path: Path) -> bool:
    """Whether the name is one that figures of a report have."""
    return _FIGURE.fullmatch(path.name) is not None


def _holds_report(target: Path) -> bool:
    return any(_is_result(target / name, mark) for name, mark in _MARKS.items())


def _is_result(path: Path, mark: str) -> bool:
    try:
        head = msgspec.json.decode(path.read_bytes(), type=_Head)
    except (OSError, msgspec.MsgspecError):
        return False
    return head.schema.startswith(mark)
