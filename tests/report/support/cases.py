"""Hand-made results, one for each kind of report: ``CASES`` maps a name to its builder."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.report.support.parts import (
    LAYERS,
    comparison,
    equal_tap,
    growth,
    heatmap,
    tap_names,
    token,
    unequal_tap,
)
from verify.bisect.result import (
    BisectResult,
    Confounder,
    Finding,
    Origin,
    PositionPoint,
    TokenPosition,
    TopToken,
    Verdict,
)
from verify.compare.result import Comparison, RowRef, TapComparison, Unmatched

INF, NAN = math.inf, math.nan


def _result(
    verdict: Verdict, summary: str, compared: Comparison, **changes: object
) -> BisectResult:
    fields: dict[str, object] = {
        "verdict": verdict, "summary": summary, "findings": [], "confounders": [],
        "first_token": None, "tokens": [], "origins": [], "growth": growth(compared.taps),
        "positions": [], "heatmap": [], "comparison": compared, "not_compared": [],
        "exit_code": 1, "command": ["verify", "bisect", compared.a, compared.b],
    }  # fmt: skip
    return BisectResult(**(fields | changes))  # type: ignore[arg-type]


def identical(layers: int = LAYERS) -> BisectResult:
    names = tap_names(layers)
    taps = [equal_tap(name, order) for order, name in enumerate(names)]
    tokens = [token(i, 0.2 + 0.1 * math.sin(i), 0.2 + 0.1 * math.sin(i), 0.0) for i in range(8)]
    return _result(
        Verdict.IDENTICAL,
        f"Every bit of {len(names)} taps over 54 positions is equal, and so are all 8 tokens.",
        comparison(taps, b="runs/again"),
        tokens=tokens,
        heatmap=[heatmap(layers, 54, start=54)],
        positions=[PositionPoint(sequence="sky#0", position=p, relative_l2=0.0) for p in range(54)],
        exit_code=0,
    )


def precision(layers: int = LAYERS) -> BisectResult:
    """Keys and values through float8_e4m3fn: token 1 flips."""
    names = tap_names(layers)
    start = names.index("model.layers.0.self_attn.attn.in.k")
    taps: list[TapComparison] = []
    for order, name in enumerate(names):
        if order < start or name in ("model.layers.0.self_attn.attn.in.q",):
            taps.append(equal_tap(name, order))
        else:
            size = 0.027 if ".attn.in." in name else 2e-3 * 10 ** (1.2 * order / len(names))
            taps.append(unequal_tap(name, order, size))
    tokens = [
        token(0, 0.412, 0.389, -0.11),
        token(1, 0.0539, 0.694, -0.7479, flip=True),
        *(token(i, 0.3 + 0.2 * math.cos(i), 0.25, 0.4, same_context=False) for i in range(2, 8)),
    ]
    cast = {"kv_cache": "e4m3", "scale": 1.0}
    origins = [
        Origin(
            tap=f"model.layers.0.self_attn.attn.in.{port}", step_a=0, step_b=0, order=order,
            proven=True,
            inputs=["model.layers.0.input_layernorm.out",
                    f"weight model.layers.0.self_attn.{port}_proj.weight"],
            interval=["aten.mm", "aten.view", "aten.transpose", "aten._to_copy"],
            rows="all 46 rows of the prompt (positions 0 to 45 of sequence sky#0)",
            first=RowRef(sequence="sky#0", position=0, visit=0, step_a=0, step_b=0, element=1),
            measure={"relative L2": 0.0268, "max abs": 0.498, "max ULP": 1_048_576,
                     "differing elements": 8_763},
            attributes_a={"kv_cache": "native"}, attributes_b=cast,
            judged="every input is a recorded tensor or a weight with equal digests",
            fits=["B is A rounded to float8_e4m3fn with scale 1 (8,832 of 8,832 elements)"],
        )
        for order, port in ((start, "k"), (start + 1, "v"))
    ]  # fmt: skip
    finding = Finding(
        verdict=Verdict.PRECISION,
        title="B stores keys and values as float8_e4m3fn, A does not",
        reasons=[
            "model.layers.0.self_attn.attn.in.k and .v differ while every recorded input is equal.",
            "B's values are A's rounded to float8_e4m3fn in every one of 17,664 elements.",
        ],
        taps=[o.tap for o in origins],
        support="keys and values of all layers, all heads, all 46 prompt positions",
        numbers={"relative L2": 0.0268, "unit roundoff of float8_e4m3fn": 0.0625},
        settle=[
            "verify capture --kv-cache e4m3 --tape runs/plain  (keeps later positions comparable)"
        ],
    )
    return _result(
        Verdict.PRECISION,
        "Generated token 1 changes from \" answer\" to \" sky\" because B rounds keys and values "
        "to float8_e4m3fn before attention reads them.",
        comparison(taps),
        findings=[finding],
        confounders=[
            Confounder(name="settings.kv_cache", a="native", b="e4m3", weight="declared"),
            Confounder(name="env.torch.threads", a="2", b="1", weight="possible",
                       note="CPU flash attention depends on the thread count in decode"),
            Confounder(name="env.variables.MKL_CBWR", a="-", b="AVX2", weight="likely"),
        ],
        first_token=tokens[1],
        tokens=tokens,
        origins=origins,
        positions=[
            PositionPoint(sequence="sky#0", position=p, relative_l2=0.004 + 0.0004 * (p % 13))
            for p in range(48)
        ],
        heatmap=[heatmap(layers, 54, start=0, missing=6)],
        not_compared=["positions 48 to 53: the contexts differ after generated token 1"],
    )  # fmt: skip


def unresolved(layers: int = LAYERS) -> BisectResult:
    """sdpa against eager in bfloat16: an exact tie flips, and nothing has measured why."""
    names = tap_names(layers)
    start = names.index("model.layers.0.self_attn.attn.out")
    taps = [
        equal_tap(name, order, "bfloat16")
        if order < start
        else unequal_tap(name, order, 3e-3 * 10 ** (order / len(names)), dtype="bfloat16")
        for order, name in enumerate(names)
    ]
    tokens = [
        token(0, 0.5, 0.375, -0.125, step=0.125),
        token(1, 0.125, 0.25, 0.125, step=0.125),
        token(2, 0.25, 0.25, 0.0, step=0.125),
        token(3, 0.375, 0.5, 0.125, step=0.125),
        token(4, 0.125, 0.0, -0.125, step=0.125, flip=True),
    ]
    finding = Finding(
        verdict=Verdict.UNRESOLVED,
        title="The attention core of layer 0 differs on equal inputs",
        reasons=[
            "model.layers.0.self_attn.attn.out differs while q, k, v and the mask are equal.",
            "No replay has measured whether the difference is within a rounding budget.",
        ],
        taps=["model.layers.0.self_attn.attn.out"],
        support="layer 0, all 9 heads, 40 of 46 rows",
        settle=["verify replay runs/sdpa --tap 'model.layers.0.self_attn.attn.out'"],
    )
    origin = Origin(
        tap="model.layers.0.self_attn.attn.out", step_a=0, step_b=0, order=start, proven=False,
        inputs=["model.layers.0.self_attn.attn.in.q", "model.layers.0.self_attn.attn.in.k",
                "model.layers.0.self_attn.attn.in.v"],
        interval=["aten._scaled_dot_product_flash_attention_for_cpu"],
        rows="40 of 46 rows", measure={"relative L2": 0.00312, "max ULP": 5},
        first=RowRef(sequence="sky#0", position=6, visit=0, step_a=0, step_b=0, element=12),
        attributes_a={"implementation": "sdpa", "scale": 0.125},
        attributes_b={"implementation": "eager", "scale": 0.125},
    )  # fmt: skip
    return _result(
        Verdict.UNRESOLVED,
        "Generated token 4 flips at an exact tie of the bfloat16 logits; the first difference is "
        "the attention core of layer 0.",
        comparison(taps, a="runs/sdpa", b="runs/eager"),
        findings=[finding],
        confounders=[Confounder(name="settings.attn", a="sdpa", b="eager", weight="declared")],
        first_token=tokens[4], tokens=tokens, origins=[origin],
        positions=[
            PositionPoint(sequence="sky#0", position=p, relative_l2=0.0 if p < 6 else 0.011)
            for p in range(46)
        ],
        heatmap=[heatmap(layers, 46, start=6)],
    )  # fmt: skip


def not_comparable() -> BisectResult:
    finding = Finding(
        verdict=Verdict.NOT_COMPARABLE,
        title="The prompts differ",
        reasons=["Prompt token 12 of sequence sky#0 is 2988 in A and 6376 in B."],
        settle=["Capture B with the prompt of A, or force A's tokens with --tape."],
    )  # fmt: skip
    return _result(
        Verdict.NOT_COMPARABLE,
        "The runs were given different prompts, so their difference says nothing.",
        comparison([], b="runs/other-prompt", bytes_read=0, seconds=0.01),
        findings=[finding],
        exit_code=3,
    )


def partial() -> BisectResult:
    """B was killed in mid-run and lacks a tap; what both hold is equal."""
    names = tap_names(1)
    taps = [equal_tap(name, order, rows=46) for order, name in enumerate(names[:-1])]
    unmatched = [
        Unmatched(side="a", tap="logits", rows=9, example="sequence sky#0, position 45",
                  reason="the tap was not recorded"),
        Unmatched(side="a", tap="tokens.in", rows=8, example="sequence sky#0, position 46",
                  reason="B ends before step 1"),
    ]  # fmt: skip
    return _result(
        Verdict.IDENTICAL,
        "No difference in what both runs hold, but B is a partial dump.",
        comparison(taps, b="runs/killed", complete_b=False, unmatched=unmatched, padding_rows=128),
        not_compared=["steps 1 to 8: B ends before them"],
        exit_code=3,
    )


def empty() -> BisectResult:
    return _result(
        Verdict.NOT_COMPARABLE,
        "Nothing was compared.",
        comparison([], rows=0, bytes_read=0, seconds=0.0),
        exit_code=3,
    )


HOSTILE = '<script>alert("x")</script>[bold]&\x1b[31m\u202e\n'


def hostile() -> BisectResult:
    """Strings that attack a page or a terminal, and numbers at every edge."""
    taps = [
        equal_tap(f"model.{HOSTILE}.out", 0),
        TapComparison(
            tap=f"model.layers.0.{HOSTILE}", dtype_a="float32", dtype_b="int64", order=1,
            records=1, rows=1, differing_rows=1, elements=2**63, differing_elements=2**62,
            max_abs=1.7976931348623157e308, relative_l2=INF, ulp_median=None, ulp_p99=None,
            ulp_max=None, nonfinite_mismatches=2**40, signed_zero_only=1,
            first=RowRef(sequence=HOSTILE, position=-1, visit=3, step_a=10**9, step_b=10**9),
        ),
        unequal_tap("model.layers.1.out", 2, 1e-30),
        unequal_tap("logits", 3, 1e30),
    ]  # fmt: skip
    taps[3].ulp_max = 2**64 - 1
    taps[3].relative_l2 = NAN
    bad = TokenPosition(
        sequence=HOSTILE, position=0, index=0, a=[TopToken(id=1, text=HOSTILE, logit=NAN)],
        b=[], chosen_a=1, chosen_b=2, margin_a=NAN, margin_b=INF, margin_a_steps=INF,
        margin_b_steps=0.0, tie_a=False, tie_b=True, logit_shift=INF, pair_shift=-INF,
        same_context=True,
    )  # fmt: skip
    origin = Origin(
        tap=f"model.layers.0.{HOSTILE}", step_a=0, step_b=0, order=1, proven=True, inputs=[],
        interval=[], rows=HOSTILE, first=None,
        measure={HOSTILE: NAN, "none": None, "huge": 10**40, "text": HOSTILE},
        attributes_a={HOSTILE: [1, HOSTILE]}, attributes_b={"nan": NAN}, fits=[HOSTILE],
    )  # fmt: skip
    chart = heatmap(4, 6, start=2, missing=1)
    chart.taps[0] = HOSTILE
    chart.values[1][3], chart.values[2][3] = INF, NAN
    chart.sequence = HOSTILE
    return _result(
        Verdict.DEFECT,
        HOSTILE,
        comparison(
            taps, a=HOSTILE, b=HOSTILE, notes=[HOSTILE],
            unmatched=[Unmatched(side="b", tap=HOSTILE, rows=1, example=HOSTILE, reason=HOSTILE)],
        ),
        findings=[Finding(verdict=Verdict.DEFECT, title=HOSTILE, reasons=[HOSTILE], taps=[HOSTILE],
                          support=HOSTILE, numbers={"inf": -INF}, settle=[HOSTILE])],
        confounders=[Confounder(name=HOSTILE, a=HOSTILE, b=HOSTILE, weight=HOSTILE, note=HOSTILE)],
        first_token=bad, tokens=[bad], origins=[origin],
        positions=[PositionPoint(sequence=HOSTILE, position=p, relative_l2=v)
                   for p, v in enumerate((0.0, NAN, INF, 1e-300))],
        heatmap=[chart], not_compared=[HOSTILE], command=["verify", "bisect", HOSTILE],
    )  # fmt: skip


def large(layers: int = 24, positions: int = 500) -> BisectResult:
    """24 layers and 500 positions, every one of them different."""
    names = tap_names(layers)
    taps = [unequal_tap(name, i, 1e-5 * 10 ** (2 * i / len(names))) for i, name in enumerate(names)]
    tokens = [
        token(i, 0.01 + 0.5 * abs(math.sin(i)), 0.02 + 0.5 * abs(math.sin(i + 0.1)),
              0.05 * math.cos(i), flip=i == 109, same_context=i <= 109)
        for i in range(positions)
    ]  # fmt: skip
    return _result(
        Verdict.UNRESOLVED,
        "Generated token 109 is the first that differs.",
        comparison(taps),
        first_token=tokens[109],
        tokens=tokens,
        positions=[
            PositionPoint(sequence="sky#0", position=p, relative_l2=rounded_wave(p))
            for p in range(positions)
        ],
        heatmap=[heatmap(layers, positions, start=40)],
    )


def rounded_wave(position: int) -> float:
    return float(f"{1e-4 * 10 ** (position / 400 + 0.3 * math.sin(position)):.4g}")


def one_layer(case: Callable[[int], BisectResult]) -> Callable[[], BisectResult]:
    return lambda: case(1)


CASES: dict[str, Callable[[], BisectResult]] = {
    "identical": identical,
    "precision": precision,
    "unresolved": unresolved,
    "not_comparable": not_comparable,
    "partial": partial,
    "empty": empty,
    "hostile": hostile,
}
"""A model of 30 layers where the case has one."""

SMALL: dict[str, Callable[[], BisectResult]] = {
    **CASES,
    "identical": one_layer(identical),
    "precision": one_layer(precision),
    "unresolved": one_layer(unresolved),
}
"""The same cases with one layer, for golden files that list every tap."""
