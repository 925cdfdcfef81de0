"""Fingerprints of any dtype, shape and strides: bit for bit those of the numpy forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from verify import gpu
from verify.dumps import digests, summaries
from verify.formats import FORMATS, word_dtype
from verify.gpu import errors
from verify.gpu.fingerprint.face import row_matrix
from verify.gpu.fingerprint.jobs import Job, launch_digest
from verify.gpu.fingerprint.layout import LANE_ROWS, TALL_ROWS, geometry
from verify.gpu.fingerprint.tables import sketch_words, weight_bytes

DEVICES = [
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu),
]
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Group edges, one and several warps a row, whole and partial trees, the walk beyond registers.
LENGTHS = [0, 1, 15, 16, 17, 129, 576, 1536, 2048, 2049, 5120, 8192, 20000]
SPECIAL = {
    "float16": [0x7C00, 0xFC00, 0x7E00, 0x0001, 0x8000, 0, 0xFBFF],
    "bfloat16": [0x7F80, 0xFF80, 0x7FC1, 0x0001, 0x8000, 0, 0xFF7F],
    "float32": [0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x80000000, 0, 0xFF7FFFFF],
}


def random_words(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Every kind of bit pattern that is a value of the dtype."""
    kind = word_dtype(dtype)
    top = {"bool": 1, "float4_e2m1fn": 15}.get(dtype, np.iinfo(kind).max)
    return np.random.default_rng(seed).integers(0, top, shape, dtype=kind, endpoint=True)


