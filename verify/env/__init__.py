"""What a run really ran on: attached to every dump, compared between runs (docs/env.md)."""

from verify.env.collect import collect, collect_late
from verify.env.diff import Difference, difference, say_changes, subjects
from verify.env.secrets import command_line, redact, redact_all, redact_command

__all__ = [
    "Difference",
    "collect",
    "collect_late",
    "command_line",
    "difference",
    "redact",
    "redact_all",
    "redact_command",
    "say_changes",
    "subjects",
]
