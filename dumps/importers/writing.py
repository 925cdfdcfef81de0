"""From observations to a run of dump format 1."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.schema import Input, Manifest, Model, Record, Rows, Workload
from verify.dumps.importers.faults import broken
from verify.dumps.importers.observation import Imported, Observation, Source
from verify.dumps.summaries import row_sketches, row_statistics
from verify.errors import DumpExistsError

_MOST_RANKS = 4096
"""Every rank is a folder and a chain of parts, also one without a tensor; larger numbers in file
names have been process ids and the like."""
_ROW_AXES = ("b", "t", "s")


def write_run(imported: Imported, out: Path) -> int:
    """Write an imported run to ``out``, a folder that does not exist; how many records it has.

    Raises:
        DumpError: the source is broken, or holds no tensor; nothing is left at ``out``.
        DumpExistsError: there is something at ``out``.
    """
    try:
        count = _write(imported, out)
    except DumpExistsError:
        raise
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    if not count:
        shutil.rmtree(out, ignore_errors=True)
        raise broken(imported.source.path, "no tensor, hash or statistics in it")
    return count


def _write(imported: Imported, out: Path) -> int:
    source = imported.source
    if source.ranks > _MOST_RANKS:
        raise broken(
            source.path,
            f"rank {source.ranks - 1}",
            f"ranks up to {_MOST_RANKS - 1} are taken; is that number in a file name a rank?",
        )
    manifest = _manifest(source)
    with ExitStack() as stack:
        # Left in reverse: rank 0 closes after all others.
        writers = [_Rank(out, manifest, rank) for rank in range(source.ranks)]
        for one in writers:
            stack.enter_context(one.writer)
        for observation in imported.observations:
            if not 0 <= observation.rank < source.ranks:
                raise broken(source.path, f"rank {observation.rank} of {source.ranks}")
            writers[observation.rank].add(observation)
        manifest.workload.sequences = source.sequences
        manifest.capture["source"]["notes"] = source.notes
        manifest.capture["source"]["unknown"] = source.unknown
        if not source.complete:
            for one in writers:
                one.writer.flush()
            _leave_open(stack)
    return sum(one.count for one in writers)


def _leave_open(stack: ExitStack) -> None:
    """The run did not come to its end, and so its dump does not either."""
    stack.pop_all()


def _manifest(source: Source) -> Manifest:
    known = {
        "format": source.format,
        "path": str(source.path.resolve()),
        "unknown": source.unknown,
        "notes": source.notes,
    }
    return Manifest(
        run_id=f"import-{source.format}-{uuid.uuid4().hex}",
        workload=Workload(sequences=source.sequences),
        model=Model(name=source.model or source.path.name),
        settings=source.settings,
        env=source.env,
        capture={"level": "full", "edges": "none", "source": known},
        ranks=source.ranks,
    )


class _Rank:
    """One rank's records: counts what a source does not number itself."""

    def __init__(self, out: Path, manifest: Manifest, rank: int) -> None:
        self.writer = DumpWriter(out, manifest, rank=rank)
        self.count = 0
        self._step = -1
        self._occurrences: Counter[str] = Counter()
        self._visits: Counter[tuple[str, int, str | None, int]] = Counter()
        self._reached: Counter[tuple[str, int]] = Counter()

    def add(self, found: Observation) -> None:
        if found.step != self._step:
            self._step = found.step
            self._occurrences.clear()
        occurrence = self._occurrences[found.tap]
        self._occurrences[found.tap] += 1
        tensor, shape = found.tensor, list(found.tensor.words.shape)
        axes = found.axes if found.axes is not None else _free(len(shape))
        if len(axes.split()) != len(shape):
            raise broken(found.tap, f"axes {axes!r} for shape {shape}")
        matrix = _row_matrix(tensor.words, axes)
        rows = self._rows(found, axes, shape, matrix, occurrence)
        record = Record(
            seq=self.count,
            step=found.step,
            tap=found.tap,
            occurrence=occurrence,
            axes=axes,
            dtype=tensor.dtype,
            shape=shape,
            strides=tensor.strides or _contiguous(shape),
            storage_offset=tensor.storage_offset,
            inputs=_inputs(found),
            attributes=found.attributes,
            row_length=matrix.shape[1],
        )
        self.writer.add(record, rows, matrix, owned=True)
        self.count += 1

    def _rows(
        self,
        found: Observation,
        axes: str,
        shape: list[int],
        matrix: NDArray[Any],
        occurrence: int,
    ) -> Rows:
        sequence, position = self._identity(found, dict(zip(axes.split(), shape, strict=True)))
        visit = np.zeros(len(position), np.int64)
        for row, (name, at) in enumerate(zip(sequence, position.tolist(), strict=True)):
            key = (found.tap, occurrence, name, at)
            visit[row] = self._visits[key]
            self._visits[key] += 1
        dtype = found.tensor.dtype
        return Rows(
            sequence=sequence,
            position=position,
            visit=visit,
            digest=row_digests(matrix, dtype),
            sketch=row_sketches(matrix, dtype),
            statistics=row_statistics(matrix, dtype),
        )

    def _identity(
        self, found: Observation, size: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Sequence and position of every row."""
        if not {"b", "t"} & size.keys():
            return np.array([""], object), np.array([-1])
        batch, tokens = size.get("b", 1), size.get("t", 1)
        positions = found.positions
        if positions is None:
            key = (found.tap, self._occurrences[found.tap])
            positions = np.arange(tokens) + self._reached[key]
            self._reached[key] += tokens
        names = found.sequences or [f"sequence#{index}" for index in range(batch)]
        if len(positions) == tokens and len(names) == batch:
            return np.repeat(np.array(names, object), tokens), np.tile(positions, batch)
        if batch == 1 and len(positions) == len(names) == tokens:
            return np.array(names, object), np.asarray(positions, np.int64)
        raise broken(found.tap, f"{len(names)} sequences and {len(positions)} positions for {size}")


def _inputs(found: Observation) -> list[Input]:
    if found.inputs is None:
        return [Input(kind="unknown")]
    return [Input(kind="record", seq=seq) for seq in dict.fromkeys(found.inputs)]


def _free(ndim: int) -> str:
    return " ".join(f"x{index}" for index in range(ndim))


def _contiguous(shape: list[int]) -> list[int]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * max(1, size))
    return steps[::-1][: len(shape)]


def _row_matrix(words: NDArray[Any], axes: str) -> NDArray[Any]:
    """Token axes first, then the others as they stand: unsigned words [rows, row_length]."""
    names = axes.split()
    first = [names.index(axis) for axis in _ROW_AXES if axis in names]
    rest = [index for index in range(len(names)) if index not in first]
    rows = int(np.prod([words.shape[axis] for axis in first], dtype=np.int64))
    length = int(np.prod([words.shape[axis] for axis in rest], dtype=np.int64))
    return np.array(words.transpose([*first, *rest]), order="C", copy=True).reshape(rows, length)
