"""Recording the same configuration again and again, each time in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verify.errors import ArgumentError, DumpExistsError, ModelError
from verify.noise.measure import REPEATS

_OWN = ("--out", "-o", "--level")
VARIABLE = ("threads", "batch", "prefill-chunk", "attn")
"""Options of a capture that may be varied."""

_RUN = "from verify.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Planned:
    """One capture: what is changed, and the arguments."""

    group: str
    name: str
    arguments: tuple[str, ...]


def plan(
    arguments: Sequence[str], runs: int, vary: Sequence[str], level: str = "digest"
) -> list[Planned]:
    """The captures to make: ``runs`` repeats, and one for each varied value.

    Args:
        arguments: options of ``verify capture``, without ``--out`` and ``--level``.
        vary: ``threads=1,2`` and so on.

    Raises:
        ArgumentError: options that this command sets itself, or that cannot be varied.
    """
    if runs < 2:
        raise ArgumentError(
            "a repeat needs two runs", where="--runs", found=runs, allowed="2 or more"
        )
    for word in arguments:
        if word.partition("=")[0] in _OWN:
            raise ArgumentError(
                "this option of the captures is set by verify noise",
                where=word,
                hint="give --out and --level in front of the --",
            )
    base = (*arguments, "--level", level)
    planned = [Planned(REPEATS, f"run-{i}", base) for i in range(runs)]
    for each in vary:
        option, _, values = each.partition("=")
        if option not in VARIABLE or not values:
            raise ArgumentError(
                "this cannot be varied",
                where="--vary",
                found=each,
                allowed=", ".join(f"{name}=VALUE[,VALUE]" for name in VARIABLE),
            )
        for value in values.split(","):
            group = f"{option} {value}"
            changed = (*base, f"--{option}", value)  # the last one given counts
            planned.append(Planned(group, group.replace(" ", "-"), changed))
    return planned


def capture_all(
    planned: Sequence[Planned], folder: Path, say: Callable[[str], None] = lambda text: None
) -> dict[str, list[Path]]:
    """Run the captures one after the other; group -> dumps.

    Raises:
        DumpExistsError: the folder holds something.
        ModelError: a capture failed; its own message is passed on.
    """
    if folder.exists() and any(folder.iterdir()):
        raise DumpExistsError(
            "repeats are recorded into a new folder", where=folder, hint="choose another --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    done: dict[str, list[Path]] = {}
    for number, each in enumerate(planned, 1):
        say(f"{number} of {len(planned)}: {each.group}")
        out = folder / each.name
        command = [sys.executable, "-c", _RUN, "capture", *each.arguments, "--out", str(out)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise ModelError(
                "a capture failed",
                where=each.name,
                found=ended.stderr.strip() or f"exit code {ended.returncode}",
                hint="try it alone: verify capture " + " ".join(each.arguments),
            )
        done.setdefault(each.group, []).append(out)
    return done
