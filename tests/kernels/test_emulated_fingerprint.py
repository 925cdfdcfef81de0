"""The fingerprint kernels on the host, thread by thread: bit for bit the numpy forms.

The same source as on a GPU, with the instructions of ``ptx.cuh`` in plain C++. What this does not show:
races inside a warp or block, the operand layouts of the real instructions, and speed.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from verify.dumps import digests, summaries
from verify.formats import word_dtype
from verify.gpu.compile.source import KERNELS_DIR
from verify.gpu.fingerprint import jobs
from verify.gpu.fingerprint.face import readable, row_matrix
from verify.gpu.fingerprint.layout import LANE_ROWS, TALL_ROWS, Geometry

HERE = Path(__file__).parent / "emulated"
COMPILER = shutil.which("g++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ACROSS, _ROUNDS = 15, 31  # places in a line


class Emulated:
    """What ``LoadedKernel`` is on a GPU."""

    def __init__(self, source: str, kind: str, arch: int) -> None:
        self.library = library(source, kind, arch)

    def launch(self, entry: str, grid: tuple[int, int, int], *arguments: int) -> None:
        self.library.run(grid[0], (ctypes.c_longlong * len(arguments))(*arguments))


@pytest.fixture(params=[700, 900], ids=["portable", "tensor-cores"], autouse=True)
def kernels_on_the_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    arch = request.param
    monkeypatch.setattr(jobs, "digest_kernel", lambda _: Emulated("fingerprint.cu", "", arch))
    monkeypatch.setattr(
        jobs, "summary_kernel", lambda _, kind: Emulated("fingerprint_full.cu", kind, arch)
    )
    # torch without CUDA cannot answer.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@functools.cache
def library(source: str, kind: str, arch: int) -> ctypes.CDLL:
    assert COMPILER is not None
    folder = tempfile.mkdtemp()
    entry = "fingerprint_many" if source == "fingerprint.cu" else "fingerprint_full"
    defines = {
        "SOURCE": f'"{source}"', "ENTRY": entry, "KIND": kind, "__CUDA_ARCH__": str(arch),
        "VERIFY_BUILD_ID": '"emulated"',
    }  # fmt: skip
    subprocess.run(
        [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w",
         *(f"-D{name}={value}" for name, value in defines.items()),
         f"-I{HERE}", f"-I{KERNELS_DIR}", "-o", f"{folder}/kernel.so", str(HERE / "run.cpp")],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(f"{folder}/kernel.so")


def with_tile(found: Geometry, rows: int, across: int) -> Geometry:
    line = list(found.line)
    line[_ACROSS], line[_ROUNDS] = across, rows
    return replace(found, line=tuple(line), across=across)


def check(
    tensor: torch.Tensor, axes: Sequence[int], dtype: str, *, full: bool = False, offset: int = 0,
    tile: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    found = readable(tensor, tuple(axes), dtype, full, offset)
    assert found is not None
    geometry = with_tile(found[1], *tile) if tile else found[1]
    rows = geometry.rows
    digest = torch.full((rows,), 7, dtype=torch.int64)
    sketch = torch.full((rows, 16), 7, dtype=torch.float32)
    statistics = torch.full((rows, 7), 7, dtype=torch.float64)
    outputs = (sketch.data_ptr(), statistics.data_ptr()) if full else (0, 0)
    job = jobs.Job(found[0], geometry, digest.data_ptr(), *outputs)
    table = np.ascontiguousarray(jobs.table_words([job]))
    ring = jobs.Ring(0)  # so that offsets are addresses
    jobs.launch_table(table.ctypes.data, [job], ring, geometry.build if full else None)
    words = row_matrix(tensor, axes).view(WORDS[tensor.element_size()]).numpy()
    words = words.view(word_dtype(dtype))
    assert digest.numpy().tobytes() == digests.row_digests(words, dtype, offset).tobytes()
    if full:
        assert statistics.numpy().tobytes() == summaries.row_statistics(words, dtype).tobytes()
        expected = summaries.row_sketches(words, dtype, offset)
        assert sketch.numpy().tobytes() == expected.tobytes()


def random_tensor(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Every kind of bit pattern."""
    kind = word_dtype(dtype)
    words = np.random.default_rng(len(shape)).integers(
        0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True
    )
    return torch.from_numpy(words.view(f"i{kind.itemsize}")).view(getattr(torch, dtype))


# Whole and partial tiles, rows that end inside a chunk of 64 bytes, one warp a row and several, and
# first lanes at which the weights of a tile can and cannot begin.
@pytest.mark.parametrize(
    ("dtype", "shape", "offset", "tile"),
    [
        ("float32", (40, 36), 0, (TALL_ROWS, 1)),
        ("float16", (33, 2056), 0, (TALL_ROWS, 8)),
        ("uint8", (70, 208), 0, (TALL_ROWS, 2)),
        ("int64", (65, 130), 8, (TALL_ROWS, 4)),
        ("float16", (50, 96), 64, (TALL_ROWS, 1)),
        ("float16", (50, 96), 8, (TALL_ROWS, 1)),
        ("float16", (50, 96), 3, (LANE_ROWS, 1)),
        ("bfloat16", (5, 2048), 0, (LANE_ROWS, 4)),
    ],
)
def test_digests(dtype: str, shape: tuple[int, ...], offset: int, tile: tuple[int, int]) -> None:
    check(random_tensor(dtype, shape), (0,), dtype, offset=offset, tile=tile)


def test_sums_of_bytes_reach_beyond_32_bits() -> None:
    # 255 times weights' bytes, 127.5 in the mean: 2^32 after 132,000 of them.
    ones = torch.full((1, 140_032), 255, dtype=torch.uint8)
    check(ones, (0,), "uint8", tile=(TALL_ROWS, 1))


def test_layouts() -> None:
    whole = random_tensor("float16", (3, 6, 10, 64))
    for tensor, axes in (
        (whole, (0, 2)), (whole.transpose(1, 2), (0, 1)), (whole[:, :, ::2, 1:], (0, 2)),
        (whole[..., ::3], (0, 2)), (whole.permute(3, 2, 1, 0), (1,)), (whole, ()),
    ):  # fmt: skip
        check(tensor, axes, "float16")
        check(tensor, axes, "float16", full=True)


# Lengths of whole and partial trees, on one warp and several, and the walk beyond registers.
@pytest.mark.parametrize(
    ("dtype", "lengths"),
    [
        ("float16", (17, 576, 1024, 2048, 5120, 16384, 20000)),
        ("float32", (17, 1024, 2048, 5120)),
        ("float8_e4m3fn", (17, 1024, 2048, 5120)),
    ],
)
def test_sketches_and_statistics(dtype: str, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        kind = word_dtype(dtype)
        values = np.random.default_rng(length).standard_normal((9, length))
        if dtype.startswith("float8"):
            tensor = random_tensor(dtype, (9, length))
        else:
            tensor = torch.from_numpy(values.astype(dtype))
            tensor[3, ::7] = torch.inf
            tensor[4, 1::5] = torch.nan
            tensor[5] = -0.0
        assert kind.itemsize == tensor.element_size()
        check(tensor, (0,), dtype, full=True)
