"""Two runs of different implementations, brought to the names of the first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from verify.dumps.format import Dump
from verify.dumps.format.schema import Manifest
from verify.taps.edges import Agreement, Edges, WeightNames
from verify.taps.patterns import fill, match
from verify.taps.plan import Plan, declared_alone, plan
from verify.taps.present import Made, present
from verify.taps.relayout import lay_out
from verify.taps.same import SameTensors
from verify.taps.sizes import Sizes, sizes_of
from verify.taps.types import Alone, Side, TapMap
from verify.taps.view import View


@dataclass(slots=True)
class Mapped:
    """Two runs under A's names, and what the map did."""

    a: View
    b: View
    plan: Plan
    alone: dict[str, Alone] = field(default_factory=dict)
    """Taps of A that the map says have no counterpart."""
    not_made: dict[str, str] = field(default_factory=dict)
    """Tap of A -> why this run of B cannot be presented there."""


def apply_map(a: Dump, b: Dump, tap_map: TapMap) -> Mapped:
    """Present run B under the names of run A.

    Taps that the map declares to have no counterpart are left out and named in the notes; all others
    stay and are listed as unmatched. Inputs are followed through taps that cannot be compared.

    Raises:
        ArgumentError: a rule does not fit the runs, or a size is not known.
        CorruptDumpError: records or rows are not those that were stored.
    """
    taps_a, taps_b = _taps(a), _taps(b)
    configs = [a.manifest.model.config, b.manifest.model.config]
    sizes = Sizes(tap_map.sizes, sizes_of(configs), f"tap map {tap_map.name}")
    found = plan(tap_map, taps_a, taps_b, SameTensors(b))
    made_b = present(b, found, sizes)
    there = {presented.record.tap for presented in made_b.presented}
    alone_a = {
        tap: line
        for tap in taps_a
        if tap not in there and (line := declared_alone(tap_map, "a", tap))
    }
    own = _own(a, taps_a, there, alone_a)
    made_a = present(a, own, sizes)
    lay_out(made_b, {record.tap: record for record in reversed(a.records())})
    weights = Weights(tap_map, b.manifest, sizes)
    of_a = Agreement(_equal(alone_a), _kept_weights(tap_map, "a"), _kept_values(tap_map, "a"))
    edges_a = Edges(a, made_a, there, of_a)
    edges_a.rewrite()
    values_b = _kept_values(tap_map, "b")
    of_b = Agreement(_equal(found.alone), weights.names, values_b, edges_a.reads())
    Edges(b, made_b, taps_a, of_b).rewrite()
    notes_a = [*_notes(alone_a), *_repeated(own.repeats), *_weight_notes(a, tap_map, "a")]
    notes_b = [*_of_b(tap_map, found, made_b), *_weight_notes(b, tap_map, "b")]
    return Mapped(
        View(a, _without_weights(a.manifest, tap_map), made_a.presented, notes_a),
        View(b, _manifest(a, b, weights), made_b.presented, notes_b),
        found,
        alone_a,
        made_b.not_made,
    )


def _own(a: Dump, taps: list[str], there: set[str], alone: dict[str, Alone]) -> Plan:
    """A's records under their own names, without those that only repeat what is compared."""
    shown = [tap for tap in taps if tap in there and tap not in alone]
    same = SameTensors(a)
    found = Plan(same=shown)
    known = {*shown, *alone}
    for tap in taps:
        if tap in alone or tap in there:
            continue
        if same.held_by(tap, known) is not None:
            found.repeats.append(tap)
        else:
            found.open[tap] = tap
    return found


def _equal(alone: dict[str, Alone]) -> set[str]:
    return {tap for tap, line in alone.items() if line.equal}


def _taps(dump: Dump) -> list[str]:
    return list(dict.fromkeys(record.tap for record in dump.records()))