def moderate(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Normal data as words: sums neither overflow nor drown in one large element."""
    values = np.random.default_rng(seed).standard_normal(shape)
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype).view(word_dtype(dtype))


def as_tensor(words: np.ndarray, device: str) -> torch.Tensor:
    kind = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[words.dtype.itemsize]
    return torch.from_numpy(words.view(kind).copy()).to(device)


def typed(words: np.ndarray, dtype: str, device: str) -> torch.Tensor:
    """The words as a tensor of the dtype, where torch has it one value an element."""
    tensor = as_tensor(words, device)
    real = None if dtype == "float4_e2m1fn" else getattr(torch, dtype, None)
    return tensor if real is None else tensor.view(real)


def check(tensor: torch.Tensor, axes: tuple[int, ...], dtype: str, offset: int = 0) -> None:
    """All three parts against numpy, and the digest alone as well."""
    matrix = row_matrix(tensor, axes)
    words = matrix.view(WORDS[tensor.element_size()]).cpu().numpy().view(word_dtype(dtype))
    digest = digests.row_digests(words, dtype, offset)
    alone = gpu.fingerprint(tensor, axes, dtype_name=dtype, offset=offset)
    assert alone.digest.device == tensor.device
    assert (alone.digest.cpu().numpy().view(np.uint64) == digest).all()
    assert alone.sketch is None
    full = gpu.fingerprint(tensor, axes, keep="full", dtype_name=dtype, offset=offset)
    assert (full.digest.cpu().numpy().view(np.uint64) == digest).all()
    assert full.sketch is not None and full.statistics is not None
    expected = summaries.row_statistics(words, dtype)
    found = full.statistics.cpu().numpy()
    np.testing.assert_array_equal(found[:, [0, 3, 4, 5, 6]], expected[:, [0, 3, 4, 5, 6]])
    assert found.tobytes() == expected.tobytes()
    sketch = summaries.row_sketches(words, dtype, offset)
    assert full.sketch.cpu().numpy().tobytes() == sketch.tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_dtype(dtype: str, device: str) -> None:
    for length in (1, 17, 200, 2048):
        check(typed(random_words(dtype, (5, length), length), dtype, device), (0,), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_length(dtype: str, device: str) -> None:
    for length in LENGTHS:
        check(typed(moderate(dtype, (11, length), length), dtype, device), (0,), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SPECIAL)
def test_values_that_are_not_numbers(dtype: str, device: str) -> None:
    words = moderate(dtype, (9, 600))
    for index, code in enumerate(SPECIAL[dtype]):
        words[index, index * 37 :: 113] = code
    words[7] = SPECIAL[dtype][4]  # nothing but -0
    words[8] = SPECIAL[dtype][2]  # nothing but NaN
    check(typed(words, dtype, device), (0,), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
def test_every_layout(dtype: str, device: str) -> None:
    whole = typed(
        random_words("uint8" if dtype == "uint8" else dtype, (3, 6, 10, 64)), dtype, device
    )
    check(whole, (0, 2), dtype)  # b h t d
    check(whole.transpose(1, 2), (0, 1), dtype)  # b t h d
    check(whole[:, :, ::2, 1:], (0, 2), dtype)  # odd base and strides
    check(whole[..., ::3], (0, 2), dtype)  # elements apart
    check(whole.permute(3, 2, 1, 0), (1,), dtype)
    check(whole, (), dtype)  # one row
    check(whole, (2, 0, 1), dtype)
    check(whole[:, :1].expand(3, 5, 10, 64), (0, 2), dtype)
    check(whole[:0], (0, 2), dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_more_axes_than_a_job_has_room_for(device: str) -> None:
    words = random_words("int16", (2, 3, 4, 3, 2, 5, 2, 3))
    tensor = typed(words, "int16", device).permute(7, 3, 5, 1, 6, 2, 4, 0)
    assert geometry(tuple(tensor.shape), tensor.stride(), "int16", (0, 2), False, 0) is None
    check(tensor, (0, 2), "int16")


@pytest.mark.parametrize("device", DEVICES)
def test_shards_add_up_to_the_row(device: str) -> None:
    words = moderate("float16", (4, 256))
    for start, stop in ((0, 100), (100, 256), (160, 256)):
        check(typed(words[:, start:stop], "float16", device), (0,), "float16", start)


@pytest.mark.parametrize("device", DEVICES)
def test_one_bit_changes_one_digest(device: str) -> None:
    words = moderate("float16", (64, 2048))
    before = gpu.fingerprint(typed(words, "float16", device)).digest
    words[37, 1999] ^= 1
    after = gpu.fingerprint(typed(words, "float16", device)).digest
    assert (before != after).nonzero().flatten().tolist() == [37]


# Whole and partial tiles of 32 rows, rows that end inside a chunk of 64 bytes, one warp a row and
# several, and first lanes at which the weights of a tile can and cannot begin.
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "rows", "length", "offset"),
    [("float32", 2053, 36, 0), ("float16", 4100, 2048, 0), ("bfloat16", 2048, 8200, 0),
     ("uint8", 70001, 208, 0), ("int64", 2049, 130, 8), ("float16", 2050, 96, 64),
     ("float16", 2050, 96, 8), ("float16", 2050, 96, 3)],
)  # fmt: skip
def test_many_rows(dtype: str, rows: int, length: int, offset: int) -> None:
    words = random_words(dtype, (rows, length), length)
    words[-1] = np.iinfo(words.dtype).max
    check(typed(words, dtype, "cuda"), (0,), dtype, offset)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_sums_of_bytes_beyond_32_bits(dtype: str) -> None:
    kind = word_dtype(dtype)
    words = np.full((40, 300_000 // kind.itemsize // 16 * 16), np.iinfo(kind).max, kind)
    words[::2] = random_words(dtype, words[::2].shape)
    tensor = typed(words, dtype, "cuda")
    found = geometry(tuple(tensor.shape), tensor.stride(), dtype, (0,), False, 0)
    assert found is not None
    for rows, across in ((TALL_ROWS, 1), (TALL_ROWS, 4), (LANE_ROWS, 1)):
        line = list(found.line)
        line[15], line[31] = across, rows
        digest = torch.zeros(40, dtype=torch.int64, device="cuda")
        job = Job(tensor, replace(found, line=tuple(line), across=across), 0)
        launch_digest(job, digest.data_ptr())
        expected = digests.row_digests(words, dtype)
        assert (digest.cpu().numpy().view(np.uint64) == expected).all()


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["digest", "full"])
def test_inside_a_graph(keep: str) -> None:
    x = torch.randn(33, 2048, device="cuda", dtype=torch.float16)
    gpu.fingerprint(x, keep=keep)  # type: ignore[arg-type]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = gpu.fingerprint(x * 2, keep=keep)  # type: ignore[arg-type]
    for _ in range(3):
        x.normal_()
        graph.replay()
        expected = gpu.fingerprint(x * 2, keep=keep)  # type: ignore[arg-type]
        for a, b in zip(found, expected, strict=True):
            assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_keeps_its_contract(device: str) -> None:
    torch.library.opcheck(
        torch.ops.verify.fingerprint.default,
        (torch.randn(3, 4, 8, device=device), [0, 1], "float32", True, 0),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_what_is_refused() -> None:
    with pytest.raises(errors.KernelArgumentError, match="kind of fingerprint"):
        gpu.fingerprint(torch.zeros(2, 2), keep="all")  # type: ignore[arg-type]
    with pytest.raises(errors.DtypeError, match="table of formats"):
        gpu.fingerprint(torch.zeros(2, 2), dtype_name="float16")
    with pytest.raises(errors.KernelArgumentError, match="negative offset"):
        gpu.fingerprint(torch.zeros(2, 2), offset=-1)
    with pytest.raises(errors.ShapeError, match="each once"):
        gpu.fingerprint(torch.zeros(2, 2), (0, 0))


def test_the_plan_of_the_sketch_as_words() -> None:
    plan, words = summaries.sketch_plan(0, 320), sketch_words(320)
    for group, word in enumerate(words.view(np.uint32).tolist()):
        for bucket in range(16):
            place = bucket ^ (word & 15)
            assert plan.source[group * 16 + bucket] == group * 16 + place
            sign = bucket & 8 | (bucket & 1) << 2 | (bucket & 7) >> 1
            assert (plan.sign[group * 16 + bucket] < 0) == bool(word >> 16 >> sign & 1)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_the_sum_is_a_product_of_bytes(dtype: str) -> None:
    words = random_words(dtype, (5, 384))
    words[0] = np.iinfo(words.dtype).max
    weights = digests.random_words(digests.WEIGHT_STREAM, 0, 384) | np.uint64(1)
    rows = words.view(np.uint8).reshape(5, -1, 4, 16).astype(np.uint64)
    table = weight_bytes(weights, words.itemsize).astype(np.uint64)
    planes = np.einsum("rcti,cpti->rp", rows, table) << np.arange(0, 64, 8, dtype=np.uint64)
    assert (planes.sum(axis=1) == (words * weights).sum(axis=1)).all()
