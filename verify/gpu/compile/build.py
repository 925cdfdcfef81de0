"""From a row of the kernel table to machine code with a build id that can be read back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from verify.gpu.compile import cache
from verify.gpu.compile.elf import read_ints, read_text
from verify.gpu.compile.limits import arch_limits
from verify.gpu.compile.nvrtc import compile_cubin, find_compiler
from verify.gpu.compile.options import CompileOptions
from verify.gpu.compile.resources import LaunchFacts, Resources, check_limits, parse_report
from verify.gpu.compile.source import KernelSource, read_source
from verify.gpu.compile.variant import KernelVariant
from verify.gpu.errors import ArchitectureError, StaleBuildError

BUILD_ID_SYMBOL = "verify_build_id"


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """One variant compiled for one architecture.

    ``build_id`` is the SHA-256 of the source with its headers, the options (mass convention and
    head counts are among the macros), the architecture and the compiler. The module carries it.
    """

    variant: KernelVariant
    arch: str
    options: CompileOptions
    build_id: str
    source_digest: str
    compiler: str
    cubin: bytes
    log: str
    resources: tuple[Resources, ...]
    from_cache: bool

    def ints(self, symbol: str) -> tuple[int, ...]:
        """A table of integers that the source exports, for example tile sizes."""
        return read_ints(self.cubin, symbol)

    def entry(self, name: str) -> Resources:
        """Resources of the entry point ``name``."""
        return next(item for item in self.resources if item.entry == name)


def build_kernel(
    variant: KernelVariant, arch: str, *, defines: tuple[tuple[str, str], ...] = ()
) -> KernelBuild:
    """Compile ``variant`` for ``arch``, or take it from the cache.

    Args:
        variant: a row of ``verify.gpu.table.VARIANTS``.
        arch: for example ``"sm_70"``.
        defines: macros beside those of the variant, for example the head counts.

    Raises ArchitectureError when the variant is not for ``arch``, CompileError with the compiler's
    log, ResourceLimitError when a block would not fit, StaleBuildError when the module does not
    carry the id that belongs to it.
    """
    if arch not in variant.archs:
        raise ArchitectureError(
            "this kernel is not built for that architecture",
            where=variant.name,
            found=arch,
            allowed=", ".join(variant.archs),
        )
    arch_limits(arch)
    source = read_source(variant.source)
    options = variant.options.with_defines(*variant.default_defines, *defines)
    inputs = _build_inputs(source, options, arch)
    build_id = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    stored = cache.load(build_id)
    cubin, log = stored or _compile(source, options, arch, build_id)
    check_build_id(read_text(cubin, BUILD_ID_SYMBOL), build_id, variant.name)
    if stored is None:
        cache.store(build_id, cubin, log, inputs)
    launches = {name: LaunchFacts(*read_ints(cubin, f"{name}_launch")) for name in variant.entries}
    resources = parse_report(log, launches)
    for item in resources:
        check_limits(item, arch)
    return KernelBuild(
        variant=variant,
        arch=arch,
        options=options,
        build_id=build_id,
        source_digest=source.digest,
        compiler=find_compiler().identity,
        cubin=cubin,
        log=log,
        resources=resources,
        from_cache=stored is not None,
    )


def check_build_id(found: str, wanted: str, name: str) -> None:
    """Raise StaleBuildError unless a module says that it is the build that was asked for."""
    if found != wanted:
        raise StaleBuildError(
            "a loaded module is another build",
            where=name,
            found=found,
            allowed=wanted,
            hint="delete the kernel cache and try again",
        )


def _build_inputs(source: KernelSource, options: CompileOptions, arch: str) -> dict[str, object]:
    return {
        "source": source.digest,
        "entry_file": source.name,
        "options": options.as_dict(),
        "arch": arch,
        "compiler": find_compiler().identity,
    }


def _compile(
    source: KernelSource, options: CompileOptions, arch: str, build_id: str
) -> tuple[bytes, str]:
    stamped = options.with_defines(("VERIFY_BUILD_ID", f'"{build_id}"'))
    return compile_cubin(source.text, source.name, arch, stamped, folder=source.folder)
