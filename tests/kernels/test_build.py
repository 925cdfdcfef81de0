"""Every kernel compiles for every architecture and fits there, on a machine without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from verify.gpu import errors
from verify.gpu.compile import (
    PORTABLE_ARCHS,
    CompileOptions,
    KernelBuild,
    KernelVariant,
    Resources,
    build_kernel,
    find_compiler,
    nvrtc_missing,
    sass_counts,
)
from verify.gpu.compile import cache as build_cache
from verify.gpu.compile.build import BUILD_ID_SYMBOL, check_build_id
from verify.gpu.compile.elf import read_text
from verify.gpu.compile.nvrtc import compile_cubin
from verify.gpu.compile.resources import check_limits
from verify.gpu.compile.source import read_source
from verify.gpu.fingerprint.layout import LANE_ROWS, TALL_ROWS
from verify.gpu.paged import decode
from verify.gpu.table import VARIANTS, head_defines, head_groups

MISSING = nvrtc_missing()
needs_nvrtc = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
ROWS = [(name, arch) for name, variant in VARIANTS.items() for arch in variant.archs]


@pytest.fixture(autouse=True, scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    patch.setenv("VERIFY_CACHE", str(tmp_path_factory.mktemp("kernels")))
    yield
    patch.undo()


def build(name: str, arch: str, **kwargs: object) -> KernelBuild:
    if arch == "sm_70" and find_compiler().version[0] > 12:
        pytest.skip("NVRTC 13 does not compile sm_70; install the 12.9 packages")
    return build_kernel(VARIANTS[name], arch, **kwargs)  # type: ignore[arg-type]


@needs_nvrtc
@pytest.mark.parametrize(("name", "arch"), ROWS)
def test_every_kernel_builds_and_fits(name: str, arch: str) -> None:
    built = build(name, arch)
    assert {used.entry for used in built.resources} == set(VARIANTS[name].entries)
    assert all(used.registers > 0 and used.threads % 32 == 0 for used in built.resources)
    assert read_text(built.cubin, BUILD_ID_SYMBOL) == built.build_id


@needs_nvrtc
def test_a_warp_takes_the_rows_that_the_launcher_counts() -> None:
    assert build("fingerprint", "sm_90").ints("fingerprint_rows") == (LANE_ROWS, TALL_ROWS)


@needs_nvrtc
@pytest.mark.parametrize("group", head_groups())
@pytest.mark.parametrize("name", ["prefill", "prefill_hopper", "decode_wave", "decode_wave_mma"])
def test_every_admitted_head_group_builds(name: str, group: tuple[int, int]) -> None:
    built = build(name, VARIANTS[name].archs[-1], defines=head_defines(*group))
    assert built.build_id


@needs_nvrtc
def test_a_head_group_outside_the_table_is_refused_by_the_source() -> None:
    with pytest.raises(errors.CompileError, match=r"shapes\.cuh"):
        build("prefill", "sm_80", defines=head_defines(5, 1))


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("prefill_hopper", "sm_90a"),
        ("prefill_hopper_split_p", "sm_90a"),
        ("decode_wave_mma", "sm_80"),
        ("decode_wave_mma", "sm_90"),
        ("e4m3_bridge", "sm_90"),
    ],
)
def test_kernels_that_fill_the_register_file_do_not_spill(name: str, arch: str) -> None:
    # A spill would sit in the innermost loop.
    assert {used.spill_stores for used in build(name, arch).resources} == {0}


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "arch", "wanted", "banned"),
    [
        # A software routine replaces mma.m8n8k4 from sm_80 on; wmma must stay native everywhere.
        ("prefill", "sm_70", "HMMA.884", "CALL.ABS"),
        ("prefill", "sm_75", "HMMA.1688", "CALL.ABS"),
        ("prefill", "sm_80", "HMMA.16816", "CALL.ABS"),
        ("prefill", "sm_90", "HMMA.16816", "CALL.ABS"),
        ("decode_wave", "sm_70", "HMMA.884", "CALL.ABS"),
        ("prefill_hopper", "sm_90a", "HGMMA", "HMMA"),
    ],
)
def test_machine_code_holds_native_matrix_products(
    name: str, arch: str, wanted: str, banned: str
) -> None:
    counts = sass_counts(build(name, arch).cubin)
    if counts is None:
        pytest.skip("no nvdisasm that reads this architecture (VERIFY_NVDISASM names one)")
    entry = counts[VARIANTS[name].entries[0]]
    assert sum(n for opcode, n in entry.items() if opcode.startswith(wanted)) >= 16
    assert not [opcode for opcode in entry if opcode.startswith(banned)]
    assert not [function for function in counts if "mma" in function]


@needs_nvrtc
def test_the_build_id_follows_source_options_and_architecture(tmp_path: Path) -> None:
    base = build("prefill", "sm_80")
    others = [
        build("prefill", "sm_90"),
        build("prefill_split_p", "sm_80"),
        build("prefill", "sm_80", defines=head_defines(4, 1)),
        build_kernel(replace(VARIANTS["prefill"], options=CompileOptions(fma=False)), "sm_80"),
    ]
    assert len({base.build_id, *(other.build_id for other in others)}) == 5
    assert build("prefill", "sm_80").build_id == base.build_id


@needs_nvrtc
def test_the_cache_returns_the_same_code_and_survives_damage() -> None:
    first = build("e4m3_bridge", "sm_80")
    assert build("e4m3_bridge", "sm_80").from_cache
    (build_cache.cache_dir() / f"{first.build_id}.cubin").write_bytes(b"damaged")
    again = build("e4m3_bridge", "sm_80")
    assert not again.from_cache
    assert again.cubin == first.cubin


def test_a_module_with_another_build_id_is_refused() -> None:
    with pytest.raises(errors.StaleBuildError, match="another build"):
        check_build_id("aaaa", "bbbb", "prefill")


@needs_nvrtc
def test_the_source_text_of_includes_enters_the_digest(tmp_path: Path) -> None:
    for name, text in (("a.cu", '#include "b.cuh"\n'), ("b.cuh", "// one\n")):
        (tmp_path / name).write_text(text)
    before = read_source("a.cu", tmp_path)
    (tmp_path / "b.cuh").write_text("// two\n")
    assert read_source("a.cu", tmp_path).digest != before.digest


@needs_nvrtc
def test_a_compile_error_carries_the_log(tmp_path: Path) -> None:
    with pytest.raises(errors.CompileError, match=r"identifier .nonsense. is undefined"):
        compile_cubin("__device__ int x = nonsense;", "x.cu", "sm_80", CompileOptions(),
                      folder=tmp_path)  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "change", "message"),
    [
        ("sm_70", {"dynamic_shared": 96 * 1024 + 1}, "shared memory"),
        ("sm_75", {"dynamic_shared": 64 * 1024 + 1}, "shared memory"),
        ("sm_80", {"dynamic_shared": 163 * 1024 + 1}, "shared memory"),
        ("sm_90", {"dynamic_shared": 227 * 1024 + 1}, "shared memory"),
        ("sm_90", {"static_shared": 16 * 1024, "dynamic_shared": 212 * 1024}, "shared memory"),
        ("sm_80", {"threads": 512, "registers": 129}, "registers a block"),
    ],
)
def test_a_block_beyond_the_limits_is_refused(
    arch: str, change: dict[str, int], message: str
) -> None:
    fits = Resources("k", 256, 255, 0, 64 * 1024, 0, 0, 0)
    check_limits(fits, arch)
    with pytest.raises(errors.ResourceLimitError, match=message):
        check_limits(replace(fits, **change), arch)  # type: ignore[arg-type]


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(errors.ArchitectureError, match="sm_70"):
        build_kernel(VARIANTS["prefill_hopper"], "sm_70")


@needs_nvrtc
@pytest.mark.parametrize("name", ["decode_wave", "decode_wave_mma"])
def test_the_python_face_and_the_source_agree_on_decode(name: str) -> None:
    built = build(name, PORTABLE_ARCHS[-1])
    assert built.ints("decode_wave_table") == tuple(n for row in decode.WAVES for n in row)
    assert built.ints("decode_wave_sizes")[0] == decode.PARTIAL
    assert built.ints("decode_wave_sizes")[2] == decode.MOST_PARTITIONS


@needs_nvrtc
def test_the_command_line_reports_builds(capsys: pytest.CaptureFixture[str]) -> None:
    from verify.cli.kernels import app

    app(["build", "e4m3_bridge", "--arch", "sm_80", "--json"], standalone_mode=False)
    (report,) = json.loads(capsys.readouterr().out)
    assert report["arch"] == "sm_80"
    assert len(report["build_id"]) == 64
    assert isinstance(VARIANTS["e4m3_bridge"], KernelVariant)
