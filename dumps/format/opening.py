"""Opening a dump: the manifest, the chain of parts of every rank, and notes for people."""

from __future__ import annotations

from pathlib import Path

from verify.dumps.format import layout
from verify.dumps.format.faults import corrupt
from verify.dumps.format.files import Place, place_of
from verify.dumps.format.manifest import read_manifest
from verify.dumps.format.part import PartReader
from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Manifest


def open_dump(path: str | Path) -> Dump:
    """Open the dump at ``path``, a folder or a URL (docs/scale.md): manifest, chain of parts, sizes, records and rows are verified.

    Raises:
        DumpError: missing, empty, not a dump, or of a newer version.
        CorruptDumpError: some file is not what the writer stored.
    """
    root = place_of(path)
    manifest = read_manifest(root)
    ranks = {rank: _open_rank(root, manifest, rank) for rank in range(manifest.ranks)}
    return Dump(root, manifest, ranks, _problems(root, manifest, ranks))


def _open_rank(root: Place, manifest: Manifest, rank: int) -> list[PartReader]:
    """All parts of a rank, each tied to the one before and the last to the manifest."""
    folder = root / layout.rank_name(rank)
    previous = layout.chain_start(manifest.run_id, rank)
    parts: list[PartReader] = []
    for index in range(_count_parts(folder)):
        parts.append(PartReader(folder / layout.part_name(index), rank, index, previous))
        previous = parts[-1].hash
    end = manifest.ends.get(str(rank))
    if end is not None and (end.parts, end.last_hash) != (len(parts), previous):
        raise corrupt(
            f"rank {rank} does not end as the manifest says: parts are missing or foreign",
            folder,
            f"{len(parts)} parts ending in {previous}",
            f"{end.parts} parts ending in {end.last_hash}",
        )
    return parts


def _count_parts(folder: Place) -> int:
    """Number of part folders; they must count up from 0 without a gap."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise corrupt("a folder of the dump cannot be read", folder, error.strerror) from None
    found = sorted(index for name in names if (index := layout.part_of(name)) is not None)
    for expected, index in enumerate(found):
        if index != expected:
            missing = folder / layout.part_name(expected)
            raise corrupt("a part is missing before others", missing, "nothing", missing.name)
    return len(found)


def _problems(root: Place, manifest: Manifest, ranks: dict[int, list[PartReader]]) -> list[str]:
    """What a reader of the dump should know, though it is no error."""
    notes: list[str] = []
    if manifest.status == "open":
        counts = ", ".join(f"rank {rank}: {len(parts)}" for rank, parts in ranks.items())
        notes.append(f"the run did not come to its end; committed parts: {counts}")
    notes += _of_source(manifest)
    known = {layout.rank_name(rank) for rank in ranks}
    for entry in _within(root):
        if layout.rank_of(entry.name) is not None and entry.name not in known:
            raise corrupt(
                "a rank that the manifest does not know", entry, entry.name, f"{len(ranks)} ranks"
            )
        if entry.name.endswith(layout.TMP):
            notes.append(f"left over from an unfinished write, not read: {entry.name}")
        if entry.name in known:
            notes.extend(
                f"left over from an unfinished part, not read: {entry.name}/{left.name}"
                for left in _within(entry)
                if left.name.endswith(layout.TMP)
            )
    return notes


def _of_source(manifest: Manifest) -> list[str]:
    """What the dump of another tool, from which this one was imported, did not know or left out."""
    source = manifest.capture.get("source")
    if not isinstance(source, dict):
        return []
    name, unknown, notes = (source.get(key) for key in ("format", "unknown", "notes"))
    said = [f"imported ({name}); not known: {text}" for text in unknown or ()]
    return [*said, *(f"imported ({name}): {text}" for text in notes or ())]


def _within(folder: Place) -> list[Place]:
    """What lies in a folder, by name."""
    found: list[Place] = [*folder.iterdir()]
    return sorted(found, key=lambda path: path.name)
