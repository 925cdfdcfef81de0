"""Parts of an implementation that one side can take from the other, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from verify.dumps.format import Dump
from verify.errors import ArgumentError, NotComparableError


class Aspect(StrEnum):
    """What can be exchanged."""

    ATTENTION = "attention"
    KEYS = "keys"
    VALUES = "values"


class By(StrEnum):
    """How parts are cut."""

    LAYER = "layer"
    """Everything that differs in one layer is one part."""
    ASPECT = "aspect"
    """One aspect in all layers is one part."""
    BOTH = "both"
    """One aspect in one layer."""


@dataclass(frozen=True, slots=True)
class Part:
    """Aspects in some layers, exchanged together."""

    name: str
    members: frozenset[tuple[Aspect, int]]


def cut(a: Dump, b: Dump, layers: int, by: By) -> list[Part]:
    """The parts in which two runs differ, in execution order.

    Raises:
        NotComparableError: the manifests name no difference of attention or cache.
    """
    aspects = differing(a, b)
    everywhere = range(layers)
    if by is By.LAYER:
        return [Part(f"layer {i}", frozenset((x, i) for x in aspects)) for i in everywhere]
    if by is By.ASPECT:
        return [Part(str(x), frozenset((x, i) for i in everywhere)) for x in aspects]
    return [Part(f"layer {i} {x}", frozenset([(x, i)])) for i in everywhere for x in aspects]


def differing(a: Dump, b: Dump) -> list[Aspect]:
    """Aspects that the settings of the two runs name differently."""
    first, second = a.manifest.settings, b.manifest.settings
    found: list[Aspect] = []
    if first.get("kv_cache") != second.get("kv_cache"):
        found += [Aspect.KEYS, Aspect.VALUES]
    if first.get("attn") != second.get("attn"):
        found.append(Aspect.ATTENTION)
    if not found:
        raise NotComparableError(
            "the runs name the same attention and the same cache, so no part of the "
            "implementation is there to be exchanged",
            where=f"{a.path} and {b.path}",
            found=f"attn {first.get('attn')}, kv_cache {first.get('kv_cache')} in both",
            allowed="runs that differ in attn or kv_cache",
            hint="exchange tensors: leave out --by",
        )
    return found


def parse_by(text: str) -> By:
    """The way of cutting by its name.

    Raises:
        ArgumentError: there is no such way.
    """
    if text not in list(By):
        raise ArgumentError("no such parts", where="--by", found=text, allowed=", ".join(By))
    return By(text)


def members(parts: Sequence[Part], chosen: frozenset[str]) -> set[tuple[Aspect, int]]:
    """All that the chosen parts hold."""
    return {each for part in parts if part.name in chosen for each in part.members}
