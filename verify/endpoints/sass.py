"""Compare the machine code of two builds as streams of instructions without addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from verify.endpoints.result import FunctionCode, SassCheck, State
from verify.endpoints.spec import EndpointSpec
from verify.endpoints.trial import Trial
from verify.errors import UsageError
from verify.gpu.compile import cache
from verify.gpu.compile.sass import disassemble, find_nvdisasm

_FUNCTION = re.compile(r"^\s*\.text\.(\w+):")
_SECTION = re.compile(r"^\s*\.section\s")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
# nvdisasm prints /*0e20*/  @!P0 HMMA.884.F32.F32.STEP0 R8, R4, R2, R8 ;  and after it comments.
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_TARGET = re.compile(r"`?\(?(\.L_\w+)\)?")
_COMMENT = re.compile(r"/\*.*?\*/")
_REGISTER = re.compile(r"\b(U?R|U?P|B|SB)(\d+)\b")
_GUARD = re.compile(r"^@!?U?P\w+\s+")
_OPCODES_SHOWN = 12


def need_disassembler() -> str:
    """The disassembler at hand. Raises UsageError that says what to install."""
    tool = find_nvdisasm()
    if tool is None:
        raise UsageError(
            "machine code cannot be compared: there is no disassembler",
            where="--sass",
            hint="pip install nvidia-cuda-nvdisasm (or triton, for sm_70), "
            "or set VERIFY_NVDISASM to the one of a CUDA toolkit",
        )
    return tool


def compare_code(spec: EndpointSpec, trials: Mapping[str, Sequence[Trial]]) -> list[SassCheck]:
    """Compare what the base and every other endpoint ran: the builds that they name, else those of
    their routes.

    Other instructions are no fault by themselves: a difference is NOTED, and so is an endpoint
    that runs no build (torch's own). Where no pair has builds the checks are NOT_RUN.
    """
    base, *others = spec.endpoints
    checks = [_compare_builds(spec, base, name, trials) for name in others]
    if all(check.state is State.NOTED and not check.functions for check in checks):
        for check in checks:
            check.state = State.NOT_RUN
    return checks


def _compare_builds(
    spec: EndpointSpec, a: str, b: str, trials: Mapping[str, Sequence[Trial]]
) -> SassCheck:
    check = SassCheck(a=a, b=b, state=State.NOTED)
    builds = [_build_of(spec, name, trials[name]) for name in (a, b)]
    if missing := [n for n, build in zip((a, b), builds, strict=True) if build is None]:
        check.reason = f"{' and '.join(missing)} ran no build of machine code"
        return check
    (check.build_a, cubin_a), (check.build_b, cubin_b) = (build for build in builds if build)
    texts = [disassemble(cubin, need_disassembler()) for cubin in (cubin_a, cubin_b)]
    if texts[0] is None or texts[1] is None:
        check.state = State.NOT_RUN
        check.reason = "the disassembler does not read this architecture: set VERIFY_NVDISASM"
        return check
    compare_listings(check, texts[0], texts[1])
    return check


def _build_of(spec: EndpointSpec, name: str, trials: Sequence[Trial]) -> tuple[str, bytes] | None:
    """Id and machine code."""
    named = spec.endpoints[name].build
    if named is not None:
        return named.build_id, named.cubin
    for trial in trials:
        for route in trial.routes:
            stored = cache.load(route.build_id) if route.build_id else None
            if stored is not None:
                return route.build_id, stored[0]
    return None


def compare_listings(check: SassCheck, a: str, b: str) -> None:
    """Fill ``check`` from two listings of nvdisasm."""
    streams_a, streams_b = read_streams(a), read_streams(b)
    pairs = _matched(streams_a, streams_b)
    check.functions = [_compare(name, streams_a[x], streams_b[y]) for name, x, y in pairs]
    alone = [n for n in streams_a if n not in [x for _, x, _ in pairs]]
    alone += [n for n in streams_b if n not in [y for _, _, y in pairs]]
    other = [f.name for f in check.functions if not f.same]
    check.state = State.NOTED if other or alone else State.PASSED
    if alone:
        check.reason = f"only in one of the builds: {', '.join(alone)}"
    elif all(f.same_but_registers for f in check.functions):
        check.reason = f"equal but for the numbers of registers: {', '.join(other)}" * bool(other)
    else:
        check.reason = f"other instructions in {', '.join(other)}"


def _matched(a: Mapping[str, object], b: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Functions of one name; or the only function of either, whatever they are called."""
    if len(a) == len(b) == 1 and a.keys() != b.keys():
        (x,), (y,) = a, b
        return [(f"{x} | {y}", x, y)]
    return [(name, name, name) for name in a if name in b]


def read_streams(listing: str) -> dict[str, list[str]]:
    """Instructions of every function: no addresses, no comments, no padding; labels that a branch
    names, numbered from 0."""
    streams: dict[str, list[str]] = {}
    current: list[str] | None = None
    for text in listing.splitlines():
        if header := _FUNCTION.match(text):
            current = streams.setdefault(header[1], [])
        elif _SECTION.match(text):
            current = None
        elif current is not None and (label := _LABEL.match(text)):
            current.append(f"{label[1]}:")
        elif current is not None and (found := _INSTRUCTION.match(text)):
            current.append(" ".join(_COMMENT.sub(" ", found[1]).split()))
    return {name: _normalised(stream) for name, stream in streams.items() if stream}


def _normalised(stream: list[str]) -> list[str]:
    """Without labels that nothing names (line tables have their own) and without the NOPs that
    fill the last cache line."""
    code = [text for text in stream if not text.endswith(":")]
    named = {label for text in code for label in _TARGET.findall(text)}
    numbers: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        return numbers.setdefault(found[1], f"L{len(numbers)}")

    kept = [t for t in stream if not t.endswith(":") or t[:-1] in named]
    while kept and kept[-1] == "NOP":
        kept.pop()
    return [_TARGET.sub(rename, text) for text in kept]


def without_registers(stream: Sequence[str]) -> list[str]:
    """The stream with registers, predicates and barriers numbered by first use."""
    seen: dict[str, dict[str, str]] = {}

    def rename(found: re.Match[str]) -> str:
        kind = seen.setdefault(found[1], {})
        return found[1] + kind.setdefault(found[2], str(len(kind)))

    return [_REGISTER.sub(rename, text) for text in stream]


def _compare(name: str, a: list[str], b: list[str]) -> FunctionCode:
    same = a == b
    plain_a, plain_b = without_registers(a), without_registers(b)
    first = None if same else _first_difference(a, b)
    counts = _opcodes(b)
    counts.subtract(_opcodes(a))
    ranked = sorted(((n, o) for o, n in counts.items() if n), key=lambda p: (-abs(p[0]), p[1]))
    return FunctionCode(
        name=name,
        instructions_a=_length(a),
        instructions_b=_length(b),
        same=same,
        same_but_registers=plain_a == plain_b,
        first=first,
        line_a=a[first] if first is not None and first < len(a) else "",
        line_b=b[first] if first is not None and first < len(b) else "",
        opcodes={opcode: number for number, opcode in ranked[:_OPCODES_SHOWN]},
    )


def _first_difference(a: list[str], b: list[str]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _length(stream: Sequence[str]) -> int:
    return sum(not text.endswith(":") for text in stream)


def _opcodes(stream: Sequence[str]) -> Counter[str]:
    code = (_GUARD.sub("", text) for text in stream if not text.endswith(":"))
    return Counter(text.split(" ", 1)[0] for text in code)
