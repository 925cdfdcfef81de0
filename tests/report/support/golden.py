"""Comparison with the files in golden/; VERIFY_UPDATE_GOLDEN=1 rewrites them (docs/report.md)."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "golden"


def check(name: str, found: str) -> None:
    """Fail with a unified diff where ``found`` is not the golden file ``name``."""
    path = FOLDER / name
    if os.environ.get("VERIFY_UPDATE_GOLDEN") == "1":
        path.write_text(found, "utf-8")
    wanted = path.read_text("utf-8") if path.exists() else ""
    if found != wanted:
        lines = difflib.unified_diff(
            wanted.splitlines(), found.splitlines(), f"golden/{name}", "found", lineterm=""
        )
        raise AssertionError("\n".join(lines))
