"""What a recapture finds: the split, the window, how each run repeated, and the verdict."""

from __future__ import annotations

import msgspec

from verify.bisect.result import BisectResult


class Split(msgspec.Struct, kw_only=True):
    """The row at which the first pass saw the runs part, or the place that was asked for."""

    tap: str
    step_a: int
    step_b: int
    sequence: str = ""
    position: int = -1
    """-1 where the tensor has no token axis."""


class Unlike(msgspec.Struct, kw_only=True):
    """Rows of one tap that came out otherwise in the second pass."""

    tap: str
    rows: int
    first: str
    """The first of them, in words."""


class Again(msgspec.Struct, kw_only=True):
    """The second pass of one run."""

    side: str
    command: list[str]
    exit_code: int
    path: str
    steps: str
    bytes: int
    first_bytes: int
    """Size of the dump of the first pass."""
    rows: int
    """Rows of the window, apart from token ids, that were held against the first pass, by digest."""
    taps: int
    unlike: list[Unlike] = msgspec.field(default_factory=list)
    """Taps with rows of other bits, in order of execution."""
    lacking: list[str] = msgspec.field(default_factory=list)
    """Rows of the window that one pass alone holds, though both recorded the tap."""
    parted: dict[str, int] = msgspec.field(default_factory=dict)
    """Sequence -> position of the first token that is another one in the second pass."""
    changed: list[str] = msgspec.field(default_factory=list)
    """What else differs between the two passes: settings, environment."""

    @property
    def repeats(self) -> bool:
        """Every row that could be checked came out the same."""
        return not (self.unlike or self.lacking or self.parted)


class Recaptured(msgspec.Struct, kw_only=True):
    """The result of ``verify recapture A B``. Without a split there was no second pass, and
    ``result`` is that of the first."""

    a: str
    b: str
    splits: list[Split]
    taps: list[str]
    """Globs of the window."""
    again: list[Again]
    result: BisectResult
    schema: str = "verify-recapture/1"
