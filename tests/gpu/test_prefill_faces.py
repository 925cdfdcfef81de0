"""What prefill refuses, and what the routes say; no GPU needed."""

from __future__ import annotations

import pytest
import torch

from verify import gpu
from verify.gpu import errors
from verify.gpu.attention.fallback import attend_fp64


def tensors(
    queries: int = 64, keys: int = 96, heads: tuple[int, int] = (6, 1), dim: int = 256,
    dtype: torch.dtype = torch.float16,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    random = torch.Generator().manual_seed(3)
    q = torch.randn(1, queries, heads[0], dim, generator=random).to(dtype)
    k, v = (torch.randn(1, keys, heads[1], dim, generator=random).to(dtype) for _ in range(2))
    return q, k, v


REFUSED = [
    (tensors(queries=60), {}, errors.ShapeError, "query length outside the table"),
    (tensors(queries=8256, keys=9000), {}, errors.ShapeError, "64 to 8192"),
    (tensors(queries=96, keys=96), {}, errors.ShapeError, "query length"),
    (tensors(queries=128, keys=128), {}, errors.ShapeError, "empty prefix"),
    (tensors(keys=112), {}, errors.ShapeError, "a multiple of 32"),
    (tensors(keys=262176), {}, errors.ShapeError, "at most 262144"),
    (tensors(heads=(5, 1)), {}, errors.ShapeError, "head counts outside the table"),
    (tensors(heads=(6, 2)), {}, errors.ShapeError, r"\(12, 2\)"),
    (tensors(dim=128), {}, errors.ShapeError, "wrong head_dim"),
    (tensors(dtype=torch.bfloat16), {}, errors.DtypeError, "torch.bfloat16"),
    (tensors(), {"causal": False}, errors.SemanticsError, "not causal"),
    (tensors(), {"scale": 0.0625001}, errors.SemanticsError, "exactly 1/16"),
    (tensors(), {"fallback": "quiet"}, errors.SemanticsError, "no such fallback"),
    (tensors(), {"variant": "nonsense"}, errors.KernelArgumentError, "no kernel of that name"),
]


@pytest.mark.parametrize(("given", "options", "error", "message"), REFUSED)
def test_what_is_outside_the_contract_is_refused(
    given: tuple[torch.Tensor, ...], options: dict[str, object], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        gpu.prefill(*given, **options)  # type: ignore[arg-type]


def test_layout_is_checked() -> None:
    q, k, v = tensors()
    wide = torch.zeros(1, 64, 12, 256, dtype=torch.float16)
    with pytest.raises(errors.LayoutError, match="not contiguous"):
        gpu.prefill(wide[:, :, ::2], k, v)
    store = torch.zeros(q.numel() + 8, dtype=torch.float16)
    start = 4 if store.data_ptr() % 16 == 0 else 0
    with pytest.raises(errors.LayoutError, match="misaligned base address"):
        gpu.prefill(store[start : start + q.numel()].view(q.shape), k, v)
    with pytest.raises(errors.DeviceError, match="several devices"):
        gpu.prefill(q, k.to("meta"), v)
    with pytest.raises(errors.ShapeError, match="out"):
        gpu.prefill(q, k, v, out=torch.empty_like(q[:, :32]))


def test_a_fallback_answers_under_its_own_name() -> None:
    q, k, v = tensors(queries=60)
    with gpu.record_routes() as routes:
        sdpa = gpu.prefill(q, k, v, fallback="sdpa")
        exact = gpu.prefill(q, k, v, fallback="fp64")
    assert [route.route for route in routes] == ["sdpa", "fp64"]
    assert all("query length" in route.reason and not route.is_kernel for route in routes)
    assert torch.equal(exact, attend_fp64(q, k, v, 1.0 / 16.0, True))
    # Both round to FP16 once or twice: two FP16 ulp of values below 4.
    assert float((sdpa - exact).abs().max()) <= 2 * 2.0**-9


def test_on_the_cpu_the_oracle_answers_and_says_so() -> None:
    q, k, v = tensors(heads=(4, 1))
    with gpu.record_routes() as routes:
        out = gpu.prefill(q, k, v)
    (route,) = routes
    assert (route.route, route.device, route.is_kernel) == ("cpu_replay_oracle", "cpu", False)
    exact = attend_fp64(q, k, v, 1.0 / 16.0, True)
    error = (out.double() - exact.double()).norm() / exact.double().norm()
    assert float(error) < 2.0**-11  # half an ulp: both are FP16 roundings of nearly the same


def test_padding_keeps_the_visible_keys() -> None:
    q, k, v = tensors(queries=64, keys=160)
    padded, added = gpu.pad_queries(q[:, 20:].contiguous())
    assert (padded.shape[1], added) == (64, 20)
    whole = attend_fp64(q, k, v, 1.0 / 16.0, True)
    assert torch.equal(attend_fp64(padded, k, v, 1.0 / 16.0, True)[:, added:], whole[:, 20:])
    assert gpu.pad_queries(q)[1] == 0
