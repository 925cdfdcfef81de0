"""Load a build once per device and launch its entry points on torch's current stream."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import torch

from verify.gpu.compile.build import BUILD_ID_SYMBOL, KernelBuild, build_kernel, check_build_id
from verify.gpu.errors import KernelError
from verify.gpu.table import get_variant

_DEFAULT_SHARED = 48 * 1024  # what a block may use without asking for more
_load_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A build in the memory of one device, its id read back from there."""

    build: KernelBuild
    device_index: int
    entries: dict[str, Any]

    def launch(self, entry: str, grid: tuple[int, int, int], *arguments: object) -> None:
        """Launch ``entry`` on torch's current stream of this device. No synchronisation.

        ``arguments`` are those of the kernel: pointers as int, numpy scalars for the rest.
        """
        from cuda.core import launch

        resources = self.build.entry(entry)
        config = _launch_config(grid, resources.threads, resources.dynamic_shared)
        with torch.cuda.device(self.device_index):
            stream = _stream(torch.cuda.current_stream().cuda_stream)
            launch(stream, config, self.entries[entry], *arguments)


def load_kernel(
    name: str, arch: str, device_index: int, defines: tuple[tuple[str, str], ...] = ()
) -> LoadedKernel:
    """The variant ``name`` on CUDA device ``device_index``, built and loaded at the first call.

    Raises KernelError when that first call comes inside a CUDA graph capture, where nothing can be
    loaded: call the kernel once before.
    """
    with _load_lock:
        return _load(name, arch, device_index, defines)


@functools.cache
def _load(
    name: str, arch: str, device_index: int, defines: tuple[tuple[str, str], ...]
) -> LoadedKernel:
    if torch.cuda.is_current_stream_capturing():
        raise KernelError(
            "a kernel cannot be loaded while a CUDA graph is captured",
            where=name,
            hint="run the call once before the capture, on the same device",
        )
    from cuda.core import Device, ObjectCode

    build = build_kernel(get_variant(name), arch, defines=defines)
    with torch.cuda.device(device_index):
        torch.cuda.current_stream().synchronize()  # creates the context that torch uses
        device = Device(device_index)
        device.set_current()
        module = ObjectCode.from_cubin(build.cubin, name=name)
        entries = {item.entry: module.get_kernel(item.entry) for item in build.resources}
        for item in build.resources:
            if item.dynamic_shared > _DEFAULT_SHARED:
                _allow_shared(entries[item.entry], device, item.dynamic_shared)
        check_build_id(_read_build_id(module), build.build_id, name)
    return LoadedKernel(build, device_index, entries)


@functools.lru_cache(maxsize=4096)
def _launch_config(grid: tuple[int, int, int], threads: int, shared: int) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=grid, block=threads, shmem_size=shared)


@functools.lru_cache(maxsize=256)
def _stream(handle: int) -> Any:
    """A stream object for torch's handle. Making one anew costs more than the launch itself."""
    from cuda.core import Stream

    return Stream.from_handle(handle)


def _allow_shared(kernel: Any, device: Any, size: int) -> None:
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _checked(driver.cuKernelSetAttribute(attribute, size, kernel.handle, device.device_id))


def _read_build_id(module: Any) -> str:
    from cuda.bindings import driver

    address, size = _checked(driver.cuLibraryGetGlobal(module.handle, BUILD_ID_SYMBOL.encode()))
    raw = bytearray(size)
    _checked(driver.cuMemcpyDtoH(raw, address, size))
    return bytes(raw).split(b"\0", 1)[0].decode("ascii")


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise KernelError("a call of the CUDA driver failed", found=status.name)
    return values[0] if len(values) == 1 else values
