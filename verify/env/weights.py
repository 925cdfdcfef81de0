"""How likely a fact about a process is to change what it computes, and which thing it tells of."""

from __future__ import annotations

import re

LIKELY, POSSIBLE, UNLIKELY = "likely", "possible", "unlikely"
ORDER = ("declared", LIKELY, POSSIBLE, UNLIKELY)
"""``declared``: what the user set out to compare (settings of a run; never of an environment)."""

THREADS = "number of threads"

# Pattern, weight, subject ("" for the fact's own name), note. The first match counts. Facts with
# one subject are one change: OMP_NUM_THREADS and the threads that torch uses, say.
_RULES: tuple[tuple[str, str, str, str], ...] = (
    (r"^torch\.(interop_)?threads|^variables\.(OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS", LIKELY,
     THREADS, "sums are split among threads; CPU flash attention depends on the number in decode"),
    (r"^torch\.(gpu|capability|gpus)$|^boards$", LIKELY, "GPU",
     "other kernels, other order of summation"),
    (r"^driver$|^cuda_libraries\.libcuda$", POSSIBLE, "GPU driver", ""),
    (r"^variables\.VERIFY_|^variables\.HF_HUB_OFFLINE", UNLIKELY, "", ""),
    (r"cpu_capability|CPU_CAPABILITY|MAX_CPU_ISA|MKL_CBWR|ENABLE_INSTRUCTIONS|DEBUG_CPU_TYPE|CORETYPE",
     LIKELY, "", "another instruction set sums in another order"),
    (r"^cpu$|^machine$", LIKELY, "processor", "another instruction set sums in another order"),
    (r"^changed_during_run\.", LIKELY, "", "a switch was turned while one run was going on"),
    (r"matmul_precision|TF32|tf32|FPMATH|fp32_precision|deterministic|sdp_|mkldnn|CUBLAS|blas",
     LIKELY, "", "selects other kernels or precisions"),
    (r"_reduction|_accumulation|ATTENTION_BACKEND|benchmark|default_dtype",
     LIKELY, "", "selects other kernels or precisions"),
    (r"^torch\.(version|git|cuda|hip|build|debug)$", LIKELY, "torch", "other kernels may be in use"),
    (r"^torch\.cudnn$|^cuda_libraries\.", LIKELY, "", "other kernels may be in use"),
    (r"^(routes|kernels)\.", LIKELY, "kernels that ran", "other code answered the calls"),
    (r"^compile\.(triton|tunable_op|inductor)", LIKELY, "compile and tuning choices",
     "other kernels may have been chosen"),
    (r"TUNABLEOP|AUTOTUNE|tunable_op|NCCL_|LD_PRELOAD", LIKELY, "",
     "other kernels may have been chosen"),
    (r"^seeds\.", POSSIBLE, "random seed", "matters where something is drawn"),
    (r"^(python|system|cores)$|PYTHONHASHSEED|OMP_WAIT_POLICY|ALLOC_CONF|NVML|CUDA_LAUNCH_BLOCKING",
     UNLIKELY, "", ""),
)  # fmt: skip

_KERNEL_PACKAGES = re.compile(
    r"torch|transformers|triton|flash|xformers|vllm|sglang|sgl-|nvidia-|cuda|cupy|cutlass|tensorrt"
    r"|bitsandbytes|deepspeed|apex|mkl|onednn|intel-|jax|tilelang|liger|kernels|accelerate"
)


def weigh(name: str) -> tuple[str, str, str]:
    """Weight, subject and note of a fact by its dotted name."""
    for pattern, weight, subject, note in _RULES:
        if re.search(pattern, name):
            return weight, subject or name, note
    return POSSIBLE, name, ""


def is_kernel_package(name: str) -> bool:
    """Whether a package of this name computes, or decides what computes."""
    return _KERNEL_PACKAGES.search(name) is not None


def weigh_package(name: str, runs_machine_code: bool) -> tuple[str, str]:
    """Weight and note of another version of a package.

    Args:
        runs_machine_code: one of its shared objects was loaded.
    """
    if name == "firstdiff":
        return UNLIKELY, "the recorder itself"
    if is_kernel_package(name):
        return LIKELY, "other kernels may be in use"
    return (POSSIBLE, "") if runs_machine_code else (UNLIKELY, "")
