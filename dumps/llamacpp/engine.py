"""`verify capture --engine llama.cpp MODEL.gguf --tape RUN`."""

from __future__ import annotations

from pathlib import Path

from verify.dumps.engine_request import EngineRequest
from verify.dumps.llamacpp.record import FLASH, record_llamacpp
from verify.errors import ArgumentError


def record_engine(request: EngineRequest) -> list[str]:
    """Record the GGUF file on the token ids of an earlier run; what the command prints.

    ``--set flash=off`` (the default), ``on`` or ``auto``: flash attention.

    Raises:
        ArgumentError: no ``--tape``, no such file, or another setting than ``flash``.
        ModelError, DumpError: as :func:`record_llamacpp`.
    """
    model, tape = Path(request.model), request.given.get("tape")
    if not model.is_file():
        raise ArgumentError("no such GGUF file", where="MODEL", found=model)
    if tape is None:
        raise ArgumentError(
            "llama.cpp is recorded on the tokens of an earlier run",
            where="--tape",
            found="none",
            allowed="a run",
            hint="record one first: verify capture -m MODEL.gguf -p PROMPT --out RUN",
        )
    unknown = sorted(set(request.settings) - {"flash"})
    flash = request.settings.get("flash", "off")
    if unknown or flash not in FLASH:
        raise ArgumentError(
            "no such setting of llama.cpp",
            where="--set",
            found=", ".join(unknown) or flash,
            allowed=f"flash={' or '.join(FLASH)}",
        )
    count = record_llamacpp(
        model,
        Path(tape),
        request.out,
        threads=request.given.get("threads") or 1,
        flash=flash,
    )
    return [f"{count} records  ->  {request.out}"]
