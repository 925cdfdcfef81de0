"""Versions that the loaded CUDA libraries state themselves, and what the driver says of itself."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia")


def library_versions(loaded: Iterable[str]) -> dict[str, str]:
    """Name -> version of each known CUDA library among the loaded shared objects. Only functions
    that need no context are called, so nothing is initialised by asking."""
    found: dict[str, str] = {}
    for path in loaded:
        name = Path(path).name.partition(".so")[0]
        if name in _ASK and name not in found:
            try:
                found[name] = _ASK[name](ctypes.CDLL(path))
            except (OSError, AttributeError):
                continue
    return found


def driver_facts() -> dict[str, object]:
    """Driver version and boards as the kernel module tells them; empty without one."""
    facts: dict[str, object] = {}
    try:
        text = (DRIVER / "version").read_text()
        if match := re.search(r"Kernel Module(?: for \S+)?\s+(\S+)", text):
            facts["driver"] = match[1]
        boards = sorted((DRIVER / "gpus").glob("*/information"))
        models = [m[1] for b in boards if (m := re.search(r"Model:\s*(.+)", b.read_text()))]
        if models:
            facts["boards"] = models
    except OSError:
        pass
    return facts


def _integer(function: str) -> Callable[[ctypes.CDLL], str]:
    def ask(library: ctypes.CDLL) -> str:
        value = ctypes.c_int()
        getattr(library, function)(ctypes.byref(value))
        return str(value.value)

    return ask


def _cublas(library: ctypes.CDLL) -> str:
    # libraryPropertyType of library_types.h: 0 major, 1 minor, 2 patch level.
    value, parts = ctypes.c_int(), []
    for which in range(3):
        library.cublasGetProperty(which, ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


def _cudnn(library: ctypes.CDLL) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return str(library.cudnnGetVersion())


def _nvrtc(library: ctypes.CDLL) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


_ASK: dict[str, Callable[[ctypes.CDLL], str]] = {
    "libcudart": _integer("cudaRuntimeGetVersion"),
    "libcuda": _integer("cuDriverGetVersion"),
    "libcublas": _cublas,
    "libcudnn": _cudnn,
    "libnccl": _integer("ncclGetVersion"),
    "libnvrtc": _nvrtc,
}
