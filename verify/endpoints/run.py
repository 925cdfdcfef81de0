"""Run every case through every endpoint and compare; what did not run is a failure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from verify.compare.histogram import ULP_EDGES, ulp_bins
from verify.endpoints.spec import Case, Endpoint, EndpointSpec, Relation
from verify.formats import get_format
from verify.gpu.route import record_routes
from verify.ulp import distance

_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Check:
    """One comparison: its measurements, or in ``failure`` why there are none or they fail."""

    case: str
    endpoint: str
    check: str
    failure: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The check as JSON values."""
        return asdict(self)


def compare_endpoints(spec: EndpointSpec) -> list[Check]:
    """All checks of all cases, in order; the first endpoint is the base of ``"pair"``."""
    return [check for case in spec.cases for check in _run_case(spec, case)]


def _run_case(spec: EndpointSpec, case: Case) -> list[Check]:
    checks: list[Check] = []
    outputs: dict[str, torch.Tensor] = {}
    for name, endpoint in spec.endpoints.items():
        check = Check(case.name, name, "run")
        checks.append(check)
        output = _call(endpoint, case, check)
        if output is None:
            continue
        outputs[name] = output
        checks += [_relate(r, endpoint, case, name, output) for r in spec.relations]
        if spec.reference is not None:
            checks.append(_against_reference(spec, case, name, output))
    base = next(iter(spec.endpoints))
    for name in list(spec.endpoints)[1:]:
        pair = Check(case.name, f"{base} | {name}", "pair")
        checks.append(pair)
        if base in outputs and name in outputs:
            _measure_pair(pair, outputs[base], outputs[name])
        else:
            pair.failure = "not compared: an endpoint gave no output"
    return checks


def _call(
    endpoint: Endpoint, case: Case, check: Check, relation: Relation | None = None
) -> torch.Tensor | None:
    """The output, or None with ``check.failure`` set. An endpoint may raise anything."""
    try:
        inputs = case.make()
        with record_routes() as routes:
            output = endpoint.call(**(relation.transform(inputs) if relation else inputs))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        check.failure = f"did not run: {error!r}"
        return None
    ran = [route.route for route in routes]
    check.figures["routes"] = ran
    if endpoint.route is not None and (not ran or set(ran) != {endpoint.route}):
        check.failure = f"ran on {ran}, not on {endpoint.route!r}"
        return None
    if not isinstance(output, torch.Tensor):
        check.failure = f"gave {type(output).__name__}, not a tensor"
        return None
    return output.detach().to("cpu", copy=True).contiguous()


def _relate(
    relation: Relation, endpoint: Endpoint, case: Case, name: str, output: torch.Tensor
) -> Check:
    check = Check(case.name, name, f"relation {relation.name}")
    other = _call(endpoint, case, check, relation)
    if other is None:
        return check
    _measure_pair(check, output, other)
    if not check.failure or relation.kind == "bitwise" or "rel_l2" not in check.figures:
        return check
    error, bound = check.figures["rel_l2"], relation.kind
    within = error <= bound.value  # False for NaN
    check.failure = "" if within else f"relative L2 {error:.3g} > {bound.value:.3g} ({bound.why})"
    return check


def _words(tensor: torch.Tensor) -> Any:
    size = tensor.element_size()
    return tensor.reshape(-1).view(_INTS[size]).numpy().view(f"u{size}")


def _measure_pair(check: Check, a: torch.Tensor, b: torch.Tensor) -> None:
    if a.shape != b.shape or a.dtype != b.dtype:
        check.failure = f"{a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
        return
    ulps = distance(_words(a), _words(b), get_format(str(a.dtype).removeprefix("torch.")))
    differ = (_words(a) != _words(b)).reshape(a.shape)
    bins = np.bincount(ulp_bins(ulps[ulps > 0]))
    gap = a.double() - b.double()
    check.figures |= {
        "bitwise": not differ.any(),
        "different": int(differ.sum()),
        "ulp_histogram": {str(ULP_EDGES[i]): int(n) for i, n in enumerate(bins) if n},
        "max_abs": float(gap.abs().max()) if gap.numel() else 0.0,
        "rel_l2": _ratio(float(gap.norm()), float(a.double().norm())),
        "support": [np.flatnonzero(_any_but(differ, axis)).tolist() for axis in range(a.ndim)],
    }
    if differ.any():
        check.failure = f"{int(differ.sum())} of {differ.size} elements differ in their bits"


def _any_but(differ: Any, axis: int) -> Any:
    return differ.any(axis=tuple(i for i in range(differ.ndim) if i != axis))


def _ratio(error: float, scale: float) -> float:
    return 0.0 if error == 0.0 else error / scale if scale else float("inf")


def _against_reference(spec: EndpointSpec, case: Case, name: str, output: torch.Tensor) -> Check:
    check = Check(case.name, name, "reference")
    assert spec.reference is not None
    try:
        exact = torch.as_tensor(spec.reference(**case.make())).cpu()
        if exact.dtype != torch.float64 or exact.shape != output.shape:
            check.failure = f"reference gave {exact.dtype}{list(exact.shape)}, wanted float64"
            return check
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        check.failure = f"the reference did not run: {error!r}"
        return check
    floor = float((exact.to(output.dtype).double() - exact).norm())
    error_norm = float((output.double() - exact).norm())
    check.figures = {
        "rel_l2": _ratio(error_norm, float(exact.norm())),
        "error_over_floor": _ratio(error_norm, floor),
    }
    if not np.isfinite(error_norm):
        check.failure = "the error against the reference is not finite"
    return check
