"""Dump format 1: the types, one writer and one reader (docs/dump-format.md specifies it)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.dumps.format.opening import open_dump
    from verify.dumps.format.reader import Dump
    from verify.dumps.format.tokens import TokenTrack
    from verify.dumps.format.writer import DumpWriter

__all__ = ["Dump", "DumpWriter", "TokenTrack", "open_dump"]

# pyarrow and safetensors load only when a dump is read or written.
_HOMES = {"Dump": "reader", "open_dump": "opening", "DumpWriter": "writer", "TokenTrack": "tokens"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
