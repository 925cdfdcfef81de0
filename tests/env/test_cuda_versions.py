"""CUDA libraries say their versions; stand-ins with the same entry points say them here."""

import shutil
import subprocess

import pytest

from verify.env import cuda_versions

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
SOURCES = {
    "libcublas.so.12": "int cublasGetProperty(int w, int *v) { *v = w == 0 ? 12 : w == 1 ? 9 : 4; return 0; }",
    "libcudart.so.12": "int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }",
    "libcudnn.so.9": "unsigned long cudnnGetVersion(void) { return 91002; }",
    "libnvrtc.so.12": "int nvrtcVersion(int *a, int *b) { *a = 12; *b = 9; return 0; }",
    "libnccl.so.2": "int nothing(void) { return 0; }",
}


@pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stand-ins with")
def test_each_library_is_asked_in_its_own_way(tmp_path):
    for name, source in SOURCES.items():
        (tmp_path / "a.c").write_text(source)
        command = [COMPILER, "-shared", "-fPIC", "-o", name, "a.c"]
        subprocess.run(command, cwd=tmp_path, check=True)
    paths = [str(tmp_path / name) for name in SOURCES] + [str(tmp_path / "libcuda.so.1")]
    assert cuda_versions.library_versions(paths) == {
        "libcublas": "12.9.4", "libcudart": "12090", "libcudnn": "91002", "libnvrtc": "12.9",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n",
    ],
)
def test_the_driver_is_read_off_the_kernel_module(tmp_path, monkeypatch, text):
    monkeypatch.setattr(cuda_versions, "DRIVER", tmp_path)
    assert cuda_versions.driver_facts() == {}
    (tmp_path / "version").write_text(text)
    board = tmp_path / "gpus" / "0000:01:00.0"
    board.mkdir(parents=True)
    (board / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    assert cuda_versions.driver_facts() == {"driver": "570.86.15", "boards": ["NVIDIA H200"]}
