"""Names of the environment variables."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "VERIFY_CAPTURE"
PREFIX: Final = f"{FOLDER}_"
CONFIG: Final = f"{PREFIX}CONFIG"
COMMAND: Final = f"{PREFIX}COMMAND"
"""JSON list: the command that started all processes, where another one did."""
SESSION: Final = f"{PREFIX}SESSION"
"""Set by the first process that is switched on, and seen by those that it starts."""
