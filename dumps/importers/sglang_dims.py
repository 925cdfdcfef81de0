"""The dims strings of SGLang's dumper, for example ``t h[tp] d # dp:=moe``.

Grammar: python/sglang/srt/debug_utils/comparator/dims_spec of SGLang: names separated by spaces,
``a*b`` for fused axes, modifiers in brackets, a comment behind ``#``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_DIM: Final = re.compile(r"([^\s\[\]]+)(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Dims:
    """Axes of a tensor, and how ranks hold it (``shard:D``, ``partial``, or empty: not told)."""

    axes: list[str]
    layout: str = ""


def parse_dims(text: Any, meta: dict[str, Any], ranks: int) -> Dims | None:
    """None where there is no such string."""
    if not isinstance(text, str) or not text.split("#")[0].strip():
        return None
    axes: list[str] = []
    layout = ""
    several = 0
    for place, (name, modifiers) in enumerate(_DIM.findall(text.split("#")[0])):
        axes.append(_axis(name, axes, place))
        parts = re.split(r"[,: ]+", modifiers) if modifiers else []
        if not parts:
            continue
        several += 1
        if "partial" in parts:
            layout = "partial"
        elif "zigzag" not in parts and _size(meta, parts[0]) == ranks:
            layout = f"shard:{place}"
    if "s" in axes and "t" not in axes:  # positions of a sequence, not keys
        axes[axes.index("s")] = "t"
    return Dims(axes, layout if several == 1 and ranks > 1 else "")


def _axis(name: str, before: list[str], place: int) -> str:
    """A name that stands once; fused axes and axes of size 1 have names of their own."""
    plain = name if name.isidentifier() else f"x{place}"
    return plain if plain not in before else f"x{place}"


def _size(meta: dict[str, Any], group: str) -> Any:
    """Ranks of a parallel group, as the dump recorded it."""
    for key in ("sglang_parallel_info", "megatron_parallel_info"):
        info = meta.get(key)
        if isinstance(info, dict) and f"{group}_size" in info:
            return info[f"{group}_size"]
    return None
