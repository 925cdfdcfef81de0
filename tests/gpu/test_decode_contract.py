"""Split-KV decode over the paged E4M3 cache: exact cases, bitwise relations, accuracy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.gpu.decode_steps import NAN_CODE, Step, exact, make_step
from tests.gpu.helpers import measure, same_bits
from verify import gpu
from verify.bounds import Bound
from verify.gpu import errors
from verify.gpu.arch import device_arch, variant_arch
from verify.gpu.paged.decode import WAVES, partition_length
from verify.gpu.table import VARIANTS, head_groups
from verify.reference.attention.parts import gather_pages

pytestmark = pytest.mark.gpu

NAMES = [name for name, variant in VARIANTS.items() if variant.operation == "decode_wave"]
THRESHOLDS = [below + step for below, _ in WAVES[:-1] for step in (-1, 0, 1)]
LENGTHS = [131071, 131072, 262080, 262144, *THRESHOLDS]


@pytest.fixture(params=NAMES, autouse=True)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if variant_arch(VARIANTS[request.param].archs, device_arch(0)) is None:
        pytest.skip(f"{request.param} has no build for {device_arch(0)}")
    monkeypatch.setattr(Step, "variant", request.param)
    return str(request.param)


# --- exact by construction ----------------------------------------------------------------------


@pytest.mark.parametrize("heads", head_groups())
@pytest.mark.parametrize("lengths", [[1, 64, 65, 0], [1000, 12287, 12288, 12289], [262144]])
def test_equal_scores_average_v_exactly(lengths: list[int], heads: tuple[int, int]) -> None:
    step = make_step(lengths, heads=heads)
    codes = torch.tensor([0x00, 0x38, 0xB8, 0x40, 0xC0, 0x48], dtype=torch.uint8, device="cuda")
    choice = torch.randint(0, 6, step.v.shape, device="cuda")  # 0, 1, -1, 2, -2, 4
    step = replace(step, q=torch.zeros_like(step.q), v=codes[choice])
    out = step.run()
    for b, length in enumerate(lengths):
        if length == 0:
            assert same_bits(out[b], torch.zeros_like(out[b]))
            continue
        v = gather_pages(step.v.view(torch.float8_e4m3fn), step.table[b], length).double()
        expected = (v.sum(0).float() / float(length)).half()
        assert same_bits(out[b], expected.repeat_interleave(heads[0] // heads[1], dim=0))


@pytest.mark.parametrize("length", [1, 17, 700, 12289, 50000])
def test_one_key_far_ahead_is_copied_bit_for_bit(length: int) -> None:
    step = make_step([length], page=800)
    part = partition_length(length)
    edges = {0, 1, 15, 16, 63, 64, part - 1, part, part + 1, 799, 800, length - 2, length - 1}
    step.q.zero_()
    step.q[..., 0] = 16.0
    for planted in sorted(p for p in edges if 0 <= p < length):
        k = torch.where(step.k == NAN_CODE, step.k, torch.zeros_like(step.k))
        place = int(step.table[0, planted // 800]), planted % 800
        k[place][0, 0] = 0x78  # 256: 256 log2 units ahead
        out = replace(step, k=k).run()
        # A sum that holds +0 turns -0 into +0.
        expected = step.v[place].view(torch.float8_e4m3fn).half().expand(6, 256) + 0.0
        assert same_bits(out[0], expected), f"key {planted}"


# --- relations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_eager_graph_explicit_partition_and_page_order_agree_bitwise(length: int) -> None:
    step = make_step([length])
    expected = step.run(k_scale=0.7, v_scale=1.3)
    assert bool(expected.isfinite().all())  # all bytes that are not live are NaN codes
    gpu.check_device_errors()
    scales = {"k_scale": 0.7, "v_scale": 1.3}
    explicit = step.run(partition=partition_length(length), **scales)
    assert same_bits(explicit, expected)
    for order in ("sequential", "reversed"):
        physical = torch.arange(step.k.shape[0], device="cuda")
        target = physical if order == "sequential" else physical.flip(0)
        source = step.table.flatten().long()
        k, v = torch.empty_like(step.k), torch.empty_like(step.v)
        k[target], v[target] = step.k[source], step.v[source]
        moved = replace(step, k=k, v=v, table=target.view_as(step.table).int())
        assert same_bits(moved.run(**scales), expected), order
    out = torch.empty_like(step.q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run(out=out, **scales)
    out.fill_(torch.nan)
    graph.replay()
    assert same_bits(out, expected)


def test_one_graph_serves_all_lengths() -> None:
    step = make_step([262144])
    out = torch.empty_like(step.q)
    step.run(out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run(out=out)
    for length in (1, 12288, 0, 196608, 131072):
        step.lengths.fill_(length)
        out.fill_(torch.nan)
        graph.replay()
        assert same_bits(out, step.run()), length
    gpu.check_device_errors()


def test_a_batch_gives_the_bits_of_its_members() -> None:
    step = make_step([700, 12288, 1, 0, 50000, 99999], page=848, heads=(12, 2))
    whole = step.run()
    for b in range(6):
        alone = Step(step.q[b : b + 1], step.k, step.v, step.table[b : b + 1],
                     step.lengths[b : b + 1].clone())  # fmt: skip
        assert same_bits(alone.run(), whole[b : b + 1]), b


def test_twenty_repeats_and_two_streams_give_the_same_bits() -> None:
    steps = [make_step([131072]), make_step([700] * 64, page=64)]
    expected = [step.run() for step in steps]
    streams = [torch.cuda.Stream() for _ in steps]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results.append((index, steps[index].run()))
    torch.cuda.synchronize()
    assert all(same_bits(out, expected[index]) for index, out in results)


def test_nan_in_a_live_key_reaches_the_output() -> None:
    step = make_step([100], page=64)
    k = step.k.clone()
    k[int(step.table[0, 0]), 5, 0, 3] = NAN_CODE
    assert bool(replace(step, k=k).run().isnan().all())


def test_a_workspace_may_be_given_and_must_fit() -> None:
    step = make_step([5000], page=64)
    capacity = step.table.shape[1] * 64
    needed = gpu.workspace_floats(1, 6, capacity)
    given = torch.full((needed,), torch.nan, device="cuda")
    assert same_bits(step.run(workspace=given), step.run())
    with pytest.raises(errors.WorkspaceError, match=f"at least {needed}"):
        step.run(workspace=given[:-1])


def test_streams_that_share_a_workspace_take_turns() -> None:
    steps = [make_step([262144]), make_step([700] * 64, page=64)]
    expected = [step.run() for step in steps]
    sizes = [
        gpu.workspace_floats(step.q.shape[0], 6, min(262144, step.table.shape[1] * step.k.shape[1]))
        for step in steps
    ]
    shared = torch.empty(max(sizes), device="cuda")
    streams = [torch.cuda.Stream() for _ in steps]
    torch.cuda.synchronize()
    results = []
    for _ in range(10):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results.append((index, steps[index].run(workspace=shared)))
    torch.cuda.synchronize()
    assert all(same_bits(out, expected[index]) for index, out in results)


# --- accuracy -----------------------------------------------------------------------------------

RATIO = Bound(1.1, "P carries 22 bits and E4M3 is exact: only the final rounding is left")


@pytest.mark.parametrize("heads", head_groups())
@pytest.mark.parametrize("length", [1, 100, 12288, 131072, 262144])
def test_error_over_floor(length: int, heads: tuple[int, int]) -> None:
    step = make_step([length], heads=heads)
    accuracy = measure(step.run(k_scale=0.0137, v_scale=0.3)[0], exact(step, 0, 0.0137, 0.3))
    assert RATIO.used_by(accuracy.ratio) <= 1.0, str(accuracy)
