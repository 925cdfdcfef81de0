"""Small dumps for the tests of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.schema import Input, Manifest, Model, Record, Rows, Sequence, Workload
from verify.formats import word_dtype


def make_manifest(run_id: str = "run-1", **fields: Any) -> Manifest:
    workload = Workload(sequences=[Sequence(id="sky#0", prompt=[5, 3, 9])])
    return Manifest(run_id=run_id, workload=workload, model=Model(name="toy"), **fields)


def make_rows(words: np.ndarray, dtype: str, first: int = 0, sequence: Any = "sky#0") -> Rows:
    n = len(words)
    return Rows(
        sequence=np.array([sequence] * n, object),
        position=np.arange(first, first + n),
        visit=np.zeros(n, np.int64),
        digest=row_digests(words, dtype),
    )


def make_record(seq: int, words: np.ndarray, dtype: str = "float32", **fields: Any) -> Record:
    """A record of the row matrix ``words`` [rows, row_length], axes ``t d``."""
    known = {
        "seq": seq,
        "step": 0,
        "tap": f"layer.{seq}.out",
        "axes": "t d",
        "dtype": dtype,
        "shape": list(words.shape),
        "strides": [words.shape[1], 1],
        "row_length": words.shape[1],
    }
    return Record(**{**known, **fields})


def random_words(rows: int, length: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    kind = word_dtype(dtype)
    top = np.iinfo(kind).max
    return np.random.default_rng(seed).integers(0, top, (rows, length), dtype=kind, endpoint=True)


def write_dump(path: Path, run_id: str = "run-1", steps: int = 3, close: bool = True) -> Path:
    """Three steps by default, one part each: ids in, two layers, the second also as ``same``."""
    writer = DumpWriter(path, make_manifest(run_id))
    seq = 0
    salt = sum(run_id.encode())
    for step in range(steps):
        first = 0 if step == 0 else 2 + step
        rows = 3 if step == 0 else 1
        for tap, dtype, length in (("tokens.in", "int64", 1), ("a.out", "float32", 8)):
            words = random_words(rows, length, dtype, seed=seq + salt)
            record = make_record(seq, words, dtype, step=step, tap=tap)
            if tap == "a.out":
                record.inputs = [Input(kind="record", seq=seq - 1), Input(kind="weight", name="w")]
                record.ops = ["embedding"]
                record.attributes = {"scale": 0.125}
            writer.add(record, make_rows(words, dtype, first), words)
            seq += 1
        same = make_record(seq, words, step=step, tap="b.in.0", kept="same", same_as=seq - 1)
        writer.add(same, None, None)
        seq += 1
        writer.flush()
    if close:
        writer.close(token_text={"5": "Why", "3": " is", "9": " the"})
    return path
