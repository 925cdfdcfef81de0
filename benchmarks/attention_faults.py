"""Simulated attention kernels, correct and with faults planted; for detection_attention.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from verify.reference.attention import AttentionInputs
from verify.reference.replay.arithmetic import Arithmetic, Chain, tensor_core_prefill
from verify.reference.replay.attention import replay
from verify.reference.replay.exponential import Exponential

SCORE_DEVIATION = 2.0  # natural log
TILE = 64
ARCHITECTURES = {"V100": "sm_70", "H200": "sm_90"}


@dataclass(frozen=True)
class Cell:
    """One kind of kernel and data."""

    device: str
    splits: int
    mean: float

    def rule(self, keys: int, **changes: object) -> Arithmetic:
        """The accumulator is the C operand all along a part: the drift is as large as it gets."""
        fields: dict[str, object] = {
            "name": f"{self.device}, {self.splits} splits", "accumulate": "chain",
            "partition": None if self.splits == 1 else keys // self.splits,
        }  # fmt: skip
        return tensor_core_prefill(ARCHITECTURES[self.device], **(fields | changes))


def problem(keys: int, dim: int, mean: float, seed: int, rows: int) -> AttentionInputs:
    """The last ``rows`` queries of a causal sequence; scores of deviation 2."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, n, 1, dim, generator=generator) for n in (rows, keys, keys))
    return AttentionInputs((q * SCORE_DEVIATION).half(), k.half(), (v + mean).half())


def simulate(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    """[rows, value_dim] of a correct kernel."""
    exponential = Exponential("scattered", rule.exp_error, seed=seed)
    return torch.from_numpy(replay(inputs, rule, exponential=exponential).output)


Fault = Callable[[AttentionInputs, Arithmetic, int], torch.Tensor]


def keep(inputs: AttentionInputs, index: torch.Tensor) -> AttentionInputs:
    """The same queries over the chosen keys; not causal, so for rows that see every key."""
    return replace(inputs, k=inputs.k[:, index], v=inputs.v[:, index])


def tile_dropped(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    index = torch.arange(inputs.k.shape[1])
    start = TILE * 5
    return simulate(keep(inputs, index[(index < start) | (index >= start + TILE)]), rule, seed)


def tile_doubled(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    index = torch.arange(inputs.k.shape[1])
    return simulate(keep(inputs, torch.cat([index[: TILE * 6], index[TILE * 5 :]])), rule, seed)


def key_dropped(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    index = torch.arange(inputs.k.shape[1])
    return simulate(keep(inputs, index[index != PLANTED]), rule, seed)


def newest_key_lost(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    return simulate(keep(inputs, torch.arange(inputs.k.shape[1] - 1)), rule, seed)


def hidden_key_seen(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    """The certificate is told of one live key less than the kernel reads."""
    return simulate(replace(inputs, kv_lengths=None), rule, seed)


def other_mass(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    return simulate(inputs, replace(rule, mass="unrounded"), seed)


def scale_off(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    wrong = inputs.softmax_scale * (1 + 2.0**-8)
    return simulate(replace(inputs, scale=wrong), rule, seed)


def fp16_accumulation(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    chain = Chain("tensor_core", rule.value_chain.architecture, output="float16")
    return simulate(inputs, replace(rule, value_chain=chain), seed)


def merged_in_base_2(inputs: AttentionInputs, rule: Arithmetic, seed: int) -> torch.Tensor:
    """Each part alone, then weights l_i 2^(m_i - M), m_i in natural log."""
    size = rule.partition_keys
    whole = replace(rule, partition=None)
    parts = []
    for start in range(0, inputs.k.shape[1], size):
        index = torch.arange(start, min(start + size, inputs.k.shape[1]))
        exponential = Exponential("scattered", rule.exp_error, seed=seed)
        parts.append(replay(keep(inputs, index), whole, exponential=exponential))
    top = np.max([part.m for part in parts], axis=0)
    weights = [part.l * np.exp2(part.m - top) for part in parts]
    output = sum(w[:, None] * p.unrounded for w, p in zip(weights, parts, strict=True))
    return torch.from_numpy((output / sum(weights)[:, None]).astype(np.float16)).double()


PLANTED = 333


def planted_key(inputs: AttentionInputs) -> AttentionInputs:
    """Key PLANTED gets a score 4 above the mean of the others in every row: weight 7 / keys."""
    q, k = inputs.q.clone(), inputs.k.clone()
    q[..., 0] = 4.0
    k[..., 0] = 0.0
    k[0, PLANTED] = 0.0
    k[0, PLANTED, :, 0] = 4.0 / (4.0 * inputs.softmax_scale)
    return replace(inputs, q=q, k=k)


def one_key_hidden(inputs: AttentionInputs) -> AttentionInputs:
    return replace(inputs, kv_lengths=(inputs.k.shape[1] - 1,))


def equal_scores(inputs: AttentionInputs) -> AttentionInputs:
    """Every 16th key at the maximum, all others at p = 0.5 + 0.45 * 2^-11, nearly half a spacing of
    FP16 above 0.5: all of them are rounded down alike, by 0.9 of half an ulp."""
    q, k = torch.zeros_like(inputs.q), torch.zeros_like(inputs.k)
    q[..., :2] = 1.0
    wanted = math.log(0.5 + 0.45 * 2.0**-11)
    k[..., 0] = wanted
    k[..., 1] = wanted - k[0, 0, 0, 0].item()  # what FP16 lost of it
    k[:, ::16] = 0.0
    return replace(inputs, q=q, k=k, scale=1.0)


def unchanged(inputs: AttentionInputs) -> AttentionInputs:
    return inputs


@dataclass(frozen=True)
class Planted:
    """A fault, the data it is planted in, and the words by which the certificate names it."""

    name: str
    fault: Fault
    data: Callable[[AttentionInputs], AttentionInputs]
    located: str
    splits: tuple[int, ...] = (1, 64)


FAULTS = [
    Planted("64-key tile dropped", tile_dropped, unchanged, "keys 320..383 dropped"),
    Planted("64-key tile doubled", tile_doubled, unchanged, "keys 320..383 counted twice"),
    Planted("planted key dropped", key_dropped, planted_key, f"key {PLANTED} dropped"),
    Planted("mask off by one: newest key lost", newest_key_lost, unchanged, "a mask off by one"),
    Planted("mask off by one: hidden key seen", hidden_key_seen, one_key_hidden,
            "taken in: a mask off by one"),
    Planted("mass unrounded, declared rounded; equal scores", other_mass, equal_scores,
            "mass of the unrounded"),
    Planted("the same; ordinary scores", other_mass, unchanged, "mass of the unrounded"),
    Planted("scale off by 2^-8", scale_off, unchanged, "scale off by a factor of 1.00"),
    Planted("parts merged in base 2", merged_in_base_2, unchanged, "merged with 2^", (64,)),
    Planted("FP16 accumulation", fp16_accumulation, unchanged, ""),
]  # fmt: skip
