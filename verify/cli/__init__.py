"""The command line: one file a command; each parses, makes one library call, and renders."""

from __future__ import annotations

from verify.cli.app import main

__all__ = ["main"]
