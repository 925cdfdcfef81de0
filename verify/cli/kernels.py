"""``verify kernels list | build | show``: what the kernels are, and what they compile to."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections import Counter

    from verify.gpu.compile import KernelBuild

app = typer.Typer(
    help="List, compile and inspect the CUDA kernels; needs NVRTC, no GPU and no toolkit.",
    no_args_is_help=True,
)

_JSON = typer.Option(False, "--json", help="Print JSON.")
_NAMES = typer.Argument(None, help="Kernels by name. Default: all that are for the architecture.")
_ARCH = typer.Option([], "--arch", help="For example sm_70; several are allowed. Default: all.")


@app.command("list")
def list_kernels(as_json: bool = _JSON) -> None:
    """Name every kernel variant, the architectures it is built for, and its conventions."""
    from verify.gpu.table import VARIANTS, head_groups

    rows = [
        {"name": v.name, "archs": list(v.archs), "mass": v.mass, "source": v.source,
         "summary": v.summary}
        for v in VARIANTS.values()
    ]  # fmt: skip
    groups = [list(group) for group in head_groups()]
    if as_json:
        typer.echo(json.dumps({"kernels": rows, "head_groups": groups}, indent=1))
        return
    table = Table("kernel", "architectures", "mass", "what")
    for v in VARIANTS.values():
        table.add_row(v.name, " ".join(v.archs), v.mass, v.summary)
    Console().print(table)
    admitted = ", ".join(f"{q}/{kv}" for q, kv in groups)
    Console().print(f"query heads / key heads admitted: {admitted}")


@app.command()
def build(
    names: list[str] = _NAMES,
    arch: list[str] = _ARCH,
    as_json: bool = _JSON,
) -> None:
    """Compile kernels and report registers, shared memory and spills against the chip's limits."""
    builds = [b for name in names or _names_for(arch) for b in _builds(name, arch)]
    if as_json:
        typer.echo(json.dumps([_describe(b) for b in builds], indent=1))
        return
    table = Table("kernel", "arch", "entry", "threads", "registers", "shared", "spills", "build id")
    for item in builds:
        for used in item.resources:
            spilled = used.spill_stores + used.spill_loads
            table.add_row(
                item.variant.name, item.arch, used.entry, str(used.threads), str(used.registers),
                str(used.shared), str(spilled), item.build_id[:12],
            )  # fmt: skip
    Console().print(table)


@app.command()
def show(name: str, arch: list[str] = _ARCH, as_json: bool = _JSON) -> None:
    """Everything about one kernel: options, resources, instruction counts, build id."""
    from verify.gpu.compile import sass_counts

    described = [
        _describe(b) | {"instructions": _top(sass_counts(b.cubin))} for b in _builds(name, arch)
    ]
    if as_json:
        typer.echo(json.dumps(described, indent=1))
        return
    for item in described:
        typer.echo(json.dumps(item, indent=1))


def _names_for(archs: list[str]) -> list[str]:
    """Kernels that have a build for every one of ``archs``."""
    from verify.gpu.compile import arch_limits
    from verify.gpu.table import VARIANTS

    for arch in archs:
        arch_limits(arch)
    return [name for name, variant in VARIANTS.items() if set(archs) <= set(variant.archs)]


def _builds(name: str, archs: list[str]) -> list[KernelBuild]:
    """Builds of one kernel: for ``archs``, or for all of its own."""
    from verify.gpu.compile import build_kernel
    from verify.gpu.table import get_variant

    variant = get_variant(name)
    return [build_kernel(variant, arch) for arch in archs or variant.archs]


def _describe(item: KernelBuild) -> dict[str, object]:
    return {
        "name": item.variant.name,
        "arch": item.arch,
        "build_id": item.build_id,
        "compiler": item.compiler,
        "source": item.variant.source,
        "source_digest": item.source_digest,
        "mass": item.variant.mass,
        "options": item.options.as_dict(),
        "resources": [
            dataclasses.asdict(used) | {"shared": used.shared} for used in item.resources
        ],
    }


def _top(counts: dict[str, Counter[str]] | None) -> dict[str, dict[str, int]] | str:
    if counts is None:
        return "no disassembler that reads this architecture: set VERIFY_NVDISASM"
    return {entry: dict(found.most_common()) for entry, found in counts.items()}
