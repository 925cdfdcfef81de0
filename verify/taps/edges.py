"""Where a presented record comes from, at the resolution of the taps that both runs have.

A tap without a counterpart tells nothing about the other run. Whoever reads it is taken to read what
it was computed from instead: `inputs` name the nearest ancestors that can be compared, as they do in
a capture with fewer taps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from verify.dumps.format import Dump
from verify.dumps.format.schema import Input, Record
from verify.taps.present import Made
from verify.taps.view import renamed
from verify.taps.words import Making

Key = tuple[int, int]
"""Rank and stored seq."""

WeightNames = Callable[[str], list[str]]
"""Name of a weight in the stored run -> its presented names; none if both runs are taken to agree."""


MOST = 256
"""Inputs of a record that are listed. A long text has keys of more steps than that; what lies further
back is then not known, and no origin is proven there."""


class Origin:
    """What a stored record stands for: comparable inputs, and the operations after them."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[str, int | None, str | None, str | None], Input] = {}
        self._ops: dict[str, None] = {}
        self._earlier: dict[int, Origin] = {}
        """What is read besides: keys of earlier steps, each with those before it."""

    @property
    def inputs(self) -> list[Input]:
        found, waiting = dict(self._inputs), dict(self._earlier)
        seen: set[int] = set()
        while waiting:
            if len(found) >= MOST:
                return [*found.values(), Input(kind="unknown", name="keys of earlier steps")]
            place, other = waiting.popitem()
            seen.add(place)
            found.update(other._inputs)
            waiting.update({p: o for p, o in other._earlier.items() if p not in seen})
        return list(found.values())

    @property
    def ops(self) -> list[str]:
        return list(self._ops)

    def add(self, *sources: Input) -> None:
        for source in sources:
            self._inputs[source.kind, source.seq, source.name, source.digest] = source

    def join(self, other: Origin) -> None:
        self._inputs.update(other._inputs)
        self._ops.update(other._ops)
        self._earlier.update(other._earlier)

    def follow(self, other: Origin) -> None:
        """Read what another one stands for as well, without a copy of it."""
        self._earlier[id(other)] = other
        self._ops.update(other._ops)

    def run(self, ops: Iterable[str]) -> None:
        self._ops.update(dict.fromkeys(ops))


@dataclass(frozen=True, slots=True)
class Agreement:
    """What of a run is taken as it is in the other one.

    Attributes:
        equal: stored taps at which both runs are taken to agree.
        weights: presented names of a weight.
        values: whether a value from outside, by its name, is to be compared.
        reads: presented tap -> taps and weights that the other run computed it from. Of the parts
            of a fused tensor the view keeps those: which part an operation read is not recorded.
    """

    equal: Collection[str]
    weights: WeightNames
    values: Callable[[str], bool]
    reads: Mapping[str, Collection[str]] = field(default_factory=dict)


