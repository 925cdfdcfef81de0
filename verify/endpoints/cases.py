"""Case lattices: inputs by shape, length, dtype, scale, kind of data and seed, equal on every machine.

Numbers are drawn on the CPU by NumPy's Philox, a counter-based generator that depends on neither
device nor number of threads nor version of torch (Salmon et al. 2011, doi:10.1145/2063384.2063405),
and rounded once to the dtype; then they move to the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xxhash

from verify.endpoints.spec import Case, Inputs
from verify.errors import ArgumentError, NotComparableError
from verify.formats import encode, get_format

Data = Literal["zero_mean", "biased", "spiked", "near_overflow"]
DATA: tuple[Data, ...] = ("zero_mean", "biased", "spiked", "near_overflow")

_SPIKE = 100.0  # of a spiked tensor, in standard deviations of the rest
_SPIKE_STEP = 97  # prime, so that spikes fall on every channel and head in turn
_NEAR = (0.75, 0.95)  # shares of the largest finite number


@dataclass(frozen=True)
class Point:
    """One point of a lattice, from which a case is built.

    Args:
        shape: sizes by name, for example ``{"heads": 6, "dim": 256}``.
        length: tokens, or what the spec calls a length.
        dtype: of the drawn tensors; name as in ml_dtypes.
        scale: factor of the drawn numbers; near_overflow leaves it out.
        data: their kind.
        seed: of the drawing.
        device: where the tensors go.
    """

    shape: Mapping[str, int]
    length: int
    dtype: str
    scale: float
    data: Data
    seed: int
    device: str = "cpu"

    def draw(
        self, name: str, *sizes: int, data: Data | None = None, dtype: str | None = None
    ) -> torch.Tensor:
        """A tensor of ``sizes``; its numbers depend on the seed and ``name`` alone.

        Args:
            data: instead of the point's kind: a score must not overflow where values should.
            dtype: instead of the point's.
        """
        fmt = get_format(dtype or self.dtype)
        values = draw_values(f"{self.seed}/{name}", sizes, data or self.data, fmt.max_finite)
        scaled = values if (data or self.data) == "near_overflow" else values * self.scale
        return from_words(encode(scaled, fmt), fmt.name).to(self.device)

    def integers(self, name: str, low: int, high: int, *sizes: int) -> torch.Tensor:
        """int64 of ``sizes`` in [low, high)."""
        drawn = _generator(f"{self.seed}/{name}").integers(low, high, sizes)
        return torch.from_numpy(drawn).to(self.device)


def lattice(
    build: Callable[[Point], Inputs],
    *,
    shapes: Sequence[Mapping[str, int]] = ({},),
    lengths: Sequence[int] = (0,),
    dtypes: Sequence[str] = ("float16",),
    scales: Sequence[float] = (1.0,),
    data: Sequence[Data] = ("zero_mean",),
    seeds: Sequence[int] = (0,),
    device: str = "cpu",
    keep: Callable[[Point], bool] | None = None,
) -> list[Case]:
    """Every combination as a case; ``build`` makes the inputs of a point, afresh at each call.

    Args:
        keep: leaves out points for which it is False.

    Raises:
        ArgumentError: an unknown kind of data or dtype, or no point is left.
    """
    for kind in data:
        if kind not in DATA:
            raise ArgumentError(
                "unknown kind of data", where="data", found=kind, allowed=", ".join(DATA)
            )
    for dtype in dtypes:
        get_format(dtype)
    axes = itertools.product(shapes, lengths, dtypes, scales, data, seeds)
    points = [Point(*each, device=device) for each in axes]
    kept = [point for point in points if keep is None or keep(point)]
    if not kept:
        raise ArgumentError("a lattice without points", found=len(points), allowed="one or more")
    return [_case(point, build) for point in kept]


def _case(point: Point, build: Callable[[Point], Inputs]) -> Case:
    return Case(point_name(point), lambda: build(point))


def point_name(point: Point) -> str:
    """For example ``heads=6 len=4096 float16 biased scale=1 seed=0``."""
    parts = [f"{name}={size}" for name, size in point.shape.items()]
    parts += [f"len={point.length}"] if point.length else []
    parts += [point.dtype, point.data]
    return " ".join([*parts, f"scale={point.scale:g}", f"seed={point.seed}"])


def draw_values(
    key: str, sizes: Sequence[int], data: Data, max_finite: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """float64 of ``sizes``, of one kind.

    zero_mean: standard normal. biased: mean 1. spiked: every 97th element is 100 times as large.
    near_overflow: of either sign, 0.75 to 0.95 of ``max_finite``, so that two of one sign overflow.
    """
    random = _generator(key)
    values = random.standard_normal(sizes)
    if data == "biased":
        values += 1.0
    elif data == "spiked":
        values.reshape(-1)[::_SPIKE_STEP] *= _SPIKE
    elif data == "near_overflow":
        values = np.sign(values) * random.uniform(*_NEAR, sizes) * max_finite
    return values


def _generator(key: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(xxhash.xxh3_64_intdigest(key.encode())))


def from_words(words: np.ndarray[Any, Any], dtype: str) -> torch.Tensor:
    """A tensor that holds ``words`` as its bits."""
    from verify.replay.words import to_tensor

    found: torch.dtype = getattr(torch, dtype)
    return to_tensor(words, found)


def captured(
    dump: str | Path,
    taps: Mapping[str, str],
    *,
    step: int = 0,
    rank: int = 0,
    device: str = "cpu",
    build: Callable[[Inputs], Inputs] | None = None,
) -> Case:
    """Recorded tensors of one step of a dump as a case.

    Args:
        taps: input of the endpoints -> tap, for example
            ``{"q": "model.layers.3.self_attn.attn.in.q"}``; tensors come in the layout in which
            they were recorded.
        build: makes the inputs from them: transposes, masks, what is no tensor.

    Raises:
        ArgumentError: a tap that the step does not hold, or of which no words were kept.
        NotComparableError: key rows that the dump does not know.
    """
    from verify.dumps.format import open_dump
    from verify.dumps.format.materialise import Materialiser

    run = open_dump(dump)
    records = {r.tap: r for r in run.records(rank) if r.step == step and r.occurrence == 0}
    if missing := [tap for tap in taps.values() if tap not in records]:
        raise ArgumentError(
            "the dump does not hold that tap in that step",
            where=f"{dump}, step {step}",
            found=", ".join(missing),
            hint="verify inspect lists taps and steps",
        )

    def make() -> Inputs:
        maker = Materialiser(run, rank)
        inputs: Inputs = {}
        for name, tap in taps.items():
            words, known = maker.tensor(records[tap])
            if not known.all():
                raise NotComparableError("the dump does not know every row of a tap", where=tap)
            inputs[name] = from_words(words, records[tap].dtype).to(device)
        return build(inputs) if build else inputs

    make()  # refuses at once what it would refuse in the run
    return Case(f"captured {Path(dump).name} step={step}", make)
