"""The CUDA kernels of this project: compile, check, launch, and say which route answered.

Imports torch, numpy and, at the first launch, cuda.core. On CPU tensors the same calls run the
replay oracles of ``verify.reference``, and their route records say so.
"""

from verify.gpu.attention.contract import pad_queries
from verify.gpu.attention.prefill import prefill
from verify.gpu.fingerprint.face import Fingerprint, fingerprint
from verify.gpu.hf import register_attention
from verify.gpu.paged.bridge import e4m3_to_fp16
from verify.gpu.paged.decode import decode, workspace_floats
from verify.gpu.paged.faults import check_device_errors
from verify.gpu.route import RouteRecord, last_route, record_routes

__all__ = [
    "Fingerprint",
    "RouteRecord",
    "check_device_errors",
    "decode",
    "e4m3_to_fp16",
    "fingerprint",
    "last_route",
    "pad_queries",
    "prefill",
    "record_routes",
    "register_attention",
    "workspace_floats",
]
