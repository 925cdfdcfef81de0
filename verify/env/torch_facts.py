"""What torch is and how its switches stand. Nothing is set, loaded or initialised by asking."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Fact -> where it stands, from torch on. A call is made where a function stands. Not every build
# has every switch; those that a build lacks are left out.
_SWITCHES = {
    "version": "__version__",
    "git": "version.git_version",
    "cuda": "version.cuda",
    "hip": "version.hip",
    "debug": "version.debug",
    "threads": "get_num_threads",
    "interop_threads": "get_num_interop_threads",
    "default_dtype": "get_default_dtype",
    "cpu_capability": "backends.cpu.get_cpu_capability",
    "matmul_precision": "get_float32_matmul_precision",
    "deterministic": "are_deterministic_algorithms_enabled",
    "deterministic_warn_only": "is_deterministic_algorithms_warn_only_enabled",
    "fill_uninitialized": "utils.deterministic.fill_uninitialized_memory",
    "fp32_precision": "backends.fp32_precision",
    "mkl": "backends.mkl.is_available",
    "openmp": "backends.openmp.is_available",
    "mkldnn": "backends.mkldnn.enabled",
    "mkldnn_deterministic": "backends.mkldnn.deterministic",
    "mkldnn_fp32_precision": "backends.mkldnn.fp32_precision",
    "tf32_matmul": "backends.cuda.matmul.allow_tf32",
    "tf32_cudnn": "backends.cudnn.allow_tf32",
    "fp16_reduction": "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "bf16_reduction": "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "fp16_accumulation": "backends.cuda.matmul.allow_fp16_accumulation",
    "cudnn_deterministic": "backends.cudnn.deterministic",
    "cudnn_benchmark": "backends.cudnn.benchmark",
    "sdp_flash": "backends.cuda.flash_sdp_enabled",
    "sdp_efficient": "backends.cuda.mem_efficient_sdp_enabled",
    "sdp_math": "backends.cuda.math_sdp_enabled",
    "sdp_cudnn": "backends.cuda.cudnn_sdp_enabled",
    "sdp_reduced_math": "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
    "tunable_op": "cuda.tunable.is_enabled",
    "build": "__config__.show",
}
_WITH_CUDA = {
    "gpu": "cuda.get_device_name",
    "capability": "cuda.get_device_capability",
    "cudnn": "backends.cudnn.version",
    "blas": "backends.cuda.preferred_blas_library",
    "linalg": "backends.cuda.preferred_linalg_library",
}
_INDUCTOR = (
    "max_autotune", "max_autotune_gemm", "max_autotune_gemm_backends", "coordinate_descent_tuning",
    "freezing", "fallback_random", "emulate_precision_casts", "epilogue_fusion", "deterministic",
    "cpp_wrapper", "max_fusion_size",
)  # fmt: skip
SEEDS = 2**32
"""Seeds that people set are below; an unset generator starts from 64 random bits."""


def torch_module() -> ModuleType | None:
    """torch, if this process has loaded it."""
    return sys.modules.get("torch")


def torch_facts(torch: ModuleType) -> dict[str, Any]:
    """Version, build, threads and switches, ready for JSON."""
    facts = _read(torch, _SWITCHES)
    if torch.cuda.is_initialized():
        facts |= _read(torch, _WITH_CUDA)
        facts["gpus"] = torch.cuda.device_count()
    return facts


def seeds(torch: ModuleType) -> dict[str, Any]:
    """Seed of each generator, ``not set`` where nobody chose one."""
    found = {"torch": _seed(torch.initial_seed())}
    if torch.cuda.is_initialized():
        found["cuda"] = _seed(torch.cuda.initial_seed())
    return found


def compile_facts() -> dict[str, Any]:
    """Options, counters and tuned choices of torch.compile, Triton and TunableOp, as far as they
    are loaded and tell."""
    facts: dict[str, Any] = {}
    if config := sys.modules.get("torch._inductor.config"):
        facts["inductor"] = {
            n: _plain(v) for n in _INDUCTOR if (v := getattr(config, n, None)) is not None
        }
    if utils := sys.modules.get("torch._dynamo.utils"):
        counted = {str(k): dict(v) for k, v in getattr(utils, "counters", {}).items() if v}
        facts |= {"counters": counted} if counted else {}
    if tuned := _tuned_kernels():
        facts["triton"] = tuned
    if results := _tunable_results():
        facts["tunable_op"] = results
    return facts


def _read(torch: ModuleType, places: dict[str, str]) -> dict[str, Any]:
    facts = {}
    for name, place in places.items():
        value: Any = torch
        try:
            for part in place.split("."):
                value = getattr(value, part)
            value = value() if _is_function(value) else value
        except Exception:  # noqa: BLE001, S112 - an unreadable switch must not lose a capture
            continue
        if value is not None:
            facts[name] = _plain(value)
    return facts


def _is_function(value: Any) -> bool:
    return isinstance(value, Callable) and not isinstance(value, type)  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else str(value)


def _seed(seed: int) -> int | str:
    return seed if seed < SEEDS else "not set"


def _tuned_kernels() -> dict[str, str]:
    """Kernel -> the configurations that Triton's autotuner chose, for tuners that a module holds."""
    tuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if tuner is None:
        return {}
    found = {}
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, tuner) and getattr(value, "cache", None):
                chosen = [f"{key}: {choice}" for key, choice in value.cache.items()]
                found[f"{module.__name__}.{name}"] = "; ".join(sorted(chosen))
    return found


def _tunable_results() -> list[str]:
    tunable = sys.modules.get("torch.cuda.tunable")
    try:
        return (
            [str(each) for each in tunable.get_results()]
            if tunable and tunable.is_enabled()
            else []
        )
    except Exception:  # noqa: BLE001 - as in _read
        return []
