"""Environment variables that may change arithmetic, threading, dispatch or loading.

An allow-list: anything else in the environment may be a secret and is never read.
"""

from __future__ import annotations

import os

VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLASLT_LOG_LEVEL",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "GOMP_CPU_AFFINITY",
    "HF_HUB_OFFLINE",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "MKL_THREADING_LAYER",
    "NCCL_ALGO",
    "NCCL_NVLS_ENABLE",
    "NCCL_PROTO",
    "NUMEXPR_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_SCHEDULE",
    "OMP_WAIT_POLICY",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "PYTORCH_TUNABLEOP_ENABLED",
    "PYTORCH_TUNABLEOP_TUNING",
    "SGLANG_ATTENTION_BACKEND",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TRITON_INTERPRET",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_USE_V1",
)


def variables() -> dict[str, str]:
    """Those of the list that are set. :func:`verify.env.collect` redacts their values."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}
