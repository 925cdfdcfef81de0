"""Count machine instructions, where a disassembler is at hand."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

_FUNCTION = re.compile(r"^\s*\.text\.(\w+):")
# A line of nvdisasm: /*0e20*/  @!P0 HMMA.884.F32.F32.STEP0 R8, ... ;
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


def find_nvdisasm() -> str | None:
    """``$VERIFY_NVDISASM``, else one on PATH, else the one inside Triton's package, else that of the
    package nvidia-cuda-nvdisasm.

    nvdisasm from CUDA 13.2 on refuses sm_70; the one that Triton carries (12.8) reads it.
    """
    if override := os.environ.get("VERIFY_NVDISASM"):
        return override
    if found := shutil.which("nvdisasm"):
        return found
    spec = importlib.util.find_spec("triton")
    for base in spec.submodule_search_locations or () if spec else ():
        tool = Path(base) / "backends/nvidia/bin/nvdisasm"
        if tool.is_file():
            return str(tool)
    wheels = Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvdisasm")
    return next((str(tool) for tool in sorted(wheels)), None)


def disassemble(cubin: bytes, tool: str) -> str | None:
    """Text of ``nvdisasm``; None when this tool does not read the architecture."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, file.name], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def count_instructions(listing: str) -> dict[str, Counter[str]]:
    """Opcodes with their modifiers, counted for each function of a disassembly."""
    counts: dict[str, Counter[str]] = {}
    current: Counter[str] | None = None
    for line in listing.splitlines():
        if header := _FUNCTION.match(line):
            current = counts.setdefault(header[1], Counter())
        elif current is not None and (found := _INSTRUCTION.match(line)):
            current[found[1]] += 1
    return counts


def sass_counts(cubin: bytes) -> dict[str, Counter[str]] | None:
    """Instruction counts a function, or None without a disassembler that reads this cubin."""
    tool = find_nvdisasm()
    listing = disassemble(cubin, tool) if tool else None
    return count_instructions(listing) if listing else None
