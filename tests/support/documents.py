"""The commands and Python blocks of the documentation, in the order in which they stand.

A block of a page that cannot run as it stands says why in a comment in front of it:

    <!-- prepare: verify capture ... -->     commands that the page takes for granted, run first
    <!-- prepare python
    x = torch.ones(3)                        lines in front of the next block of Python
    -->
    <!-- not run: needs a GPU -->            the block below is only checked for its options
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REASONS = ("needs a GPU", "takes minutes", "needs an engine", "needs files of your own")
"""Why a block may stay unrun."""

_FENCE = re.compile(r"^ *```(\w*)\s*$")
_PREPARE = re.compile(r"<!-- prepare: (.*?) -->", re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.*?) -->")
_PLACEHOLDER = re.compile(r"(?<![\w./-])[A-Z][A-Z_]*(?![\w=./])|[\[\]{}<>|…]|\.\.\.|::[A-Z]")


@dataclass(frozen=True)
class Step:
    """One command line, or one block of Python."""

    kind: str
    """``verify``, ``python`` or ``synopsis``."""
    text: str
    line: int
    reason: str = ""
    """Why it is not run."""

    @property
    def words(self) -> list[str]:
        """The arguments after ``verify``."""
        return shlex.split(self.text, comments=True)[1:]


def pages() -> list[Path]:
    """README and everything in docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def steps(page: Path) -> list[Step]:
    """What the page asks its reader to run."""
    found: list[Step] = []
    language, block, start, reason = None, [], 0, ""
    before: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and language is None:
            language, block, start = fence[1] or "sh", [], number + 1
        elif fence or (language == "before" and line.strip() == "-->"):
            if language == "before":
                before = block
            else:
                found += _block(language, [*before, *block], start, reason)
                before, reason = [], ""
            language = None
        elif language is not None:
            block.append(line)
        elif line.strip() == "<!-- prepare python":
            language, block = "before", []
        elif prepared := _PREPARE.search(line):
            found.append(Step("verify", prepared[1], number))
        elif said := _NOT_RUN.search(line):
            reason = said[1]
        elif line.startswith("    verify "):
            found += _block("sh", [line.strip()], number, reason)
        elif line.strip() and not line.startswith("    "):
            reason = ""  # what was said in front of an indented block ends with it
    assert language is None, f"{page}: a block without an end"
    return found


def _block(language: str, lines: list[str], start: int, reason: str) -> list[Step]:
    if language == "python":
        return [Step("python", "\n".join(lines), start, reason)]
    if language not in ("sh", "console", "bash"):
        return []
    joined = "\n".join(lines).replace("\\\n", "  ").splitlines()
    commands = [(start + i, line.strip()) for i, line in enumerate(joined)]
    return [
        Step(_kind(text), text.removeprefix("$ "), line, reason)
        for line, text in commands
        if text.removeprefix("$ ").startswith("verify ")
    ]


def _kind(text: str) -> str:
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|#.*$", "", text)
    return "synopsis" if _PLACEHOLDER.search(bare) else "verify"
