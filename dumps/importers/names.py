"""Names and numbers out of paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from verify.errors import ArgumentError

_DIGITS: Final = re.compile(r"(\d+)")
_MARK: Final = re.compile(r"(?:^|(?<=[./_\- ]))(step|rank)[_=-]?(\d+)(?=$|[./_\- ])[./_\- ]?")
_FIELDS: Final = {"step": r"(?P<step>\d+)", "rank": r"(?P<rank>\d+)", "order": r"(?P<order>\d+)",
                  "tap": r"(?P<tap>.+?)", "any": r".*?"}  # fmt: skip


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts ``layer.2`` before ``layer.10``."""
    parts = _DIGITS.split(text)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def files_below(root: Path, suffixes: Iterable[str]) -> list[Path]:
    """Files with these suffixes, in natural order of their paths."""
    wanted = tuple(suffixes)
    found = [path for path in root.rglob("*") if path.suffix in wanted and path.is_file()]
    return sorted(found, key=lambda path: natural(path.relative_to(root).as_posix()))


def take_marks(text: str) -> tuple[str, dict[str, int]]:
    """``step`` and ``rank`` with their numbers, and what is left of a path without them."""
    marks: dict[str, int] = {}
    for name, number in _MARK.findall(text):
        marks.setdefault(name, int(number))
    return _MARK.sub("", text).strip("./_- "), marks


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A naming pattern with ``{tap}``, ``{step}``, ``{rank}``, ``{order}``, ``{any}``.

    Raises:
        ArgumentError: another field, a field twice, or no tap.
    """
    parts = re.split(r"\{(\w*)\}", pattern)
    fields = parts[1::2]
    named = [field for field in fields if field != "any"]
    if "tap" not in fields or len({*named}) < len(named) or not {*fields} <= _FIELDS.keys():
        raise ArgumentError(
            "not a naming pattern",
            where="--pattern",
            found=pattern,
            allowed="text with {tap}, and at most once {step}, {rank}, {order}; {any} is skipped",
        )
    text = "".join(
        _FIELDS[part] if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )
    return re.compile(text)


def chosen(table: Iterable[tuple[str, str]], tap: str) -> str | None:
    """The entry of the first glob that matches a tap."""
    return next((value for glob, value in table if fnmatchcase(tap, glob)), None)
