"""The prefill kernels against their contract: exact cases, metamorphic relations, accuracy."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.helpers import (
    DIM,
    SENTINEL,
    Problem,
    guarded,
    make_problem,
    prefill_accuracy,
    same_bits,
    surrounded_by_nan,
)
from verify import gpu
from verify.bounds import Bound
from verify.gpu.arch import device_arch, variant_arch
from verify.gpu.table import VARIANTS, head_groups

pytestmark = pytest.mark.gpu

NAMES = [name for name, variant in VARIANTS.items() if variant.operation == "prefill"]
# Shapes (Q, KV): smallest; seam inside a tile; a last tile of 32 keys; several row blocks.
SHAPES = [(64, 96), (64, 4096), (128, 1056), (192, 2080), (576, 4128)]


@pytest.fixture(params=NAMES)
def variant(request: pytest.FixtureRequest) -> str:
    if variant_arch(VARIANTS[request.param].archs, device_arch(0)) is None:
        pytest.skip(f"{request.param} has no build for {device_arch(0)}")
    return str(request.param)


def run(problem: Problem, variant: str) -> torch.Tensor:
    out = gpu.prefill(problem.q, problem.k, problem.v, variant=variant)
    route = gpu.last_route()
    assert route is not None and route.route == variant and route.is_kernel
    return out


def visible_keys(problem: Problem) -> torch.Tensor:
    """[Q]: how many keys each row sees."""
    return problem.prefix + 1 + torch.arange(problem.q.shape[1], device="cuda")


# --- exact by construction ----------------------------------------------------------------------


@pytest.mark.parametrize("heads", head_groups())
@pytest.mark.parametrize(("queries", "keys"), [*SHAPES, (64, 262144)])
def test_equal_scores_average_v_exactly(
    variant: str, queries: int, keys: int, heads: tuple[int, int]
) -> None:
    # q = 0: every p is 2^12, all sums are integers below 2^24 times 2^12, so the result is
    # fp16(fp32(sum / n)) in any order, on any chip.
    problem = make_problem(queries, keys, heads=heads)
    v = torch.randint(-8, 9, problem.v.shape, device="cuda")
    out = run(Problem(torch.zeros_like(problem.q), problem.k, v.half()), variant)
    sums = v[0].double().cumsum(0)[visible_keys(problem) - 1]  # [Q, key heads, 256]
    expected = (sums.float() / visible_keys(problem)[:, None, None].float()).half()
    assert same_bits(out[0], expected.repeat_interleave(heads[0] // heads[1], dim=1))


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
def test_one_key_far_ahead_is_copied_bit_for_bit(variant: str, queries: int, keys: int) -> None:
    # 32 * 32 / 16 * log2(e) = 92 powers of two ahead: every other p rounds to 0 in FP16 and adds
    # less than half an ulp of l in FP32.
    problem = make_problem(queries, keys)
    q, k = torch.zeros_like(problem.q), torch.zeros_like(problem.k)
    q[..., 0] = 32.0
    edges = {0, 1, 31, 32, 63, 64, 65, problem.prefix - 1, problem.prefix, problem.prefix + 1}
    edges |= {t + d for t in range(64, keys, max(64, keys // 512 * 64)) for d in (-1, 0)}
    for planted in sorted(edges | {keys - 33, keys - 32, keys - 2, keys - 1}):
        k[0, :, :, 0] = 0.0
        k[0, planted, :, 0] = 32.0
        out = run(Problem(q, k, problem.v), variant)
        sees = visible_keys(problem) > planted
        expected = problem.v[0, planted].expand_as(out[0, sees])
        assert same_bits(out[0, sees], expected), f"key {planted}"
        # A row that does not see the key averages the others: nothing of it may leak.
        if not bool(sees.all()):
            clean = run(Problem(q, torch.zeros_like(k), problem.v), variant)
            assert same_bits(out[0, ~sees], clean[0, ~sees]), f"key {planted}"


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("queries", "keys"), [(64, 96), (128, 1056), (576, 4128)])
def test_masked_keys_are_never_read_into_a_sum(
    variant: str, queries: int, keys: int, poison: float
) -> None:
    problem = make_problem(queries, keys)
    clean = run(problem, variant)
    for first in (problem.prefix + 1, keys - queries // 2, keys - 1):
        k, v = problem.k.clone(), problem.v.clone()
        k[0, first:], v[0, first:] = poison, poison
        out = run(Problem(problem.q, k, v), variant)
        sees = visible_keys(problem) > first
        assert same_bits(out[0, ~sees], clean[0, ~sees]), f"keys from {first}"
        assert not bool(out[0, sees].isfinite().any()), f"keys from {first}"


def test_a_visible_infinity_of_v_reaches_only_its_column(variant: str) -> None:
    problem = make_problem(128, 1056)
    v = problem.v.clone()
    v[0, -10, 0, 7] = torch.inf
    out, clean = run(Problem(problem.q, problem.k, v), variant), run(problem, variant)
    sees = visible_keys(problem) > 1046
    assert bool((out[0, sees][..., 7] == torch.inf).all())
    others = torch.arange(DIM, device="cuda") != 7
    assert same_bits(out[..., others], clean[..., others])
    assert same_bits(out[0, ~sees], clean[0, ~sees])


# --- relations ----------------------------------------------------------------------------------


def test_twenty_repeats_give_the_same_bits(variant: str) -> None:
    problem = make_problem(576, 8224)
    first = run(problem, variant)
    assert all(same_bits(run(problem, variant), first) for _ in range(19))


def test_nothing_outside_the_tensors_is_read_or_written(variant: str) -> None:
    problem = make_problem(192, 1056 + 192)
    expected = run(problem, variant)
    q, k, v = (surrounded_by_nan(t) for t in (problem.q, problem.k, problem.v))
    with guarded(tuple(q.shape), SENTINEL, torch.float16) as out:
        gpu.prefill(q, k, v, variant=variant, out=out)
        assert same_bits(out, expected)


def test_chunks_of_a_prefill_give_the_same_bits(variant: str) -> None:
    problem = make_problem(256, 2048)
    whole = run(problem, variant)
    for start in range(0, 256, 64):
        end = problem.prefix + start + 64
        part = Problem(
            problem.q[:, start : start + 64].contiguous(),
            problem.k[:, :end].contiguous(),
            problem.v[:, :end].contiguous(),
        )
        assert same_bits(run(part, variant), whole[:, start : start + 64])


def test_padded_queries_give_the_bits_of_the_real_ones(variant: str) -> None:
    problem = make_problem(128, 1056)
    whole = run(problem, variant)
    padded, added = gpu.pad_queries(problem.q[:, 28:].contiguous())
    assert added == 28
    out = run(Problem(padded, problem.k, problem.v), variant)
    assert same_bits(out[:, added:], whole[:, 28:])


def test_heads_of_a_group_are_independent(variant: str) -> None:
    problem = make_problem(64, 1056)
    order = torch.tensor([3, 0, 5, 1, 4, 2], device="cuda")
    swapped = Problem(problem.q[:, :, order].contiguous(), problem.k, problem.v)
    assert same_bits(run(swapped, variant), run(problem, variant)[:, :, order])


def test_two_streams_with_two_shapes_do_not_disturb_each_other(variant: str) -> None:
    problems = [make_problem(64, 16384), make_problem(576, 4128, seed=1)]
    expected = [run(problem, variant) for problem in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    results: list[list[torch.Tensor]] = [[], []]
    for _ in range(5):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[index].append(run(problems[index], variant))
    torch.cuda.synchronize()
    for index, outs in enumerate(results):
        assert all(same_bits(out, expected[index]) for out in outs)


def test_a_graph_replay_gives_the_bits_of_the_eager_call(variant: str) -> None:
    problem = make_problem(192, 2080)
    other = make_problem(192, 2080, seed=7)
    expected = [run(problem, variant), run(other, variant)]
    static = Problem(problem.q.clone(), problem.k.clone(), problem.v.clone())
    out = torch.empty_like(static.q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gpu.prefill(static.q, static.k, static.v, variant=variant, out=out)
    for source, wanted in zip((problem, other), expected, strict=True):
        static.q.copy_(source.q), static.k.copy_(source.k), static.v.copy_(source.v)
        out.fill_(SENTINEL)
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(out, wanted)


def test_it_runs_under_torch_compile(variant: str) -> None:
    problem = make_problem(64, 1056)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return gpu.prefill(q, k, v, variant=variant) * 1.0

    compiled = torch.compile(call, fullgraph=True)
    assert same_bits(compiled(problem.q, problem.k, problem.v), run(problem, variant))


# --- accuracy -----------------------------------------------------------------------------------

RATIO = {
    # P in FP16, independent V of mean zero: the rounding of P alone adds as much as the final
    # rounding, sqrt(2) = 1.41; 2 % for the sampled rows.
    ("rounded", "zero_mean"): Bound(1.45, "sqrt(2) from FP16 probabilities, plus sampling"),
    ("rounded", "biased"): Bound(1.05, "coherent rounding of P cancels in o / l"),
    ("rounded", "near_overflow"): Bound(1.05, "V has a mean, as biased"),
    ("rounded", "spiked"): Bound(1.45, "as zero mean"),
    ("rounded", "large_scores"): Bound(1.45, "few keys share the mass; less than zero mean"),
}
SPLIT_RATIO = Bound(1.05, "P carries 22 bits: only the final rounding is left")


@pytest.mark.parametrize("kind", [kind for mass, kind in RATIO if mass == "rounded"])
@pytest.mark.parametrize(("queries", "keys", "rows"), [(576, 4128, 64), (512, 32768, 32)])
def test_error_over_floor(variant: str, kind: str, queries: int, keys: int, rows: int) -> None:
    problem = make_problem(queries, keys, kind)
    accuracy = prefill_accuracy(run(problem, variant), problem, rows)
    split = VARIANTS[variant].mass == "unrounded"
    bound = SPLIT_RATIO if split else RATIO["rounded", kind]
    assert bound.used_by(accuracy.ratio) <= 1.0, f"{accuracy} against {bound}"


@pytest.mark.parametrize("kind", ["zero_mean", "biased"])
def test_the_error_does_not_grow_with_length(variant: str, kind: str) -> None:
    ratios = []
    for keys in (32768, 256000):
        problem = make_problem(512, keys, kind)
        ratios.append(prefill_accuracy(run(problem, variant), problem, 32).ratio)
    growth = Bound(1.03, "blocks of 64 keys are added in FP32 registers: no drift with length")
    assert growth.used_by(ratios[1] / ratios[0]) <= 1.0, str(ratios)


def test_unsupported_calls_name_the_chip_and_launch_nothing() -> None:
    from verify.gpu import errors

    problem = make_problem(64, 96)
    with pytest.raises(errors.DeviceError, match="several devices"):
        gpu.prefill(problem.q, problem.k.cpu(), problem.v)
    with pytest.raises(errors.LayoutError, match="misaligned"):
        store = torch.zeros(problem.q.numel() + 8, dtype=torch.float16, device="cuda")
        gpu.prefill(store[4:-4].view(problem.q.shape), problem.k, problem.v)
    out = gpu.prefill(problem.q[:, :60].contiguous(), problem.k, problem.v, fallback="fp64")
    route = gpu.last_route()
    assert route is not None and route.route == "fp64" and "query length" in route.reason
    assert out.shape == (1, 60, 6, DIM)
