"""Certificates over kernel outputs: bound, chi-square, tile and key filters, and planted faults."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.decode_steps import make_step
from tests.gpu.helpers import Problem, make_problem
from verify import gpu
from verify.gpu.arch import device_arch, variant_arch
from verify.gpu.table import VARIANTS
from verify.reference.attention import AttentionInputs, Row
from verify.reference.attention.parts import gather_pages
from verify.reference.replay.arithmetic import Arithmetic, Chain, tensor_core_prefill

# Certificates need more of the package than the kernels do.
certify_attention = pytest.importorskip(
    "verify.reference.certificates.attention.certify",
    reason="certificates need msgspec",
    exc_type=ImportError,
).certify_attention

ROWS = [Row(0, 0, 0), Row(0, 33, 1), Row(0, 63, 3)]  # of every problem below
CASES = [
    pytest.param("prefill", "cpu", 160, id="cpu"),
    *(
        pytest.param(name, "cuda", 4128, id=name, marks=pytest.mark.gpu)
        for name, variant in VARIANTS.items()
        if variant.operation == "prefill"
    ),
]


def declared(name: str, device: str) -> Arithmetic:
    """What a prefill variant declares about itself in the header of its source."""
    arch = "sm_70" if device == "cpu" else device_arch(0)
    changes = {"parts": 2} if name.endswith("split_p") else {}
    return tensor_core_prefill(arch, mass=VARIANTS[name].mass, **changes)


def problem_on(device: str, keys: int, kind: str) -> Problem:
    if device == "cuda":
        return make_problem(64, keys, kind)
    random = torch.Generator().manual_seed(0)
    q = torch.randn(1, 64, 4, 256, generator=random)
    k, v = (torch.randn(1, keys, 1, 256, generator=random) for _ in range(2))
    return Problem(q.half(), k.half(), (v + float(kind == "biased")).half())


def certificate(out: torch.Tensor, problem: Problem, arithmetic: Arithmetic):
    q, k, v = problem.q.cpu(), problem.k.cpu(), problem.v.cpu()
    return certify_attention(
        out.cpu(), AttentionInputs(q, k, v, scale=1.0 / 16.0), arithmetic, ROWS
    )


@pytest.mark.parametrize("kind", ["zero_mean", "biased"])
@pytest.mark.parametrize(("name", "device", "keys"), CASES)
def test_prefill_is_explained_by_its_declared_arithmetic(
    name: str, device: str, keys: int, kind: str
) -> None:
    if device == "cuda" and variant_arch(VARIANTS[name].archs, device_arch(0)) is None:
        pytest.skip(f"{name} has no build for {device_arch(0)}")
    problem = problem_on(device, keys, kind)
    out = gpu.prefill(problem.q, problem.k, problem.v, variant=name)
    found = certificate(out, problem, declared(name, device))
    assert found.outcome == "EXPLAINED", found.reasons


@pytest.mark.parametrize(("name", "device", "keys"), CASES[:2])
def test_a_kernel_that_drops_a_tile_is_found_out(name: str, device: str, keys: int) -> None:
    problem = problem_on(device, keys, "zero_mean")
    short = Problem(problem.q, problem.k[:, 32:].contiguous(), problem.v[:, 32:].contiguous())
    out = gpu.prefill(short.q, short.k, short.v, variant=name)  # never sees the first 32 keys
    found = certificate(out, problem, declared(name, device))
    assert found.outcome == "DEFECT"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["decode_wave", "decode_wave_mma"])
def test_decode_is_explained_by_its_declared_arithmetic(name: str) -> None:
    if variant_arch(VARIANTS[name].archs, device_arch(0)) is None:
        pytest.skip(f"{name} has no build for {device_arch(0)}")
    step = make_step([12288])
    out = gpu.decode(
        step.q, step.k, step.v, step.table, step.lengths, variant=name, k_scale=0.0137, v_scale=0.3
    )
    chain = Chain("tensor_core", device_arch(0))
    arithmetic = Arithmetic(
        name, chain, chain, tile=16 if name == "decode_wave_mma" else 64, accumulate="blocks",
        parts=2, mass="unrounded", partition=256,
    )  # fmt: skip
    k, v = (
        gather_pages(t.view(torch.float8_e4m3fn), step.table[0], 12288)[None].half().cpu()
        for t in (step.k, step.v)
    )
    inputs = AttentionInputs(
        step.q[:, None].cpu(), k, v, scale=1.0 / 16.0, k_scale=0.0137, v_scale=0.3
    )
    found = certify_attention(out[:, None].cpu(), inputs, arithmetic, [Row(0, 0, 0), Row(0, 0, 5)])
    assert found.outcome == "EXPLAINED", found.reasons
