"""The size bound of attention: correct cores never break it, wrong ones do where it has a meaning."""

import numpy as np
import pytest

from verify.bisect.attention_bound import AttentionRow, difference_bound
from verify.formats import decode, encode, get_format

HEADS, KV_HEADS, DIM = 4, 2, 16


def row(keys, spread, dtype, seed=0):
    """Random inputs that are values of ``dtype``; ``spread`` sets the size of the scores."""
    draw = np.random.default_rng(seed)
    q, k, v = (
        through(draw.standard_normal(shape) * size, dtype)
        for shape, size in (
            ((HEADS, DIM), spread),
            ((keys, KV_HEADS, DIM), 1.0),
            ((keys, KV_HEADS, DIM), 1.0),
        )
    )
    return AttentionRow(q, k, v, DIM**-0.5)


def through(values, dtype):
    return decode(encode(np.asarray(values, np.float64), dtype), dtype)


def attend(inputs, store, sums=np.float32, order=slice(None), parts=1):
    """Attention with every intermediate stored in ``store`` (None: kept) and summed in ``sums``,
    over the keys in an order, in parts that are merged as flash attention does."""
    keep = (lambda x: x) if store is None else (lambda x: through(x, store).astype(sums))
    group = HEADS // KV_HEADS
    k = np.repeat(inputs.k[order], group, axis=1).astype(sums)
    v = np.repeat(inputs.v[order], group, axis=1).astype(sums)
    q = keep(inputs.q.astype(sums) * sums(inputs.scale))
    total = np.zeros((HEADS, DIM), sums)
    norm = np.zeros(HEADS, sums)
    top = np.full(HEADS, -np.inf, sums)
    for k_part, v_part in zip(np.array_split(k, parts), np.array_split(v, parts), strict=True):
        scores = np.zeros((len(k_part), HEADS), sums)
        for d in range(DIM):
            scores = scores + k_part[:, :, d] * q[None, :, d]
        scores = keep(scores)
        new = np.maximum(top, scores.max(axis=0))
        p = keep(np.exp(scores - new))
        total *= np.exp(top - new)[:, None]
        norm *= np.exp(top - new)
        for j in range(len(p)):
            total = total + p[j][:, None] * v_part[j]
            norm = norm + p[j]
        top = new
    out = total / norm[:, None]
    return through(out, store) if store else out.astype(np.float64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("keys", [1, 7, 150])
def test_correct_cores_stay_within_it(dtype, spread, keys):
    for seed in range(3):
        inputs = row(keys, spread, dtype, seed)
        bound = difference_bound(inputs, get_format(dtype))
        store = None if dtype == "float32" else dtype
        truth = attend(inputs, None, np.float64)
        cores = [
            attend(inputs, store),
            attend(inputs, store, order=slice(None, None, -1)),
            attend(inputs, store, parts=min(4, keys)),
        ]
        for core in cores:
            assert (np.abs(core - truth) <= bound / 2).all()
        for other in cores[1:]:
            assert (np.abs(other - cores[0]) <= bound).all()


def test_in_float32_it_is_tight_enough_to_mean_something():
    inputs = row(100, 1.0, "float32")
    bound = difference_bound(inputs, get_format("float32"))
    # A factor 1e4 of the unit roundoff: score error (D+8)+6 units of scores of size 4, twice.
    assert bound.max() < 1e4 * 2**-24 * np.abs(inputs.v).max()


def wrong_scale(x):
    return AttentionRow(x.q, x.k, x.v, x.scale * 1.05)


def without_newest_key(x):
    return AttentionRow(x.q, x.k[:-1], x.v[:-1], x.scale)


def heads_exchanged(x):
    return AttentionRow(x.q, x.k[:, ::-1], x.v[:, ::-1], x.scale)


@pytest.mark.parametrize("wrong", [wrong_scale, without_newest_key, heads_exchanged])
def test_defects_break_it_in_float32(wrong):
    inputs = row(30, 1.0, "float32")
    error = np.abs(attend(wrong(inputs), None) - attend(inputs, None))
    assert (error > difference_bound(inputs, get_format("float32"))).any()


def test_it_never_exceeds_what_a_convex_combination_allows():
    inputs = row(20, 200.0, "bfloat16")
    bound = difference_bound(inputs, get_format("bfloat16"))
    largest = np.abs(inputs.v).max(axis=(0, 1))
    assert (bound <= 2.1 * largest).all()


def test_scores_beyond_the_format_leave_no_bound():
    inputs = row(4, 1e5, "float16")
    assert np.isinf(difference_bound(inputs, get_format("float16"))).all()
