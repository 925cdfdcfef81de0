"""A split recorded again with everything, and bisected."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import msgspec

from verify.bisect.run import bisect
from verify.dumps.format import open_dump
from verify.errors import VerifyError
from verify.replay.checker import checker
from verify.replay.load import load_models
from verify.replay.run import replay
from verify.suite.config import Prompt, Suite
from verify.suite.result import Pair
from verify.suite.streams import run_capture


def explain(suite: Suite, prompt: Prompt, pair: Pair, folder: Path, out: Path) -> Pair:
    """The pair with the verdict of a bisect with replay up to its first differing token."""
    if suite.a.command or suite.b.command:
        return msgspec.structs.replace(pair, note="recorded by an own program: bisect it yourself")
    tokens = str((pair.first or 0) + 1)
    text = out / "runs" / f"{prompt.name}.txt"
    runs: dict[Literal["a", "b"], Path] = {
        side: out / "splits" / f"{prompt.name}-{side}" for side in ("a", "b")
    }
    for side, run in runs.items():
        shutil.rmtree(run, ignore_errors=True)
        run.parent.mkdir(parents=True, exist_ok=True)
        tape = ("--tape", str(runs["a"].absolute())) if side == "b" else ()
        trouble = run_capture(suite, side, text, run, folder, ("--tokens", tokens, *tape))
        if trouble:
            return msgspec.structs.replace(pair, note=f"{side.upper()} again: {trouble}")
    try:
        dumps = open_dump(runs["a"]), open_dump(runs["b"])
        replayed = replay(*dumps, load_models(*dumps, None))
        result = bisect(*dumps, checkers=[checker(replayed, *dumps)])
    except VerifyError as error:
        return msgspec.structs.replace(pair, note=error.what)
    return msgspec.structs.replace(pair, verdict=str(result.verdict), note=result.summary)
