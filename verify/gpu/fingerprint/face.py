"""``fingerprint``: digest, sketch and statistics of the rows of one tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from verify.dumps import digests_torch
from verify.gpu.errors import KernelArgumentError
from verify.gpu.fingerprint.jobs import Job, Ring, launch_digest, launch_table, table_words
from verify.gpu.fingerprint.layout import (
    BUCKETS,
    STATISTICS,
    Geometry,
    format_name,
    geometry,
    has_summary_kernel,
)
from verify.gpu.route import RouteRecord, record

OPERATION = "fingerprint"
TORCH_ROUTE = "torch"


class Fingerprint(NamedTuple):
    """``digest``: int64 [rows] with the bits of the unsigned digest; ``sketch``: float32 [rows, 16]
    and ``statistics``: float64 [rows, 7] (docs/digests.md), or None."""

    digest: Tensor
    sketch: Tensor | None
    statistics: Tensor | None


def fingerprint(
    tensor: Tensor,
    row_axes: Sequence[int] = (0,),
    *,
    keep: Literal["digest", "full"] = "digest",
    dtype_name: str | None = None,
    offset: int = 0,
) -> Fingerprint:
    """Fingerprint every row of ``tensor``, on its device, without a copy and without waiting.

    Args:
        tensor: any shape, strides and dtype of the table of formats.
        row_axes: axes that count rows, the slowest first: rows are their product, elements of a row
            the other axes, row-major. None of them: the tensor is one row.
        keep: ``full`` adds sketch and statistics.
        dtype_name: name of the format where torch has another, for example ``float4_e2m1fn`` kept
            one value a byte.
        offset: index of the first element inside the whole row, for a shard digested on its own.

    The bits are those of ``verify.dumps.digests`` and ``verify.dumps.summaries``. Capturable in a
    CUDA graph after one call outside. CPU tensors, and rows that no kernel takes, are answered by
    torch operations (route ``torch``).

    Raises KernelArgumentError for arguments outside the contract.
    """
    if keep not in ("digest", "full"):
        raise KernelArgumentError(
            "unknown kind of fingerprint", where="keep", found=keep, allowed="digest, full"
        )
    if offset < 0:
        raise KernelArgumentError("a negative offset", where="offset", found=offset)
    axes = [axis % tensor.dim() if tensor.dim() else axis for axis in row_axes]
    name = format_name(tensor, dtype_name)
    full = keep == "full"
    digest, sketch, statistics = torch.ops.verify.fingerprint(tensor, axes, name, full, offset)
    return Fingerprint(digest, sketch if full else None, statistics if full else None)


@torch.library.custom_op("verify::fingerprint", mutates_args=())
def _fingerprint_op(
    tensor: Tensor, row_axes: list[int], dtype_name: str, full: bool, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    plain = tensor.resolve_conj().resolve_neg()
    found = readable(plain, tuple(row_axes), dtype_name, full, offset)
    if tensor.is_cuda and found is not None and found[1].elements and found[1].rows:
        return _launch(*found, full)
    return _by_torch(plain, row_axes, dtype_name, full, offset)


@_fingerprint_op.register_fake
def _(
    tensor: Tensor, row_axes: list[int], dtype_name: str, full: bool, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows = math.prod(tensor.shape[axis] for axis in row_axes)
    kept = rows if full else 0
    return (
        tensor.new_empty((rows,), dtype=torch.int64),
        tensor.new_empty((kept, BUCKETS), dtype=torch.float32),
        tensor.new_empty((kept, STATISTICS), dtype=torch.float64),
    )


def readable(
    tensor: Tensor, row_axes: tuple[int, ...], dtype_name: str, full: bool, offset: int = 0
) -> tuple[Tensor, Geometry] | None:
    """The tensor, or a contiguous copy where it has too many axes of odd strides, with its
    geometry; None where no kernel takes such rows."""
    row_length = math.prod(s for i, s in enumerate(tensor.shape) if i not in row_axes)
    reals = row_length * (2 if dtype_name == "complex64" else 1)
    if full and not has_summary_kernel(dtype_name, reals, offset):
        return None
    shape = tuple(tensor.shape)
    found = geometry(
        shape, tensor.stride(), dtype_name, row_axes, full, tensor.data_ptr() % 16, offset
    )
    if found is None:
        tensor = row_matrix(tensor, row_axes)
        found = geometry(
            tuple(tensor.shape), tensor.stride(), dtype_name, (0,), full,
            tensor.data_ptr() % 16, offset,
        )  # fmt: skip
        assert found is not None
    return tensor, found


def row_matrix(tensor: Tensor, row_axes: Sequence[int]) -> Tensor:
    """The tensor as [rows, row_length], contiguous."""
    rest = [axis for axis in range(tensor.dim()) if axis not in row_axes]
    rows = math.prod(tensor.shape[axis] for axis in row_axes)
    length = math.prod(tensor.shape[axis] for axis in rest)
    return tensor.permute([*row_axes, *rest]).reshape(rows, length).contiguous()


def _launch(tensor: Tensor, found: Geometry, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    digest = tensor.new_empty((found.rows,), dtype=torch.int64)
    kept = found.rows if full else 0
    sketch = tensor.new_empty((kept, BUCKETS), dtype=torch.float32)
    statistics = tensor.new_empty((kept, STATISTICS), dtype=torch.float64)
    base = digest.data_ptr()
    if full:
        job = Job(tensor, found, 0, sketch.data_ptr() - base, statistics.data_ptr() - base)
        table = torch.from_numpy(table_words([job])).pin_memory()
        on_device = table.to(tensor.device, non_blocking=True)
        if torch.cuda.is_current_stream_capturing():
            _kept_for_replays.append(table)
        kernel = launch_table(on_device.data_ptr(), [job], Ring(base), found.build)
    else:
        kernel = launch_digest(Job(tensor, found, 0), base)
    shape = (("rows", found.rows), ("row_length", found.row_length), ("wide", int(found.wide)))
    build = kernel.build
    name = "fingerprint_full" if full else "fingerprint"
    record(RouteRecord(OPERATION, name, str(tensor.device), shape, build.arch, build.build_id))
    return digest, sketch, statistics


_kept_for_replays: list[Tensor] = []  # a graph copies its table from here at every replay


def _by_torch(
    tensor: Tensor, row_axes: list[int], dtype_name: str, full: bool, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    words = digests_torch.as_words(row_matrix(tensor, row_axes))
    device = tensor.device
    digest = digests_torch.row_digests(words, dtype_name, offset).view(np.int64)
    sketch = np.zeros((0, BUCKETS), np.float32)
    statistics = np.zeros((0, STATISTICS))
    if full:
        sketch = digests_torch.row_sketches(words, dtype_name, offset)
        statistics = digests_torch.row_statistics(words, dtype_name)
    record(RouteRecord(OPERATION, TORCH_ROUTE, str(device)))
    found = (torch.from_numpy(part.copy()).to(device) for part in (digest, sketch, statistics))
    return next(found), next(found), next(found)
