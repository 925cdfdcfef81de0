"""Results do not depend on who compares: this thread, threads, processes or a dask cluster."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.run import bisect
from verify.compare.executor import SerialExecutor, in_order, open_executor
from verify.compare.run import compare_rows
from verify.dumps.format import Dump, open_dump
from verify.errors import ArgumentError, CorruptDumpError, DumpError, UsageError

POSITIONS = 6


def recorded(path: Path, moved: float) -> Path:
    """A run of eight taps, of which every second one is moved by ``moved`` at some elements, in two
    steps, and one tap without words."""
    draw = np.random.default_rng(0)
    rows = [("s#0", position) for position in range(POSITIONS)]
    with SyntheticRun(path, {"s#0": [1, 2, 3]}) as run:
        for step in range(2):
            here = rows[3 * step : 3 * step + 3]
            with run.step():
                for number in range(8):
                    values = draw.standard_normal((3, 40)).astype(np.float32)
                    if number % 2:
                        values[1, ::7] += np.float32(moved)
                    kept = "digest" if number == 7 else "full"
                    run.add(f"layers.{number}.out", values, "b t d", rows=here, kept=kept)
    return path


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return recorded(tmp_path / "a", 0.0), recorded(tmp_path / "b", 1e-3)


def everything(runs: tuple[Path, Path], executor: Executor | None) -> tuple[bytes, list[bytes]]:
    """All that a comparison says, apart from its duration."""
    found = compare_rows(*map(open_dump, runs), executor=executor)
    found.comparison.seconds = 0.0
    measures = [getattr(found.measures, name).tobytes() for name in found.measures.__slots__]
    return msgspec.json.encode(found.comparison), measures


def test_threads_say_what_one_thread_says(runs: tuple[Path, Path]) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert everything(runs, pool) == everything(runs, None)


@pytest.mark.slow
def test_processes_say_what_one_thread_says(runs: tuple[Path, Path]) -> None:
    with open_executor("processes", 2) as pool:
        assert everything(runs, pool) == everything(runs, None)
        found = bisect(*map(open_dump, runs), executor=pool)
    assert found.verdict == bisect(*map(open_dump, runs)).verdict


@pytest.mark.slow
def test_corruption_in_a_worker_is_corruption_here(runs: tuple[Path, Path]) -> None:
    words = runs[1] / "rank-0" / "part-00000" / "tensors.safetensors"
    data = bytearray(words.read_bytes())
    data[-1] ^= 1
    words.write_bytes(bytes(data))
    with open_executor("processes", 1) as pool, pytest.raises(CorruptDumpError, match="tensor"):
        everything(runs, pool)


@pytest.mark.slow
def test_dask_says_what_one_thread_says(runs: tuple[Path, Path]) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        open_executor("dask", scheduler=cluster.scheduler_address) as pool,
    ):
        assert everything(runs, pool) == everything(runs, None)


def test_a_dump_travels_by_its_name(runs: tuple[Path, Path]) -> None:
    dump = open_dump(runs[0])
    data = pickle.dumps(dump)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert type(again) is Dump and again.records() == dump.records()
    assert pickle.loads(data) is again, "a worker opens it once"


def test_another_dump_under_the_name_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    data = pickle.dumps(open_dump(runs[0]))
    runs[0].rename(tmp_path / "moved")
    recorded(runs[0], 0.5)
    with pytest.raises(DumpError, match="another dump"):
        pickle.loads(data)


def test_tasks_are_made_as_they_are_needed() -> None:
    made: list[int] = []

    def tasks() -> object:
        for number in range(100):
            made.append(number)
            yield number

    found = in_order(SerialExecutor(), lambda number: number * number, tasks())
    assert [next(found), next(found)] == [0, 1]
    assert len(made) == 2
    assert list(found) == [number * number for number in range(2, 100)]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kind": "threads"}, "no such executor"),
        ({"kind": "serial", "workers": 2}, "workers are counted"),
        ({"kind": "processes", "workers": 0}, "workers are counted"),
        ({"kind": "dask"}, "a scheduler goes with dask"),
        ({"kind": "serial", "scheduler": "tcp://localhost:1"}, "a scheduler goes with dask"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(ArgumentError, match=match), open_executor(**options):
        pass


def test_a_scheduler_that_does_not_answer_is_said() -> None:
    pytest.importorskip("distributed")
    with (
        pytest.raises(UsageError, match="does not answer"),
        open_executor("dask", scheduler="tcp://127.0.0.1:9"),
    ):
        pass
