"""Where this user's caches lie."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$VERIFY_CACHE``, else ``$XDG_CACHE_HOME/firstdiff``, else ``~/.cache/firstdiff``."""
    if given := os.environ.get("VERIFY_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "firstdiff"
