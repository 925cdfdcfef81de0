"""Differences that nobody planted, on SmolLM2 through the command line: what is made of them?

    .venv/bin/python benchmarks/natural_cases.py [FOLDER]

Each pair is captured with `verify capture`, B with the tokens of A, and judged by `verify bisect` without
and with `--replay`. Two of the effects belong to the code path of MKL for SSE4.2, which is not the default
of every processor; those pairs run with MKL_ENABLE_INSTRUCTIONS=SSE4_2 on both sides. Dumps stay in FOLDER
(default: a temporary one) and are used again. Some five minutes on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROMPT = "Why is the sky blue?"
TOKENS = 8
VERIFY = Path(sys.executable).with_name("verify")
SSE = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
OFFSET = 8  # bytes modulo 64 at which the moved weights lie; safetensors files lead to such places


@dataclass(frozen=True)
class Run:
    """A capture: options of the command line, or weights moved in memory."""

    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    moved: int = 0


PAIRS = {
    "sdpa / eager, bf16": (
        Run(("--dtype", "bf16")),
        Run(("--dtype", "bf16", "--attn", "eager")),
    ),
    "prompt in chunks of 13, bf16": (
        Run(("--dtype", "bf16")),
        Run(("--dtype", "bf16", "--prefill-chunk", "13")),
    ),
    "alone / in a batch of 4, bf16": (
        Run(("--dtype", "bf16")),
        Run(("--dtype", "bf16", "--batch", "4")),
    ),
    "threads 1 / 2, fp32": (
        Run(("--threads", "1"), SSE),
        Run(("--threads", "2"), SSE),
    ),
    "weights at 64 n / 64 n + 8 bytes, fp32": (
        Run(("--threads", "1"), SSE),
        Run(("--threads", "1"), SSE, OFFSET),
    ),
    "weights moved away and back, fp32": (
        Run(("--threads", "1"), SSE),
        Run(("--threads", "1"), SSE, 64),
    ),
    "8-bit cache (E4M3), fp32": (
        Run(("--threads", "1")),
        Run(("--threads", "1", "--kv-cache", "e4m3")),
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, (run_a, run_b) in PAIRS.items():
            a = captured(folder, run_a, None)
            b = captured(folder, run_b, a)
            environment = run_a.environment
            print(f"\n## {name}")
            for options in ((), ("--replay",)):
                result = bisect(a, b, options, environment)
                print(f"\n{' '.join(['bisect', *options])}: ", end="")
                print(*lines(result), sep="\n  ")
                if result["verdict"] == "IDENTICAL":
                    break


def captured(folder: Path, run: Run, tape: Path | None) -> Path:
    """The dump of a run, made if it is not there."""
    words = [*run.options, *run.environment.values(), str(run.moved), "taped" if tape else ""]
    path = folder / ("-".join(word.strip("-") for word in words if word) or "plain")
    if path.exists():
        return path
    if run.moved:
        assert tape is not None
        words = [sys.executable, __file__, "--moved", str(run.moved), str(tape), str(path)]
    else:
        words = [str(VERIFY), "capture", "-p", PROMPT, "--tokens", str(TOKENS), *run.options]
        words += ["--tape", str(tape)] if tape else []
        words += ["--out", str(path)]
    subprocess.run(words, env=environment_of(run.environment), check=True, capture_output=True)
    return path


def capture_moved(alignment: int, tape: Path, path: Path) -> None:
    """As `verify capture --threads 1 --tape`, with weights moved to other addresses first."""
    from verify.dumps.hf.load import own_aligned_memory
    from verify.dumps.hf.record import Request, record_generation

    def move(model: Any) -> None:
        own_aligned_memory(model, OFFSET)
        own_aligned_memory(model, alignment)

    request = Request(model="smollm2", prompts=(PROMPT,), tokens=TOKENS, threads=1, tape=tape)
    record_generation(request, path, plant=move)


def bisect(a: Path, b: Path, options: tuple[str, ...], environment: dict[str, str]) -> Any:
    words = [str(VERIFY), "bisect", str(a), str(b), *options, "--json"]
    done = subprocess.run(words, env=environment_of(environment), check=False, capture_output=True)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr.decode())
    return json.loads(done.stdout)


def environment_of(changes: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE", **changes}


def lines(result: Any) -> Iterator[str]:
    """What the report says, shortened."""
    yield f"{result['verdict']}, exit {result['exit_code']}. {result['summary']}"
    flips = result["flips"]
    if flips and flips["sigma"]:
        yield (
            f"tokens: {flips['observed']} flips of {flips['positions']}, {flips['expected']:.2f} "
            f"expected, sigma {flips['sigma']:.3g}, {flips['ties']} exact ties in A"
        )
    if token := result["first_token"]:
        yield (
            f"first flip: token {token['index']}, {token['closeness']}, margins "
            f"{token['margin_a']:.4g} ({token['margin_a_steps']:.3g} steps) and "
            f"{token['margin_b']:.4g} ({token['margin_b_steps']:.3g} steps)"
        )
    for finding in result["findings"]:
        numbers = {key: value for key, value in finding["numbers"].items() if key in _NUMBERS}
        yield f"{finding['verdict']}: {finding['title']} {numbers or ''}"
        yield from (f"  {text}" for text in finding["reasons"] if text.startswith("known cause"))
        sizes = finding["sizes"]
        if len(sizes) > 1:
            least, most = (each(sizes, key=sizes.get) for each in (min, max))
            yield f"  sizes {sizes[least]:.3g} ({least}) to {sizes[most]:.3g} ({most})"


_NUMBERS = ("rows", "differing elements", "max abs", "max ULP", "bound used", "taps")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--moved"]:
        capture_moved(int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
