"""What a suite finds, stored as ``suite.json``; each stream also as a line of ``streams.jsonl``."""

from __future__ import annotations

from typing import Literal

import msgspec

from verify.bisect.result import Confounder


class Stream(msgspec.Struct, kw_only=True, frozen=True):
    """One prompt under one configuration."""

    prompt: str
    side: Literal["a", "b"]
    key: str
    """Digest of all that decides the stream: a resumed suite takes it only if this is the same."""
    state: Literal["OK", "ERROR"]
    error: str = ""
    run: str = ""
    """Folder of the dump, relative to that of the suite's results."""
    prompt_tokens: int = 0
    generated: list[int] = msgspec.field(default_factory=list)
    ended: Literal["", "natural", "limit"] = ""
    log_probabilities: list[float] = msgspec.field(default_factory=list)
    """Of the chosen tokens, natural logarithm, from the recorded logits."""
    seconds: float = 0.0
    """Of the whole process, the loading of the model included."""
    step_seconds: list[float] = msgspec.field(default_factory=list)
    """Between the ends of consecutive steps, from when each was on disk: the capture is included.
    Empty where steps were not stored one by one."""


class Pair(msgspec.Struct, kw_only=True, frozen=True):
    """One prompt under both."""

    prompt: str
    state: Literal["IDENTICAL", "SPLIT", "ERROR"]
    prompt_tokens: int = 0
    tokens_a: int = 0
    tokens_b: int = 0
    ended_a: str = ""
    ended_b: str = ""
    first: int | None = None
    """Number of the first generated token that differs, from 0."""
    text_a: str = ""
    text_b: str = ""
    log_probability_shift: float = 0.0
    """Largest difference of the log-probabilities of equal choices before the split."""
    verdict: str = ""
    """Of bisect on the split, where it was asked for."""
    note: str = ""


class SuiteResult(msgspec.Struct, kw_only=True):
    """The result of ``verify suite``."""

    name: str
    summary: str
    pairs: list[Pair]
    streams: list[Stream]
    differences: list[Confounder]
    """What differs between the two configurations, as their dumps recorded it."""
    undeclared: list[str]
    """Of these, what the suite did not declare and is known to change results."""
    exit_code: int
    command: list[str] = msgspec.field(default_factory=list)
    schema: str = "verify-suite/1"
