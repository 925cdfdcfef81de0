"""Windows: which steps and rows of a run a capture keeps, as text (``0:3,7``) and in manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from verify.errors import ArgumentError

WINDOW: Final = "window"
"""Key of ``manifest.capture`` that says that a dump holds a window of its run."""

_PART = re.compile(r"(\d+)(?:(:)(\d*))?")
_FORM = "numbers and spans start:stop (stop not included), for example 0:3,7 or 109:"


@dataclass(frozen=True, slots=True)
class Spans:
    """Whole numbers from 0: spans [start, stop), ascending and apart; None: without an end."""

    spans: tuple[tuple[int, int | None], ...]

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """``0:3,7``: the numbers 0, 1, 2 and 7.

        Raises:
            ArgumentError: anything else, or an empty span.
        """
        found: list[tuple[int, int | None]] = []
        for part in text.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                raise ArgumentError("not a list of spans", where=where, found=text, allowed=_FORM)
            start = int(match[1])
            stop = start + 1 if match[2] is None else (int(match[3]) if match[3] else None)
            if stop is not None and stop <= start:
                raise ArgumentError("an empty span", where=where, found=part, allowed=_FORM)
            found.append((start, stop))
        return cls(_joined(found))

    def __contains__(self, number: int) -> bool:
        return any(
            start <= number and (stop is None or number < stop) for start, stop in self.spans
        )

    def mask(self, numbers: np.ndarray) -> np.ndarray:
        """For each of ``numbers`` whether it is in here: bool, of the same shape."""
        found = np.zeros(numbers.shape, bool)
        for start, stop in self.spans:
            found |= (numbers >= start) & (True if stop is None else numbers < stop)
        return found

    @property
    def last(self) -> int | None:
        """The largest number; None without an end."""
        stop = self.spans[-1][1]
        return None if stop is None else stop - 1

    @property
    def first_missing(self) -> int | None:
        """The lowest number from 0 that is not in here; None where all are."""
        start, stop = self.spans[0]
        return 0 if start else stop

    def __str__(self) -> str:
        return ",".join(map(_spelled, self.spans))


def _joined(spans: list[tuple[int, int | None]]) -> tuple[tuple[int, int | None], ...]:
    found: list[tuple[int, int | None]] = []
    for start, stop in sorted(spans, key=lambda span: span[0]):
        if found and (found[-1][1] is None or start <= found[-1][1]):
            before, end = found[-1]
            found[-1] = (before, None if end is None or stop is None else max(end, stop))
        else:
            found.append((start, stop))
    return tuple(found)


def _spelled(span: tuple[int, int | None]) -> str:
    start, stop = span
    if stop is None:
        return f"{start}:"
    return str(start) if stop == start + 1 else f"{start}:{stop}"


def spans_of(numbers: Iterable[int]) -> Spans:
    """Spans of single numbers."""
    return Spans(_joined([(number, number + 1) for number in numbers]))


@dataclass(frozen=True, slots=True)
class Window:
    """What a capture keeps of a run; None: all of it. ``rows`` are positions. Token ids, key rows
    and tensors without a token axis are kept whatever ``rows`` says."""

    steps: Spans | None = None
    rows: Spans | None = None

    @classmethod
    def parse(cls, steps: str | None, rows: str | None) -> Self:
        """
        Raises:
            ArgumentError: a text that is no list of spans.
        """
        return cls(
            None if steps is None else Spans.parse(steps, "steps"),
            None if rows is None else Spans.parse(rows, "rows"),
        )

    @classmethod
    def of(cls, capture: Mapping[str, Any]) -> Self:
        """The window that ``manifest.capture`` names.

        Raises:
            ArgumentError: it names something that is none.
        """
        table = capture.get(WINDOW) or {}
        if not isinstance(table, Mapping):
            raise ArgumentError("not a window", where="capture.window", found=table)
        texts = [table.get(name) for name in ("steps", "rows")]
        return cls.parse(*(None if text is None else str(text) for text in texts))

    def __bool__(self) -> bool:
        return self.steps is not None or self.rows is not None

    def has_step(self, step: int) -> bool:
        return self.steps is None or step in self.steps

    def as_json(self) -> dict[str, str]:
        parts = {"steps": self.steps, "rows": self.rows}
        return {name: str(spans) for name, spans in parts.items() if spans is not None}

    def __str__(self) -> str:
        return ", ".join(f"{name} {spans}" for name, spans in self.as_json().items())
