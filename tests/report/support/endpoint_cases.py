"""Results of endpoint comparisons for the renderers: run for real, with times put in by hand."""

from __future__ import annotations

import msgspec
import torch

from verify.bounds import Bound
from verify.endpoints import Case, Endpoint, EndpointSpec, compare_endpoints, relations
from verify.endpoints.certificates import Judgement
from verify.endpoints.result import (
    EndpointComparison,
    FunctionCode,
    SassCheck,
    SpeedCheck,
    State,
)
from verify.reference.certificates.result import Check, conclude

HOSTILE = "evil\x1b[31m<script>alert(1)</script>\u202e[bold]$x$"


def _make(scale: float) -> dict[str, torch.Tensor]:
    return {"x": (scale * torch.arange(1, 97, dtype=torch.float64).reshape(4, 3, 8)).half()}


def _triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def _one_ulp(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    y.view(torch.int16)[2:, 1] += 1
    return y


def _nan(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    y[0, 0, 0] = torch.nan
    return y


def _raises(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(HOSTILE)


def _explained(out: object, inputs: object) -> Judgement:
    limit = Bound(1.0, "a share of the budget")
    return Judgement(conclude("triple", "one rounding", [
        Check(name="budget", statistic=0.5, limit=limit, passed=True)
    ]))  # fmt: skip


def _settled(result: EndpointComparison) -> EndpointComparison:
    """Without what depends on the machine and the moment."""
    checks = [
        msgspec.structs.replace(c, seconds=0.0) if hasattr(c, "seconds") else c
        for c in result.checks
    ]
    return msgspec.structs.replace(
        result, checks=checks, device="CPU", environment={"python": "3"}, seconds=1.5
    )


def equal() -> EndpointComparison:
    spec = EndpointSpec(
        endpoints={"base": Endpoint(_triple), "port": Endpoint(_triple)},
        cases=[Case("one", lambda: _make(0.1))],
        reference=lambda x: x.double() * 3,
        relations=[relations.repeat(2)],
        axes="t h d",
    )
    return _settled(compare_endpoints(spec, name="spec.py", command=["verify", "endpoints"]))


def explained() -> EndpointComparison:
    spec = EndpointSpec(
        endpoints={
            "base": Endpoint(_triple, certificate=_explained),
            "port": Endpoint(_one_ulp, certificate=_explained),
        },
        cases=[Case("one", lambda: _make(0.1))],
        axes="t h d",
    )
    return _settled(compare_endpoints(spec, name="spec.py", command=["verify", "endpoints"]))


def incomplete() -> EndpointComparison:
    spec = EndpointSpec(
        endpoints={"base": Endpoint(_triple), "port": Endpoint(_triple)},
        cases=[Case("one", lambda: _make(0.1))],
        relations=[relations.other_stream()],
    )
    return _settled(compare_endpoints(spec, name="spec.py", command=["verify", "endpoints"]))


def troubled() -> EndpointComparison:
    """Every kind of trouble at once, hostile names included, with times and machine code."""
    spec = EndpointSpec(
        endpoints={
            "base": Endpoint(_triple, accuracy=Bound(1.05, "one rounding")),
            "off by a ULP": Endpoint(_one_ulp, accuracy=Bound(1.05, "one rounding")),
            "nan": Endpoint(_nan),
            "raises": Endpoint(_raises),
            "route": Endpoint(_triple, route="wmma"),
        },
        cases=[Case("small", lambda: _make(0.1)), Case(HOSTILE, lambda: _make(0.37))],
        reference=lambda x: x.double() * 3,
        relations=[
            relations.repeat(2),
            relations.other_stream(),
            relations.choose("transposed", Bound(1e-3, "planted"), x=_make(0.2)["x"]),
        ],
        axes="t h d",
    )
    found = compare_endpoints(spec, name=HOSTILE, command=["verify", "endpoints", HOSTILE])
    result = _settled(found)
    result.speed = [
        SpeedCheck(
            case=case, a="base", b=name, state=State.NOTED, clock="CUDA events", pairs=100,
            a_ms=1.25, b_ms=1.25 * ratio, ratio=ratio, low=0.97 * ratio, high=1.02 * ratio,
            input_sets=9, input_bytes=1 << 24, cache_bytes=60 << 20, ratios=[ratio] * 100,
        )
        for case, name, ratio in (("small", "off by a ULP", 0.8), (HOSTILE, "nan", 2.5))
    ]  # fmt: skip
    result.sass = [
        SassCheck(
            a="base", b=HOSTILE, state=State.NOTED, reason="other instructions in scale",
            build_a="a" * 64, build_b="b" * 64,
            functions=[FunctionCode(
                name="scale", instructions_a=21, instructions_b=22, same=False,
                same_but_registers=False, first=15, line_a="FADD R7, R2, R2",
                line_b="FMUL R7, R2, 3", opcodes={"FADD": -1, "FMUL": 2},
            )],
        ),
        SassCheck(a="base", b="nan", state=State.NOT_RUN, reason="nan ran no build"),
    ]  # fmt: skip
    return result


ENDPOINT_CASES = {
    "equal": equal, "explained": explained, "incomplete": incomplete, "troubled": troubled,
}  # fmt: skip
