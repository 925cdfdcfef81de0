"""What `verify capture --engine NAME MODEL` asks of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A run to record into the new folder ``out``.

    ``given``: values of those options of `verify capture` that the engine reads, by the names of its
    parameters. ``settings``: the texts of ``--set NAME=VALUE``.
    """

    model: str
    out: Path
    given: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
