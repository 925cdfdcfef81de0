"""Two builds of one symbol live side by side: distinct ids, both held, both launched."""

from pathlib import Path

import numpy as np
import pytest
import torch

from verify.endpoints import Case, EndpointSpec, compare_endpoints
from verify.endpoints.modules import build_module, kernel_endpoint
from verify.endpoints.result import PairCheck, State
from verify.gpu.compile import nvrtc_missing
from verify.gpu.compile.build import BUILD_ID_SYMBOL
from verify.gpu.compile.elf import read_text
from verify.gpu.errors import CompileError, StaleBuildError

SOURCE = Path(__file__).with_name("scale.cu")
THREE = (("FACTOR", "3.0f"),)
needs_nvrtc = pytest.mark.skipif(nvrtc_missing() is not None, reason=str(nvrtc_missing()))


def launch(module, x):
    y = torch.empty_like(x)
    module.launch("scale", -(-x.numel() // 128), 128, x, y, np.int32(x.numel()))
    return y


def endpoints():
    return {
        "two": kernel_endpoint(SOURCE, launch, route="two"),
        "three": kernel_endpoint(SOURCE, launch, route="three", defines=THREE),
    }


@needs_nvrtc
def test_two_builds_of_one_symbol_have_ids_of_their_own_and_are_both_held():
    two, three = build_module(SOURCE, "sm_90"), build_module(SOURCE, "sm_90", defines=THREE)
    assert two.build_id != three.build_id and two.cubin != three.cubin
    for build in (two, three):
        assert b"scale" in build.cubin
        assert read_text(build.cubin, BUILD_ID_SYMBOL) == build.build_id


@needs_nvrtc
def test_the_build_id_follows_text_includes_and_architecture(tmp_path):
    header, source = tmp_path / "factor.h", tmp_path / "scale.cu"
    header.write_text("#define FACTOR 2.0f\n")
    source.write_text('#include "factor.h"\n' + SOURCE.read_text())
    ids = [build_module(source, "sm_90").build_id, build_module(source, "sm_80").build_id]
    header.write_text("#define FACTOR 5.0f\n")
    ids.append(build_module(source, "sm_90").build_id)
    assert len(set(ids)) == 3
    assert build_module(source, "sm_90").build_id == ids[2]


@needs_nvrtc
def test_a_source_that_does_not_compile_carries_the_log(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void k() { nonsense; }')
    with pytest.raises(CompileError, match="nonsense"):
        build_module(source, "sm_90")


@needs_nvrtc
def test_a_stored_build_that_is_another_is_refused(monkeypatch):
    other = build_module(SOURCE, "sm_90", defines=THREE)
    monkeypatch.setattr("verify.gpu.compile.cache.load", lambda _: (other.cubin, other.log))
    with pytest.raises(StaleBuildError):
        build_module(SOURCE, "sm_90")


@pytest.mark.skipif(torch.cuda.is_available(), reason="states what happens without a GPU")
def test_without_a_gpu_a_kernel_endpoint_fails():
    spec = EndpointSpec(endpoints=endpoints(), cases=[Case("one", lambda: {"x": torch.ones(4)})])
    result = compare_endpoints(spec)
    assert result.exit_code == 1
    assert all("needs a CUDA device" in c.reason for c in result.of(State.FAILED))


@pytest.mark.gpu
def test_both_builds_run_side_by_side_under_their_own_routes():
    case = Case("ones", lambda: {"x": torch.ones(1000, device="cuda")})
    result = compare_endpoints(EndpointSpec(endpoints=endpoints(), cases=[case]))
    (pair,) = (c for c in result.checks if isinstance(c, PairCheck))
    assert pair.tensors[0].max_abs == 1.0 and pair.tensors[0].differing_elements == 1000
    routes = [c.routes[0] for c in result.checks if not isinstance(c, PairCheck)]
    assert [route["route"] for route in routes] == ["two", "three"]
    assert len({route["build_id"] for route in routes}) == 2
