"""Tap name patterns with numbers: ``model.layers.{n}.out`` and ``model.layers.{n+1}.out``."""

from __future__ import annotations

import re

_FIELD = re.compile(r"\{(\w+)([+-]\d+)?\}")

LAST = "last"
"""``{last}`` is the largest number for which the tap exists, and need not stand on both sides."""

Numbers = dict[str, int]


def match(pattern: str, name: str) -> Numbers | None:
    """The numbers with which ``pattern`` is ``name``; None if it is not."""
    parts, at = [], 0
    for field in _FIELD.finditer(pattern):
        parts += [re.escape(pattern[at : field.start()]), r"(\d+)"]
        at = field.end()
    found = re.fullmatch("".join([*parts, re.escape(pattern[at:])]), name)
    if found is None:
        return None
    numbers: Numbers = {}
    for (label, shift), text in zip(fields(pattern), found.groups(), strict=True):
        value = int(text) - shift
        if value < 0 or str(int(text)) != text or numbers.setdefault(label, value) != value:
            return None
    return numbers


def fill(pattern: str, numbers: Numbers) -> str:
    """``pattern`` with its numbers put in."""
    return _FIELD.sub(lambda f: str(numbers[f[1]] + int(f[2] or 0)), pattern)


def fields(pattern: str) -> list[tuple[str, int]]:
    """The numbers that a pattern names, each with what is added to it."""
    return [(f[1], int(f[2] or 0)) for f in _FIELD.finditer(pattern)]
