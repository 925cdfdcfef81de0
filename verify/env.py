"""What a run ran on, as far as it can change a result: attached to every dump.

Everything here is read, never set, and torch is asked only if the process has loaded it already.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = (
    "firstdiff",
    "torch",
    "numpy",
    "transformers",
    "tokenizers",
    "safetensors",
    "accelerate",
    "gguf",
    "triton",
    "flash-attn",
    "cuda-core",
    "cuda-bindings",
)

# An allow-list: names known to change arithmetic, threading or dispatch. Anything else in the
# environment may be a secret and is never read.
VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "MKL_NUM_THREADS",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTHONHASHSEED",
)


def snapshot() -> dict[str, Any]:
    """Versions, processor, thread counts and switches of this process, ready for JSON."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "packages": installed(PACKAGES),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["torch"] = _torch_facts(torch)
    return facts


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _torch_facts(torch: ModuleType) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "sdp_flash": torch.backends.cuda.flash_sdp_enabled(),
        "sdp_math": torch.backends.cuda.math_sdp_enabled(),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cudnn"] = torch.backends.cudnn.version()
    return facts
