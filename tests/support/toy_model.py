"""The random-weight Llama of verify.selftest, and how to have it as a folder on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verify.selftest.toy import HEAD_DIM, HEADS, KV_HEADS, LAYERS, toy_llama, toy_tokenizer

__all__ = [
    "HEADS",
    "HEAD_DIM",
    "KV_HEADS",
    "LAYERS",
    "save_toy",
    "toy_llama",
    "toy_tokenizer",
]


def save_toy(folder: Path, *, chat: bool = True, **config: Any) -> Path:
    """Save model and tokenizer so that ``verify capture --model <folder>`` loads them."""
    toy_llama(**config).save_pretrained(folder)
    toy_tokenizer(chat).save_pretrained(folder)
    return folder
