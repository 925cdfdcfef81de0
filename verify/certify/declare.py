"""What operation a record is: named by the user, or read off the operations that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from verify.dumps.format.schema import Manifest, Record
from verify.errors import ArgumentError
from verify.reference.certificates.elementwise import (
    Activation,
    Embedding,
    Gated,
    Product,
    ResidualAdd,
    Softmax,
)
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.norm import LayerNorm, RmsNorm
from verify.reference.certificates.rotary import Rope
from verify.reference.certificates.selection import Select
from verify.reference.layers.accumulate import BF16_UNIT, FmaChain
from verify.reference.layers.arithmetic import Accumulation, Arithmetic
from verify.reference.layers.truncate import A100, H200, V100

OPS: dict[str, type[Any]] = {
    "activation": Activation,
    "embedding": Embedding,
    "gated": Gated,
    "layer-norm": LayerNorm,
    "linear": Linear,
    "product": Product,
    "residual-add": ResidualAdd,
    "rms-norm": RmsNorm,
    "rope": Rope,
    "select": Select,
    "softmax": Softmax,
}

ACCUMULATIONS: dict[str, Accumulation] = {
    "fp32": FmaChain(),
    "fp32-ascending": FmaChain(order="ascending"),
    "bf16-ascending": FmaChain(order="ascending", unit=BF16_UNIT),
    "v100": V100,
    "a100": A100,
    "h200": H200,
}

# Names of torch operations -> operation, the most telling first.
_TELLING: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"aten.embedding"}), "embedding"),
    (frozenset({"aten.native_layer_norm"}), "layer-norm"),
    (frozenset({"aten.rsqrt", "aten.mul"}), "rms-norm"),
    (frozenset({"aten._fused_rms_norm"}), "rms-norm"),
    (frozenset({"aten.mm"}), "linear"),
    (frozenset({"aten.addmm"}), "linear"),
    (frozenset({"aten.neg", "aten.cat", "aten.mul", "aten.add"}), "rope"),
    (frozenset({"aten._softmax"}), "softmax"),
    (frozenset({"aten.argmax"}), "select"),
    (frozenset({"aten.silu", "aten.mul"}), "gated"),
    (frozenset({"aten.gelu", "aten.mul"}), "gated"),
    (frozenset({"aten.silu"}), "activation"),
    (frozenset({"aten.gelu"}), "activation"),
    (frozenset({"aten.mul"}), "product"),
    (frozenset({"aten.add"}), "residual-add"),
)


def arithmetic_of(name: str) -> Arithmetic:
    """The arithmetic of a named accumulation.

    Raises:
        ArgumentError: no such name.
    """
    if name not in ACCUMULATIONS:
        raise ArgumentError(
            "no such accumulation",
            where="--accumulate",
            found=name,
            allowed=", ".join(ACCUMULATIONS),
        )
    return Arithmetic(ACCUMULATIONS[name])


def declare(
    record: Record, manifest: Manifest, name: str | None, settings: Mapping[str, str]
) -> Any:
    """The operation of a record with its parameters.

    Args:
        name: key of OPS; None reads it off the operations that the capture recorded.
        settings: parameters by name, as text; they override those of the model's config.

    Raises:
        ArgumentError: an operation that is not known or cannot be told, or a parameter that it
            lacks, does not have, or does not admit.
    """
    kind = name or _told_by_ops(record)
    if kind not in OPS:
        raise ArgumentError(
            "no such operation", where="--op", found=kind, allowed=", ".join(sorted(OPS))
        )
    op = OPS[kind]
    values = _from_config(kind, record, manifest) | _parsed(op, settings)
    required = [f.name for f in fields(op) if f.name not in values and _has_no_default(f)]
    if required:
        raise ArgumentError(
            f"{kind} needs a parameter that the run does not state",
            where=record.tap,
            found="nothing",
            allowed=", ".join(f"--set {parameter}=..." for parameter in required),
        )
    return op(**values)


def _has_no_default(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _told_by_ops(record: Record) -> str:
    ops = {op.partition("[")[0] for op in record.ops}
    for telling, kind in _TELLING:
        if telling <= ops:
            return kind
    attends = any("scaled_dot_product" in op for op in ops)
    raise ArgumentError(
        "no known operation between the recorded inputs and this tap",
        where=record.tap,
        found=", ".join(record.ops) or "no operation: a copy of another record",
        allowed=", ".join(sorted(OPS)),
        hint="leave out --op: an attention core is judged on the queries, keys and values it read"
        if attends
        else "name it with --op",
    )


def _from_config(kind: str, record: Record, manifest: Manifest) -> dict[str, Any]:
    """What the model's configuration says of the operation."""
    config, ops = manifest.model.config, " ".join(record.ops)
    gemma = "gemma" in manifest.model.architecture.lower()
    if kind == "rms-norm":
        eps = config.get("rms_norm_eps", record.attributes.get("eps"))
        # Gemma multiplies by 1 + weight in FP32; Llama and its kin cast before the weight.
        # torch's own rms_norm casts at the end too; it adds eps in place.
        fused = gemma or "_fused_rms_norm" in ops or "aten.add_" in ops
        cast = "after-weight" if fused else "before-weight"
        values = {"eps": eps, "unit_offset": gemma, "cast": cast}
        return {key: value for key, value in values.items() if value is not None}
    if kind == "layer-norm":
        stated = [config.get(name) for name in ("layer_norm_eps", "layer_norm_epsilon")]
        eps = next((e for e in (*stated, record.attributes.get("eps")) if e is not None), None)
        return {} if eps is None else {"eps": eps}
    if kind == "rope":
        return {"cast": "products"}
    if kind in ("activation", "gated"):
        act = str(config.get("hidden_act", config.get("hidden_activation", "")))
        if "silu" in ops or act in ("silu", "swish"):
            return {"function": "silu"}
        tanh = "tanh" in act or act == "gelu_new" or record.attributes.get("approximate") == "tanh"
        return {"function": "gelu-tanh" if tanh else "gelu"} if "gelu" in ops + act else {}
    if kind == "embedding" and gemma and "aten.mul" in ops:
        return {"scale": float(config["hidden_size"]) ** 0.5, "scale_precision": "stored"}
    return {}


def _parsed(op: type[Any], settings: Mapping[str, str]) -> dict[str, Any]:
    known = {field.name: str(field.type) for field in fields(op)}
    for name in settings:
        if name not in known:
            raise ArgumentError(
                "the operation has no such parameter",
                where="--set",
                found=name,
                allowed=", ".join(known) or "none",
            )
    return {name: _convert(name, text, known[name]) for name, text in settings.items()}


def _convert(name: str, text: str, annotation: str) -> Any:
    """A parameter's text as the type that the operation declares for it."""
    truth = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        if "bool" in annotation:
            return truth[text.lower()]
        if "float" in annotation:
            return float(text)
        if "int" in annotation.split("[")[0] and "Literal" not in annotation:
            return int(text)
    except (KeyError, ValueError):
        raise ArgumentError(
            "a parameter that cannot be read",
            where=f"--set {name}",
            found=repr(text),
            allowed=annotation,
        ) from None
    return text
