"""NVRTC through cuda.core: find it, find its headers, compile one source to a cubin."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import re
import site
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from verify.gpu.compile.elf import read_ints
from verify.gpu.compile.options import CompileOptions
from verify.gpu.errors import ArchitectureError, CompileError

_INSTALL = "pip install 'firstdiff[gpu-build]'"
# The toolkit's headers that kernels include, directly or not: they are part of the compiled code.
_HEADERS = ("cuda_fp16.h", "cuda_fp16.hpp", "mma.h", "crt/mma.h", "crt/mma.hpp")
_RUNTIME_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
_PROBE = """
extern "C" __device__ int verify_compiler[] =
    {__CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__, __CUDACC_VER_BUILD__};
"""


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler of this process. ``identity`` changes when its code or its headers do."""

    version: tuple[int, int, int]
    include_dirs: tuple[str, ...]
    headers_digest: str

    @property
    def identity(self) -> str:
        major, minor, patch = self.version
        return f"nvrtc-{major}.{minor}.{patch}+headers-{self.headers_digest[:16]}"


def nvrtc_missing() -> str | None:
    """Why this machine cannot compile kernels, or None when it can."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        return f"cuda-core is not installed: {_INSTALL}"
    try:
        find_compiler()
    except CompileError as error:
        return error.what
    return None


@functools.cache
def find_compiler() -> Compiler:
    """Locate NVRTC and headers of its major version. Raises CompileError with what is missing."""
    try:
        from cuda.bindings import nvrtc

        status, major, _minor = nvrtc.nvrtcVersion()
    except Exception as error:  # cuda-pathfinder has its own types for "library not found"
        raise CompileError(f"NVRTC cannot be loaded: {error}", hint=_INSTALL) from error
    if int(status) != 0:
        raise CompileError("NVRTC does not answer", found=status, hint=_INSTALL)
    include_dirs = _find_headers(int(major))
    version = read_ints(_run(_PROBE, "probe", "sm_80", CompileOptions(), ())[0], "verify_compiler")
    return Compiler((version[0], version[1], version[2]), include_dirs, _digest(include_dirs))


def compile_cubin(
    text: str, name: str, arch: str, options: CompileOptions, *, folder: Path
) -> tuple[bytes, str]:
    """Compile CUDA C++ to machine code for ``arch``. Returns the cubin and the compiler's log.

    Raises ArchitectureError when this NVRTC does not know ``arch`` and CompileError with the whole
    log when it refuses the text.
    """
    return _run(text, name, arch, options, (str(folder), *find_compiler().include_dirs))


def _run(
    text: str, name: str, arch: str, options: CompileOptions, include_dirs: tuple[str, ...]
) -> tuple[bytes, str]:
    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    try:
        program = Program(
            text,
            "c++",
            ProgramOptions(
                name=name,
                arch=arch,
                std=options.std,
                ftz=options.ftz,
                fma=options.fma,
                prec_div=options.prec_div,
                prec_sqrt=options.prec_sqrt,
                max_register_count=options.max_registers,
                lineinfo=options.line_info,
                define_macro=list(options.defines) or None,
                include_path=list(include_dirs) or None,
                ptxas_options=["-v"],
            ),
        )
        return bytes(program.compile("cubin", logs=log).code), log.getvalue()
    except Exception as error:  # cuda.core raises its own types, with NVRTC's log in the text
        message = f"{error}\n{log.getvalue()}".strip()
        if "invalid value for --gpu-architecture" in message:
            raise ArchitectureError(
                "this NVRTC does not compile for that architecture",
                where=name,
                found=arch,
                allowed="CUDA 12.9 compiles sm_70 to sm_90a, CUDA 13 from sm_75 up",
                hint="install nvidia-cuda-nvrtc-cu12==12.9.* and cuda-bindings==12.9.*",
            ) from error
        raise CompileError(
            "a kernel does not compile", where=f"{name} for {arch}", found=message
        ) from error


def _find_headers(major: int) -> tuple[str, ...]:
    """Include folders that hold the CUDA runtime's headers of version ``major``."""
    roots = [
        Path(os.environ[key]) / "include" for key in ("CUDA_PATH", "CUDA_HOME") if key in os.environ
    ]
    for base in {*site.getsitepackages(), sysconfig.get_path("purelib")}:
        roots += sorted(Path(base).glob("nvidia/*/include"))
    roots += sorted(Path("/usr/local").glob("cuda*/include"), reverse=True)
    runtime = [r for r in roots if (r / "cuda_fp16.h").is_file() and _runtime_major(r) == major]
    if not runtime:
        raise CompileError(
            f"the headers of CUDA {major} are not installed",
            where=", ".join(map(str, roots)) or "nowhere to look",
            hint=_INSTALL,
        )
    # mma.h includes crt/mma.h, which the wheels keep apart, in the package of nvcc.
    chosen = [runtime[0]]
    if not (runtime[0] / "crt/mma.h").is_file():
        chosen += [r for r in roots if (r / "crt/mma.h").is_file()][:1]
    return tuple(str(path) for path in chosen)


def _runtime_major(include_dir: Path) -> int | None:
    header = include_dir / "cuda_runtime_api.h"
    if not header.is_file():
        return None
    match = _RUNTIME_VERSION.search(header.read_text(encoding="utf-8", errors="replace"))
    return int(match[1]) // 1000 if match else None


def _digest(include_dirs: tuple[str, ...]) -> str:
    hasher = hashlib.sha256()
    for name in _HEADERS:
        found = [Path(base) / name for base in include_dirs if (Path(base) / name).is_file()]
        if not found:
            raise CompileError("a CUDA header is missing", found=name, hint=_INSTALL)
        hasher.update(name.encode() + b"\0" + found[0].read_bytes())
    return hasher.hexdigest()
