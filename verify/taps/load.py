"""Reading tap maps: those that come with the package by name, others from TOML files."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import msgspec

from verify.errors import ArgumentError
from verify.taps.patterns import LAST, fields
from verify.taps.types import FORMAT_NAME, FORMAT_VERSION, Alone, TapMap, TapRule, WeightRule

_SUFFIX = ".toml"


def shipped_maps() -> list[str]:
    """Names of the maps that come with the package."""
    folder = resources.files("verify.taps") / "maps"
    names = [entry.name for entry in folder.iterdir()]
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_map(name: str) -> TapMap:
    """The map of that name, or the one in the file ``name`` (which has a slash or ends in .toml).

    Raises:
        ArgumentError: no such map, or the file is not one.
    """
    if name in shipped_maps():
        place = resources.files("verify.taps") / "maps" / f"{name}{_SUFFIX}"
        return parse_map(place.read_text(encoding="utf-8"), name)
    path = Path(name)
    try:
        return parse_map(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ArgumentError(
            "no tap map of that name, and no file that can be read",
            where="--map",
            found=f"{name}: {reason}",
            allowed=f"a TOML file, or {', '.join(shipped_maps())}",
            hint="`verify taps A B --out map.toml` proposes one",
        ) from None


def parse_map(text: str, where: str) -> TapMap:
    """The map that a TOML text describes.

    Raises:
        ArgumentError: not TOML, not a map, or a rule that contradicts itself.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), TapMap)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError("a tap map is not TOML", where=where, found=error) from None
    except msgspec.ValidationError as error:
        raise ArgumentError(
            "a tap map has a field that no map has, or of another kind",
            where=where,
            found=error,
            allowed=f'format = "{FORMAT_NAME}", version = {FORMAT_VERSION}; docs/taps.md',
        ) from None
    if found.extends:
        found = _extended(found, where)
    rules: list[TapRule | WeightRule | Alone] = [*found.tap, *found.weight, *found.alone]
    for rule in rules:
        if fault := _fault(rule, found):
            raise ArgumentError(
                "a rule of a tap map contradicts itself",
                where=f"{where}: {rule.why if isinstance(rule, Alone) else rule.a}",
                found=fault,
                hint="docs/taps.md describes the fields",
            )
    return found


def _extended(found: TapMap, where: str) -> TapMap:
    """A map with the rules of its base behind its own."""
    if found.extends not in shipped_maps() or found.extends == found.name:
        raise ArgumentError(
            "a tap map extends one that does not come with the package",
            where=where,
            found=found.extends,
            allowed=", ".join(shipped_maps()),
        )
    base = load_map(found.extends)
    return msgspec.structs.replace(
        found,
        extends="",
        sizes={**base.sizes, **found.sizes},
        tap=[*found.tap, *base.tap],
        weight=[*found.weight, *base.weight],
        alone=[*found.alone, *base.alone],
    )


def _fault(rule: TapRule | WeightRule | Alone, whole: TapMap) -> str:
    """What is wrong with a rule by itself; empty if nothing is."""
    if isinstance(rule, Alone):
        kinds = [name for name in (rule.tap, rule.weight, rule.value) if name is not None]
        return "" if len(kinds) == 1 else "one of tap, weight and value"
    if (rule.split is None) != (rule.take is None):
        return "split and take belong together"
    if rule.split is not None and rule.take not in rule.split:
        return f"take = {rule.take!r} is none of split = {rule.split}"
    if rule.split is not None and (unknown := [n for n in rule.split if n not in whole.sizes]):
        return f"{unknown[0]!r} is not under [sizes]"
    sources = rule.sources if isinstance(rule, TapRule) else [rule.b]
    if not sources:
        return "b names no tap"
    named = {label for label, _ in fields(sources[0])}
    for pattern in (rule.a, *sources[1:]):
        if extra := {label for label, _ in fields(pattern)} - named:
            return f"{{{extra.pop()}}} of {pattern!r} is not in {sources[0]!r}"
    if named - {label for label, _ in fields(rule.a)} - {LAST}:
        return "a and b do not name the same numbers"
    return _fault_of_tap(rule) if isinstance(rule, TapRule) else ""


def _fault_of_tap(rule: TapRule) -> str:
    if (len(rule.sources) > 1) != (rule.join is not None):
        return "join and several taps in b belong together"
    if rule.columns is not None and len(rule.columns) != 2:
        return "columns are two: the first, and the one behind the last"
    if (rule.dims is None) != (rule.order is None):
        return "dims and order belong together"
    if rule.dims is not None and sorted(rule.order or ()) != list(range(len(rule.dims))):
        return f"order = {rule.order} is no order of {len(rule.dims)} axes"
    return ""
