"""Run every case through every endpoint and compare; what did not run is a failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from verify import env
from verify.endpoints import checks
from verify.endpoints.result import (
    Check,
    EndpointComparison,
    EndpointFact,
    SassCheck,
    SpeedCheck,
    State,
    exit_code,
)
from verify.endpoints.spec import Case, EndpointSpec
from verify.endpoints.trial import Trial

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    return None


def compare_endpoints(
    spec: EndpointSpec,
    *,
    cases: str = "",
    speed: int = 0,
    sass: bool = False,
    name: str = "",
    command: Sequence[str] = (),
    progress: Progress = _silent,
) -> EndpointComparison:
    """All checks of all cases, in order; the first endpoint is the base of every pair.

    Args:
        cases: only those whose name holds this text.
        speed: pairs of an ABBA timing a case; 0 for none.
        sass: also compare the machine code of the builds that ran.
        name: how the result calls the spec.

    Raises:
        ArgumentError: no case is selected.
        UsageError: ``sass`` without a disassembler.
    """
    if sass:
        from verify.endpoints.sass import need_disassembler

        need_disassembler()  # before the work, which may take minutes
    start = time.perf_counter()
    done: list[Check] = []
    timed: list[SpeedCheck] = []
    trials: dict[str, list[Trial]] = {each: [] for each in spec.endpoints}
    for case in spec.select(cases):
        progress(case.name)
        ran, found = _run_case(spec, case)
        done += found
        for each, trial in ran.items():
            trials[each].append(trial)
        if speed:
            from verify.endpoints.speed import time_case

            timed += time_case(spec, case, ran, speed)
    code: list[SassCheck] = []
    if sass:
        from verify.endpoints.sass import compare_code

        code = compare_code(spec, trials)
    return _conclude(spec, name, done, timed, code, list(command), time.perf_counter() - start)


def _run_case(spec: EndpointSpec, case: Case) -> tuple[dict[str, Trial], list[Check]]:
    """The trials that ran, by endpoint, and the checks on them."""
    found: list[Check] = []
    ran: dict[str, Trial] = {}
    exact = checks.reference_of(spec, case)
    for name, endpoint in spec.endpoints.items():
        trial = Trial(endpoint, case.make)
        run = checks.check_run(case, name, trial)
        found.append(run)
        if run.state is not State.PASSED:
            continue
        ran[name] = trial
        if exact is not None:
            found.append(checks.check_reference(case, name, trial, exact))
        if endpoint.certificate is not None:
            found.append(checks.check_certificate(case, name, trial))
        found += [
            checks.check_relation(spec, case, name, trial, relation)
            for relation in spec.relations
            if not relation.endpoints or name in relation.endpoints
        ]
    base = next(iter(spec.endpoints))
    for name in list(spec.endpoints)[1:]:
        found.append(checks.check_pair(spec, case, (base, name), ran, found))
    return ran, found


def _conclude(
    spec: EndpointSpec,
    name: str,
    done: list[Check],
    timed: list[SpeedCheck],
    code: list[SassCheck],
    command: list[str],
    seconds: float,
) -> EndpointComparison:
    result = EndpointComparison(
        spec=name,
        summary="",
        exit_code=exit_code(each.state for each in (*done, *timed, *code)),
        device=_device(),
        endpoints=[
            EndpointFact(
                name=each,
                route=endpoint.route,
                build_id="" if endpoint.build is None else endpoint.build.build_id,
                certificate=endpoint.certificate is not None,
            )
            for each, endpoint in spec.endpoints.items()
        ],
        cases=list(dict.fromkeys(check.case for check in done)),
        checks=done,
        speed=timed,
        sass=code,
        command=command or env.command_line(),
        environment=env.collect(),
        seconds=seconds,
    )
    result.summary = _summary(result)
    return result


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def _summary(result: EndpointComparison) -> str:
    """One sentence: how many checks ended how, the worst first."""
    everything = list(result.everything())
    counted = [(s, sum(each.state is s for each in everything)) for s in reversed(State)]
    said = ", ".join(f"{number} {state}" for state, number in counted if number)
    many = f"{len(everything)} check{'s' * (len(everything) != 1)}"
    cases = f"{len(result.cases)} case{'s' * (len(result.cases) != 1)}"
    return f"{many} of {cases} and {len(result.endpoints)} endpoints: {said}"
