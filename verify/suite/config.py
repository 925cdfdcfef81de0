"""SUITE.toml, typed: everything is checked before anything runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from verify.errors import UsageError

Option = str | int | float | bool | list[str]

_OWN = ("prompt", "prompt-file", "p", "out", "o", "tokens", "level", "taps", "tape")
"""Options of the captures that the suite sets itself."""


class Prompt(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One text. Exactly one of ``text`` and ``file``."""

    name: str
    text: str = ""
    file: str = ""
    """Relative to the folder of the suite."""
    repeat: int = 1
    """The text so many times over, for a longer context."""


class Side(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One configuration."""

    options: dict[str, Option] = {}
    """Options of ``verify capture`` without their dashes."""
    environment: dict[str, str] = {}
    """Variables set for the capture's process."""
    command: list[str] = []
    """A program in place of ``verify capture``: ``{out}``, ``{prompt_file}`` and ``{tokens}`` are
    filled in. It has to write a dump to ``{out}``."""


class Suite(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    version: Literal[1]
    name: str
    tokens: int
    """At most so many a stream; one that ends by this limit says so."""
    prompt: list[Prompt]
    a: Side
    b: Side
    shared: dict[str, Option] = {}
    """Options of both sides."""
    declared: list[str] = []
    """Globs on what A and B are meant to differ in: ``settings.kv_cache``."""
    timeout: float = 3600.0
    """Seconds for one capture."""


def load_suite(path: Path) -> Suite:
    """Read SUITE.toml.

    Raises:
        UsageError: not there, not TOML, an unknown key, a value of another type, no prompt, a name
            twice, a prompt without a text, or an option that the suite sets itself.
    """
    try:
        suite = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Suite)
    except OSError as error:
        raise UsageError(
            "the suite cannot be read", where=path, found=error.strerror,
            hint="docs/suite.md shows a file to start from",
        ) from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            "this is no suite", where=path, found=error, hint="docs/suite.md lists the keys"
        ) from error
    if faults := list(_faults(suite, path.parent)):
        raise UsageError("the suite makes no sense", where=path, found="; ".join(faults))
    return suite


def _faults(suite: Suite, folder: Path) -> list[str]:
    names = [prompt.name for prompt in suite.prompt]
    faults = [] if names else ["no [[prompt]]"]
    faults += [f"the prompt {name!r} twice" for name in sorted(set(names)) if names.count(name) > 1]
    for prompt in suite.prompt:
        if bool(prompt.text) == bool(prompt.file):
            faults.append(f"the prompt {prompt.name!r} needs one of text and file")
        elif prompt.file and not (folder / prompt.file).is_file():
            faults.append(f"the file of the prompt {prompt.name!r} is not there: {prompt.file}")
        if prompt.repeat < 1:
            faults.append(f"the prompt {prompt.name!r} is repeated {prompt.repeat} times")
        if not prompt.name or "/" in prompt.name or prompt.name.startswith("."):
            faults.append(f"the prompt name {prompt.name!r} is no name of a folder")
    if suite.tokens < 1:
        faults.append(f"tokens is {suite.tokens}")
    for where, options in (
        ("shared", suite.shared),
        ("a", suite.a.options),
        ("b", suite.b.options),
    ):
        faults += [f"the suite sets {name} itself ({where})" for name in options if name in _OWN]
    return faults


def text_of(prompt: Prompt, folder: Path) -> str:
    """The whole text of a prompt."""
    text = prompt.text or (folder / prompt.file).read_text("utf-8")
    return " ".join([text] * prompt.repeat)
