"""Writing a dump: records collect in memory and are committed part by part."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import numpy as np

from verify.dumps.format import layout
from verify.dumps.format.block import Block, StepTemplate
from verify.dumps.format.commit import Pending, check_space, commit_part, storage_error
from verify.dumps.format.intake import (
    check_attributes,
    check_columns,
    check_rows,
    check_words,
    own,
    record_name,
)
from verify.dumps.format.invariants import RecordChain
from verify.dumps.format.schema import Manifest, RankEnd, Record, Rows, Sequence
from verify.errors import ArgumentError, DumpError, DumpExistsError, StorageError, UsageError

FLUSH_BYTES: Final = 256 << 20


class _Closed(msgspec.Struct):
    """end.json: what a rank above 0 leaves for rank 0 to enter into the manifest."""

    end: RankEnd
    taps: dict[str, str]


class DumpWriter:
    """Writes one rank of a dump.

    Args:
        path: folder of the dump. It must not exist, or be empty; rank 0 creates the manifest, and
            the other ranks of the same run write beside it.
        manifest: written at once with status ``open``. The ranks of a run share its ``run_id``.
        rank: rank whose records these are.
        byte_budget: bytes that this rank may take on disk; None: as much as the disk has.
        flush_bytes: a part is committed when this much is pending.

    Raises:
        DumpExistsError: there is something at ``path``. Nothing is ever overwritten.
        StorageError: the disk is full or the budget is spent, now or in ``add``, ``flush`` and
            ``close``. Parts committed before stay readable.

    As a context manager: a clean exit closes the dump; after an exception what is pending is
    committed and the dump stays open, which readers report as partial.
    """

    def __init__(
        self,
        path: str | Path,
        manifest: Manifest,
        *,
        rank: int = 0,
        byte_budget: int | None = None,
        flush_bytes: int = FLUSH_BYTES,
    ) -> None:
        if not 0 <= rank < manifest.ranks:
            raise ArgumentError(
                "rank outside the run", where="rank", found=rank, allowed=f"0..{manifest.ranks - 1}"
            )
        self.path = Path(path)
        self.manifest = manifest
        self.rank = rank
        self.byte_budget = byte_budget
        self.flush_bytes = flush_bytes
        self.parts = 0
        self.bytes_written = 0
        self._folder = self.path / layout.rank_name(rank)
        self._previous = layout.chain_start(manifest.run_id, rank)
        self._chain = RecordChain()
        self._taps: dict[str, str] = {}
        self._pending = Pending()
        self._failure: StorageError | None = None
        self._closed = False
        self._create()

    def _create(self) -> None:
        _refuse_existing(self.path, self.rank, self.manifest.ranks)
        try:
            self._folder.mkdir(parents=True)
            if self.rank == 0:
                self._write_manifest()
        except FileExistsError as error:
            raise _exists(self._folder) from error
        except OSError as error:
            raise storage_error("the dump could not be created", self.path, error) from error

    def add(
        self, record: Record, rows: Rows | None, words: np.ndarray | None, *, owned: bool = False
    ) -> None:
        """Append a record. ``n_rows`` and ``rank`` of it are set here.

        Args:
            record: the next one in execution order. For ``kept="same"`` the row matrix is that of
                ``same_as`` and ``rows`` are not stored again.
            rows: one entry a row of the row matrix; kept by reference until the next flush.
            words: raw words [rows, row_length], unsigned, for ``kept="full"`` and only for it.
            owned: the caller will not touch ``words`` again, so they need not be copied.

        Raises:
            ArgumentError: the record contradicts itself, its rows or the records before.
            StorageError: see the class.
        """
        self._usable()
        record.rank = self.rank
        if record.kept == "same":
            self._resolve_same(record)
            rows, words = None, None
        else:
            check_rows(record, rows)
            check_words(record, words)
        check_attributes(record)
        if fault := self._chain.append(record):
            raise ArgumentError(
                fault.what, where=record_name(record), found=fault.found, allowed=fault.allowed
            )
        self._taps[record.tap] = record.axes
        self._pending.append(record, rows, own(words, owned))
        if self._pending.nbytes >= self.flush_bytes:
            self.flush()

    def add_block(self, template: StepTemplate, seq: int, step: int, rows: Rows) -> None:
        """Append all records of a step at once.

        Args:
            template: the records, in execution order.
            seq: of the first of them; the others count on.
            rows: of all of them, in their order; kept by reference until the next flush.

        Raises:
            ArgumentError: out of order, or rows that are not those of the template.
            StorageError: see the class.
        """
        self._usable()
        check_columns(rows, template.n_rows, f"step {step}")
        if fault := self._chain.pass_block(seq, step, len(template.records)):
            raise ArgumentError(
                fault.what, where=f"step {step}", found=fault.found, allowed=fault.allowed
            )
        self._taps.update(template.axes)
        self._pending.append_block(Block(template, seq, step, self.rank), rows)
        if self._pending.nbytes >= self.flush_bytes:
            self.flush()

    def _resolve_same(self, record: Record) -> None:
        """Point at the record that holds the rows, so that readers follow one step."""
        root = self._chain.roots.get(-1 if record.same_as is None else record.same_as)
        if root is not None:
            record.same_as = root
            record.n_rows = self._chain.matrices[root].n_rows
            record.row_length = self._chain.matrices[root].row_length

    def flush(self) -> None:
        """Commit what is pending as one part; nothing pending, no part.

        Raises:
            StorageError: the part is not there, and the parts before are.
        """
        self._usable()
        if not self._pending.records:
            return
        try:
            self._commit()
        except StorageError as error:
            self._failure = error
            self._pending = Pending()
            raise

    def _commit(self) -> None:
        check_space(self.path, self._pending.nbytes, self._left(), self._kept())
        commit = commit_part(
            self._folder, self.rank, self.parts, self._previous, self._pending, self._kept()
        )
        self._previous = commit.hash
        self.bytes_written += commit.nbytes
        self.parts += 1
        self._pending = Pending()

    def close(
        self,
        sequences: list[Sequence] | None = None,
        token_text: dict[str, str] | None = None,
    ) -> None:
        """Commit the rest and complete the manifest. Close rank 0 after all other ranks.

        Args:
            sequences: with the ids that were generated; None keeps what the manifest has.
            token_text: text of the token ids that occur.

        Raises:
            StorageError: see the class.
            DumpError: another rank of the run has not been closed; the dump stays open.
        """
        if self._closed:
            return
        self.flush()
        end = RankEnd(parts=self.parts, last_hash=self._previous)
        try:
            if self.rank:
                closed = msgspec.json.encode(_Closed(end, self._taps))
                layout.replace_synced(self._folder / layout.RANK_END, closed)
            else:
                self._complete(end, sequences, token_text)
        except OSError as error:
            raise storage_error(
                "the dump could not be completed", self.path, error, self._kept()
            ) from error
        self._closed = True

    def _complete(
        self,
        end: RankEnd,
        sequences: list[Sequence] | None,
        token_text: dict[str, str] | None,
    ) -> None:
        ends, taps = {"0": end}, dict(self._taps)
        for rank in range(1, self.manifest.ranks):
            closed = _read_end(self.path / layout.rank_name(rank) / layout.RANK_END)
            ends[str(rank)] = closed.end
            taps = {**closed.taps, **taps}
        if sequences is not None:
            self.manifest.workload.sequences = sequences
        self.manifest.workload.token_text.update(token_text or {})
        self.manifest.ends, self.manifest.taps, self.manifest.status = ends, taps, "complete"
        self._write_manifest()

    def _write_manifest(self) -> None:
        self.manifest.checksum = layout.NO_CHECKSUM
        target = self.path / layout.MANIFEST
        try:
            layout.replace_synced(target, layout.seal(msgspec.json.encode(self.manifest)))
        except OSError:
            target.with_name(target.name + layout.TMP).unlink(missing_ok=True)
            raise

    def _usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise UsageError("the dump is closed", where=self.path, hint="record into a new folder")

    def _left(self) -> int | None:
        return None if self.byte_budget is None else self.byte_budget - self.bytes_written

    def _kept(self) -> str:
        if not self.parts:
            return "no part was committed before"
        names = f"{layout.part_name(0)}..{layout.part_name(self.parts - 1)}"
        return (
            f"kept and readable: {names} of {layout.rank_name(self.rank)}, "
            f"{self.bytes_written} bytes; see `verify inspect {self.path}`"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif self._failure is None and not self._closed:
            try:
                self.flush()
            except StorageError as failure:  # the first error is the one to see
                error.add_note(str(failure))


def _refuse_existing(path: Path, rank: int, ranks: int) -> None:
    """Raise unless ``path`` is free; other ranks of the same run may have begun beside rank 0."""
    if not path.exists():
        return
    if not path.is_dir():
        raise _exists(path)
    others = {layout.rank_name(other) for other in range(ranks) if other != rank}
    if rank:
        others |= {layout.MANIFEST, layout.MANIFEST + layout.TMP}
    if taken := {entry.name for entry in path.iterdir()} - others:
        raise _exists(path / min(taken))


def _exists(path: Path) -> DumpExistsError:
    return DumpExistsError(
        "there is something already, and a dump never overwrites",
        where=path,
        allowed="a folder that does not exist or is empty",
        hint="choose another --out, or remove the old one yourself",
    )


def _read_end(path: Path) -> _Closed:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Closed)
    except (FileNotFoundError, msgspec.MsgspecError) as error:
        raise DumpError(
            "another rank of the run has not been closed; the dump stays open",
            where=path,
            found=error,
            hint="close rank 0 after all other ranks",
        ) from None
