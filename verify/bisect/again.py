"""The command that records a run again with what was missing: to be copied, not to be guessed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from verify.dumps.format import Dump

_FLAGS = {"--raw", "--kernels"}
_SHORT = {"-p": "--prompt", "-m": "--model", "-o": "--out"}
_PROMPTS = ("--prompt", "--prompt-file", "--raw")

Option = tuple[str, str | None]


def recapture(
    dump: Dump, *, level: str = "", taps: str = "", tape: Dump | None = None, prompts: bool = False
) -> str:
    """The command that captured ``dump``, changed, with a new folder for its output.

    Args:
        level: what to keep; empty: as before.
        taps: the selection; empty: as before.
        tape: a run whose tokens are forced.
        prompts: give the prompts of ``tape`` in place of its own.
    """
    words = dump.manifest.command
    lacks = prompts and tape is not None and tape.manifest.command[1:2] != ["capture"]
    if words[1:2] != ["capture"] or lacks:
        own = words and dump.manifest.capture.get("started") and tape is None
        return _of_program(dump, level, taps) if own else _words(level, taps, tape)
    changed = {"--out", *({"--level"} if level else ()), *({"--taps"} if taps else ())}
    changed |= {"--tape"} if tape else set()
    changed |= set(_PROMPTS) if prompts else set()
    kept = [option for option in options(words[2:]) if option[0] not in changed]
    if prompts and tape is not None:
        kept += [o for o in options(tape.manifest.command[2:]) if o[0] in _PROMPTS]
    kept += [("--level", level)] if level else []
    kept += [("--taps", taps)] if taps else []
    kept += [("--tape", str(tape.path))] if tape else []
    kept.append(("--out", f"{dump.path}-again"))
    said = [word for name, value in kept for word in (name, value) if word is not None]
    return shlex.join(["verify", "capture", *said])


def options(words: list[str]) -> Iterator[Option]:
    """The options of a command line of `verify capture`, by their long names."""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            yield name, value
        elif word in _FLAGS:
            yield word, None
        else:
            yield _SHORT.get(word, word), next(rest, None)


def _of_program(dump: Dump, level: str, taps: str) -> str:
    """For a program that was recorded as it is (docs/recapture.md)."""
    said = ["--level", level] if level else []
    said += ["--taps", taps] if taps else []
    out = ["--out", f"{dump.path}-again"]
    return shlex.join(["verify", "capture", *said, *out, "--", *dump.manifest.command])


def _words(level: str, taps: str, tape: Dump | None) -> str:
    """For a run of another loop: what has to change."""
    said = [f"--level {level}"] if level else []
    said += [f"--taps {taps}"] if taps else []
    said += [f"--tape {tape.path}"] if tape else []
    return "capture again, as `verify capture " + " ".join([*said, "..."]) + "` does"
