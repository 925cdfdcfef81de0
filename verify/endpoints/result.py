"""What an endpoint comparison finds: plain data, rendered elsewhere (docs/endpoints.schema.json)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from verify.compare.result import RelativeHistogram, UlpHistogram

SCHEMA = "verify-endpoints/1"


class State(StrEnum):
    """How one check ended, from harmless to worst.

    PASSED: equal bits, or inside what was declared.
    NOTED: a fact that is no verdict: a time, other machine code.
    EXPLAINED: other bits, and the certificate of either side covers every row and is EXPLAINED.
    NOT_RUN: it could not be carried out here, so nothing is known; never a pass.
    DIFFERENT: other bits than declared, and nothing explains them.
    FAILED: an endpoint raised, gave no tensor or ran on another route; an error or a certificate
    is beyond its limit.
    """

    PASSED = "passed"
    NOTED = "noted"
    EXPLAINED = "explained"
    NOT_RUN = "not run"
    DIFFERENT = "different"
    FAILED = "failed"


class OutputFact(msgspec.Struct, kw_only=True, frozen=True):
    """One output tensor: name ("" where an endpoint gives a single tensor), type and oddities."""

    name: str
    dtype: str
    shape: list[int]
    nan: int = 0
    inf: int = 0


class TensorDifference(msgspec.Struct, kw_only=True):
    """Two output tensors of one name, bit by bit."""

    name: str
    dtype: str
    shape: list[int]
    axes: str
    rows: int
    differing_rows: int
    elements: int
    differing_elements: int
    max_abs: float
    """Largest finite |b - a|."""
    relative_l2: float
    """||b - a|| / ||a|| over finite pairs; inf where a is all zero and b is not."""
    ulp_median: float
    ulp_p99: float
    ulp_max: int
    nonfinite_mismatches: int
    """Elements that are NaN or infinite on one side only, or different infinities."""
    signed_zero_only: int
    nan_payload_only: int
    first: list[int] | None
    """Index of the first differing element, in the order of ``shape``."""
    support: str
    """Rows, heads and channels that differ, in words; empty where nothing does."""
    ulps: UlpHistogram
    relative: RelativeHistogram

    @property
    def equal(self) -> bool:
        return self.differing_elements == 0


class ErrorHistogram(msgspec.Struct, kw_only=True):
    """Errors against FP64 in ULPs of the output format at the exact value: ``counts[i]`` elements
    in [2^edges[i], 2^edges[i + 1]); the end bins take what lies outside. ``exact`` counts errors of
    0, ``nonfinite`` elements without an error."""

    edges: list[float]
    counts: list[int]
    exact: int
    nonfinite: int


class ReferenceError(msgspec.Struct, kw_only=True):
    """One output tensor against the float64 reference."""

    name: str
    relative_l2: float
    """||out - exact|| / ||exact|| over elements where both are finite."""
    floor: float
    """||round(exact) - exact|| / ||exact||: what no kernel with this output format avoids."""
    over_floor: float
    max_abs: float
    max_ulp: float
    """Largest |out - exact| in ULPs of the output format at the exact value."""
    nonfinite_mismatches: int
    """Elements that are NaN or infinite where the rounded reference is not, or the reverse."""
    errors: ErrorHistogram


class RunCheck(msgspec.Struct, kw_only=True, tag="run", tag_field="check"):
    """One endpoint on one case."""

    case: str
    endpoint: str
    state: State
    reason: str = ""
    routes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """Every call that the kernels of this project answered, as recorded."""
    outputs: list[OutputFact] = msgspec.field(default_factory=list)
    seconds: float = 0.0


class PairCheck(msgspec.Struct, kw_only=True, tag="pair", tag_field="check"):
    """The outputs of the base endpoint and of another one."""

    case: str
    a: str
    b: str
    state: State
    reason: str = ""
    tensors: list[TensorDifference] = msgspec.field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"{self.a} | {self.b}"


class RelationCheck(msgspec.Struct, kw_only=True, tag="relation", tag_field="check"):
    """One endpoint against itself, under a change that must keep its output."""

    case: str
    endpoint: str
    relation: str
    declared: str
    """``"bitwise"``, or the bound on the relative L2 difference with its reason."""
    state: State
    reason: str = ""
    trials: int = 0
    tensors: list[TensorDifference] = msgspec.field(default_factory=list)
    """Of the first trial that broke it, else of the one that differs most."""


class ReferenceCheck(msgspec.Struct, kw_only=True, tag="reference", tag_field="check"):
    """One endpoint against the float64 reference."""

    case: str
    endpoint: str
    state: State
    reason: str = ""
    limit: float | None = None
    """Largest admitted error over the floor, where the endpoint declares one."""
    why: str = ""
    tensors: list[ReferenceError] = msgspec.field(default_factory=list)


class CertificateCheck(msgspec.Struct, kw_only=True, tag="certificate", tag_field="check"):
    """The certificate of one output: does the declared rounding explain it?"""

    case: str
    endpoint: str
    state: State
    reason: str = ""
    outcome: str = ""
    op: str = ""
    arithmetic: str = ""
    rows_judged: int | None = None
    """None: every row."""
    rows: int | None = None
    reasons: list[str] = msgspec.field(default_factory=list)
    numbers: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def explains_every_row(self) -> bool:
        whole = self.rows_judged is None or self.rows_judged == self.rows
        return self.outcome == "EXPLAINED" and whole


Check = RunCheck | PairCheck | RelationCheck | ReferenceCheck | CertificateCheck


class SpeedCheck(msgspec.Struct, kw_only=True):
    """Paired ABBA timing of two endpoints on one case; ratio = time of b / time of a."""

    case: str
    a: str
    b: str
    state: State
    reason: str = ""
    clock: str = ""
    """``"CUDA events"``, or ``"perf_counter, CPU"``."""
    pairs: int = 0
    a_ms: float = 0.0
    b_ms: float = 0.0
    ratio: float = 0.0
    low: float = 0.0
    """95 % bootstrap interval of the median ratio."""
    high: float = 0.0
    input_sets: int = 0
    input_bytes: int = 0
    """Of one set; the sets together are what the calls rotate over."""
    cache_bytes: int = 0
    ratios: list[float] = msgspec.field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"{self.a} | {self.b}"


class FunctionCode(msgspec.Struct, kw_only=True):
    """One function in two builds: instruction streams without addresses."""

    name: str
    instructions_a: int
    instructions_b: int
    same: bool
    same_but_registers: bool
    first: int | None = None
    """Number of the first instruction that differs."""
    line_a: str = ""
    line_b: str = ""
    opcodes: dict[str, int] = msgspec.field(default_factory=dict)
    """Opcode -> how many more of it B has."""


class SassCheck(msgspec.Struct, kw_only=True):
    """The machine code of the builds that two endpoints ran."""

    a: str
    b: str
    state: State
    reason: str = ""
    build_a: str = ""
    build_b: str = ""
    functions: list[FunctionCode] = msgspec.field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"{self.a} | {self.b}"


class EndpointFact(msgspec.Struct, kw_only=True, frozen=True):
    """What the spec says of one endpoint."""

    name: str
    route: str | None = None
    build_id: str = ""
    certificate: bool = False


class EndpointComparison(msgspec.Struct, kw_only=True):
    """The result of ``verify endpoints SPEC``."""

    schema: str = SCHEMA
    spec: str
    summary: str
    exit_code: int
    device: str
    endpoints: list[EndpointFact]
    cases: list[str]
    checks: list[Check]
    speed: list[SpeedCheck] = msgspec.field(default_factory=list)
    sass: list[SassCheck] = msgspec.field(default_factory=list)
    command: list[str] = msgspec.field(default_factory=list)
    environment: dict[str, Any] = msgspec.field(default_factory=dict)
    seconds: float = 0.0

    def of(self, *states: State) -> list[Check | SpeedCheck | SassCheck]:
        """Checks of any kind that ended in one of ``states``."""
        return [each for each in self.everything() if each.state in states]

    def everything(self) -> Iterator[Check | SpeedCheck | SassCheck]:
        yield from self.checks
        yield from self.speed
        yield from self.sass


def exit_code(states: Iterable[State]) -> int:
    """docs/exit-codes.md: 1 for what differs or failed, 3 for what could not be run, else 0."""
    found = set(states)
    if found & {State.DIFFERENT, State.FAILED}:
        return 1
    return 3 if State.NOT_RUN in found or not found else 0
