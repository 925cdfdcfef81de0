"""Pieces of hand-made results: smooth, deterministic stand-ins for measured numbers."""

from __future__ import annotations

import math

from verify.bisect.result import GrowthPoint, Heatmap, TokenPosition, TopToken
from verify.bisect.taps import layer_of
from verify.compare.result import (
    Comparison,
    RelativeHistogram,
    RowRef,
    TapComparison,
    UlpHistogram,
)

LAYERS = 30
PORTS = (
    "input_layernorm.out",
    "self_attn.attn.in.q",
    "self_attn.attn.in.k",
    "self_attn.attn.in.v",
    "self_attn.attn.out",
    "post_attention_layernorm.out",
    "mlp.down_proj.out",
    "out",
)
ULP_EDGES = [0, *(2**k for k in range(33))]
RELATIVE_EDGES = [k / 4 for k in range(-40, 9)]


def rounded(value: float) -> float:
    """Four digits, so that golden files do not depend on the last bit of a math library."""
    return float(f"{value:.4g}")


def tap_names(layers: int = LAYERS, ports: tuple[str, ...] = PORTS) -> list[str]:
    inner = [f"model.layers.{i}.{port}" for i in range(layers) for port in ports]
    return ["tokens.in", "model.embed_tokens.out", *inner, "model.norm.out", "logits"]


def ulp_histogram(elements: int, equal: float, center: float) -> UlpHistogram:
    """A bell of log2 distances around ``center`` beside the equal share."""
    bins = len(ULP_EDGES) - 1
    weights = [math.exp(-((k - center) ** 2) / 6) for k in range(1, bins)]
    scale = elements * (1 - equal) / sum(weights)
    counts = [math.floor(weight * scale) for weight in weights]
    return UlpHistogram(edges=ULP_EDGES, counts=[elements - sum(counts), *counts])


def relative_histogram(elements: int, equal: float, center: float) -> RelativeHistogram:
    weights = [math.exp(-((edge - center) ** 2)) for edge in RELATIVE_EDGES[:-1]]
    scale = elements * (1 - equal) / sum(weights)
    counts = [math.floor(weight * scale) for weight in weights]
    return RelativeHistogram(edges=RELATIVE_EDGES, counts=counts, equal=elements - sum(counts))


def row(step: int) -> RowRef:
    return RowRef(sequence="sky#0", position=0, visit=0, step_a=step, step_b=step, element=3)


def equal_tap(tap: str, order: int, dtype: str = "float32", rows: int = 54) -> TapComparison:
    elements = rows * 576
    return TapComparison(
        tap=tap, dtype_a=dtype, dtype_b=dtype, order=order, records=9, rows=rows,
        differing_rows=0, elements=elements, differing_elements=0, max_abs=0.0, relative_l2=0.0,
        ulp_median=0.0, ulp_p99=0.0, ulp_max=0, nonfinite_mismatches=0, signed_zero_only=0,
        first=None,
        ulps=UlpHistogram(edges=ULP_EDGES, counts=[elements] + [0] * (len(ULP_EDGES) - 2)),
        relative=RelativeHistogram(
            edges=RELATIVE_EDGES, counts=[0] * (len(RELATIVE_EDGES) - 1), equal=elements
        ),
    )  # fmt: skip


def unequal_tap(
    tap: str, order: int, relative_l2: float, *, dtype: str = "float32", rows: int = 54,
    first: RowRef | None = None,
) -> TapComparison:  # fmt: skip
    """A tap whose difference has the size ``relative_l2``; the other numbers follow from it."""
    elements = rows * 576
    bits = {"float32": 24, "bfloat16": 8}[dtype]
    center = min(30.0, max(0.0, math.log2(relative_l2) + bits))
    equal = 0.9 / (1 + center)
    changed = math.floor(elements * (1 - equal))
    return TapComparison(
        tap=tap, dtype_a=dtype, dtype_b=dtype, order=order, records=9, rows=rows,
        differing_rows=rows, elements=elements, differing_elements=changed,
        max_abs=rounded(relative_l2 * 12.7), relative_l2=rounded(relative_l2),
        ulp_median=float(math.floor(2**center)), ulp_p99=float(math.floor(2 ** (center + 4))),
        ulp_max=math.floor(2 ** (center + 9)), nonfinite_mismatches=0, signed_zero_only=0,
        first=first or row(0),
        ulps=ulp_histogram(elements, equal, center),
        relative=relative_histogram(elements, equal, min(2.0, max(-10.0, math.log10(relative_l2)))),
    )  # fmt: skip


def comparison(taps: list[TapComparison], **changes: object) -> Comparison:
    fields: dict[str, object] = {
        "a": "runs/plain", "b": "runs/e4m3", "complete_a": True, "complete_b": True, "taps": taps,
        "unmatched": [], "padding_rows": 0, "rows": sum(tap.rows for tap in taps),
        "bytes_read": 123_456_789, "seconds": 1.25,
    }  # fmt: skip
    return Comparison(**(fields | changes))  # type: ignore[arg-type]


def growth(taps: list[TapComparison]) -> list[GrowthPoint]:
    """One point a tap, as bisect makes them."""
    return [
        GrowthPoint(
            tap=tap.tap, layer=layer_of(tap.tap), order=tap.order, relative_l2=tap.relative_l2,
            max_ulp=tap.ulp_max,
            differing_share=rounded(tap.differing_elements / max(1, tap.elements)),
        )
        for tap in taps
    ]  # fmt: skip


def heatmap(layers: int, positions: int, start: int, missing: int = 0) -> Heatmap:
    """Equal before position ``start``, growing after it; the last ``missing`` not compared."""

    def cell(layer: int, position: int) -> float | None:
        if position >= positions - missing:
            return None
        if position < start:
            return 0.0
        wave = math.sin(position * 1.7 + layer * 0.4)
        return rounded(1e-6 * 10 ** (layer * 4 / layers + 0.4 * wave))

    return Heatmap(
        taps=[f"model.layers.{i}.out" for i in range(layers)],
        positions=list(range(positions)),
        values=[[cell(i, j) for j in range(positions)] for i in range(layers)],
        sequence="sky#0",
    )


WORDS = ("The", " answer", " sky", " is", " blue", " because", " of", " a", " process", ".\n")


def token(
    index: int, margin_a: float, margin_b: float, shift: float, *, flip: bool = False,
    step: float = 1.9073486e-06, same_context: bool = True, sequence: str = "sky#0",
) -> TokenPosition:  # fmt: skip
    """One choice: the same two candidates, the other way round where ``flip`` is set."""
    best = index % len(WORDS)
    second = (index + 1) % len(WORDS)
    ids = {best: 100 + best, second: 100 + second}
    a_top, b_top = (best, second), ((second, best) if flip else (best, second))
    return TokenPosition(
        sequence=sequence, position=35 + index, index=index,
        a=[TopToken(id=ids[i], text=WORDS[i], logit=rounded(18.5 - margin_a * n))
           for n, i in enumerate(a_top)],
        b=[TopToken(id=ids[i], text=WORDS[i], logit=rounded(18.1 - margin_b * n))
           for n, i in enumerate(b_top)],
        chosen_a=ids[best], chosen_b=ids[b_top[0]], margin_a=rounded(margin_a),
        margin_b=rounded(margin_b), margin_a_steps=rounded(margin_a / step),
        margin_b_steps=rounded(margin_b / step), tie_a=margin_a == 0, tie_b=margin_b == 0,
        logit_shift=rounded(abs(shift) * 1.9), pair_shift=rounded(shift),
        same_context=same_context,
    )  # fmt: skip
