"""Cosines and sines of the default rotary embedding, held against FP64 of the model's base."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.certify.inputs import read_values
from verify.dumps.format import Dump
from verify.dumps.format.schema import Manifest, Record
from verify.errors import ArgumentError
from verify.formats import get_format
from verify.reference.layers.rope import rope_tables
from verify.replay.attention import unit


def is_rotary_table(record: Record) -> bool:
    """Whether the record is what a module that makes cosines and sines returns."""
    return record.tap.removesuffix(".1").endswith("rotary_emb.out")


def rotary_share(dump: Dump, record: Record, rows: NDArray[np.int64], manifest: Manifest) -> float:
    """How much of its rounding bound a table [rows, dim] uses, each angle twice in a row: errors of
    the power, the angle in FP32 and the function, and the rounding of the result.

    Args:
        manifest: of the run whose configuration counts.

    Raises:
        ArgumentError: no base is stated, angles are scaled, or it is no such table.
    """
    config = manifest.model.config
    stated = config.get("rope_parameters") or {}
    kind = stated.get("rope_type", "default") if config.get("rope_scaling") is None else "scaled"
    theta = stated.get("rope_theta", config.get("rope_theta"))
    which = [
        name for name in ("cos", "sin") if f"aten.{name}" in {op.split("[")[0] for op in record.ops}
    ]
    places = dump.rows(record).position
    values = read_values(dump, record)[rows]
    if theta is None or kind != "default" or len(which) != 1 or (places < 0).any():
        raise ArgumentError(
            "no FP64 reference of this rotary table",
            where=record.tap,
            found=f"base {theta}, angles {kind}, operations {', '.join(record.ops)}",
            allowed="one base, default angles, and known positions",
        )
    tables = rope_tables(places[rows], theta=float(theta), rotated=values.shape[-1])
    exact = tables[which == ["sin"]]
    half = unit(get_format(record.dtype))
    bound = exact.radius + half * (np.abs(exact.mid) + exact.radius)
    error = np.abs(values - np.concatenate([exact.mid, exact.mid], axis=-1))
    share = error / (np.concatenate([bound, bound], axis=-1) + np.finfo(np.float64).tiny)
    return float(np.where(np.isfinite(share), share, np.inf).max())
