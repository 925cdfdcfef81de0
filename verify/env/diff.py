"""What differs between two environments, the most telling first, one entry for one thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from verify.env.library_diff import LibraryChange, library_changes
from verify.env.weights import LIKELY, ORDER, POSSIBLE, UNLIKELY, weigh, weigh_package

SHOWN = 100
"""Characters of a value; of longer ones the place where they part."""
_OWN_RULES = ("record", "packages", "libraries", "installed_from", "repositories")


class Difference(msgspec.Struct, kw_only=True, frozen=True):
    """A fact that two environments do not share. ``-`` stands for what one of them lacks."""

    name: str
    a: str
    b: str
    weight: str
    """``likely``, ``possible`` or ``unlikely`` to change results."""
    subject: str
    """The thing that changed: several facts may tell of one."""
    note: str = ""


class Weighed(Protocol):
    """A difference of any kind that says how much it weighs and what it is about."""

    @property
    def weight(self) -> str: ...
    @property
    def subject(self) -> str: ...


def difference(a: dict[str, Any], b: dict[str, Any]) -> list[Difference]:
    """Everything that differs between two results of :func:`verify.env.collect`, those that weigh
    most first. Between records of different editions only what both hold is compared."""
    if a.get("record") != b.get("record"):
        a, b = _common(a, b)
    found = [*_packages(a, b), *_repositories(a, b), *_facts(a, b)]
    return sorted(found, key=lambda each: (ORDER.index(each.weight), each.name))


def subjects(found: Iterable[Weighed]) -> list[str]:
    """The things behind differences that are declared or likely to matter, each once."""
    return list(dict.fromkeys(d.subject for d in found if d.weight in ("declared", LIKELY)))


def say_changes(found: Iterable[Weighed]) -> str:
    """A sentence when more than one thing changed that may matter; empty otherwise."""
    changed = subjects(found)
    if len(changed) < 2:
        return ""
    words = {2: "Two", 3: "Three", 4: "Four"}.get(len(changed), str(len(changed)))
    return (
        f"{words} things changed at once ({', '.join(changed)}): a difference cannot be put down "
        "to one of them. Runs that change one alone tell which it is."
    )


def _common(a: dict[str, Any], b: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both tables without what only one holds, at every depth."""
    x, y = {}, {}
    for key in a.keys() & b.keys() - {"record"}:
        if isinstance(a[key], dict) and isinstance(b[key], dict):
            x[key], y[key] = _common(a[key], b[key])
        else:
            x[key], y[key] = a[key], b[key]
    return x, y


def _facts(a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    x, y = (dict(flatten({k: v for k, v in e.items() if k not in _OWN_RULES})) for e in (a, b))
    for section in ("torch", "compile"):
        if (section in a) != (section in b):
            weight, subject, note = POSSIBLE, section, "one of the processes did not load it"
            was, now = _presence(a, section), _presence(b, section)
            yield _entry(section, was, now, weight, subject, note)
            x, y = ({k: v for k, v in e.items() if not k.startswith(f"{section}.")} for e in (x, y))
    for name in sorted(x.keys() | y.keys()):
        if x.get(name) != y.get(name):
            yield _entry(name, x.get(name), y.get(name), *weigh(name))


def _presence(environment: dict[str, Any], section: str) -> str:
    return "loaded" if section in environment else "not loaded"


def _packages(a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    """Versions, sources and shared objects; what a package's own change explains is told there."""
    x, y = a.get("packages", {}), b.get("packages", {})
    changed = {name for name in x.keys() | y.keys() if x.get(name) != y.get(name)}
    libraries = library_changes(a.get("libraries"), b.get("libraries"))
    for name in sorted(changed):
        own = [each for each in libraries if each.belongs_to(name)]
        weight, note = weigh_package(name, bool(own))
        if own:
            note = "; ".join(filter(None, (note, f"its shared objects differ: {_names(own)}")))
        yield _entry(f"packages.{name}", x.get(name), y.get(name), weight, name, note)
    sources = list(_sources(a, b, changed))
    yield from sources
    for each in libraries:
        if not any(each.belongs_to(name) for name in changed):
            yield _library(each)


def _sources(a: dict[str, Any], b: dict[str, Any], changed: set[str]) -> Iterator[Difference]:
    x, y = a.get("installed_from", {}), b.get("installed_from", {})
    for name in sorted((x.keys() & y.keys()) - changed):
        if (was := x[name].get("files")) != (now := y[name].get("files")):
            weight = UNLIKELY if name == "firstdiff" else LIKELY
            note = "the files of the package differ under one version"
            yield _entry(f"installed_from.{name}", _hash(was), _hash(now), weight, name, note)


def _library(each: LibraryChange) -> Difference:
    weight, note = each.weight()
    return _entry(f"libraries.{each.name}", each.a, each.b, weight, each.subject, note)


def _names(own: list[LibraryChange]) -> str:
    shown = ", ".join(each.name for each in own[:3])
    return shown if len(own) <= 3 else f"{shown} and {len(own) - 3} more"


def _repositories(a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    x, y = a.get("repositories", {}), b.get("repositories", {})
    for name in sorted(x.keys() | y.keys()):
        was, now = _state(x.get(name)), _state(y.get(name))
        if was != now:
            note = "matters where its code ran" if "-" not in (was, now) else "looked at in one run"
            weight = POSSIBLE if "-" not in (was, now) else UNLIKELY
            yield _entry(f"repositories.{name}", was, now, weight, f"repository {name}", note)


def _state(state: dict[str, Any] | None) -> str:
    if state is None:
        return "-"
    commit = str(state.get("commit") or "no commit")[:12]
    return f"{commit} with changes {_hash(state.get('changes'))}" if state.get("dirty") else commit


def _hash(value: object) -> str:
    return "-" if value is None else str(value)[:12]


def _entry(name: str, a: object, b: object, weight: str, subject: str, note: str) -> Difference:
    was, now = _texts(a, b)
    return Difference(name=name, a=was, b=now, weight=weight, subject=subject, note=note)


def _texts(a: object, b: object) -> tuple[str, str]:
    x, y = text(a), text(b)
    if max(len(x), len(y)) <= SHOWN:
        return x, y
    pairs = enumerate(zip(x, y, strict=False))
    start = max(0, next((at for at, (p, q) in pairs if p != q), min(len(x), len(y))) - 20)
    lead = "…" if start else ""
    return tuple(  # type: ignore[return-value]
        lead + t[start : start + SHOWN] + ("…" if len(t) > start + SHOWN else "") for t in (x, y)
    )


def text(value: object) -> str:
    """A value as a table shows it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Entries of nested tables with dotted names."""
    if not isinstance(value, dict):
        yield prefix, value
        return
    for key, item in value.items():
        yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
