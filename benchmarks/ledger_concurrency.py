"""Do 8 processes that append 1000 entries each lose one?  python benchmarks/ledger_concurrency.py"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from verify.ledger.check import check
from verify.ledger.store import Ledger

PROCESSES, ENTRIES = 8, 1000


def append_many(folder: str) -> None:
    for number in range(ENTRIES):
        Ledger(Path(folder)).append("note", {"number": number})


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with multiprocessing.Pool(PROCESSES) as pool:
            pool.map(append_many, [folder] * PROCESSES)
        seconds = time.perf_counter() - start
        found = check(Ledger(Path(folder)))
    expected = PROCESSES * ENTRIES
    print(f"{found.entries} of {expected} entries in {seconds:.1f} s, problems: {found.problems}")
    return 0 if found.whole and found.entries == expected else 1


if __name__ == "__main__":
    sys.exit(main())
