"""Which of many taps a figure with room for a few curves shows."""

from __future__ import annotations

from collections.abc import Sequence

from verify.bisect.result import BisectResult
from verify.bisect.taps import layer_of
from verify.compare.result import Comparison, TapComparison
from verify.formats import FORMATS
from verify.report.names import shorten
from verify.report.plots.style import escape_math

CURVES = 6


def compared(result: BisectResult | Comparison) -> Comparison:
    return result.comparison if isinstance(result, BisectResult) else result


def choose_taps(result: BisectResult | Comparison, limit: int = CURVES) -> list[TapComparison]:
    """Differing taps of floats that have histograms: the origins, the first and the last one, and evenly
    spaced ones between, in execution order. All equal: none."""
    taps = [tap for tap in compared(result).taps if not tap.equal and holds_floats(tap)]
    if len(taps) <= limit:
        return taps
    origins = {origin.tap for origin in result.origins} if isinstance(result, BisectResult) else ()
    wanted = [i for i, tap in enumerate(taps) if tap.tap in origins][: limit // 2]
    wanted += [0, len(taps) - 1]
    for step in range(1, limit):
        wanted.append(step * (len(taps) - 1) // (limit - 1))
    return [taps[i] for i in sorted(list(dict.fromkeys(wanted))[:limit])]


def holds_floats(tap: TapComparison) -> bool:
    """Token ids and masks have no rounding error whose distribution would mean something."""
    found = [FORMATS.get(name) for name in (tap.dtype_a, tap.dtype_b)]
    return all(f is not None and f.kind == "float" for f in found) and (
        tap.ulps is not None or tap.relative is not None
    )


def evenly(count: int, limit: int) -> list[int]:
    """At most ``limit`` indices below ``count``, evenly spaced, the first and the last included."""
    if count <= limit:
        return list(range(count))
    return [round(i * (count - 1) / (limit - 1)) for i in range(limit)]


def label_taps(taps: Sequence[str], limit: int, width: int) -> tuple[list[int], list[str]]:
    """Places and labels of the ticks along an axis of taps: every name where there is room, else
    the first tap of each layer by its number, and the taps outside the layers by name."""
    short = {tap: escape_math(name) for tap, name in shorten(taps, width).items()}
    if len(taps) <= limit:
        return list(range(len(taps))), [short[tap] for tap in taps]
    layers = [layer_of(tap) for tap in taps]
    starts = [
        i
        for i, layer in enumerate(layers)
        if layer is not None and (i == 0 or layer != layers[i - 1])
    ]
    places = {i: f"layer {layers[i]}" for i in strided(starts, limit)}
    gap = len(taps) / limit
    for i in strided([i for i, layer in enumerate(layers) if layer is None], limit):
        if all(abs(i - place) >= gap for place in places):
            places[i] = short[taps[i]]
    return sorted(places), [places[i] for i in sorted(places)]


def strided(items: list[int], limit: int) -> list[int]:
    """Every n-th item, so that at most ``limit`` stay."""
    return items[:: max(1, -(-len(items) // limit))]
