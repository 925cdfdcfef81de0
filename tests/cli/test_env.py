"""`verify env`: two environments that differ in one thing show exactly that thing."""

import hashlib
import json
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.synthetic_dumps import SyntheticRun
from verify.cli.app import app

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
RUN = "from verify.cli import main; main()"


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, list(map(str, arguments)))


def differing(a, b):
    done = invoke("env", "diff", a, b, "--json")
    return done.exit_code, json.loads(done.output)["differences"]


def make_environment(folder: Path, version: str, body: str) -> Path:
    """A virtual environment that sees the packages of this one, and `tinylib` as installed from a
    wheel of a local index."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for number, place in enumerate(site.getsitepackages()):
        line = f"import site; site.addsitedir({place!r})\n"
        (packages / f"base{number}.pth").write_text(line)
    metadata = packages / f"tinylib-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tinylib\nVersion: {version}\n"
    )
    (metadata / "RECORD").write_text(f"tinylib.py,,\ntinylib-{version}.dist-info/METADATA,,\n")
    (packages / "tinylib.py").write_text(body)
    return folder / "bin" / "python"


def record(python: Path, place: Path, *options: str, cwd: Path | None = None) -> Path:
    done = subprocess.run(
        [str(python), "-c", RUN, "env", "--json", *options],
        check=False, capture_output=True, text=True, cwd=cwd or place.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place.write_text(done.stdout)
    return place


@pytest.mark.slow
def test_two_environments_that_differ_in_one_library_show_exactly_that_library(tmp_path):
    first = make_environment(tmp_path / "one", "1.0", "x = 1\n")
    second = make_environment(tmp_path / "two", "1.1", "x = 1\n")
    a = record(first, tmp_path / "a.json", "--load", "tinylib")
    b = record(second, tmp_path / "b.json", "--load", "tinylib")
    again = record(first, tmp_path / "again.json", "--load", "tinylib")
    assert differing(a, again) == (0, [])
    code, found = differing(a, b)
    assert code == 1
    assert [(d["name"], d["a"], d["b"]) for d in found] == [("packages.tinylib", "1.0", "1.1")]


@pytest.mark.slow
def test_a_package_from_files_is_told_apart_by_its_files_under_one_version(tmp_path):
    pythons = [
        make_environment(tmp_path / name, "1.0", body)
        for name, body in (("one", "x = 1\n"), ("two", "x = 2\n"))
    ]
    for python in pythons:
        (folder,) = python.parents[1].glob("lib/python*/site-packages/tinylib-1.0.dist-info")
        (folder / "direct_url.json").write_text(
            '{"url": "file:///src/tinylib.whl", "archive_info": {}}'
        )
    a, b = (record(p, tmp_path / f"{at}.json") for at, p in enumerate(pythons))
    code, (found,) = differing(a, b)
    assert (code, found["name"], found["weight"]) == (1, "installed_from.tinylib", "likely")


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler to build two shared objects with")
def test_another_build_loaded_under_the_same_name_is_shown(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tiny.c").write_text(f"int tiny(void) {{ return {value}; }}\n")
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-o", "libtiny.so", "tiny.c"], cwd=folder, check=True
        )
        (folder / "loads_tiny.py").write_text("import ctypes\nctypes.CDLL('./libtiny.so')\n")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    python = Path(sys.executable)
    a, b, copy = (
        record(python, tmp_path / f"{name}.json", "--load", "loads_tiny", cwd=tmp_path / name)
        for name in ("one", "two", "copy")
    )
    assert differing(a, copy) == (0, []), "the same bytes in another folder are no difference"
    code, (found,) = differing(a, b)
    assert (code, found["name"], found["weight"]) == (1, "libraries.libtiny.so", "likely")
    digest = hashlib.sha256((tmp_path / "one" / "libtiny.so").read_bytes()).hexdigest()
    assert found["a"] == f"{digest[:12]} {tmp_path / 'one' / 'libtiny.so'}"
    shown = invoke("env", "diff", a, b).output
    assert "libraries.libtiny.so" in shown
    assert "another build was loaded under this name" in shown


def dump(path, **options):
    with SyntheticRun(path, {"s": [1]}, **options):
        pass
    return path


def test_two_dumps_are_compared_with_their_settings(tmp_path):
    threads = {"torch": {"threads": 1}}, {"torch": {"threads": 2}}
    a = dump(tmp_path / "a", env=threads[0], settings={"attn": "sdpa", "threads": 1})
    b = dump(tmp_path / "b", env=threads[1], settings={"attn": "eager", "threads": 2})
    shown = invoke("env", "diff", a, b)
    assert shown.exit_code == 1
    assert "Two things changed at once (settings.attn, number of threads)" in " ".join(
        shown.output.split()
    )


def test_one_thing_in_several_places_is_one_change(tmp_path):
    sides = [
        {"env": {"torch": {"threads": n}, "variables": {"OMP_NUM_THREADS": str(n)}},
         "settings": {"threads": n}}
        for n in (1, 2)
    ]  # fmt: skip
    a, b = (dump(tmp_path / name, **side) for name, side in zip("ab", sides, strict=True))
    shown = invoke("env", "diff", a, b)
    assert shown.exit_code == 1
    assert "at once" not in shown.output


@pytest.mark.parametrize("content", [None, "not json", "[]", '{"x": 1}'])
def test_what_is_no_environment_is_refused(tmp_path, content):
    place = tmp_path / "a.json"
    if content is not None:
        place.write_text(content)
    done = invoke("env", "diff", place, place)
    assert done.exit_code != 0
    assert "environment" in str(done.exception)


def test_inspect_shows_what_a_run_ran_on(tmp_path):
    env = {"torch": {"version": "2.9", "threads": 3}, "libraries": {"/x/liba.so": "0" * 64}}
    shown = invoke("inspect", dump(tmp_path / "a", env=env)).output
    assert "version 2.9, threads 3" in shown
    assert "1 shared object loaded" in shown
