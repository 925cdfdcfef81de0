"""What is recorded of a process."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from verify.env import collect, collect_late, difference, observed
from verify.env.diff import say_changes
from verify.env.file_hashes import FileHashes
from verify.env.repositories import repository_states


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory):
    place = tmp_path_factory.getbasetemp() / "verify-cache"
    monkeypatch.setenv("VERIFY_CACHE", str(place))


def test_the_table_is_json_and_holds_what_it_should():
    facts = json.loads(json.dumps(collect()))
    assert facts["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert facts["torch"]["threads"] == torch.get_num_threads()
    assert facts["torch"]["tf32_matmul"] is False
    assert any("libtorch" in path for path in facts["libraries"])
    assert all(len(digest) == 64 for digest in facts["libraries"].values())
    assert facts["installed_from"]["firstdiff"]["editable"] in (True, False)


def test_a_process_does_not_differ_from_itself():
    assert difference(first := collect(), collect()) == []
    assert first["libraries"]


@pytest.mark.parametrize(
    ("change", "restore", "name"),
    [
        (lambda: torch.use_deterministic_algorithms(True),
         lambda: torch.use_deterministic_algorithms(False), "torch.deterministic"),
        (lambda: torch.set_float32_matmul_precision("high"),
         lambda: torch.set_float32_matmul_precision("highest"), "torch.matmul_precision"),
        (lambda: torch.backends.cuda.enable_flash_sdp(False),
         lambda: torch.backends.cuda.enable_flash_sdp(True), "torch.sdp_flash"),
    ],
)  # fmt: skip
def test_a_switch_is_seen_and_likely(change, restore, name):
    before = collect()
    change()
    try:
        found = difference(before, collect())
    finally:
        restore()
    assert name in {d.name for d in found if d.weight == "likely"}


def test_a_switch_that_is_turned_during_a_run_is_told():
    early = collect()
    torch.use_deterministic_algorithms(True)
    try:
        late = collect_late(early)
    finally:
        torch.use_deterministic_algorithms(False)
    assert late["changed_during_run"] == {"deterministic": [False, True]}
    assert late["torch"]["deterministic"] is False
    weights = {d.name: d.weight for d in difference(early, late)}
    assert weights["changed_during_run.deterministic"] == "likely"


def test_variables_outside_the_list_are_not_read(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    monkeypatch.setenv("PRIVATE_NOTE", "nobody shall read this")
    text = json.dumps(collect())
    assert '"MKL_CBWR": "AVX2"' in text
    assert "nobody shall read this" not in text


def test_seeds_are_recorded_where_somebody_set_one():
    with torch.random.fork_rng():
        torch.manual_seed(1234)
        assert collect()["seeds"]["torch"] == 1234
        torch.manual_seed(2**40 + 1)
        assert collect()["seeds"]["torch"] == "not set"


def test_routes_are_counted_from_the_mark_on():
    observed.count("routes", "prefill -> before on cpu")
    start = observed.mark()
    observed.count("routes", "prefill -> sdpa on cpu")
    observed.count("routes", "prefill -> sdpa on cpu")
    assert collect(since=start)["routes"] == {"prefill -> sdpa on cpu": 2}


@pytest.mark.slow
def test_kernels_are_recorded_on_request():
    start = observed.mark()
    with observed.record_kernels():
        torch.ones(4, 4) @ torch.ones(4, 4)
    assert observed.since(start)["kernels"]["aten::mm"] == 1


def test_records_of_different_editions_compare_by_what_both_hold():
    new = collect()
    old = {"python": new["python"], "packages": {"torch": "0.1"}, "cores": new["cores"]}
    assert [d.name for d in difference(old, new)] == ["packages.torch"]


def test_the_shared_objects_of_a_changed_package_are_told_with_it():
    def facts(version, digest):
        place = "/v/lib/python3.11/site-packages/flash_attn/core.so"
        return {"packages": {"flash-attn": version}, "libraries": {place: digest}}

    (found,) = difference(facts("1", "0" * 64), facts("2", "1" * 64))
    assert (found.name, found.weight) == ("packages.flash-attn", "likely")
    assert "its shared objects differ: core.so" in found.note


def test_libraries_of_one_process_alone_are_one_entry_a_package():
    place = "/v/lib/python3.11/site-packages/scipy/{}.so"
    libraries = {place.format(name): "0" * 64 for name in "abc"}
    (found,) = difference({"libraries": libraries}, {"libraries": {}})
    assert (found.name, found.a, found.b) == ("libraries.of scipy", "a.so, b.so, c.so", "-")


def test_two_likely_changes_are_said_and_one_is_not():
    a = {"torch": {"threads": 1, "deterministic": True}, "variables": {"OMP_NUM_THREADS": "1"}}
    threads = {
        "torch": {"threads": 2, "deterministic": True},
        "variables": {"OMP_NUM_THREADS": "2"},
    }
    both = {**threads, "torch": {"threads": 2, "deterministic": False}}
    assert say_changes(difference(a, threads)) == ""
    assert say_changes(difference(a, both)).startswith("Two things changed at once")


class TestFileHashes:
    @pytest.fixture
    def settled(self, tmp_path):
        """A file that is old enough to be remembered."""
        path = tmp_path / "lib.so"
        path.write_bytes(b"x" * 1000)
        FileHashes.clock = staticmethod(lambda: time.time_ns() + 10**10)
        yield path
        FileHashes.clock = staticmethod(time.time_ns)

    def test_a_second_process_reads_nothing(self, settled, tmp_path):
        first, second = (FileHashes(tmp_path / "cache.json") for _ in range(2))
        digest = first.sha256(settled)
        first.save()
        second = FileHashes(tmp_path / "cache.json")
        assert (second.sha256(settled), first.hashed_bytes, second.hashed_bytes) == (
            digest,
            1000,
            0,
        )

    def test_a_changed_file_is_read_again_even_under_its_old_time(self, settled, tmp_path):
        hashes = FileHashes(tmp_path / "cache.json")
        before, status = hashes.sha256(settled), settled.stat()
        settled.write_bytes(b"y" * 1000)
        os.utime(settled, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert hashes.sha256(settled) != before

    def test_a_young_file_is_not_remembered(self, tmp_path):
        (tmp_path / "lib.so").write_bytes(b"x")
        hashes = FileHashes(tmp_path / "cache.json")
        hashes.sha256(tmp_path / "lib.so")
        hashes.save()
        assert not (tmp_path / "cache.json").exists()

    @pytest.mark.parametrize("content", ["", "[1]", '{"a": 3}', "{"])
    def test_a_broken_cache_is_no_cache(self, settled, tmp_path, content):
        (tmp_path / "cache.json").write_text(content)
        assert len(FileHashes(tmp_path / "cache.json").sha256(settled)) == 64

    def test_it_is_bounded(self, settled, tmp_path, monkeypatch):
        monkeypatch.setattr("verify.env.file_hashes.ENTRIES", 3)
        hashes = FileHashes(tmp_path / "cache.json")
        for number in range(6):
            path = tmp_path / f"{number}.so"
            path.write_bytes(bytes([number]))
            hashes.sha256(path)
        hashes.save()
        assert len(json.loads((tmp_path / "cache.json").read_text())) == 3


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=folder, check=True,
        capture_output=True,
    )  # fmt: skip


def test_a_repository_is_told_by_commit_and_changes(tmp_path):
    top = tmp_path / "engine"
    top.mkdir()
    git(top, "init", "-q")
    (top / "a.py").write_text("1\n")
    git(top, "add", "a.py")
    git(top, "commit", "-qm", "one")
    clean = repository_states([top])["engine"]
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (top / "a.py").write_text("2\n")
    changed = repository_states([top])["engine"]
    (top / "new.py").write_text("3\n")
    added = repository_states([top])["engine"]
    assert changed["dirty"]
    assert len({state.get("changes") for state in (clean, changed, added)}) == 3
    (found,) = difference({"repositories": {"engine": clean}}, {"repositories": {"engine": added}})
    assert (found.name, found.weight) == ("repositories.engine", "possible")
    assert repository_states([Path("/")]) == {}


def test_a_library_that_was_replaced_after_loading_is_not_taken_for_the_new_file(tmp_path):
    code = (
        "import ctypes, os, sys\n"
        "from verify.env.libraries import loaded_libraries\n"
        "from verify.env.file_hashes import FileHashes\n"
        "path = sys.argv[1]\n"
        "ctypes.CDLL(path)\n"
        "before = loaded_libraries(FileHashes())[path]\n"
        "open(path + '.new', 'wb').write(open(path, 'rb').read() + b'x')\n"
        "os.replace(path + '.new', path)\n"
        "after = loaded_libraries(FileHashes())[path]\n"
        "print(before, after, sep='\\n')\n"
    )
    import _ctypes

    copy = tmp_path / "copy.so"
    copy.write_bytes(Path(_ctypes.__file__).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", code, str(copy)], check=True, capture_output=True, text=True
    )
    before, after = done.stdout.splitlines()
    assert len(before) == 64
    assert after in (before, "replaced or removed after it was loaded")
