"""Guards of the layout: the three top-level folders install under `verify`, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("kernels", "reference", "dumps")


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_is_linked_into_the_package(folder):
    link = ROOT / "verify" / folder
    assert link.is_symlink()
    assert link.resolve() == ROOT / folder


def test_kernels_is_never_a_python_package():
    # Hugging Face's distribution owns the import name `kernels`.
    assert not list((ROOT / "kernels").rglob("*.py"))


@pytest.fixture(scope="module")
def wheel_through_sdist(tmp_path_factory):
    """The release path: an sdist, and the wheel built from nothing but that sdist."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*build, "--sdist", str(ROOT)], check=True, capture_output=True)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    (source,) = (path for path in out.iterdir() if path.is_dir())
    subprocess.run([*build, "--wheel", str(source)], check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_the_wheel_has_one_top_level_name(wheel_through_sdist):
    tops = {name.split("/")[0] for name in wheel_through_sdist}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"verify"}


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_wheel_holds_every_file_of_the_folder(wheel_through_sdist, folder):
    tracked = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    if not tracked:
        pytest.fail(f"git knows no file under {folder}/")
    missing = [name for name in tracked if f"verify/{name}" not in wheel_through_sdist]
    assert not missing


@pytest.mark.parametrize(
    "module", ["verify", "verify.cli", "verify.dumps.format", "verify.compare", "verify.formats"]
)
def test_reading_and_comparing_load_neither_torch_nor_plots(module):
    code = (
        f"import sys, {module}; "
        "print({'torch', 'matplotlib', 'transformers'} & set(sys.modules) or 'none')"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert loaded.strip() == "none"
