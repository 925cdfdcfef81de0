"""From prompts to the token ids of named sequences, padded on the left into one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Listing
from typing import Any

import numpy as np
import xxhash

from verify.dumps.format.schema import Sequence
from verify.errors import ArgumentError

_ID_DIGITS = 12


def encode_prompt(tokenizer: Any, prompt: str, *, raw: bool) -> list[int]:
    """Token ids of a prompt: as a user's turn of the chat template, or as it stands (``raw``, and
    for tokenizers without a template).

    Raises:
        ArgumentError: the prompt has no tokens.
    """
    if raw or not getattr(tokenizer, "chat_template", None):
        ids = tokenizer(prompt)["input_ids"]
    else:
        turn = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
    if not len(ids):
        raise ArgumentError("a prompt without tokens", where="prompt", found=repr(prompt))
    return [int(token) for token in ids]


def prompt_hash(ids: Listing[int]) -> str:
    """First 12 hex digits of xxh3-64 over the ids as little-endian int64."""
    return xxhash.xxh3_64_hexdigest(np.asarray(ids, "<i8").tobytes())[:_ID_DIGITS]


def name_sequences(prompts: Listing[list[int]]) -> list[Sequence]:
    """Sequences with ids ``<hash of the prompt ids>#<ordinal among equal prompts>``."""
    seen: Counter[str] = Counter()
    found = []
    for ids in prompts:
        name = prompt_hash(ids)
        found.append(Sequence(id=f"{name}#{seen[name]}", prompt=list(ids)))
        seen[name] += 1
    return found


def fill_batch(prompts: Listing[list[int]], batch: int | None) -> list[list[int]]:
    """Cycle the prompts to ``batch`` rows.

    Raises:
        ArgumentError: fewer rows than prompts.
    """
    if batch is None:
        return list(prompts)
    if batch < len(prompts):
        raise ArgumentError(
            "a batch with fewer rows than prompts",
            where="batch",
            found=batch,
            allowed=f"{len(prompts)} or more",
        )
    return [prompts[row % len(prompts)] for row in range(batch)]


def pad_left(prompts: Listing[list[int]], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, int64 [b, t]: the prompts end in the last column; the mask is 0 in front."""
    width = max(map(len, prompts))
    ids = np.full((len(prompts), width), padding, np.int64)
    mask = np.zeros((len(prompts), width), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        mask[row, width - len(prompt) :] = 1
    return ids, mask
