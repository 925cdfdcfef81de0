"""Random damage to dumps: each is refused as a broken dump, or changes nothing that is read.

    python benchmarks/dump_corruption.py --count 2000 --seed 0

Every trial copies a small dump, damages the copy in one random way, and reads all of it: manifest,
records, rows, words, tokens. Exit code 1 if any trial ended in another exception than a DumpError,
or in a result that differs from the undamaged one.

``--reseal`` damages the contents of one file and then makes all checksums right again, as a faulty
or hostile writer could. A different content is then no fault, but another exception is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter, layout, open_dump
from verify.dumps.format.schema import Input, Manifest, Model, Record, Rows, Sequence, Workload
from verify.errors import DumpError

Damage = Callable[[Path, Path, Random], None]


def write_dump(path: Path, run_id: str, close: bool = True) -> Path:
    """Four steps of three records: ids, floats, and the same floats at another tap."""
    prompt = Sequence(id="poem#0", prompt=[11, 12, 13], generated=[21, 22, 23, 24])
    manifest = Manifest(
        run_id=run_id, workload=Workload(sequences=[prompt]), model=Model(name="toy")
    )
    writer = DumpWriter(path, manifest)
    rng = np.random.default_rng(len(run_id))
    for step in range(4):
        rows = 3 if step == 0 else 1
        ids = rng.integers(0, 99, (rows, 1), dtype=np.uint64)
        floats = rng.integers(0, 1 << 32, (rows, 16), dtype=np.uint32)
        seq = 3 * step
        _add(writer, seq, step, "tokens.out", "int64", ids, [])
        _add(writer, seq + 1, step, "layer.0.out", "float32", floats, [seq])
        same = _record(seq + 2, step, "layer.1.in.0", "float32", floats, [seq + 1])
        same.kept, same.same_as = "same", seq + 1
        writer.add(same, None, None)
        writer.flush()
    if close:
        writer.close(token_text={"11": "Roses"})
    return path


def _record(
    seq: int, step: int, tap: str, dtype: str, words: np.ndarray, inputs: list[int]
) -> Record:
    return Record(
        seq=seq,
        step=step,
        tap=tap,
        axes="t d",
        dtype=dtype,
        shape=list(words.shape),
        strides=[words.shape[1], 1],
        row_length=words.shape[1],
        inputs=[Input(kind="record", seq=source) for source in inputs],
        ops=["mm"],
        attributes={"scale": 0.5},
    )


def _add(
    writer: DumpWriter,
    seq: int,
    step: int,
    tap: str,
    dtype: str,
    words: np.ndarray,
    inputs: list[int],
) -> None:
    n = len(words)
    position = np.arange(n) + (0 if step == 0 else 2 + step)
    ids = np.array(["poem#0"] * n, object)
    rows = Rows(ids, position, np.zeros(n, np.int64), row_digests(words, dtype))
    writer.add(_record(seq, step, tap, dtype, words, inputs), rows, words)


def read_all(path: Path) -> str:
    """Everything that a dump says, as one text."""
    dump = open_dump(path)
    records = dump.records()
    rows = [dump.rows(record) for record in records]
    columns = [(r.sequence.tolist(), r.position.tolist(), r.digest.tolist()) for r in rows]
    words = [dump.read_words(record).tobytes().hex() for record in records]
    blocks = [b"".join(w.tobytes() for _, w in dump.read_blocks(r, 64)).hex() for r in records]
    tracks = {name: (t.prompt, t.generated) for name, t in dump.tokens().items()}
    said = (dump.manifest, records, columns, words, blocks, tracks, dump.complete)
    return msgspec.json.encode(said).decode()


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())


def _parts(path: Path) -> list[Path]:
    return sorted((path / "rank-0").iterdir())


def flip_bit(path: Path, _: Path, rng: Random) -> None:
    file = rng.choice(_files(path))
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(data))


def truncate(path: Path, _: Path, rng: Random) -> None:
    file = rng.choice(_files(path))
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data))])


def extend(path: Path, _: Path, rng: Random) -> None:
    file = rng.choice(_files(path))
    file.write_bytes(file.read_bytes() + rng.randbytes(rng.randrange(1, 64)))


def zero_block(path: Path, _: Path, rng: Random) -> None:
    file = rng.choice(_files(path))
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.randrange(1, 512))
    data[start:stop] = bytes(stop - start)
    file.write_bytes(bytes(data))


def delete_file(path: Path, _: Path, rng: Random) -> None:
    rng.choice(_files(path)).unlink()


def delete_part(path: Path, _: Path, rng: Random) -> None:
    shutil.rmtree(rng.choice(_parts(path)))


def swap_parts(path: Path, _: Path, rng: Random) -> None:
    one, two = rng.sample(_parts(path), 2)
    aside = path / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def swap_files(path: Path, _: Path, rng: Random) -> None:
    """Two files of the same kind change places between parts."""
    name = rng.choice((*layout.CHECKED_FILES, layout.PART))
    one, two = (part / name for part in rng.sample(_parts(path), 2))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def foreign_file(path: Path, other: Path, rng: Random) -> None:
    file = rng.choice(_files(path))
    file.write_bytes((other / file.relative_to(path)).read_bytes())


def foreign_part(path: Path, other: Path, rng: Random) -> None:
    part = rng.choice(_parts(path))
    shutil.rmtree(part)
    shutil.copytree(other / part.relative_to(path), part)


def append_part(path: Path, other: Path, rng: Random) -> None:
    """One part more: a copy of one of its own, or one of another run."""
    source = rng.choice([*_parts(path), *_parts(other)])
    shutil.copytree(source, path / "rank-0" / f"part-{len(_parts(path)):05d}")


def edit_json(path: Path, _: Path, rng: Random) -> None:
    """A digit or a letter of a JSON file is replaced, as an editor would."""
    file = rng.choice([p for p in _files(path) if p.suffix == ".json"])
    text = list(file.read_text())
    places = [i for i, c in enumerate(text) if c.isalnum()]
    at = rng.choice(places)
    text[at] = rng.choice([c for c in "0123456789abcdef" if c != text[at]])
    file.write_text("".join(text))


DAMAGES: tuple[Damage, ...] = (
    flip_bit,
    flip_bit,
    flip_bit,
    truncate,
    extend,
    zero_block,
    delete_file,
    delete_part,
    swap_parts,
    swap_files,
    foreign_file,
    foreign_part,
    append_part,
    edit_json,
)


def damage_and_reseal(path: Path, _: Path, rng: Random) -> None:
    """Damage one file of one part, then make the checksums, the chain and the manifest right."""
    part = rng.choice(_parts(path))
    file = part / rng.choice(layout.CHECKED_FILES)
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 4, 32))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    file.write_bytes(bytes(data))
    previous = layout.chain_start(json.loads((path / layout.MANIFEST).read_text())["run_id"], 0)
    for folder in _parts(path):
        info = json.loads((folder / layout.PART).read_text())
        for name in layout.CHECKED_FILES:
            sized = (folder / name).stat().st_size
            info["files"][name] = {
                "bytes": sized,
                "xxh3_128": layout.file_checksum(folder / name),
            }
        info["previous"] = previous
        previous = layout.checksum(_write_sealed(folder / layout.PART, info))
    manifest = json.loads((path / layout.MANIFEST).read_text())
    manifest["ends"]["0"]["last_hash"] = previous
    _write_sealed(path / layout.MANIFEST, manifest)


def _write_sealed(path: Path, fields: dict[str, Any]) -> bytes:
    fields["checksum"] = layout.NO_CHECKSUM
    text = layout.seal(json.dumps(fields, separators=(",", ":")).encode())
    path.write_bytes(text)
    return text


def trial(source: Path, expected: str, other: Path, work: Path, damage: Damage, rng: Random) -> str:
    """Outcome of one damage: the error class, ``unchanged``, ``DIFFERENT``, or ``CRASH: ...``."""
    shutil.copytree(source, work)
    try:
        damage(work, other, rng)
        return "unchanged" if read_all(work) == expected else "DIFFERENT"
    except DumpError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - to find any other exception is the purpose
        return f"CRASH: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(work)


def run(count: int, seed: int, reseal: bool, out: Any = sys.stdout) -> int:
    """Run ``count`` trials; the number of faults."""
    rng = Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    faults = 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sources = [
            write_dump(home / "run", "run-a"),
            write_dump(home / "open", "run-b", close=False),
        ]
        other = write_dump(home / "other", "run-other")
        expected = {source: read_all(source) for source in sources}
        for number in range(count):
            damage = damage_and_reseal if reseal else rng.choice(DAMAGES)
            # An open dump may lose its last part without a trace: it is partial in any case.
            whole = reseal or damage in (delete_part, append_part)
            source = sources[0] if whole else rng.choice(sources)
            outcome = trial(source, expected[source], other, home / "work", damage, rng)
            outcomes[damage.__name__, outcome[:60]] += 1
            if outcome.startswith("CRASH") or (outcome == "DIFFERENT" and not reseal):
                faults += 1
                print(f"trial {number} of seed {seed}: {damage.__name__}: {outcome}", file=out)
    for (name, outcome), times in sorted(outcomes.items()):
        print(f"{name:<18} {outcome:<20} {times:>6}", file=out)
    print(f"{count} trials, {faults} faults, {time.perf_counter() - start:.1f} s", file=out)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reseal", action="store_true")
    options = parser.parse_args()
    return 1 if run(options.count, options.seed, options.reseal) else 0


if __name__ == "__main__":
    sys.exit(main())
