"""Two outputs bit by bit, and one output against FP64."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from verify.compare.elements import Pairing
from verify.compare.measure import Measure
from verify.dumps.capture.tensor_words import dtype_name, row_matrix
from verify.endpoints.result import ErrorHistogram, ReferenceError, TensorDifference
from verify.forensics.support import describe_elements, describe_rows
from verify.formats import decode
from verify.reference.layers.grid import round_to, spacing

_TOKEN_AXES = ("b", "t", "s")
_LOW, _HIGH = -12, 24  # of error histograms: 2^-12 to 2^24 ULPs


def axes_for(axes: str, tensor: torch.Tensor) -> str:
    """``axes`` where they fit the tensor, else ``axis0 axis1 ...``."""
    fits = len(axes.split()) == tensor.dim()
    return axes if fits else " ".join(f"axis{index}" for index in range(tensor.dim()))


def mismatch(a: torch.Tensor, b: torch.Tensor) -> str:
    """Why two tensors cannot be compared element by element, or an empty text."""
    if a.shape == b.shape and a.dtype == b.dtype:
        return ""
    shown = [f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in (a, b)]
    return " against ".join(shown)


def difference(name: str, a: torch.Tensor, b: torch.Tensor, axes: str) -> TensorDifference:
    """Compare host tensors of one shape and dtype; ``axes`` as for ``EndpointSpec``."""
    axes, dtype = axes_for(axes, a), dtype_name(a, name)
    words_a, words_b = row_matrix(a, axes), row_matrix(b, axes)
    pairing = Pairing.of(dtype, dtype)
    found = Measure(pairing)
    differs = pairing.differs(words_a, words_b)
    # The norm of A is a denominator, of no use where nothing differs, and costs decoding it all.
    found.add(words_a, words_b, None if differs.any() else np.zeros(len(words_a)))
    return TensorDifference(
        name=name,
        dtype=dtype,
        shape=list(a.shape),
        axes=axes,
        rows=found.rows,
        differing_rows=found.differing_rows,
        elements=found.elements,
        differing_elements=found.differing_elements,
        max_abs=found.max_abs,
        relative_l2=found.relative_l2,
        ulp_median=found.ulps.quantile(0.5),
        ulp_p99=found.ulps.quantile(0.99),
        ulp_max=found.ulps.maximum,
        nonfinite_mismatches=found.nonfinite,
        signed_zero_only=found.signed_zero_only,
        nan_payload_only=found.nan_payload_only,
        first=_first(differs, axes, a.shape),
        support=_support(differs, axes, a.shape),
        ulps=found.ulps.histogram(),
        relative=found.relative.histogram(),
    )


def _sizes(axes: str, shape: torch.Size) -> tuple[list[str], list[int]]:
    """Axes in the order of the row matrix, with their sizes."""
    names = axes.split()
    order = [n for n in _TOKEN_AXES if n in names] + [n for n in names if n not in _TOKEN_AXES]
    return order, [shape[names.index(name)] for name in order]


def _first(differs: NDArray[np.bool_], axes: str, shape: torch.Size) -> list[int] | None:
    """Index of the first differing element of the row matrix, in the order of ``shape``."""
    if not differs.any():
        return None
    order, sizes = _sizes(axes, shape)
    place = dict(zip(order, np.unravel_index(int(differs.argmax()), sizes), strict=True))
    return [int(place[name]) for name in axes.split()]


def _support(differs: NDArray[np.bool_], axes: str, shape: torch.Size) -> str:
    """Rows, heads and channels that differ, in words."""
    if not differs.any():
        return ""
    elements = describe_elements(np.asarray(differs.any(axis=0)), axes, shape)
    order, sizes = _sizes(axes, shape)
    tokens = [(n, s) for n, s in zip(order, sizes, strict=True) if n in _TOKEN_AXES]
    if not tokens:
        return elements
    rows = np.flatnonzero(differs.any(axis=1))
    grid = dict(zip(_names(tokens), np.unravel_index(rows, [s for _, s in tokens]), strict=True))
    position = next((name for name in ("t", "s") if name in grid), "b")
    every = np.arange(dict(tokens)[position])
    batches = len(np.unique(grid["b"])) if "b" in grid and position != "b" else 1
    return f"{describe_rows(grid[position], every, batches)}; {elements}"


def _names(tokens: list[tuple[str, int]]) -> list[str]:
    return [name for name, _ in tokens]


def against_exact(name: str, actual: torch.Tensor, exact: torch.Tensor) -> ReferenceError:
    """One host tensor against the float64 ``exact`` of the same shape."""
    dtype = dtype_name(actual, name)
    values = decode(row_matrix(actual, axes_for("", actual)), dtype).reshape(-1)
    truth = exact.double().numpy().reshape(-1)
    rounded = round_to(truth, dtype)
    finite = np.isfinite(values) & np.isfinite(rounded)
    same = (values == rounded) | (np.isnan(values) & np.isnan(rounded))
    off = np.where(finite, values - np.where(finite, truth, 0.0), 0.0)
    least = np.where(finite, rounded - np.where(finite, truth, 0.0), 0.0)
    size = float(np.linalg.norm(np.where(finite, truth, 0.0)))
    error, floor = float(np.linalg.norm(off)), float(np.linalg.norm(least))
    ulps = np.abs(off) / spacing(np.where(finite, truth, 1.0), dtype)
    return ReferenceError(
        name=name,
        relative_l2=_ratio(error, size),
        floor=_ratio(floor, size),
        over_floor=_ratio(error, floor),
        max_abs=float(np.abs(off).max(initial=0.0)),
        max_ulp=float(ulps.max(initial=0.0)),
        nonfinite_mismatches=int(np.count_nonzero(~finite & ~same)),
        errors=_histogram(ulps[finite], int(np.count_nonzero(~finite))),
    )


def _ratio(error: float, scale: float) -> float:
    return 0.0 if error == 0.0 else error / scale if scale else math.inf


def _histogram(ulps: NDArray[np.float64], nonfinite: int) -> ErrorHistogram:
    some = ulps[ulps > 0.0]
    bins = np.clip(np.floor(np.log2(some)) - _LOW, 0, _HIGH - _LOW - 1).astype(np.int64)
    counts = np.bincount(bins, minlength=_HIGH - _LOW)
    used = np.flatnonzero(counts)
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
    return ErrorHistogram(
        edges=[float(_LOW + i) for i in range(first, last + 2)],
        counts=counts[first : last + 1].tolist(),
        exact=int(ulps.size - some.size),
        nonfinite=nonfinite,
    )