class Edges:
    """Inputs of presented records.

    Args:
        dump: the stored run.
        made: its presented records.
        comparable: presented taps that the other run has as well.
        agreement: what is not compared.
    """

    def __init__(
        self, dump: Dump, made: Made, comparable: Collection[str], agreement: Agreement
    ) -> None:
        self.dump, self.made, self.agreement = dump, made, agreement
        self.taps = [presented.record.tap for presented in made.presented]
        self.shown: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self.repeated: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self.part_of: dict[int, Key] = {}
        self.through: dict[Key, Origin] = {}
        names = set(comparable)
        for seq, presented in enumerate(made.presented):
            if self.taps[seq] in names and not presented.making.add:
                self._show(seq, presented.making)

    def _show(self, seq: int, making: Making) -> None:
        """Readers of the sources of a presented record read that record, once it is there; or a
        record that repeats it, where it is not presented itself."""
        last = max(source.seq for source in making.sources)
        for source in making.sources:
            key = (source.rank, source.seq)
            self.shown[key].append((last, seq))
            if making.is_stored and source.same_as is not None:
                self.repeated[source.rank, source.same_as].append((last, seq))
            if not making.is_stored:
                self.part_of[seq] = key

    def rewrite(self) -> None:
        """Give every presented record its comparable inputs."""
        self._go_through()
        for seq, presented in enumerate(self.made.presented):
            making = presented.making
            found = Origin()
            for source in making.sources:
                if making.add:
                    self._read(found, source.rank, source.seq, source.seq + 1)
                else:
                    self._of(found, source)
            if making.add:
                found.run(["aten.add"])
            presented.record = renamed(
                presented.record, inputs=self._narrowed(found.inputs, seq), ops=found.ops
            )

    def reads(self) -> dict[str, set[str]]:
        """Presented tap -> names of the taps and weights that it was computed from."""
        found: dict[str, set[str]] = {}
        for presented in self.made.presented:
            names = found.setdefault(presented.record.tap, set())
            for source in presented.record.inputs:
                name = source.name if source.seq is None else self.taps[source.seq]
                names.add(name or "")
        return found

    def _narrowed(self, inputs: list[Input], seq: int) -> list[Input]:
        """Of the parts of one fused tensor, and of one fused weight, those that the other run read;
        all of them where it read none."""
        reads = self.agreement.reads.get(self.taps[seq], ())
        groups: dict[object, list[Input]] = defaultdict(list)
        for source in inputs:
            if source.seq is not None and source.seq in self.part_of:
                groups[self.part_of[source.seq]].append(source)
            elif source.kind == "weight":
                groups["weights"].append(source)
        dropped: list[Input] = []
        for group in groups.values():
            unread = [i for i in group if self._name(i) not in reads]
            if len(unread) < len(group):
                dropped += unread
        return [source for source in inputs if source not in dropped]

    def _name(self, source: Input) -> str:
        return self.taps[source.seq] if source.seq is not None else source.name or ""

    def _go_through(self) -> None:
        """What every record would stand for without a counterpart, in execution order."""
        last: dict[tuple[int, str], int] = {}
        for record in self.dump.records():
            found = self.through[record.rank, record.seq] = Origin()
            if record.tap in self.agreement.equal:
                continue
            if record.same_as is not None:
                self._read(found, record.rank, record.same_as, record.seq)
            elif not record.inputs:
                found.add(Input(kind="unknown", name=record.tap))
                found.run(record.ops)
            else:
                self._of(found, record)
            if "s" in record.axes.split():  # who reads keys reads the rows of earlier records too
                key = (record.rank, record.tap)
                if key in last:
                    found.follow(self.through[record.rank, last[key]])
                last[key] = record.seq

    def _of(self, found: Origin, stored: Record) -> None:
        """What a stored record was computed from. Keys that were made of keys before them gave no
        row by it."""
        keyed = "s" in stored.axes.split()
        for source in stored.inputs:
            if source.kind == "record" and source.seq is not None:
                if not (keyed and self.dump.record(source.seq, stored.rank).tap == stored.tap):
                    self._read(found, stored.rank, source.seq, stored.seq)
            elif source.kind == "weight" and source.name is not None:
                names = self.agreement.weights(source.name)
                found.add(*(Input(kind="weight", name=n, digest=source.digest) for n in names))
            elif source.kind != "value" or self.agreement.values(source.name or ""):
                found.add(source)
        found.run(stored.ops)

    def _read(self, found: Origin, rank: int, seq: int, before: int) -> None:
        """What reading a stored record means to one that is recorded as ``before``."""
        shown = [s for last, s in self.shown.get((rank, seq), ()) if last < before]
        if not shown:
            others = self.repeated.get((rank, seq), ())
            shown = list(islice((s for last, s in others if last < before), 1))
        if shown:
            found.add(*(Input(kind="record", seq=s) for s in dict.fromkeys(shown)))
        else:
            found.join(self.through[rank, seq])
