"""What two passes cost on disk against one full capture, and whether they name the same origin.

    python benchmarks/recapture_size.py --prompt-tokens 400 --tokens 16

SmolLM2-135M twice, configured differently: recorded lean (digests of all module inputs and outputs),
recaptured around the first split, and recorded in full. Prints bytes of both sides together, and the
first proven origin of the window and of the full capture. Needs some 1.5 GB of disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verify.bisect.result import BisectResult
from verify.bisect.run import bisect
from verify.dumps.format import open_dump
from verify.recapture.run import Plan, recapture

VERIFY = (sys.executable, "-c", "from verify.cli import main; main()")
PAIRS = {
    "sdpa / eager": ("--attn sdpa", "--attn eager"),
    "native / e4m3 cache": ("--kv-cache native", "--kv-cache e4m3"),
    "whole / chunks of 64": ("", "--prefill-chunk 64"),
}
TEXT = "The sky is blue because air scatters short waves of light more than long ones. "


def capture(out: Path, arguments: list[str]) -> float:
    """Seconds of one capture."""
    began = time.perf_counter()
    subprocess.run([*VERIFY, "capture", *arguments, "--out", str(out)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    return time.perf_counter() - began


def origin(result: BisectResult) -> str:
    proven = [o for o in result.origins if o.proven]
    first = (proven or result.origins)[0]
    return f"{first.tap} step {first.step_a}{'' if first.proven else ' (first observed)'}"


def measure(name: str, settings: tuple[str, str], common: list[str], folder: Path) -> None:
    def record(kind: str, options: list[str]) -> list[Path]:
        paths = [folder / f"{kind}-{side}" for side in "ab"]
        for path, own in zip(paths, settings, strict=True):
            capture(path, [*common, *own.split(), *options])
        return paths

    lean = record("lean", ["--edges", "none", "--level", "hash"])
    began = time.perf_counter()
    found = recapture(*map(open_dump, lean), folder / "window", Plan())
    seconds = time.perf_counter() - began
    full = record("full", [])
    whole = bisect(*map(open_dump, full))
    size = {
        "digests": sum(open_dump(path).total_bytes for path in lean),
        "window": sum(again.bytes for again in found.again),
        "full": sum(open_dump(path).total_bytes for path in full),
    }
    both = size["digests"] + size["window"]
    shown = "  ".join(f"{kind} {value / 1e6:.2f} MB" for kind, value in size.items())
    print(f"{name}: {shown}  both passes 1/{size['full'] / both:.0f} of full, "
          f"recapture {seconds:.0f} s")  # fmt: skip
    print(
        f"  split {found.splits[0].tap} step {found.splits[0].step_a}, rows held against the first "
        f"pass {sum(a.rows for a in found.again)}, repeats {all(a.repeats for a in found.again)}"
    )
    print(f"  window: {found.result.verdict}, {origin(found.result)}")
    print(f"  full:   {whole.verdict}, {origin(whole)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt-tokens", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    prompt = TEXT * max(1, options.prompt_tokens // 16)
    common = ["--prompt", prompt, "--tokens", str(options.tokens), "--threads", "2"]
    for name, settings in PAIRS.items():
        with tempfile.TemporaryDirectory() as folder:
            measure(name, settings, common, Path(folder))


if __name__ == "__main__":
    main()