class Weights:
    """Names of B's weights in A."""

    def __init__(self, tap_map: TapMap, manifest: Manifest, sizes: Sizes) -> None:
        self.map, self.manifest, self.sizes = tap_map, manifest, sizes
        self.found: dict[str, list[tuple[str, str]]] = {}

    def names(self, name: str) -> list[str]:
        return [shown for shown, _ in self.of(name)]

    def of(self, name: str) -> list[tuple[str, str]]:
        """Names in A of a weight of B, each with the name of its digest in B's manifest."""
        if name not in self.found:
            self.found[name] = self._of(name)
        return self.found[name]

    def _of(self, name: str) -> list[tuple[str, str]]:
        if _is_alone(self.map, "b", name):
            return []
        found = []
        reordered = False
        for rule in self.map.weight:
            numbers = match(rule.b, name)
            if numbers is None:
                continue
            reordered |= rule.reordered
            if rule.reordered:
                continue
            key = name
            if rule.split is not None:
                start = sum(
                    self.sizes.value(n) for n in rule.split[: rule.split.index(rule.take or "")]
                )
                key = f"{name}[{start}:{start + self.sizes.value(rule.take or '')}]"
            found.append((fill(rule.a, numbers), key))
        return found or ([] if reordered else [(name, name)])

    def digests(self) -> dict[str, str]:
        """Presented name -> digest, where B's manifest has one: of the whole weight, or of its rows
        as an entry ``name[start:stop]``."""
        known = self.manifest.model.weights
        return {
            shown: known[key]
            for name in known
            if not name.endswith("]")
            for shown, key in self.of(name)
            if key in known
        }


def _is_alone(tap_map: TapMap, side: Side, name: str) -> bool:
    return bool(_alone_weight(tap_map, side, name))


def _alone_weight(tap_map: TapMap, side: Side, name: str) -> str:
    """Why the digest of a weight has nothing to be compared with; empty if it has."""
    for line in tap_map.alone:
        if line.side == side and line.weight is not None and fnmatchcase(name, line.weight):
            return line.why
    for rule in tap_map.weight:
        if rule.reordered and match(rule.a if side == "a" else rule.b, name) is not None:
            return "its values stand in another order"
    return ""


def _kept_weights(tap_map: TapMap, side: Side) -> WeightNames:
    return lambda name: [] if _is_alone(tap_map, side, name) else [name]


def _kept_values(tap_map: TapMap, side: Side) -> Callable[[str], bool]:
    globs = [line.value for line in tap_map.alone if line.side == side and line.value is not None]
    return lambda name: not any(fnmatchcase(name, glob) for glob in globs)


def _manifest(a: Dump, b: Dump, weights: Weights) -> Manifest:
    """B's, with A's kind of model: that both compute the same network is what the map claims. Sizes
    that differ still say that they do not."""
    config, own = dict(b.manifest.model.config), a.manifest.model.config
    config.update({name: own[name] for name in ("model_type",) if name in own and name in config})
    model = msgspec.structs.replace(
        b.manifest.model,
        architecture=a.manifest.model.architecture,
        config=config,
        weights=weights.digests(),
    )
    return msgspec.structs.replace(b.manifest, model=model, taps={})


def _without_weights(manifest: Manifest, tap_map: TapMap) -> Manifest:
    kept = {n: d for n, d in manifest.model.weights.items() if not _is_alone(tap_map, "a", n)}
    model = msgspec.structs.replace(manifest.model, weights=kept)
    return msgspec.structs.replace(manifest, model=model)


def _of_b(tap_map: TapMap, found: Plan, made: Made) -> list[str]:
    added = [d.tap for d in found.derived if d.rule.join == "add" and d.tap not in made.not_made]
    used = {source for derived in found.derived for source in derived.sources}
    many = f": {len(found.derived)} taps of A from {len(used)} of B" if used else ""
    notes = [f"read through the tap map {tap_map.name!r}{many}"]
    if added:
        notes.append(
            f"{len(added)} taps are sums that the comparison computed, not the run: {_some(added)}"
        )
    for reason in dict.fromkeys(made.not_made.values()):
        taps = [tap for tap, why in made.not_made.items() if why == reason]
        notes.append(f"not presented: {_some(taps)}: {reason}")
    return [*notes, *_notes(found.alone), *_repeated(found.repeats)]


def _repeated(taps: list[str]) -> list[str]:
    if not taps:
        return []
    return [f"left out: {_some(taps)}: the very tensors of other taps"]


def _notes(alone: dict[str, Alone]) -> list[str]:
    """Taps that are left out, and those taken to agree, by the reasons that the map gives."""
    notes = []
    for line in dict.fromkeys(alone.values()):
        taps = [tap for tap, found in alone.items() if found is line]
        how = "taken to be equal, not checked" if line.equal else "left out"
        notes.append(f"{how}, as the map says: {_some(taps)}: {line.why}")
    return notes


def _weight_notes(dump: Dump, tap_map: TapMap, side: Side) -> list[str]:
    """Weights that are taken to be equal, by the reasons that the map gives."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in dump.manifest.model.weights:
        if reason := _alone_weight(tap_map, side, name):
            found[reason].append(name)
    return [f"weights not compared: {_some(names)}: {why}" for why, names in found.items()]


def _some(taps: list[str]) -> str:
    return taps[0] if len(taps) == 1 else f"{taps[0]} and {len(taps) - 1} more"
