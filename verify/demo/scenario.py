"""The runs and pairs of the demo, as data."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT = "Why is the sky blue?"
TOKENS = 8
BASE = "base"


@dataclass(frozen=True, slots=True)
class Variant:
    """A second run that is compared with the base run."""

    name: str
    title: str
    """What differs, as the demo announces it."""
    prefill_chunk: int | None = None
    kv_cache: str = "native"
    planted: bool = False


VARIANTS = (
    Variant(
        name="kv-e4m3",
        title="keys and values rounded to 8 bits (float8_e4m3fn) as they enter the cache",
        kv_cache="e4m3",
    ),
    Variant(
        name="chunked",
        title="the prompt computed 13 positions at a time instead of all at once",
        prefill_chunk=13,
    ),
    Variant(
        name="planted",
        title="one attention launch has a defect; the tool is not told where, nor are you yet",
        planted=True,
    ),
)
