"""Where reports go: never over something that is not an earlier report."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from verify.errors import StorageError, UsageError

REPORT_FILES = ("report.html", "report.json")
FIGURE_ENDINGS = (".png", ".svg", ".pdf")
FIGURE_STEMS = (
    "token-margins",
    "growth-depth",
    "growth-positions",
    "heatmap",
    "ulp-distribution",
    "relative-distribution",
    "distribution-by-tap",
)
_MARK = "verify-bisect/"


class _Head(msgspec.Struct):
    """The one field of report.json that says whose it is."""

    schema: str


def prepare(directory: str | Path) -> Path:
    """Make ``directory`` if it is new, and check that writing there overwrites only our own files.

    Figures of an earlier report are removed, so that none is left that the new one does not have;
    other files that somebody laid beside a report stay.

    Raises:
        UsageError: it is a file, or holds things but no earlier report.
        StorageError: it cannot be made or read.
    """
    target = Path(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
        present = sorted(target.iterdir())
    except FileExistsError:
        raise UsageError(
            "a report needs a directory", where=target, found="a file", hint="choose another --out"
        ) from None
    except OSError as error:
        raise StorageError("the directory cannot be used", where=target, found=error) from error
    foreign = [path.name for path in present if not is_figure(path)]
    if foreign and not _holds_report(target):
        raise UsageError(
            "the directory holds something that is not a report",
            where=target,
            found=", ".join(foreign[:3]),
            allowed="a new or empty directory, or one with an earlier report",
            hint="choose another --out; nothing was written",
        )
    for path in filter(is_figure, present):
        path.unlink()
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
    """A file with a name that only our figures have."""
    stem, _, number = path.stem.partition("-") if path.stem.startswith("heatmap-") else (
        path.stem, "", "1")  # fmt: skip
    return path.suffix in FIGURE_ENDINGS and stem in FIGURE_STEMS and number.isdigit()


def _holds_report(target: Path) -> bool:
    try:
        head = msgspec.json.decode((target / "report.json").read_bytes(), type=_Head)
    except (OSError, msgspec.MsgspecError):
        return False
    return head.schema.startswith(_MARK)
