"""The data types of dump format 1. docs/dump-format.md says the same in words.

A *run* on disk is a *dump*. A *record* is one tensor at one tap in one step; its *rows* carry the
identity (sequence, position, visit) by which runs align, and its words are stored as the row
matrix: token axes first, then the remaining axes flattened row-major.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np

FORMAT_NAME = "verify-dump"
FORMAT_VERSION = 1

Kept = Literal["full", "digest", "stats", "same"]
"""What a record keeps beside the digest of every row: every word; a sketch; statistics; or no rows
at all, because the very same tensor stands in the record named by ``same_as``."""


class Sequence(msgspec.Struct, kw_only=True):
    """One sequence of token ids that the workload ran."""

    id: str
    """Given name, else ``<hash of the prompt ids>#<ordinal>``; a replicated prompt counts up."""
    prompt: list[int]
    generated: list[int] = msgspec.field(default_factory=list)
    """Filled when the dump is completed; while it is open the tap ``tokens.out`` holds them."""


class Tape(msgspec.Struct, kw_only=True):
    """Tokens that were forced (teacher forcing) and the run that they came from."""

    run_id: str
    digest: str


class Workload(msgspec.Struct, kw_only=True):
    """What was computed, apart from how."""

    sequences: list[Sequence]
    sampling: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "greedy"})
    tape: Tape | None = None
    token_text: dict[str, str] = msgspec.field(default_factory=dict)
    """Text of the token ids that occur, for reports; keys are decimal ids."""


class Model(msgspec.Struct, kw_only=True):
    """Which model ran: compared by digests, named for people."""

    name: str
    architecture: str = ""
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    weights: dict[str, str] = msgspec.field(default_factory=dict)
    """Parameter and buffer name -> xxh3-128 hex digest of dtype, shape and words."""
    weights_digest: str = ""


class RankEnd(msgspec.Struct, kw_only=True):
    """The end of one rank's chain of parts, written when the dump is completed."""

    parts: int
    last_hash: str


class Manifest(msgspec.Struct, kw_only=True):
    """manifest.json: written at the start with status ``open``, rewritten once when complete."""

    format: str = FORMAT_NAME
    version: int = FORMAT_VERSION
    checksum: str = ""
    """Set by the writer: xxh3-128 hex of the file with these 32 digits replaced by zeros."""
    run_id: str
    status: Literal["open", "complete"] = "open"
    workload: Workload
    model: Model
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """How it was computed: dtype, attention, prefill_chunk, batch, kv_cache, device, ..."""
    env: dict[str, Any] = msgspec.field(default_factory=dict)
    """verify.env.collect() of the capturing process (docs/env.md)."""
    capture: dict[str, Any] = msgspec.field(default_factory=dict)
    """Level, tap globs, edges (``trace`` or ``identity``), byte budget, window of steps and rows."""
    command: list[str] = msgspec.field(default_factory=list)
    taps: dict[str, str] = msgspec.field(default_factory=dict)
    """Tap -> axes; filled on completion (each record carries its axes as well)."""
    ranks: int = 1
    ends: dict[str, RankEnd] = msgspec.field(default_factory=dict)
    """Rank number -> its last part; empty while open."""


class Input(msgspec.Struct, kw_only=True, frozen=True):
    """One input of the computation between the recorded inputs and this record.

    ``record``: produced by the record with this ``seq`` on the same rank (any earlier step).
    ``weight``: a parameter or buffer of the manifest, by ``name``.
    ``value``: a tensor from outside, by ``name`` and ``digest`` of dtype, shape and words.
    ``unknown``: something that was not recorded; such a record is never an origin.
    """

    kind: Literal["record", "weight", "value", "unknown"]
    seq: int | None = None
    name: str | None = None
    digest: str | None = None


class Record(msgspec.Struct, kw_only=True):
    """One tensor at one tap in one step."""

    seq: int
    """Execution order on its rank: unique, ascending over the whole run."""
    step: int
    """Number of the forward pass, from 0."""
    tap: str
    """Module path and port, for example ``model.layers.0.self_attn.attn.in.k``."""
    occurrence: int = 0
    """Counts the tap within its step."""
    epoch: int = 0
    """Collectives completed on this rank before."""
    axes: str
    """Space-separated axis names of ``shape``: b sequence, t token, s key position, others free."""
    dtype: str
    """Name in verify.formats.FORMATS."""
    shape: list[int]
    strides: list[int]
    storage_offset: int = 0
    kept: Kept = "full"
    same_as: int | None = None
    inputs: list[Input] = msgspec.field(default_factory=list)
    ops: list[str] = msgspec.field(default_factory=list)
    """Names of the operations between the inputs and this tensor, in order, each once."""
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    """Scalars that the operation read, for example scale, implementation, sliding window."""
    row_length: int = 0
    """Elements in a row."""
    n_rows: int = 0
    """Rows listed for this record, in the order of its row matrix. Padding rows are listed; key
    rows whose bits were recorded before are not (``carried`` counts them)."""
    carried: int = 0
    """Key rows seen again with unchanged bits, checked by digest."""
    rank: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What two runs match records on, beside the identity of the rows."""
        return (self.tap, self.occurrence)


@dataclass(slots=True)
class Rows:
    """Row identities and row digests of one record (struct of arrays, one entry a row).

    ``sequence`` is an object array of ids with ``None`` for padding; ``position`` is -1 for a
    tensor without a token axis. ``digest`` is uint64 (docs/digests.md). ``sketch`` [rows, 16]
    float32 and ``statistics`` [rows, 7] float64 (max_abs, sum, sum_sq, nan, +inf, -inf, zero) may
    be absent.
    """

    sequence: np.ndarray
    position: np.ndarray
    visit: np.ndarray
    digest: np.ndarray
    sketch: np.ndarray | None = field(default=None)
    statistics: np.ndarray | None = field(default=None)

    def __len__(self) -> int:
        return len(self.position)


class PartFile(msgspec.Struct, kw_only=True):
    """Size in bytes and xxh3-128 hex checksum of one file of a part."""

    bytes: int
    xxh3_128: str


class Part(msgspec.Struct, kw_only=True):
    """part.json: what makes a part whole, and the hash of the part before."""

    checksum: str = ""
    """Set by the writer: xxh3-128 hex of the file with these 32 digits replaced by zeros."""
    rank: int
    index: int
    first_step: int
    last_step: int
    files: dict[str, PartFile]
    tensors: dict[str, str]
    """Key in tensors.safetensors (the decimal ``seq``) -> xxh3-128 hex of its bytes."""
    previous: str
    """Hash (xxh3-128 hex) of the part.json before; for the first part of ``<run_id>/rank-<rank>``,
    which ties the chain to its run."""
