"""From the result file of a check to PASS, FAIL or SKIPPED, by kind of gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verify.gates import read_bisect, read_others
from verify.gates.config import Gate
from verify.gates.result import Reading, Result

Reader = Callable[[Any, Path], Reading]

READERS: dict[str, Reader] = {
    "tokens": read_bisect.tokens,
    "bitwise": read_others.bitwise,
    "certificate": read_others.certificate,
    "parity": read_bisect.parity,
    "repeatability": read_others.repeatability,
    "speed": read_others.speed,
    "coverage": read_bisect.coverage,
    "env": read_others.env,
    "tests": read_others.tests,
}
"""Kind -> function of the gate and the path of its report. It raises what :func:`read` catches
where the file is not what the kind reads."""


def read(gate: Gate, folder: Path) -> Reading:
    """What the gate's report says; ERROR where it cannot be read."""
    path = folder / gate.report
    try:
        return READERS[gate.kind](gate, path)
    except OSError as error:
        return Reading(Result.ERROR, f"{gate.report} cannot be read: {error.strerror or error}")
    except (ValueError, SyntaxError) as error:
        return Reading(Result.ERROR, f"{gate.report} is not a result for {gate.kind}: {error}")


def artifacts(gate: Gate, folder: Path) -> list[Path]:
    """Files that a result rests on: the report, and the manifests of dumps that it names."""
    report = folder / gate.report
    if not gate.report or not report.is_file():
        return []
    return [report, *_manifests(report, folder)]


def _manifests(report: Path, folder: Path) -> list[Path]:
    try:
        compared = json.loads(report.read_bytes())["comparison"]
        runs = [folder / compared["a"], folder / compared["b"]]
    except (ValueError, KeyError, TypeError):
        return []
    return [path for run in runs if (path := run / "manifest.json").is_file()]
