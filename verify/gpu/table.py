"""Every kernel variant of this project: what to compile, for which chips, and its conventions."""

from __future__ import annotations

import re

from verify.gpu.compile.limits import PORTABLE_ARCHS
from verify.gpu.compile.source import KERNELS_DIR
from verify.gpu.compile.variant import KernelVariant
from verify.gpu.errors import KernelArgumentError

_GROUP_ROW = re.compile(r"^\s*X\((\d+), (\d+)\)", re.MULTILINE)


def head_groups() -> tuple[tuple[int, int], ...]:
    """Admitted (query heads, key heads), read from the one table in ``kernels/include``."""
    text = (KERNELS_DIR / "include" / "shapes.cuh").read_text(encoding="utf-8")
    return tuple((int(q), int(kv)) for q, kv in _GROUP_ROW.findall(text))


def head_defines(query_heads: int, key_heads: int) -> tuple[tuple[str, str], ...]:
    """The macros that select one row of the head table."""
    return (("QUERY_HEADS", str(query_heads)), ("KEY_HEADS", str(key_heads)))


_SIX_ONE = head_defines(6, 1)

VARIANTS = {
    variant.name: variant
    for variant in (
        KernelVariant(
            name="prefill",
            operation="prefill",
            source="prefill.cu",
            entries=("prefill",),
            archs=PORTABLE_ARCHS,
            mass="rounded",
            summary="causal prefill, FP16 probabilities, wmma",
            default_defines=(*_SIX_ONE, ("SPLIT_P", "0")),
        ),
        KernelVariant(
            name="prefill_split_p",
            operation="prefill",
            source="prefill.cu",
            entries=("prefill",),
            archs=PORTABLE_ARCHS,
            mass="unrounded",
            summary="causal prefill, probabilities as FP16 high + low parts, wmma",
            default_defines=(*_SIX_ONE, ("SPLIT_P", "1")),
        ),
        KernelVariant(
            name="prefill_hopper",
            operation="prefill",
            source="prefill_hopper.cu",
            entries=("prefill_hopper",),
            archs=("sm_90a",),
            mass="rounded",
            summary="causal prefill, FP16 probabilities, wgmma and bulk tensor copies",
            default_defines=(*_SIX_ONE, ("SPLIT_P", "0")),
        ),
        KernelVariant(
            name="prefill_hopper_split_p",
            operation="prefill",
            source="prefill_hopper.cu",
            entries=("prefill_hopper",),
            archs=("sm_90a",),
            mass="unrounded",
            summary="causal prefill, probabilities as FP16 high + low parts, wgmma",
            default_defines=(*_SIX_ONE, ("SPLIT_P", "1")),
        ),
        KernelVariant(
            name="e4m3_bridge",
            operation="e4m3_bridge",
            source="e4m3_bridge.cu",
            entries=("e4m3_bridge_wide", "e4m3_bridge_narrow"),
            archs=PORTABLE_ARCHS,
            mass="none",
            summary="paged E4M3 cache to contiguous FP16, exact",
        ),
        KernelVariant(
            name="decode_wave",
            operation="decode_wave",
            source="decode_wave.cu",
            entries=("decode_wave_partials", "decode_wave_merge"),
            archs=PORTABLE_ARCHS,
            mass="unrounded",
            summary="split-KV decode over the paged E4M3 cache, wmma",
            default_defines=_SIX_ONE,
        ),
        KernelVariant(
            name="decode_wave_mma",
            operation="decode_wave",
            source="decode_wave_mma.cu",
            entries=("decode_wave_partials", "decode_wave_merge"),
            archs=("sm_80", "sm_90"),
            mass="unrounded",
            summary="split-KV decode over the paged E4M3 cache, operands in registers",
            default_defines=_SIX_ONE,
        ),
        KernelVariant(
            name="fingerprint",
            operation="fingerprint",
            source="fingerprint.cu",
            entries=("fingerprint_one", "fingerprint_many", "fingerprint_advance"),
            archs=PORTABLE_ARCHS,
            mass="none",
            summary="digest of each row, many tensors a launch",
        ),
        KernelVariant(
            name="fingerprint_full",
            operation="fingerprint",
            source="fingerprint_full.cu",
            entries=("fingerprint_full",),
            archs=PORTABLE_ARCHS,
            mass="none",
            summary="digest, sketch and statistics of each row, many tensors a launch",
            default_defines=(("KIND", "Float16"),),
        ),
    )
}


def get_variant(name: str) -> KernelVariant:
    """The row ``name`` of the table. Raises KernelArgumentError naming the known ones."""
    try:
        return VARIANTS[name]
    except KeyError:
        raise KernelArgumentError(
            "there is no kernel of that name", found=name, allowed=", ".join(VARIANTS)
        ) from None
