"""How large a planted fault is: its wrong values, drawn towards the true ones.

A fault that has no parameter of its own (a wrong layout, a missing key) is planted at three sizes by
mixing: ``true + share * (wrong - true)``, with the share that makes the change of the rows that it
touches as large as asked for, relative to them (L2). ``gross`` is the fault as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Size(StrEnum):
    """How large, from what nobody overlooks to what no bf16 run can show."""

    GROSS = "gross"
    MODERATE = "moderate"
    TINY = "tiny"


RELATIVE = {Size.MODERATE: 0.1, Size.TINY: 2.0**-12}
"""Change of the touched rows, relative L2. bf16 rounds with a unit of 2^-9: ``moderate`` is fifty
roundings, ``tiny`` an eighth of one, so that it changes few elements of a bf16 tensor, if any."""


@dataclass(slots=True)
class Meter:
    """What plants have changed since it was last reset: a fault that never meets its case (a page
    that is never full) is none, and must not count as missed."""

    calls: int = 0
    elements: int = 0

    def reset(self) -> None:
        """Start again."""
        self.calls = self.elements = 0

    @property
    def idle(self) -> bool:
        """A fault was asked, and changed nothing."""
        return self.calls > 0 and self.elements == 0


METER = Meter()


def resized(true: Any, wrong: Any, size: Size) -> Any:
    """``wrong`` at the given size, in the dtype of ``true``; :data:`METER` counts what it changes.

    Args:
        true, wrong: tensors of one shape, rows along the first axes and elements along the last.
    """
    made = _resized(true, wrong, size)
    METER.calls += 1
    METER.elements += int((made != true).sum())
    return made


def _resized(true: Any, wrong: Any, size: Size) -> Any:
    if size is Size.GROSS:
        return wrong.to(true.dtype)
    sound, change = true.float(), wrong.float() - true.float()
    touched = change.abs().amax(dim=-1, keepdim=True) > 0
    base = (sound * touched).norm()
    now = change.norm()
    if not bool(now.isfinite()) or float(now) == 0.0:
        return wrong.to(true.dtype)
    share = (RELATIVE[size] * base / now).clamp(max=1.0)
    return (sound + share * change).to(true.dtype)
