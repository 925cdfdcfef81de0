"""Captures that are killed, and dumps that are damaged: nothing false is ever said of them.

    python benchmarks/dump_robustness.py kills --count 200 --seed 0
    python benchmarks/dump_robustness.py damage --count 2000 --seed 0

``kills``: real captures of a small decoder (words in full, sketches, statistics, digests alone) die
of SIGKILL at a random moment. What they leave must open, or be no dump yet, and comparing and
bisecting it with the undisturbed run must find every compared row equal.

``damage``: a dump of each kind is damaged in one random way (benchmarks/dump_corruption.py, and lines
of its tables edited), then compared and bisected with the whole one. Every trial must end in a
DumpError, or in a result without any difference. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dump_corruption
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from verify.bisect.run import bisect
from verify.compare.exit_codes import INCOMPLETE, SAME
from verify.compare.run import compare
from verify.dumps import capture
from verify.dumps.capture import lean
from verify.dumps.format import open_dump
from verify.errors import DumpError

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
WIDTH = 16
KINDS: dict[str, dict[str, Any]] = {
    "full": {"edges": "trace"},
    "digest": {"edges": "none", "level": "digest"},
    "stats": {"edges": "none", "level": "stats"},
    "hash": {"edges": "none", "level": "hash"},
}


class Decoder(nn.Module):
    """Embedding, blocks that add the mean of what was seen before, logits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(6)])
        self.head = nn.Linear(WIDTH, 40)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x)


def record(path: Path, kind: str, steps: int) -> None:
    """Capture ``steps`` steps of one token each; every step becomes a part."""
    lean.FLUSH_SECONDS = -1.0  # type: ignore[misc]
    model = Decoder()
    with capture(model, path, taps=["*.out"], **KINDS[kind]) as run:
        for step in range(steps):
            with run.step([[step], [step]]):
                ids = IDS[:, step % IDS.shape[1], None]
                chosen = model(ids)[:, -1].argmax(-1)
                run.record("tokens.out", chosen[:, None])


def judged(whole: Path, other: Path) -> str:
    """What comparing and bisecting say, in a word; a text that begins with FAULT otherwise."""
    try:
        dumps = open_dump(whole), open_dump(other)
        compared = compare(*dumps)
        if unequal := [tap.tap for tap in compared.taps if not tap.equal]:
            return f"FAULT: {unequal[0]} is said to differ"
        code = bisect(*dumps).exit_code
        if code not in (SAME, INCOMPLETE):
            return f"FAULT: bisect ends with {code}"
    except DumpError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - to find any other exception is the purpose
        return f"FAULT: {type(error).__name__}: {error}"
    return "equal" if code == SAME else "equal, incomplete"


# Children are forked from a server that has loaded torch and never ran a thread.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["torch", "pyarrow.parquet", "verify.dumps.capture", "verify.bisect.run"]
)


def killed(path: Path, kind: str, steps: int, delay: float) -> tuple[bool, int]:
    """Capture in a child that is killed ``delay`` seconds after it began to write, or, with a
    negative delay, at once: whether it was, and its parts."""
    child = _SERVER.Process(target=record, args=(path, kind, steps))
    child.start()
    deadline = time.monotonic() + 60
    while delay >= 0 and not path.exists():
        time.sleep(0.0005)
        if time.monotonic() > deadline or not child.is_alive():
            raise SystemExit("a child did not begin to write")
    time.sleep(max(0.0, delay))
    child.kill()
    child.join()
    was = child.exitcode == -signal.SIGKILL
    return was, sum(1 for part in path.glob("rank-0/part-*") if part.suffix != ".tmp")


