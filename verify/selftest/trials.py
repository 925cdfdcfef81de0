"""Trials from numbers: which fault or innocent pair, where, how large, on top of what."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from verify.bisect.result import BisectResult
from verify.selftest.core_faults import CORE_FAULTS
from verify.selftest.fault import Fault, Place
from verify.selftest.innocent import Innocent, draw
from verify.selftest.judge import judge_fault, judge_innocent
from verify.selftest.module_faults import MODULE_FAULTS
from verify.selftest.other_faults import OTHER_FAULTS
from verify.selftest.rates import INNOCENT
from verify.selftest.result import Trial
from verify.selftest.sizes import METER, Size
from verify.selftest.subject import LAYERS, Planted, Setup, Subject

FAULTS: tuple[Fault, ...] = (*CORE_FAULTS, *MODULE_FAULTS, *OTHER_FAULTS)
PLACES = 3
"""A layer from each third of the model."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A trial that has not run: ``setups`` and ``planted`` make its pair of runs, ``run`` judges
    it, and ``wanted`` are the taps at which a planted fault may show first."""

    trial: Trial
    run: Callable[[Subject], Trial]
    setups: tuple[Setup, Setup]
    planted: Planted
    wanted: frozenset[str] = frozenset()


def plan(
    subject: Subject,
    *,
    kinds: Sequence[str] = (),
    sizes: Sequence[Size] = tuple(Size),
    innocents: int = 0,
    seed: int = 0,
) -> Iterator[Planned]:
    """All trials: every fault x size x place, alone and above innocent rounding, then innocents.

    Args:
        kinds: ``K04`` and so on; empty: all. ``innocent`` alone: no faults.
        innocents: how many innocent pairs.
    """
    for number, fault in enumerate(FAULTS):
        if kinds and fault.kind not in kinds:
            continue
        for size in (size for size in fault.sizes if size in sizes):
            yield from _places(subject, fault, size, seed + 1000 * number)
    for number in range(innocents):
        pair = draw(number, seed)
        trial = Trial(
            kind=INNOCENT, name=pair.name, dtype=pair.a.dtype, setup=pair.b.describe(),
            seed=seed + number,
        )  # fmt: skip
        yield Planned(trial, partial(_innocent, pair, trial), (pair.a, pair.b), pair.planted)


def _places(subject: Subject, fault: Fault, size: Size, seed: int) -> Iterator[Planned]:
    config = subject.config()
    layers, groups = config.num_hidden_layers, config.num_key_value_heads
    for third in range(PLACES):
        pick = random.Random(f"{fault.name} {size} {third} {seed}")
        low, high = third * layers // PLACES, (third + 1) * layers // PLACES
        for on_top in (False, True) if fault.on_top else (False,):
            # Above rounding the lowest layer must be innocent, or there is nothing below.
            layer = pick.randrange(max(low, 1 if on_top else 0), high)
            place = Place(layer, pick.randrange(groups), size, seed)
            dtype = fault.dtype or pick.choice(("bf16", "bf16", "fp16", "fp32"))
            a = Setup(dtype=dtype)
            b = Setup(dtype=dtype, attn="eager" if on_top else "sdpa")
            trial = Trial(
                kind=fault.kind, name=fault.name, size=size, layer=layer, head=place.head,
                setup=b.describe(), on_top=on_top, dtype=dtype, seed=seed + third,
            )  # fmt: skip
            yield Planned(
                trial,
                partial(_fault, fault, place, (a, b), trial),
                (a, b),
                partial(_enter, fault, place),
                fault.first_taps(place, LAYERS),
            )


def _enter(fault: Fault, place: Place, model: Any) -> AbstractContextManager[None]:
    return fault.plant(model, place)


def _fault(
    fault: Fault, place: Place, setups: tuple[Setup, Setup], trial: Trial, subject: Subject
) -> Trial:
    config = subject.config()
    heads = config.num_attention_heads // config.num_key_value_heads

    METER.reset()

    def judged(result: BisectResult) -> Trial:
        done = judge_fault(fault, place, result, heads, trial)
        return msgspec.structs.replace(done, changed=False) if METER.idle else done

    return _timed(
        trial,
        lambda: judged(
            subject.bisect(*setups, lambda model: fault.plant(model, place), forced=fault.forced)
        ),
    )


def _innocent(pair: Innocent, trial: Trial, subject: Subject) -> Trial:
    def judged() -> Trial:
        return judge_innocent(subject.bisect(pair.a, pair.b, pair.planted), trial)

    return _timed(trial, judged)


def _timed(trial: Trial, run: Callable[[], Trial]) -> Trial:
    """The outcome with its time; what the tool throws is an outcome as well."""
    began = time.perf_counter()
    try:
        done = run()
    except Exception as error:  # noqa: BLE001 - a trial counts whatever happens in it
        done = msgspec.structs.replace(trial, error=f"{type(error).__name__}: {error}"[:500])
    return msgspec.structs.replace(done, seconds=round(time.perf_counter() - began, 3))
