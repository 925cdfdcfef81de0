"""Split, prefix-tail and paged forms agree with the single pass to 1e-13."""

import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import AttentionInputs, attend
from verify.reference.attention.inputs import row_groups
from verify.reference.attention.parts import (
    attend_paged,
    attend_prefix_tail,
    attend_split,
    gather_pages,
    merge_states,
    paged_inputs,
    partial_state,
)

CLOSE = {"rtol": 0.0, "atol": 1e-13}  # the promise; measured 4e-16 on outputs of size 1


@pytest.mark.parametrize("boundaries", [[], [1], [36], [8, 16, 24, 32], list(range(1, 37))])
@pytest.mark.parametrize("options", [{}, {"window": 5}, {"with_sinks": True, "softcap": 3.0}])
def test_split_agrees(problem, boundaries, options):
    inputs = problem(**options)
    whole, parts = attend(inputs), attend_split(inputs, boundaries)
    assert torch.allclose(parts.output, whole.output, **CLOSE)
    assert torch.allclose(parts.lse, whole.lse, **CLOSE)


def test_prefix_and_tail_agree(problem):
    inputs = problem(tokens_q=8, tokens_kv=37)
    assert torch.allclose(attend_prefix_tail(inputs).output, attend(inputs).output, **CLOSE)


def test_a_merge_in_the_wrong_base_is_noticed(problem, monkeypatch):
    """The agreement above can fail: weights 2^(m_i - M) in place of e^(m_i - M)."""
    inputs = problem()
    group = next(iter(row_groups(inputs, inputs.all_rows())))
    states = [partial_state(group, 0, 20), partial_state(group, 20, 37)]
    right = merge_states(states)
    monkeypatch.setattr(torch, "exp", torch.exp2)
    wrong = merge_states(states)
    seen = ~torch.isneginf(right.m)
    gap = wrong.acc / wrong.l[:, None] - right.acc / right.l[:, None]
    assert float(gap[seen].abs().max()) > 1e-3


@pytest.mark.parametrize("order", ["sequential", "reversed", "shuffled"])
def test_paged_agrees_for_any_page_order(order):
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(2, 1, 4, 8, generator=generator).half()
    k_cache = torch.randn(12, 4, 2, 8, generator=generator).half()
    v_cache = torch.randn(12, 4, 2, 8, generator=generator).half()
    table = {
        "sequential": torch.arange(12),
        "reversed": torch.arange(12).flip(0),
        "shuffled": torch.randperm(12, generator=generator),
    }[order].reshape(2, 6)
    lengths = (23, 9)
    found = attend_paged(q, k_cache, v_cache, table, lengths)
    for batch, length in enumerate(lengths):
        k = torch.stack([k_cache[table[batch, j // 4], j % 4] for j in range(length)])[None]
        v = torch.stack([v_cache[table[batch, j // 4], j % 4] for j in range(length)])[None]
        whole = attend(AttentionInputs(q[batch : batch + 1], k, v))
        assert torch.allclose(found.output[4 * batch : 4 * batch + 4], whole.output, **CLOSE)


def test_length_zero_gives_zero():
    cache = torch.ones(2, 4, 1, 8)
    found = attend_paged(torch.ones(1, 1, 2, 8), cache, cache, torch.tensor([[0, 1]]), [0])
    assert found.output.abs().max() == 0.0


def test_pages_of_eight_bit_caches_are_gathered():
    codes = torch.randn(3, 4, 1, 8).to(torch.float8_e4m3fn)
    inputs = paged_inputs(
        torch.ones(1, 1, 1, 8), codes, codes, torch.tensor([[2, 0]]), [6], k_scale=0.5
    )
    assert torch.equal(inputs.k[0, :4].double(), codes[2].double())
    assert inputs.k_scale == 0.5


@pytest.mark.parametrize(
    ("table", "length", "message"),
    [([0, 1], 9, r"9\n.*0\.\.8"), ([0, 5], 8, r"\[0, 5\]\n.*0\.\.2"), ([0, 1], -1, "-1")],
)
def test_pages_outside_are_refused(table, length, message):
    with pytest.raises(ArgumentError, match=message):
        gather_pages(torch.zeros(3, 4, 1, 8), torch.tensor(table), length)


@pytest.mark.parametrize("boundaries", [[0], [37], [5, 5], [9, 4]])
def test_bad_boundaries_are_refused(problem, boundaries):
    with pytest.raises(ArgumentError, match="ascending"):
        attend_split(problem(), boundaries)


def test_no_prefix_is_refused(problem):
    with pytest.raises(ArgumentError, match="no prefix"):
        attend_prefix_tail(problem(tokens_q=37))
