"""Where a presented record comes from, at the resolution of the taps that both runs have.

A tap without a counterpart tells nothing about the other run. Whoever reads it is taken to read what
it was computed from instead: `inputs` name the nearest ancestors that can be compared, as they do in
a capture with fewer taps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from verify.dumps.format import Dump
from verify.dumps.format.schema import Input, Record
from verify.taps.present import Made
from verify.taps.view import renamed

WeightNames = Callable[[str], list[str]]
"""Name of a weight in the stored run -> its presented names; none if both runs are taken to agree."""


class Origin:
    """What a stored record stands for: comparable inputs, and the operations after them."""

    def __init__(self, ops: Iterable[str] = ()) -> None:
        self._inputs: dict[tuple[str, int | None, str | None, str | None], Input] = {}
        self._ops = dict.fromkeys(ops)

    @property
    def inputs(self) -> list[Input]:
        return list(self._inputs.values())

    @property
    def ops(self) -> list[str]:
        return list(self._ops)

    def add(self, *sources: Input) -> None:
        for source in sources:
            self._inputs[source.kind, source.seq, source.name, source.digest] = source

    def join(self, other: Origin) -> None:
        self._inputs.update(other._inputs)
        self._ops.update(other._ops)

    def run(self, ops: Iterable[str]) -> None:
        self._ops.update(dict.fromkeys(ops))


class Edges:
    """Inputs of presented records.

    Args:
        dump: the stored run.
        made: its presented records.
        comparable: presented taps that the other run has as well.
        equal: stored taps at which both runs are taken to agree.
        weights: presented names of a weight.
    """

    def __init__(
        self,
        dump: Dump,
        made: Made,
        comparable: Collection[str],
        equal: Collection[str],
        weights: WeightNames,
    ) -> None:
        self.dump, self.made, self.weights = dump, made, weights
        self.equal = set(equal)
        names = set(comparable)
        taps = [presented.record.tap for presented in made.presented]
        self.shown = {
            key: [Input(kind="record", seq=seq) for seq in seqs if taps[seq] in names]
            for key, seqs in made.became.items()
        }
        self.through: dict[tuple[int, int], Origin] = {}

    def rewrite(self) -> None:
        """Give every presented record its comparable inputs."""
        self._go_through()
        for seq, presented in enumerate(self.made.presented):
            making = presented.making
            found = Origin()
            for source in making.sources:
                if making.add:
                    self._read(found, source.rank, source.seq)
                else:
                    self._of(found, source)
            if making.add:
                found.run(["aten.add"])
            presented.record = renamed(
                presented.record, inputs=[_earlier(i, seq) for i in found.inputs], ops=found.ops
            )

    def _go_through(self) -> None:
        """What every record without a counterpart was computed from, in execution order."""
        last: dict[tuple[int, str], int] = {}
        for record in self.dump.records():
            if self.shown.get((record.rank, record.seq)):
                continue
            found = self.through[record.rank, record.seq] = Origin()
            if record.tap in self.equal:
                continue
            if record.same_as is not None:
                self._read(found, record.rank, record.same_as)
            elif not record.inputs:
                found.add(Input(kind="unknown", name=record.tap))
                found.run(record.ops)
            else:
                self._of(found, record)
            if "s" in record.axes.split():  # who reads keys reads the rows of earlier records too
                key = (record.rank, record.tap)
                if key in last:
                    found.join(self.through[record.rank, last[key]])
                last[key] = record.seq

    def _of(self, found: Origin, stored: Record) -> None:
        """What a stored record was computed from."""
        for source in stored.inputs:
            if source.kind == "record" and source.seq is not None:
                self._read(found, stored.rank, source.seq)
            elif source.kind == "weight" and source.name is not None:
                names = self.weights(source.name)
                found.add(*(Input(kind="weight", name=n, digest=source.digest) for n in names))
            else:
                found.add(source)
        found.run(stored.ops)

    def _read(self, found: Origin, rank: int, seq: int) -> None:
        """What reading a stored record means."""
        shown = self.shown.get((rank, seq))
        if shown:
            found.add(*shown)
        else:
            found.join(self.through[rank, seq])


def _earlier(source: Input, seq: int) -> Input:
    """An input; of a record that is presented only later (joined from several), that it is not known."""
    if source.kind == "record" and source.seq is not None and source.seq >= seq:
        return Input(kind="unknown", name="a part of a joined tap")
    return source
