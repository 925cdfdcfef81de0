"""From a tensor to a line of the kernel's table: where its rows lie and how they are read.

The fields are those of ``struct Job`` in kernels/include/fingerprint.cuh, in its order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from verify.dumps import digests
from verify.formats import FORMATS, get_format
from verify.gpu.errors import DtypeError, ShapeError

JOB_WORDS = 32
ROW_AXES, COLUMN_AXES = 3, 4  # axes that a job has room for, after merging neighbours
BUCKETS, STATISTICS = 16, 7
DIGEST_UNIT = 16  # bytes that a thread loads at once
SUMMARY_UNIT = 8  # elements
_WARPS = 8
_MOST_ROUNDS, _FEW_BLOCKS = 16, 1024
LANE_ROWS, TALL_ROWS = 4, 32  # rows that a warp carries: fingerprint_rows of the kernel
_CHUNK = 64  # bytes of a row that a warp with TALL_ROWS reads at once
_MANY_ROWS = 16384  # 4096 warps of four rows
_MANY_WARPS, _LEAST_TALL = 2048, 2048
_ROUNDS = 31  # place in a line
_KIND_NAMES = (
    "bytes", "float16", "bfloat16", "float32", "float64",
    "int16", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip
_KINDS = {name: index for index, name in enumerate(_KIND_NAMES)}
_STRUCTS = (
    "Bytes", "Float16", "Bfloat16", "Float32", "Float64",
    "Integers16", "Integers16", "Integers32", "Integers32", "Integers64", "Integers64",
)  # fmt: skip
_NAMES = {getattr(torch, name): name for name in FORMATS if hasattr(torch, name)}

Axis = tuple[int, int]  # size, stride in bytes


@dataclass(frozen=True, slots=True)
class Geometry:
    """A tensor's rows, apart from its address. ``line``: int64 [32], outputs and address 0."""

    rows: int
    elements: int
    row_length: int
    dtype: str
    line: tuple[int, ...]
    wide: bool
    across: int
    build: str
    """Struct of kernels/include/element_kinds.cuh, the KIND of fingerprint_full."""

    @property
    def blocks(self) -> int:
        """Blocks of a launch."""
        return max(1, -(-self.rows // (_WARPS // self.across * self.line[_ROUNDS])))


def format_name(tensor: Tensor, dtype_name: str | None) -> str:
    """Name in ``verify.formats.FORMATS`` of the tensor's elements.

    Raises DtypeError for tensors without words, and where ``dtype_name`` has another width.
    """
    name = dtype_name or _NAMES.get(tensor.dtype, "")
    if name not in FORMATS or (dtype_name and _width(name) != tensor.element_size()):
        raise DtypeError(
            "a fingerprint needs a dtype of the table of formats",
            found=dtype_name or tensor.dtype,
            allowed=", ".join(FORMATS),
        )
    return name


def _width(name: str) -> int:
    return max(1, -(-get_format(name).bits // 8))


def _levels(dtype: str) -> int:
    """Levels of the tree that fingerprint_full adds in registers: ``kLevels`` of the dtype."""
    width = 4 if dtype == "complex64" else _width(dtype)
    return {1: 3, 2: 3, 4: 2, 8: 1}[width]


def has_summary_kernel(dtype: str, elements: int, offset: int) -> bool:
    """Whether fingerprint_full takes rows of this dtype and length."""
    levels = _levels(dtype)
    groups = -(-(offset % BUCKETS + elements) // BUCKETS)
    return dtype != "float8_e8m0fnu" and groups <= BUCKETS * _WARPS << (levels + 5)


@lru_cache(maxsize=8192)
def geometry(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
    row_axes: tuple[int, ...],
    summaries: bool,
    misaligned: int,
    offset: int = 0,
) -> Geometry | None:
    """How a kernel reads a tensor; None where it has more axes than a job has room for.

    Args:
        shape, strides: in elements.
        dtype: name in ``verify.formats.FORMATS``.
        row_axes: axes that count rows, the slowest first; the others are the elements, in order.
        summaries: sketch and statistics as well, that is fingerprint_full.
        misaligned: address modulo 16.
        offset: index of the first element inside the whole row.
    """
    width = _width(dtype)
    lane_bytes, lanes_each = min(width, 4), max(1, width // 4)
    rest = [axis for axis in range(len(shape)) if axis not in row_axes]
    if sorted(row_axes) != sorted({*row_axes} & {*range(len(shape))}):
        raise ShapeError("row axes are axes of the tensor, each once", found=row_axes)
    rows = _merged([(shape[axis], strides[axis] * width) for axis in row_axes])
    columns = [(shape[axis], strides[axis] * width) for axis in rest]
    row_length = math.prod(size for size, _ in columns)
    if lanes_each == 2:
        columns.append((2, 4))
    columns = _merged(columns)
    lanes = row_length * lanes_each
    elements = lanes if dtype == "complex64" else row_length
    unit = SUMMARY_UNIT * (lane_bytes if dtype == "complex64" else width)
    unit = unit if summaries else DIGEST_UNIT
    group_lanes = BUCKETS * (lanes_each if elements == row_length else 1)
    aligned = offset * lanes_each % group_lanes == 0 or not summaries
    wide = aligned and _is_wide(rows, columns, lane_bytes, unit, misaligned)
    if wide:
        columns[-1] = (columns[-1][0] * lane_bytes // unit, unit)
    if len(rows) > ROW_AXES or len(columns) > COLUMN_AXES:
        return None
    flat = len(columns) == 1
    line_rows = math.prod(size for size, _ in rows)
    if summaries:
        across = _across(-(-elements // (BUCKETS * BUCKETS << _levels(dtype))))
        rounds = _rounds(line_rows, across)
    else:
        whole = wide and flat and offset * width % _CHUNK == 0
        rounds, across = _digest_tile(line_rows, lanes * lane_bytes, whole)
    rows = [(1, 0)] * (ROW_AXES - len(rows)) + rows
    columns = [(1, 0)] * (COLUMN_AXES - len(columns)) + columns
    kind = "float32" if dtype == "complex64" else dtype if dtype in _KINDS else "bytes"
    line = (
        0, 0, 0, 0, 0, -1, 0,
        line_rows, lanes, elements, offset * lanes_each,
        _salt(dtype, row_length), _KINDS[kind], lane_bytes, int(wide), across, int(flat),
        *(size for size, _ in rows[1:]), *(stride for _, stride in rows),
        *(size for size, _ in columns[1:]), *(stride for _, stride in columns),
        0, 0, rounds,
    )  # fmt: skip
    return Geometry(
        rows=line[7],
        elements=elements,
        row_length=row_length,
        dtype=dtype,
        line=line,
        wide=wide,
        across=across,
        build=_STRUCTS[_KINDS[kind]],
    )


def _salt(dtype: str, row_length: int) -> int:
    """What finalising mixes in, as a signed word."""
    return int(digests.salt(dtype, row_length).view(np.int64)[0])


def _merged(axes: list[Axis]) -> list[Axis]:
    """The same elements in the same order on as few axes as possible, at least one."""
    found: list[Axis] = []
    for size, stride in axes:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found or [(1, 0)]


def _is_wide(
    rows: list[Axis], columns: list[Axis], lane_bytes: int, unit: int, misaligned: int
) -> bool:
    """Whether every unit of ``unit`` bytes is contiguous and aligned for one load."""
    size, stride = columns[-1]
    step = min(16, unit)
    outer = [stride for _, stride in (*rows, *columns[:-1])]
    return (
        stride == lane_bytes
        and size * lane_bytes % unit == 0
        and all(stride % step == 0 for stride in outer)
        and misaligned % step == 0
    )


def _rounds(rows: int, across: int) -> int:
    """Rows that a warp of fingerprint_full takes one after another: as many as leave work enough
    for every multiprocessor, since a block has to set itself up."""
    together = _WARPS // across
    return max(1, min(_MOST_ROUNDS, rows // (together * _FEW_BLOCKS)))


def _digest_tile(rows: int, row_bytes: int, whole: bool) -> tuple[int, int]:
    """Rows that a warp carries for digests, and warps that share them: one, unless there are too few
    rows to fill the chip, and then as many as have work each. ``whole``: rows are contiguous."""
    if whole and rows >= _LEAST_TALL:
        wanted = min(row_bytes // (4 * _CHUNK), -(-_MANY_WARPS * TALL_ROWS // rows))
        return TALL_ROWS, _across(wanted)
    wanted = min(-(-row_bytes // (DIGEST_UNIT * 32)), -(-_MANY_ROWS // max(1, rows)))
    return LANE_ROWS, _across(wanted)


def _across(wanted: int) -> int:
    """Warps that share a row."""
    return next((across for across in (1, 2, 4) if across >= wanted), _WARPS)
