"""Decode steps over a paged cache, and their exact answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verify import gpu
from verify.reference.attention import AttentionInputs, attend
from verify.reference.attention.parts import gather_pages

NAN_CODE = 0x7F


@dataclass(frozen=True, eq=False)
class Step:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor

    variant: ClassVar[str] = "auto"  # a fixture sets it for a whole test

    def run(self, **options: object) -> torch.Tensor:
        out = gpu.decode(
            self.q, self.k, self.v, self.table, self.lengths, variant=self.variant, **options
        )  # type: ignore[arg-type]
        route = gpu.last_route()
        assert route is not None and self.variant in ("auto", route.route)
        return out


def make_step(
    lengths: list[int], page: int = 1616, heads: tuple[int, int] = (6, 1), device: str = "cuda",
    order: str = "random",
) -> Step:  # fmt: skip
    """Random finite codes; every byte that is not live is a NaN code."""
    random = torch.Generator().manual_seed(page)
    per_sequence = max(1, -(-max(lengths) // page)) + 1
    count = len(lengths) * per_sequence
    codes = torch.full((count, 2, page, heads[1], 256), NAN_CODE, dtype=torch.uint8, device=device)
    physical = torch.arange(count)
    if order == "reversed":
        physical = physical.flip(0)
    elif order == "random":
        physical = torch.randperm(count, generator=random)
    table = physical.view(len(lengths), per_sequence).int().to(device)
    fill = torch.Generator(device).manual_seed(1)
    for b, length in enumerate(lengths):
        position = torch.arange(length, device=device)
        live = torch.randint(0, 256, (length, 2, heads[1], 256), generator=fill, device=device)
        live = torch.where(live & 0x7F >= 0x70, live & 0xBF, live).to(torch.uint8)  # below 256
        pages = table[b].long()[position // page]
        codes[pages, :, position % page] = live
    k, v = codes.unbind(1)
    q = torch.randn(len(lengths), heads[0], 256, generator=random).half().to(device)
    return Step(q, k, v, table, torch.tensor(lengths, dtype=torch.int32, device=device))


def exact(step: Step, b: int, k_scale: float = 1.0, v_scale: float = 1.0) -> torch.Tensor:
    """[query heads, 256], float64: attention of sequence b on the decoded codes."""
    length = int(step.lengths[b])
    k, v = (
        gather_pages(t.view(torch.float8_e4m3fn), step.table[b], length)[None].half()
        for t in (step.k, step.v)
    )
    inputs = AttentionInputs(
        step.q[b][None, None], k, v, scale=1.0 / 16.0, k_scale=k_scale, v_scale=v_scale
    )
    return attend(inputs, exact_spread=False).output
