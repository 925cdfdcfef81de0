"""C3: the expected output, and the covariance of what is left over."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.formats import get_format
from verify.reference.attention.streaming import values
from verify.reference.certificates.attention.chain import U, power_of_two
from verify.reference.certificates.attention.walk import Walk
from verify.reference.replay.arithmetic import Arithmetic

DRIFT_DOUBT = 0.05
"""Share of the modelled drift that is not trusted: on simulated chains of up to 65536 keys the
model missed it by 0.004, and by 0.018 with values on a coarse lattice; see
docs/numerics-attention.md."""

_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Noise:
    """Expectation and spread of a correct output; in units of the output, ``v_scale`` included."""

    centre: Tensor
    """[rows, value_dim]: expected value before the final rounding."""
    drift: Tensor
    """[rows, value_dim]: the part of it that is truncation."""
    covariance: Tensor
    """[rows, value_dim, value_dim]: of output - centre, the final rounding included."""
    slack: Tensor
    """[rows, value_dim]: systematic deviation that the model does not exclude."""
    ties: Tensor
    """[rows]: largest number of keys with one and the same score."""
    counted: Tensor
    """[rows, value_dim], bool: False for elements that repeat another one of the row."""

    @property
    def sigma(self) -> Tensor:
        """[rows, value_dim]: standard deviation of each element."""
        return self.covariance.diagonal(dim1=1, dim2=2).sqrt()


def expected_noise(walk: Walk, arithmetic: Arithmetic) -> Noise:
    """What a correct kernel of ``arithmetic`` produces, as far as it can be known."""
    v_scale, l = walk.group.v_scale, walk.total[:, None]
    centre = (walk.values.total + walk.values.drift) / l
    drift = walk.values.drift / l
    ties = count_ties(walk.x)
    covariance = _weight_covariance(walk, arithmetic, centre, ties)
    mass = walk.mass.variance / walk.total**2
    covariance += mass[:, None, None] * centre[:, :, None] * centre[:, None]
    single = (
        walk.values.variance / l**2 + _final_variance(centre * v_scale, arithmetic) / v_scale**2
    )
    covariance.diagonal(dim1=1, dim2=2).add_(single)
    return Noise(
        centre * v_scale, drift * v_scale, covariance * v_scale**2,
        _slack(walk, arithmetic, centre, drift, ties) * v_scale, ties, _distinct(centre),
    )  # fmt: skip


def count_ties(x: Tensor) -> Tensor:
    """[rows]: the longest run of equal scores (to 2^-40 of the largest) among visible keys.

    Errors of tied keys are one and the same error, so variances of sums over keys are multiplied
    by this: ``|sum over a group of x_j|^2 <= size * sum |x_j|^2`` (Cauchy-Schwarz).
    """
    ordered = x.sort(dim=1).values
    seen = ~torch.isneginf(ordered)
    near = torch.where(seen, ordered, 0.0).abs().amax(1, keepdim=True) * 2.0**-40
    fresh = torch.ones_like(seen)
    fresh[:, 1:] = (ordered.diff(dim=1) > near) | ~seen[:, :-1]
    place = torch.arange(x.shape[1], device=x.device).expand_as(x)
    start = torch.where(fresh, place, 0).cummax(1).values
    return torch.where(seen, place - start + 1, 1).amax(1).double()


def _weight_covariance(walk: Walk, arithmetic: Arithmetic, o: Tensor, ties: Tensor) -> Tensor:
    """sum a_j u_j u_j^T: u = v - o for errors that the mass shares, v for those it does not.

    Shared: the weight's own error, taken as half its bound. Rounding of P: its variance about the
    expectation; the mass shares it where it sums the rounded P.
    """
    p = torch.exp(walk.x - walk.m[:, None])
    scale = (ties / walk.total**2)[:, None]
    own, rounding = (p * walk.delta / 2) ** 2 * scale, walk.key_variance * scale
    shared, alone = own + rounding, torch.zeros_like(own)
    if arithmetic.mass == "unrounded":
        shared, alone = own, rounding
    rows, width = o.shape
    gram, first = o.new_zeros(rows, width, width), o.new_zeros(rows, width)
    for low in range(0, walk.x.shape[1], _CHUNK):
        high = min(low + _CHUNK, walk.x.shape[1])
        v, _ = values(walk.group, walk.first + low, walk.first + high)
        part = (shared + alone)[:, low:high]
        for row in range(rows):
            gram[row] += (v * part[row][:, None]).T @ v
        first += shared[:, low:high] @ v
    cross = o[:, :, None] * first[:, None]
    both = o[:, :, None] * o[:, None] * shared.sum(1)[:, None, None]
    return gram - cross - cross.transpose(1, 2) + both


def _final_variance(centre: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Rounding to the output format is uniform over one spacing; FP32 operations before it."""
    fp32 = 4 * (U * centre) ** 2
    if arithmetic.output == "float32":
        return fp32 + (U * centre) ** 2
    fmt = get_format(arithmetic.output)
    ulp = power_of_two(centre).clamp_min(2.0**fmt.min_exponent) * 2.0**-fmt.mantissa_bits
    return fp32 + ulp**2 / 12


def _slack(walk: Walk, arithmetic: Arithmetic, o: Tensor, drift: Tensor, ties: Tensor) -> Tensor:
    """What may be systematic: part of the drift; steps that repeat each other; truncation of the
    scores, which acts like a scale smaller by up to n 2^-23; and where keys are tied, their share
    of the worst case of the mass."""
    l = walk.total[:, None]
    seen = (~torch.isneginf(walk.x)).sum(1).clamp_min(1)
    coherent = ((ties - 1) / seen)[:, None]
    mass = coherent * walk.mass.bound[:, None] / l * o.abs()
    scores = torch.zeros_like(o)
    if arithmetic.score_chain.kind == "tensor_core":
        products = arithmetic.score_chain.unit(arithmetic.operands).products
        steps = -(-walk.group.q.shape[1] // products)
        scores = steps * 2.0**-23 * scale_direction(walk, o).abs()
    return DRIFT_DOUBT * drift.abs() + walk.values.coherent / l + mass + scores


def scale_direction(walk: Walk, o: Tensor) -> Tensor:
    """d o / d log(scale), [rows, value_dim]: sum w_j (x_j - mean x) (v_j - o)."""
    p = torch.exp(walk.x - walk.m[:, None])
    x = torch.where(p > 0, walk.x, 0.0)
    weighted = p * x
    mean = weighted.sum(1, keepdim=True) / walk.total[:, None]
    direction = -o * (weighted.sum(1, keepdim=True) - mean * p.sum(1, keepdim=True))
    for low in range(0, x.shape[1], _CHUNK):
        high = min(low + _CHUNK, x.shape[1])
        v, _ = values(walk.group, walk.first + low, walk.first + high)
        direction += (weighted - mean * p)[:, low:high] @ v
    return direction / walk.total[:, None]


def _distinct(centre: Tensor) -> Tensor:
    """False for elements equal in magnitude to another (to 1e-9): their roundings are one."""
    ordered, order = centre.abs().sort(dim=1)
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered.diff(dim=1) > 1e-9 * ordered[:, 1:]
    return torch.zeros_like(fresh).scatter_(1, order, fresh)
