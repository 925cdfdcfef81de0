"""Sentences that the terminal and the page share on an endpoint comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from verify.endpoints.result import (
    Check,
    EndpointComparison,
    EndpointFact,
    RelationCheck,
    RunCheck,
    SassCheck,
    SpeedCheck,
    State,
    TensorDifference,
)
from verify.report.numbers import count, measure, plural, ulps

ENDPOINTS_EXIT: dict[int, str] = {
    0: "equal bits, or every difference is explained",
    1: "bits differ without an explanation, or a check failed",
    3: "nothing differs, but a check could not be run",
}

STATE_MEANING: dict[State, str] = {
    State.PASSED: "equal bits, or inside what was declared",
    State.NOTED: "measured, no verdict",
    State.EXPLAINED: "other bits; the certificate of either side explains every row",
    State.NOT_RUN: "could not be carried out here: nothing is known",
    State.DIFFERENT: "other bits than declared, and nothing explains them",
    State.FAILED: "an endpoint did not run as named, or an error is beyond its limit",
}


def headline(result: EndpointComparison) -> str:
    """What was found, in a few words; never "equal" where something did not run."""
    failed, different = len(result.of(State.FAILED)), len(result.of(State.DIFFERENT))
    if failed:
        also = f", {different} differ" if different else ""
        return f"FAILED: {plural(failed, 'check')} failed{also}"
    if different:
        return f"DIFFERENT: {plural(different, 'check')} found other bits"
    missing = len(result.of(State.NOT_RUN))
    if missing:
        return f"INCOMPLETE: {plural(missing, 'check')} could not be run"
    if result.of(State.EXPLAINED):
        return "EXPLAINED: bits differ, and declared rounding explains every difference"
    return f"EQUAL: {plural(len(result.cases), 'case')}, bit for bit"


def check_name(
    check: Check | SpeedCheck | SassCheck, cases: Mapping[str, str] | None = None
) -> str:
    """Which check on what; ``cases`` are shorter names of the cases."""
    if isinstance(check, SassCheck):
        return f"{check.endpoint}: machine code"
    if isinstance(check, RelationCheck):
        kind = f"relation {check.relation}"
    elif isinstance(check, SpeedCheck):
        kind = "time"
    else:
        kind = str(type(check).__struct_config__.tag)
    case = check.case if cases is None else cases[check.case]
    return f"{case} · {check.endpoint} · {kind}"


def pair_sizes(tensor: TensorDifference) -> tuple[str, str, str]:
    """Largest difference, relative L2 and largest ULP distance, over finite pairs."""
    return measure(tensor.max_abs), measure(tensor.relative_l2), ulps(tensor.ulp_max)


def short_cases(names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The words that all case names share, and each name without them (names of one case, or that
    would become empty or equal, stay whole)."""
    parts = [name.split(" ") for name in names]
    common = [word for word in parts[0] if all(word in each for each in parts)] if parts else []
    short = {
        n: " ".join(w for w in p if w not in common) for n, p in zip(names, parts, strict=True)
    }
    if len(names) < 2 or len(set(short.values()) - {""}) < len(names):
        return "", {name: name for name in names}
    return " ".join(common), short


def route_names(runs: Iterable[RunCheck], fact: EndpointFact) -> str:
    """The routes that answered, with build ids; what the spec named where it differs."""
    routes = [route for run in runs for route in run.routes]
    names = dict.fromkeys(f"{route['route']}{_build(str(route['build_id']))}" for route in routes)
    said = f"ran on {', '.join(names)}" if names else "no recorded route"
    return f"{said}; named {fact.route}" if fact.route else said


def _build(build_id: str) -> str:
    return f" (build {build_id[:12]})" if build_id else ""


def relation_states(checks: Sequence[RelationCheck]) -> list[tuple[str, str, str, str]]:
    """Relation, endpoint, declaration, and how its cases ended; in the order of the spec."""
    groups: dict[tuple[str, str, str], Counter[State]] = {}
    for check in checks:
        key = check.relation, check.endpoint, check.declared
        groups.setdefault(key, Counter())[check.state] += 1
    return [
        (*key, ", ".join(f"{count(n)} {state}" for state, n in sorted(states.items())))
        for key, states in groups.items()
    ]


def speed_interval(check: SpeedCheck) -> str:
    return f"{check.low:.3f} to {check.high:.3f}"


def sass_text(check: SassCheck) -> list[str]:
    """What the comparison of two builds says, one line a function."""
    if not check.functions:
        return [check.reason]
    said = [f"builds {check.build_a[:12]} and {check.build_b[:12]}"]
    for code in check.functions:
        sizes = f"{count(code.instructions_a)} and {count(code.instructions_b)} instructions"
        if code.same:
            said.append(f"{code.name}: equal, {count(code.instructions_a)} instructions")
            continue
        if code.same_but_registers:
            said.append(f"{code.name}: equal but for register numbers, {sizes}")
            continue
        said.append(f"{code.name}: {sizes}, the first that differs is number {code.first}")
        said.append(f"  {code.line_a or '(end)'}  |  {code.line_b or '(end)'}")
        more = ", ".join(f"{opcode} {number:+d}" for opcode, number in code.opcodes.items())
        if more:
            said.append(f"  in the second build: {more}")
    return said