def kills(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    """(kind, outcome) of ``count`` killed captures."""
    rng, steps = Random(seed), 20
    wholes: dict[str, Path] = {}
    seconds: dict[str, float] = {}
    done = 0
    while done < count:
        kind = rng.choice([*KINDS])
        if kind not in wholes:
            wholes[kind] = home / kind
            began = time.perf_counter()
            record(wholes[kind], kind, steps)
            seconds[kind] = time.perf_counter() - began
        path = home / "killed"
        # From a little before the first file on to a little before the last.
        delay = (rng.random() - 0.02) * seconds[kind]
        was, parts = killed(path, kind, steps, delay)
        torn = any(path.glob("rank-0/*.tmp"))
        outcome = judged(wholes[kind], path)
        if outcome == "DumpError" and (path / "manifest.json").exists():
            outcome = "FAULT: a dump that was begun is said to be none"
        if outcome == "CorruptDumpError":
            outcome = "FAULT: what a killed capture left is said to be corrupt"
        if outcome.startswith("equal") and parts != open_dump(path).part_count:
            outcome = f"FAULT: {parts} parts lie there, {open_dump(path).part_count} are read"
        done += was
        if was:
            yield kind, outcome + (", in the middle of a part" if torn else "")
        shutil.rmtree(path, ignore_errors=True)


def edit_line(path: Path, _: Path, rng: Random) -> None:
    """A number in a table of rows or records is changed, and the table written anew."""
    part = rng.choice(dump_corruption._parts(path))
    file = part / rng.choice(("rows.parquet", "records.parquet"))
    table = pq.read_table(file)
    if not len(table):
        dump_corruption.flip_bit(path, _, rng)
        return
    columns = [f.name for f in table.schema if pa.types.is_integer(f.type)]
    name = rng.choice(columns)
    values = table.column(name).to_pylist()
    line = rng.randrange(len(values))
    values[line] = (values[line] or 0) + 1
    place = table.schema.get_field_index(name)
    field = table.schema.field(name)
    pq.write_table(table.set_column(place, field, pa.array(values, field.type)), file)


def swap_lines(path: Path, _: Path, rng: Random) -> None:
    """Two lines of a table change places."""
    file = rng.choice(dump_corruption._parts(path)) / "rows.parquet"
    table = pq.read_table(file)
    if len(table) < 2:
        dump_corruption.flip_bit(path, _, rng)
        return
    order = list(range(len(table)))
    one, two = rng.sample(order, 2)
    order[one], order[two] = order[two], order[one]
    pq.write_table(table.take(order), file)


DAMAGES = (*dump_corruption.DAMAGES, edit_line, edit_line, swap_lines)


def damage(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    """(kind and damage, outcome) of ``count`` damaged dumps."""
    rng = Random(seed)
    for kind in KINDS:
        record(home / kind, kind, 5)
        record(home / f"{kind}-other", kind, 5)  # the same text, another run
    for _ in range(count):
        kind = rng.choice([*KINDS])
        how = rng.choice(DAMAGES)
        work = home / "work"
        shutil.copytree(home / kind, work)
        how(work, home / f"{kind}-other", rng)
        yield f"{kind}: {how.__name__}", judged(home / kind, work)
        shutil.rmtree(work)


def run(campaign: Any, count: int, seed: int) -> int:
    """Print a table of the outcomes; the number of faults."""
    began = time.perf_counter()
    outcomes: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as home:
        for number, (what, outcome) in enumerate(campaign(count, seed, Path(home))):
            outcomes[what, outcome[:80]] += 1
            if outcome.startswith("FAULT"):
                print(f"trial {number} of seed {seed}: {what}: {outcome}", flush=True)
    for (what, outcome), times in sorted(outcomes.items()):
        print(f"{what:<24} {outcome:<44} {times:>5}")
    totals: Counter[str] = Counter()
    for (_, outcome), times in outcomes.items():
        totals[outcome.partition(":")[0]] += times
    print("; ".join(f"{outcome}: {times}" for outcome, times in sorted(totals.items())))
    print(f"{count} trials, {totals['FAULT']} faults, {time.perf_counter() - began:.0f} s")
    return totals["FAULT"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaign", choices=("kills", "damage"))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    campaign = {"kills": kills, "damage": damage}[options.campaign]
    torch.set_num_threads(1)
    return 1 if run(campaign, options.count, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
