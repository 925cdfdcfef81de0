"""Keeping secrets out of everything that is written: one place that knows what they look like."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

REDACTED = "[redacted]"

# Shapes of tokens as their issuers document them: Hugging Face, GitHub, GitLab, OpenAI and
# Anthropic, AWS, Slack, Google, npm, PyPI, NVIDIA; JSON web tokens; private keys.
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"
    r"|\bglpat-[\w-]{16,}|\bsk-[\w-]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\bAIza[\w-]{30,}|\bnpm_[A-Za-z0-9]{20,}|\bpypi-[\w-]{20,}|\bnvapi-[\w-]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@")
_WORD = (
    r"secret|passw(?:or)?d|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credentials?"
    r"|(?<=[-_])token"
)
# The word `token` alone is followed by text tokens more often than by a secret, unless by `=`.
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w-])([\w-]*(?:{_WORD})[\"']?\s*[=:]\s*[\"']?|token=)([^\s\"'&,;(){{}}\[\]]{{6,}})"
)
_NAME = re.compile(rf"(?i)(?:^|[-_ ])(?:{_WORD}|token|auth|authorization)$")
_TEXT_TOKEN = re.compile(
    r"(?i)(?:bos|eos|pad|unk|sep|cls|mask|image|audio|next|first|last|stop|start|end|new|max|min)"
    r"[-_]token\b"
)
_NO_SECRET = re.compile(r"(?i)[\d.,+-]+|true|false|null|none")
_HIDDEN_LENGTH = 8
"""A shorter value of a variable would also be cut out of innocent words."""


def names_a_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret: HF_TOKEN, --api-key, ..."""
    return _NAME.search(name) is not None and _TEXT_TOKEN.search(name) is None


def redact(text: str) -> str:
    """The text with everything that looks like a secret replaced by ``[redacted]``: tokens of known
    shapes, passwords in URLs, values after names such as ``password=``, and the values that
    environment variables with such names have now."""
    return _redact(text, _hidden_values())


def _redact(text: str, hidden: Sequence[str]) -> str:
    for value in hidden:
        text = text.replace(value, REDACTED)
    text = _SHAPES.sub(REDACTED, text)
    text = _BEARER.sub(rf"\1\2{REDACTED}", text)
    text = _URL.sub(rf"\1{REDACTED}@", text)
    return _ASSIGNED.sub(_hide_value, text)


def _hide_value(found: re.Match[str]) -> str:
    innocent = _TEXT_TOKEN.search(found[1]) or _NO_SECRET.fullmatch(found[2])
    return found[0] if innocent else found[1] + REDACTED


def redact_command(words: Sequence[str]) -> list[str]:
    """A command line without secrets; the value after an option such as ``--token`` goes too."""
    shown: list[str] = []
    hide = False
    for word in words:
        shown.append(REDACTED if hide else redact(word))
        hide = word.startswith("-") and names_a_secret(word)
    return shown


def redact_all(value: Any) -> Any:
    """Nested tables and lists with every text, keys included, redacted. What a key such as
    ``password`` holds goes as a whole if it is a text."""
    return _redact_all(value, _hidden_values())


def _redact_all(value: Any, hidden: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _redact(value, hidden)
    if isinstance(value, dict):
        return {
            _redact(str(key), hidden): REDACTED
            if isinstance(item, str) and names_a_secret(str(key))
            else _redact_all(item, hidden)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact_all(item, hidden) for item in value]
    return value


def command_line() -> list[str]:
    """How this process was called, fit to be written down."""
    return redact_command(["verify", *sys.argv[1:]])


def _hidden_values() -> list[str]:
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= _HIDDEN_LENGTH and names_a_secret(name)
    }
    return sorted(values, key=len, reverse=True)
