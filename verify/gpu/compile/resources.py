"""Registers, shared memory and spills of each entry point, and whether they fit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verify.gpu.compile.limits import arch_limits
from verify.gpu.errors import CompileError, ResourceLimitError

# ptxas -v prints one block a function: "Compiling entry function 'k' for 'sm_70'", then
# "N bytes stack frame, N bytes spill stores, N bytes spill loads", then "Used N registers, ...".
_ENTRY = re.compile(r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>\w+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one entry point uses. Bytes, except ``registers`` (per thread) and ``threads``."""

    entry: str
    threads: int
    registers: int
    static_shared: int
    dynamic_shared: int
    stack_frame: int
    spill_stores: int
    spill_loads: int

    @property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What the source states about the launch of an entry point."""

    threads: int
    dynamic_shared: int


def parse_report(log: str, launches: dict[str, LaunchFacts]) -> tuple[Resources, ...]:
    """Resources of every entry point in a ``ptxas -v`` log, in the order of ``launches``."""
    blocks = {}
    matches = list(_ENTRY.finditer(log))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        blocks[match["name"]] = log[match.end() : following.start() if following else None]
    missing = [name for name in launches if name not in blocks]
    if missing:
        raise CompileError(
            "the assembler reported nothing on a kernel", found=", ".join(missing), where=log
        )
    return tuple(_parse_block(name, blocks[name], facts) for name, facts in launches.items())


def _parse_block(name: str, text: str, facts: LaunchFacts) -> Resources:
    spill, registers = _SPILL.search(text), _REGISTERS.search(text)
    if spill is None or registers is None:
        raise CompileError("the assembler's report cannot be read", where=name, found=text)
    shared = _SHARED.search(text)
    stack, stores, loads = (int(group) for group in spill.groups())
    return Resources(
        entry=name,
        threads=facts.threads,
        registers=int(registers[1]),
        static_shared=int(shared[1]) if shared else 0,
        dynamic_shared=facts.dynamic_shared,
        stack_frame=stack,
        spill_stores=stores,
        spill_loads=loads,
    )


def check_limits(resources: Resources, arch: str) -> None:
    """Raise ResourceLimitError when a block of ``resources`` cannot run on ``arch``."""
    limits = arch_limits(arch)
    for what, found, allowed in (
        ("shared memory, bytes a block", resources.shared, limits.shared_bytes),
        ("registers a thread", resources.registers, limits.thread_registers),
        (
            "registers a block",
            -(-resources.registers // 8) * 8 * resources.threads,  # allocated in eights
            limits.block_registers,
        ),
    ):
        if found > allowed:
            raise ResourceLimitError(
                f"a kernel does not fit: {what}",
                where=f"{resources.entry} on {arch}",
                found=found,
                allowed=f"at most {allowed}",
            )
