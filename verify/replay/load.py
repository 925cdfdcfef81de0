"""The implementation that recorded a run, loaded again from what its manifest says."""

from __future__ import annotations

from typing import Any

from verify.dumps.format import Dump
from verify.errors import ModelError, NotComparableError
from verify.replay.run import Models
from verify.replay.steps import Implementation

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def load_models(a: Dump, b: Dump, model_a: str | None, model_b: str | None = None) -> Models:
    """Load both sides, each with the dtype, attention, cache and threads of its manifest.

    Args:
        model_a: as for ``verify capture --model``; None: the name in A's manifest.
        model_b: None: ``model_a`` where that was given, else the name in B's manifest.

    Raises:
        ModelError: a model that is not there, or not that of its run.
        NotComparableError: a run that `verify capture` did not record.
    """
    first = load_implementation(a, model_a)
    return Models(first, load_implementation(b, model_b or model_a))


def load_implementation(dump: Dump, name: str | None = None, **changes: Any) -> Implementation:
    """Load one side.

    Args:
        name: as for ``verify capture --model``; None: the name in the manifest.
        changes: settings that replace those of the manifest (``attn``, ``kv_cache``).
    """
    from verify.dumps.hf.load import load_model, own_aligned_memory

    settings = {**dump.manifest.settings, **changes}
    name = name or dump.manifest.model.name
    missing = [key for key in ("dtype", "attn", "kv_cache") if key not in settings]
    if missing:
        raise NotComparableError(
            "the manifest does not say how this run computed, so it cannot be run again",
            where=dump.path,
            found=f"no setting {', '.join(missing)}",
            allowed="a run of `verify capture`",
            hint="replay in Python with models of your own: verify.replay.run.replay",
        )
    dtype = _DTYPES.get(str(settings["dtype"]))
    if dtype is None:
        raise ModelError(
            "weights in this dtype cannot be loaded",
            where=dump.path,
            found=settings["dtype"],
            allowed=", ".join(_DTYPES),
        )
    try:
        loaded = load_model(name, dtype=dtype, attn=str(settings["attn"]))
    except ModelError as error:
        raise ModelError(
            error.what,
            where=error.where,
            found=error.found,
            allowed=error.allowed,
            hint="pass --model-a (and --model-b), as for verify capture --model",
        ) from error
    _check_weights(dump, loaded.model, name)
    alignment = settings.get("weights_alignment")
    if isinstance(alignment, int) and 0 < alignment < 64:
        own_aligned_memory(loaded.model, alignment)
    threads = settings.get("threads")
    return Implementation(
        loaded.model,
        kv_cache=str(settings["kv_cache"]),
        threads=int(threads) if isinstance(threads, int) else None,
        label=name,
    )


def _check_weights(dump: Dump, model: Any, name: str) -> None:
    from verify.dumps.capture.weights import joint_digest, weight_digests

    recorded = dump.manifest.model.weights_digest
    digests = weight_digests(model)
    if recorded and recorded != joint_digest(digests):
        unlike = [k for k, v in digests.items() if dump.manifest.model.weights.get(k) != v]
        raise ModelError(
            "the model at hand has other weights than the run",
            where=name,
            found=f"{len(unlike)} of {len(digests)} differ, first {unlike[0] if unlike else '-'}",
            allowed=f"the weights of {dump.path}",
            hint="give the model of that run; for a change made in process use the Python API",
        )
