"""The default criteria of other comparison tools on the pairs of `verify selftest`, side by side.

    python benchmarks/peers_criteria.py [--model toy] [--sample 200] [--innocents 60] --out FOLDER

Each criterion looks at every floating-point tensor that both runs recorded for the same step, in
execution order, as its tool does, and flags a tensor or not. Counted: pairs with a flag, and pairs
whose first flag is at a tap where the fault was planted. Formulas as documented by the tools, written
anew; none of them replays an operation, so a flag says "different", not "defect".
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from verify.dumps.format import Dump, open_dump
from verify.formats import decode, get_format
from verify.selftest.rates import INNOCENT
from verify.selftest.result import Trial
from verify.selftest.run import TRIALS
from verify.selftest.subject import Subject
from verify.selftest.trials import Planned, plan

Values = np.ndarray[Any, Any]
Criterion = Callable[[Values, Values, Values, Values], bool]
"""(A, B, words of A, words of B) -> flagged."""


def sglang_score(a: Values, b: Values, *_: Values) -> bool:
    """SGLang's comparator: 1 - 2 <x, y> / (<x, x> + <y, y>) above 1e-3."""
    size = float((a * a).sum() + (b * b).sum())
    return bool(size > 0 and not 1.0 - 2.0 * float((a * b).sum()) / size <= 1e-3)


def msprobe_statistics(a: Values, b: Values, *_: Values) -> bool:
    """msprobe `compare -da`: max, min, mean or norm changed by more than 50 %."""
    pairs = [(f(a), f(b)) for f in (np.max, np.min, np.mean, np.linalg.norm)]
    return any(not abs(y - x) <= 0.5 * abs(x) for x, y in pairs if x != 0.0)


def msprobe_cosine(a: Values, b: Values, *_: Values) -> bool:
    """msprobe: cosine similarity below 0.99."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return bool(size > 0 and not float((a * b).sum()) / size >= 0.99)


def neuron_l2_ratio(a: Values, b: Values, *_: Values) -> bool:
    """vLLM-Neuron's module test: relative L2 above 3.0 times that of bfloat16 storage, which is
    taken from rounding A (their golden is an FP32 run on the CPU, which these pairs lack)."""
    size = float(np.linalg.norm(a))
    return bool(size > 0 and not float(np.linalg.norm(b - a)) / size <= 3.0 * 2.0**-9)


def flashinfer_allclose(a: Values, b: Values, *_: Values) -> bool:
    """FlashInfer replay: allclose with rtol 1e-3 and atol 1e-3."""
    return not np.allclose(b, a, rtol=1e-3, atol=1e-3)


def polygraphy_elementwise(a: Values, b: Values, *_: Values) -> bool:
    """Polygraphy's default: an element off by more than 1e-5, absolute and relative."""
    apart = np.abs(b - a)
    return bool((~((apart <= 1e-5) | (apart <= 1e-5 * np.abs(a)))).any())


def debugmode_norm(a: Values, b: Values, *_: Values) -> bool:
    """PyTorch DebugMode, hash_fn='norm': the L1 norm in float64 differs."""
    return bool(np.abs(a).sum() != np.abs(b).sum())


def debugmode_xor(a: Values, b: Values, x: Values, y: Values) -> bool:
    """PyTorch DebugMode, hash_fn='hash_tensor': the exclusive or of the words differs."""
    return bool(np.bitwise_xor.reduce(x.reshape(-1)) != np.bitwise_xor.reduce(y.reshape(-1)))


def msprobe_crc(a: Values, b: Values, x: Values, y: Values) -> bool:
    """msprobe's checksum: any bit differs."""
    return not np.array_equal(x, y)


CRITERIA: dict[str, Criterion] = {
    "SGLang score 1e-3": sglang_score,
    "msprobe statistics 50 %": msprobe_statistics,
    "msprobe cosine 0.99": msprobe_cosine,
    "vLLM-Neuron L2 ratio 3": neuron_l2_ratio,
    "FlashInfer allclose 1e-3": flashinfer_allclose,
    "Polygraphy 1e-5": polygraphy_elementwise,
    "DebugMode norm": debugmode_norm,
    "DebugMode XOR": debugmode_xor,
    "msprobe CRC": msprobe_crc,
}


def tensors(dump: Dump) -> dict[tuple[int, str, int], Any]:
    """Records of floating-point tensors by step, tap and occurrence, in execution order."""
    return {
        (r.step, r.tap, r.occurrence): r
        for r in dump.records()
        if dump.holder(r).kept == "full" and get_format(r.dtype).kind == "float"
    }


def first_flags(a: Dump, b: Dump) -> dict[str, str]:
    """Criterion -> first tap that it flags."""
    found: dict[str, str] = {}
    theirs = tensors(b)
    for key, one in tensors(a).items():
        other = theirs.get(key)
        if other is None or other.dtype != one.dtype:
            continue
        x, y = a.read_words(one), b.read_words(other)
        if x.shape != y.shape:
            continue
        p, q = decode(x, one.dtype), decode(y, one.dtype)
        with np.errstate(all="ignore"):
            for name, criterion in CRITERIA.items():
                if name not in found and criterion(p, q, x, y):
                    found[name] = one.tap
    return found


def pairs(subject: Subject, given: argparse.Namespace) -> list[Planned]:
    planned = list(plan(subject, innocents=given.innocents))
    faults = [p for p in planned if p.trial.kind not in (INNOCENT, "K02", "K19", "K23")]
    kept = random.Random(1).sample(faults, min(given.sample, len(faults)))
    return kept + [p for p in planned if p.trial.kind == INNOCENT]


def group(trial: Trial) -> str:
    if trial.kind == INNOCENT:
        return INNOCENT
    return f"{trial.size}, {'above rounding' if trial.on_top else 'alone'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="toy")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--innocents", type=int, default=60)
    parser.add_argument("--ours", type=Path, help="folder of `verify selftest --out`")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    ours: dict[str, Trial] = {}
    if given.ours:
        lines = (given.ours / TRIALS).read_bytes().splitlines()
        ours = {t.key: t for t in (msgspec.json.decode(line, type=Trial) for line in lines)}
    table: dict[str, dict[str, list[int]]] = {}
    with TemporaryDirectory() as folder:
        subject = Subject(given.model, Path(folder))
        for each in pairs(subject, given):
            with subject.recorded(*each.setups, each.planted) as (first, second):
                flags = first_flags(open_dump(first), open_dump(second))
            if not flags:
                continue  # no recorded bit differs: nothing to find
            for name in CRITERIA:
                cell = table.setdefault(name, {}).setdefault(group(each.trial), [0, 0, 0])
                cell[0] += name in flags
                cell[1] += flags.get(name) in each.wanted
                cell[2] += 1
            if trial := ours.get(each.trial.key):
                cell = table.setdefault("verify", {}).setdefault(group(trial), [0, 0, 0])
                cell[0] += trial.false_blame if trial.kind == INNOCENT else trial.found
                cell[1] += trial.right_tap
                cell[2] += 1
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "peers.json").write_text(json.dumps(table, indent=1) + "\n")
    groups = sorted({name for row in table.values() for name in row})
    print("| criterion | " + " | ".join(groups) + " |")
    print("|---" * (len(groups) + 1) + "|")
    for name, row in table.items():
        cells = [row.get(g, [0, 0, 0]) for g in groups]
        texts = [
            f"{f}/{n}" if g == INNOCENT else f"{f}/{n}, place {p}/{n}"
            for g, (f, p, n) in zip(groups, cells, strict=True)
        ]
        print(f"| {name} | " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
