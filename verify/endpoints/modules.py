"""Endpoints from CUDA sources: builds of one symbol with other macros live side by side.

Each build is a module of its own in the driver, so equal symbol names do not meet. The id of a
build lies in its module, and the loader reads it back from the device.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from verify.bounds import Bound
from verify.endpoints.spec import Endpoint
from verify.gpu.arch import device_arch
from verify.gpu.compile import cache, find_compiler
from verify.gpu.compile.build import BUILD_ID_SYMBOL, check_build_id
from verify.gpu.compile.elf import read_text
from verify.gpu.compile.nvrtc import compile_cubin
from verify.gpu.compile.options import CompileOptions
from verify.gpu.compile.source import read_source
from verify.gpu.errors import ArchitectureError
from verify.gpu.route import RouteRecord, record

Defines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ModuleBuild:
    """One compiled source. ``build_id``: SHA-256 of source with quoted includes, options,
    architecture and compiler."""

    name: str
    arch: str
    options: CompileOptions
    build_id: str
    cubin: bytes
    log: str


@dataclass(frozen=True, eq=False)
class LoadedModule:
    """A build in the memory of one device."""

    build: ModuleBuild
    device_index: int
    module: Any
    _entries: dict[str, Any] = field(default_factory=dict)

    def launch(
        self,
        entry: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *arguments: object,
        shared: int = 0,
    ) -> None:
        """Launch ``entry`` on torch's current stream of this device; does not wait.

        ``arguments`` are those of the kernel: tensors (their addresses), numpy scalars otherwise.
        """
        from cuda.core import LaunchConfig, Stream, launch

        if entry not in self._entries:
            self._entries[entry] = self.module.get_kernel(entry)
        config = LaunchConfig(grid=grid, block=block, shmem_size=shared)
        plain = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        with torch.cuda.device(self.device_index):
            stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
            launch(stream, config, self._entries[entry], *plain)


def build_module(
    source: str | Path,
    arch: str,
    *,
    defines: Defines = (),
    options: CompileOptions | None = None,
) -> ModuleBuild:
    """Compile a ``.cu`` file by NVRTC; works without a GPU.

    Args:
        source: the file; its quoted includes are relative to its folder. Entry points are
            ``extern "C" __global__``.
        arch: for example ``"sm_90"``.
        defines: macros, which become part of the build id.

    Raises:
        CompileError: no compiler, or it refuses the source; carries its whole log.
        ArchitectureError: this compiler does not know ``arch``.
    """
    path = Path(source).resolve()
    text = read_source(path.name, path.parent)
    chosen = (options or CompileOptions()).with_defines(*defines)
    inputs: dict[str, object] = {
        "source": text.digest,
        "entry_file": text.name,
        "options": chosen.as_dict(),
        "arch": arch,
        "compiler": find_compiler().identity,
    }
    build_id = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    stored = cache.load(build_id)
    if stored is None:
        stamped = f'{text.text}\nextern "C" __device__ char {BUILD_ID_SYMBOL}[] = "{build_id}";\n'
        stored = compile_cubin(stamped, text.name, arch, chosen, folder=text.folder)
        cache.store(build_id, stored[0], stored[1], inputs)
    check_build_id(read_text(stored[0], BUILD_ID_SYMBOL), build_id, text.name)
    return ModuleBuild(path.stem, arch, chosen, build_id, *stored)


def load_module(build: ModuleBuild, device_index: int = 0) -> LoadedModule:
    """``build`` on a CUDA device; its id is read back from there.

    Raises StaleBuildError where the loaded module carries another id.
    """
    from cuda.core import Device, ObjectCode

    from verify.gpu.launch import _read_build_id

    with torch.cuda.device(device_index):
        torch.cuda.current_stream().synchronize()  # creates the context that torch uses
        Device(device_index).set_current()
        module = ObjectCode.from_cubin(build.cubin, name=build.name)
        check_build_id(_read_build_id(module), build.build_id, build.name)
    return LoadedModule(build, device_index, module)


def kernel_endpoint(
    source: str | Path,
    run: Callable[..., Any],
    *,
    route: str,
    defines: Defines = (),
    options: CompileOptions | None = None,
    arch: str | None = None,
    accuracy: Bound | None = None,
    certificate: Any = None,
) -> Endpoint:
    """An endpoint that runs one build of a CUDA source.

    Args:
        source, defines, options: as for :func:`build_module`.
        run: called with the loaded module and the inputs of a case by keyword; launches and
            returns the output.
        route: the name that the endpoint is held to; its route record carries the build id.
        arch: to compile for; the current CUDA device's by default. Without a device and without
            ``arch`` every call fails, and the case counts as failed.
    """
    if arch is None and torch.cuda.is_available():
        arch = device_arch(torch.cuda.current_device())
    build = None if arch is None else build_module(source, arch, defines=defines, options=options)

    @functools.cache
    def loaded(index: int) -> LoadedModule:
        assert build is not None
        return load_module(build, index)

    def call(**inputs: Any) -> Any:
        if build is None or not torch.cuda.is_available():
            raise ArchitectureError("a CUDA kernel needs a CUDA device", where=str(source))
        index = torch.cuda.current_device()
        found = run(loaded(index), **inputs)
        record(RouteRecord(build.name, route, f"cuda:{index}", (), build.arch, build.build_id))
        return found

    return Endpoint(call, route, accuracy, certificate, build)
