"""Two runs on different numbers of ranks, brought to one rank each."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from verify.dumps.format import Dump
from verify.dumps.format.schema import Input, Record
from verify.dumps.layout import ATTRIBUTE
from verify.errors import ArgumentError
from verify.ranks.join import Joined, join
from verify.taps.view import Presented, View
from verify.taps.words import Making


def same_ranks(a: Dump, b: Dump, layouts: Mapping[str, str] | None = None) -> tuple[Dump, Dump]:
    """Both runs as they are where they have equally many ranks, which then match by number; else
    each as the one run that its ranks hold together. Weights of which ranks hold parts cannot be
    compared by their digests: both runs are presented without them, and say so.

    Raises:
        ArgumentError: layouts for runs on equally many ranks, or ones that do not fit.
        CorruptDumpError: rows are not those that were stored.
    """
    if len(a.ranks) == len(b.ranks):
        if layouts:
            raise ArgumentError(
                "layouts say how ranks go together, and these runs match rank by rank",
                where="--layout",
                found=f"{len(a.ranks)} and {len(b.ranks)} ranks",
                hint="leave the layouts away",
            )
        return a, b
    known_a, known_b = a.manifest.model.weights, b.manifest.model.weights
    parted = {name for name in known_a.keys() & known_b if known_a[name] != known_b[name]}
    parted |= known_a.keys() ^ known_b.keys()
    one_a = a if len(a.ranks) == 1 else join(a, b if len(b.ranks) == 1 else None, layouts)
    one_b = b if len(b.ranks) == 1 else join(b, a if len(a.ranks) == 1 else None, layouts)
    return _without(one_a, parted), _without(one_b, parted)


def _without(dump: Dump, parted: set[str]) -> Dump:
    """The run without digests and inputs of these weights."""
    weights = {n: d for n, d in dump.manifest.model.weights.items() if n not in parted}
    model = msgspec.structs.replace(dump.manifest.model, weights=weights, weights_digest="")
    manifest = msgspec.structs.replace(dump.manifest, model=model)
    note = (
        [f"{len(parted)} weights were not compared: ranks hold parts of them, or they differ"]
        if parted
        else []
    )
    if isinstance(dump, Joined):
        dump.manifest = manifest
        dump.problems += note
        for presented in dump.presented:
            presented.record = _stripped(presented.record, parted)
        return dump
    shown = [Presented(_stripped(r, parted), Making((r,))) for r in dump.records()]
    return View(dump, manifest, shown, [])


def _stripped(record: Record, parted: set[str]) -> Record:
    inputs: list[Input] = [
        source
        for source in record.inputs
        if not (source.kind == "weight" and source.name in parted)
    ]
    attributes = {name: x for name, x in record.attributes.items() if name != ATTRIBUTE}
    return msgspec.structs.replace(record, inputs=inputs, attributes=attributes)
