"""The E4M3 bridge: every code, scale class, page size and length, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.gpu.helpers import SENTINEL, same_bits
from verify import formats, gpu
from verify.gpu import errors

PAGES_IN = [800, 848, 1568, 1616, 1648, 1728, 3296, 3456]
PAGES_OUT = [32, 784]
# Exact; seven significant bits; rounded; at the edges of overflow, subnormals and underflow.
SCALES = [1.0, 0.5, 4.0, 2.0**-8, 127 / 128, 0.0137, 3.7, 146.0, 146.25, 2.0**-15, 2.0**-16,
          2.0**-17, 1e-30, 3.0e38]  # fmt: skip
LENGTHS = [0, 1, 15, 16, 17, 799, 800, 801]
DEVICES = [
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu),
]


@dataclass(frozen=True, eq=False)
class Cache:
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor


def make_cache(
    device: str, page: int, lengths: list[int], heads: int = 1, dim: int = 256,
    interleaved: bool = True,
) -> Cache:  # fmt: skip
    """Random codes, all 256 of them; physical pages in random order; table as long as needed."""
    random = torch.Generator().manual_seed(page)
    per_sequence = max(1, -(-max(lengths) // page))
    blocks = len(lengths) * per_sequence + 1
    shape = (blocks, 2, page, heads, dim) if interleaved else (2, blocks, page, heads, dim)
    codes = torch.randint(0, 256, shape, generator=random, dtype=torch.uint8).to(device)
    k, v = codes.unbind(1 if interleaved else 0)
    order = torch.randperm(blocks, generator=random)[: len(lengths) * per_sequence]
    table = order.view(len(lengths), per_sequence).int().to(device)
    return Cache(k, v, table, torch.tensor(lengths, dtype=torch.int32, device=device))


def decode_by_table(codes: torch.Tensor, scale: float) -> np.ndarray:
    """fp16(float(code) * float(scale)) as words, through the table of ``verify.formats``."""
    values = formats.decode(codes.cpu().numpy(), "float8_e4m3fn").astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        halves = (values * np.float32(scale)).astype(np.float16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), halves.view(np.uint16))


def expected_words(
    cache: Cache, codes: torch.Tensor, before: torch.Tensor, scale: float
) -> np.ndarray:
    """What the output must hold, from the words that it held before."""
    words = before.cpu().numpy().view(np.uint16).copy()
    batch, page, out_page = len(cache.lengths), codes.shape[1], words.shape[1]
    rows = words.reshape(batch, -1, *words.shape[2:])
    assert rows.base is not None or rows.size == words.size
    for b, length in enumerate(cache.lengths.tolist()):
        position = np.arange(length)
        pages = cache.table[b].cpu().numpy()[position // page]
        live = codes.cpu().numpy()[pages, position % page]
        rows[b, : -(-length // 16) * 16] = 0
        rows[b, :length] = decode_by_table(torch.from_numpy(live), scale)
    assert out_page == words.shape[1]
    return rows.reshape(words.shape)


def run(
    cache: Cache, out_page: int, k_scale: float = 1.0, v_scale: float = 1.0, spare: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    longest = int(cache.lengths.max())
    blocks = (-(-longest // out_page) + spare) * len(cache.lengths)
    before = torch.full((blocks, out_page, *cache.k.shape[2:]), SENTINEL, device=cache.k.device)
    k_out, v_out = before.half(), before.half()
    gpu.e4m3_to_fp16(
        cache.k, cache.v, cache.table, cache.lengths, k_out=k_out, v_out=v_out,
        k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip
    return before.half(), k_out, v_out


def check(cache: Cache, out_page: int, k_scale: float = 1.0, v_scale: float = 1.0) -> None:
    before, k_out, v_out = run(cache, out_page, k_scale, v_scale)
    for codes, out, scale in ((cache.k, k_out, k_scale), (cache.v, v_out, v_scale)):
        found = out.cpu().numpy().view(np.uint16)
        assert np.array_equal(found, expected_words(cache, codes, before, scale))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scale", SCALES)
def test_all_codes_at_every_scale_class(device: str, scale: float) -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=device).view(1, 1, 1, 256)
    cache = Cache(codes.expand(1, 16, 1, 256).contiguous(), codes.flip(3).expand(1, 16, 1, 256),
                  torch.zeros(1, 1, dtype=torch.int32, device=device),
                  torch.tensor([16], dtype=torch.int32, device=device))  # fmt: skip
    check(cache, 32, k_scale=scale, v_scale=1.0)


@pytest.mark.parametrize("device", DEVICES)
def test_scale_one_is_exact_and_keeps_signs(device: str) -> None:
    words = decode_by_table(torch.arange(256, dtype=torch.uint8), 1.0)
    assert words[0x00] == 0x0000 and words[0x80] == 0x8000
    assert words[0x7F] == words[0xFF] == 0x7FFF
    exact = formats.decode(np.arange(256, dtype=np.uint8), "float8_e4m3fn")
    finite = ~np.isnan(exact)
    assert np.array_equal(words.view(np.float16)[finite].astype(np.float64), exact[finite])
    check(make_cache(device, 32, [64]), 32)


@pytest.mark.gpu
@pytest.mark.parametrize("page", PAGES_IN)
@pytest.mark.parametrize("out_page", PAGES_OUT)
def test_production_page_sizes(page: int, out_page: int) -> None:
    check(make_cache("cuda", page, [2 * page + 5, 0, page]), out_page, 0.37, 1.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_and_what_lies_beyond(device: str, length: int) -> None:
    check(make_cache(device, 400, [length, 3]), 48)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("heads", "dim"), [(1, 256), (2, 128), (3, 64), (2, 8), (2, 20), (1, 7), (5, 12)]
)
@pytest.mark.parametrize("interleaved", [True, False])
def test_heads_and_dimensions(heads: int, dim: int, interleaved: bool) -> None:
    check(make_cache("cuda", 48, [100, 40], heads, dim, interleaved), 32, 2.5, 0.3)


@pytest.mark.gpu
def test_a_view_that_is_not_aligned_takes_the_narrow_path() -> None:
    cache = make_cache("cuda", 48, [100], dim=264)
    shifted = Cache(cache.k[..., 3:259], cache.v[..., 8:264], cache.table, cache.lengths)
    check(shifted, 32)
    route = gpu.last_route()
    assert route is not None and dict(route.shape)["wide"] == 0


@pytest.mark.gpu
def test_physical_pages_may_lie_in_any_order() -> None:
    cache = make_cache("cuda", 64, [500])
    _, k_out, _ = run(cache, 32)
    order = torch.randperm(cache.k.shape[0], device="cuda")
    moved = Cache(cache.k[order], cache.v[order], order.argsort()[cache.table.long()].int(),
                  cache.lengths)  # fmt: skip
    _, again, _ = run(moved, 32)
    assert same_bits(again, k_out)


@pytest.mark.gpu
def test_one_graph_serves_changed_lengths_and_tables() -> None:
    cache = make_cache("cuda", 64, [1000, 1000])
    outs = [torch.empty(2 * 32, 32, 1, 256, dtype=torch.float16, device="cuda") for _ in range(2)]

    def call() -> None:
        gpu.e4m3_to_fp16(cache.k, cache.v, cache.table, cache.lengths, k_out=outs[0],
                         v_out=outs[1], k_scale=0.7)  # fmt: skip

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for lengths in ([1000, 1], [0, 17], [16, 640], [999, 1000]):
        cache.lengths.copy_(torch.tensor(lengths))
        cache.table.copy_(torch.randperm(cache.k.shape[0])[: cache.table.numel()].view(2, -1))
        for out in outs:
            out.fill_(SENTINEL)
        before = outs[0].clone()
        graph.replay()
        torch.cuda.synchronize()
        for codes, out, scale in ((cache.k, outs[0], 0.7), (cache.v, outs[1], 1.0)):
            expected = expected_words(cache, codes, before, scale)
            assert np.array_equal(out.cpu().numpy().view(np.uint16), expected), lengths
    gpu.check_device_errors()


@pytest.mark.gpu
def test_faults_that_only_the_device_sees_are_reported_and_left_out() -> None:
    gpu.check_device_errors()
    for lengths, page_id, message in (([-1], 0, "length"), ([129], 0, "length"),
                                      ([100], 99, "block id"), ([100], -3, "block id")):  # fmt: skip
        cache = make_cache("cuda", 64, [128])
        cache.lengths.copy_(torch.tensor(lengths))
        cache.table[0, 0] = page_id
        _, k_out, _ = run(Cache(cache.k, cache.v, cache.table, cache.lengths), 32, spare=9)
        with pytest.raises(errors.KernelError, match=message):
            gpu.check_device_errors()
        assert bool((k_out.view(-1, 256)[:64] == SENTINEL).all())
    gpu.check_device_errors()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lengths": [65, 3]}, errors.ShapeError, "does not fit its block table"),
        ({"lengths": [1]}, errors.ShapeError, "one length a sequence"),
        ({"k_scale": 0.0}, errors.SemanticsError, "positive finite"),
        ({"v_scale": float("inf")}, errors.SemanticsError, "positive finite"),
        ({"k_scale": 1e39}, errors.SemanticsError, "positive finite"),
    ],
)
def test_host_side_refusals(change: dict[str, object], error: type, message: str) -> None:
    cache = make_cache("cpu", 64, [64, 3])
    out = torch.zeros(8, 32, 1, 256, dtype=torch.float16)
    with pytest.raises(error, match=message):
        gpu.e4m3_to_fp16(
            cache.k, cache.v, cache.table, cache.lengths, k_out=out, v_out=out.clone(),
            **change,  # type: ignore[arg-type]
        )  # fmt: skip


def test_tensors_of_the_wrong_type_or_shape_are_refused() -> None:
    cache = make_cache("cpu", 64, [64])
    out = torch.zeros(4, 32, 1, 256, dtype=torch.float16)
    rows = [
        ((cache.k.half(), cache.v, cache.table, cache.lengths), errors.DtypeError, "k_cache"),
        ((cache.k, cache.v[:1], cache.table, cache.lengths), errors.ShapeError, "v_cache"),
        ((cache.k, cache.v, cache.table.long(), cache.lengths), errors.DtypeError, "block_table"),
        ((cache.k, cache.v, cache.table, cache.lengths.repeat(2)), errors.ShapeError, "seq_lens"),
        ((cache.k.transpose(1, 3), cache.v.transpose(1, 3), cache.table, cache.lengths),
         errors.LayoutError, "neighbours"),
    ]  # fmt: skip
    for given, error, message in rows:
        with pytest.raises(error, match=message):
            gpu.e4m3_to_fp16(*given, k_out=out, v_out=out.clone())
    with pytest.raises(errors.ShapeError, match="does not match the cache"):
        gpu.e4m3_to_fp16(cache.k, cache.v, cache.table, cache.lengths, k_out=out[:, :, :, :8],
                         v_out=out[:, :, :, :8])  # fmt: skip
