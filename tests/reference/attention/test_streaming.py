"""FP64 streaming attention against mpmath, against a plain formula, and at its edges."""

import math

import mpmath
import pytest
import torch

from verify.reference.attention import AttentionInputs, Row, attend
from verify.reference.attention.exact import attend_exact

CASES = {
    "causal": {},
    "full": {"causal": False},
    "grouped": {"heads": (6, 1)},
    "window": {"window": 7},
    "softcap": {"softcap": 2.5},
    "sinks": {"with_sinks": True},
    "scale": {"scale": 0.7},
    "cache scales": {"k_scale": 0.0123, "v_scale": 3.14159},
    "live lengths": {"batch": 3, "kv_lengths": (37, 6, 5)},
    "wide values": {"value_dim": 8},
    "everything": {
        "batch": 2, "kv_lengths": (30, 12), "window": 9, "softcap": 4.0, "with_sinks": True,
        "k_scale": 0.5, "v_scale": 1.7, "value_mean": 1.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_mpmath_within_the_printed_bound(problem, name):
    inputs = problem(**CASES[name])
    found = attend(inputs, block=8)
    exact = attend_exact(inputs, precision=128)
    for place in range(len(found.rows)):
        for d, value in enumerate(exact.output[place]):
            error = abs(mpmath.mpf(float(found.output[place, d])) - value)
            assert error <= float(found.bound[place, d]), (found.rows[place], d)
        error = abs(mpmath.mpf(float(found.lse[place])) - exact.lse[place])
        assert error <= float(found.lse_bound[place])
    assert float(found.bound.max()) < 1e-12  # a bound that admits anything proves nothing


def test_agrees_with_the_formula_written_out(problem):
    inputs = problem(causal=False, heads=(2, 1))
    row = Row(0, 3, 1)
    found = attend(inputs, [row])
    x = inputs.k[0, :, 0].double() @ inputs.q[0, 3, 1].double() / 4.0
    w = torch.softmax(x, 0)
    v = inputs.v[0, :, 0].double()
    o = w @ v
    expected = {
        "output": o,
        "weighted_abs": w @ v.abs(),
        "spread": w @ (v - o).abs(),
        "weighted_square": ((w * w) @ (v * v)).sqrt(),
    }
    # The same FP64 sums in another order: some hundred roundings of 2^-53.
    for name, value in expected.items():
        assert torch.allclose(getattr(found, name)[0], value, rtol=1e-13, atol=0), name
    assert float(found.effective_keys[0]) == pytest.approx(float(1 / (w * w).sum()), rel=1e-13)
    assert float(found.lse[0]) == pytest.approx(float(torch.logsumexp(x, 0)), rel=1e-14)


def test_underflow_counts_visible_small_probabilities_only():
    """Scores 0 and -11 (2^-15.9 < 2^-14); the last key is masked."""
    k = torch.tensor([0.0, -11.0, -11.0, 5.0]).reshape(1, 4, 1, 1)
    v = torch.tensor([1.0, -2.0, 3.0, 100.0]).reshape(1, 4, 1, 1)
    inputs = AttentionInputs(torch.ones(1, 1, 1, 1), k, v, scale=1.0, kv_lengths=(3,))
    assert attend(inputs).underflow.item() == 5.0


def test_the_cheap_spread_bounds_the_exact_one(problem):
    inputs = problem(value_mean=1.0)
    exact, cheap = attend(inputs).spread, attend(inputs, exact_spread=False).spread
    assert bool((cheap >= exact).all())
    assert float((cheap / exact).max()) < 2.0  # sqrt(pi / 2) = 1.25 for normal values


def test_rows_come_in_the_order_asked_for(problem):
    inputs = problem(batch=2)
    everything = attend(inputs)
    rows = [Row(1, 4, 3), Row(0, 0, 0), Row(1, 2, 1)]
    some = attend(inputs, rows)
    # A row alone is summed in another order than in its block: a few roundings of 2^-53.
    for place, row in enumerate(rows):
        whole = everything.rows.index(row)
        assert torch.allclose(some.output[place], everything.output[whole], rtol=1e-14, atol=1e-16)


def test_permuting_keys_and_shifting_scores_changes_nothing(problem):
    inputs = problem(causal=False)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(1))
    shifted = torch.cat([inputs.k, torch.full_like(inputs.k[..., :1], 8.0)], dim=3)
    lifted = torch.cat([inputs.q, torch.ones_like(inputs.q[..., :1])], dim=3)
    base = attend(inputs).output
    for other in (
        AttentionInputs(inputs.q, inputs.k[:, order], inputs.v[:, order], causal=False),
        AttentionInputs(lifted, shifted, inputs.v, scale=inputs.softmax_scale, causal=False),
    ):
        assert float((attend(other).output - base).abs().max()) < 1e-14  # measured 6e-16


def test_masked_slots_are_never_read():
    """What is masked may hold NaN; what is visible may not."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, n, 1, 8, generator=generator) for n in (3, 9, 9))
    clean = attend(AttentionInputs(q, k, v, kv_lengths=(6,)))
    k[:, 6:], v[:, 6:] = torch.nan, torch.nan
    dirty = attend(AttentionInputs(q, k, v, kv_lengths=(6,)))
    assert torch.equal(clean.output, dirty.output)
    v[:, 5, :, 2] = torch.inf
    seen = attend(AttentionInputs(q, k, v, kv_lengths=(6,))).output
    assert torch.isnan(seen[2, 2])
    assert int(torch.isnan(seen).sum()) == 1  # only the last row sees key 5, only in column 2


def test_rows_without_keys_give_zero():
    q, k = torch.ones(1, 4, 1, 2), torch.ones(1, 2, 1, 2)
    found = attend(AttentionInputs(q, k, k))  # rows 0 and 1 lie before the first key
    assert found.output[:2].abs().max() == 0.0
    assert torch.isneginf(found.lse[:2]).all()
    assert torch.equal(found.output[2:], torch.ones(2, 2, dtype=torch.float64))
    nothing = attend(AttentionInputs(q, k, k, kv_lengths=(0,)))
    assert nothing.output.abs().max() == 0.0


def test_a_sink_takes_mass_and_gives_no_value(problem):
    q, k = torch.zeros(1, 1, 1, 2), torch.zeros(1, 3, 1, 2)
    v = torch.ones(1, 3, 1, 2)
    inputs = AttentionInputs(q, k, v, sinks=torch.zeros(1, dtype=torch.float64))
    found = attend(inputs)
    assert found.output[0, 0].item() == 0.75
    assert found.lse.item() == pytest.approx(math.log(4.0), abs=1e-15)
    assert found.spread[0, 0].item() == pytest.approx(0.75 * 0.25 + 0.25 * 0.75)


def test_memory_stays_bounded_by_the_block(problem):
    """A long cache with a small block gives what one block gives."""
    inputs = problem(tokens_q=2, tokens_kv=5000, heads=(2, 1), dim=8)
    # Outputs of size one; merging 79 blocks adds as many roundings of 2^-53 at most, seldom a few.
    assert torch.allclose(
        attend(inputs, block=64).output, attend(inputs, block=8192).output, rtol=0, atol=1e-15
    )


def test_describe_prints_the_bound(problem):
    text = attend(problem()).describe()
    assert text.startswith("FP64 attention, 20 rows: error at most ")
    assert "of sum w|v|" in text


@pytest.mark.parametrize("data", ["flat", "ordinary", "sinks"])
def test_relative_error_against_160_bits_stays_below_2e_14(data):
    """The promise at full size (benchmarks/reference_attention.py), here at KV 4096, D 256."""
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, n, 1, 256, generator=generator) for n in (1, 4096, 4096))
    q = q * {"flat": 0.0, "ordinary": 2.0, "sinks": 2.0}[data]
    sinks = torch.tensor([6.0]) if data == "sinks" else None
    inputs = AttentionInputs(q.half(), k.half(), v.half(), sinks=sinks)
    found, exact = attend(inputs), attend_exact(inputs, precision=160)
    errors = [
        mpmath.mpf(x) - y for x, y in zip(found.output[0].tolist(), exact.output[0], strict=True)
    ]
    relative = mpmath.norm(errors) / mpmath.norm(exact.output[0])
    assert relative <= 2e-14  # measured 4e-16 .. 2e-15
    assert all(abs(e) <= b for e, b in zip(errors, found.bound[0].tolist(), strict=True))
