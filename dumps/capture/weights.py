"""Parameters and buffers: their names by memory, and their digests for the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
import xxhash

from verify.dumps.capture.storages import StorageTable
from verify.dumps.capture.tensor_words import tensor_digest


def named_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All parameters and buffers, non-persistent ones too; tied ones under every name."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def name_weights(model: torch.nn.Module, table: StorageTable) -> None:
    """Let the table know all weights, so that provenance names them."""
    for name, tensor in named_weights(model):
        table.name_weight(tensor, name)


def weight_digests(model: torch.nn.Module) -> dict[str, str]:
    """Name -> digest of dtype, shape and words (``tensor_digest``); tied ones are hashed once."""
    known: dict[int, str] = {}
    found = {}
    for name, tensor in named_weights(model):
        if id(tensor) not in known:
            known[id(tensor)] = tensor_digest(tensor, name)
        found[name] = known[id(tensor)]
    return found


def part_digests(model: torch.nn.Module) -> dict[str, str]:
    """``name[start:stop]`` -> digest of these rows of a fused weight, where the module says what it
    consists of: ``output_sizes``, as fused linear layers of vLLM and SGLang have it.

    They are compared with the weights of an implementation that does not fuse (docs/taps.md).
    """
    found = {}
    for path, module in model.named_modules():
        sizes = getattr(module, "output_sizes", None)
        if not isinstance(sizes, list) or len(sizes) < 2:
            continue
        for name, tensor in module.named_parameters(path, recurse=False):
            if tensor.ndim and tensor.shape[0] == sum(sizes):
                ends = list(accumulate(sizes, initial=0))
                for start, stop in pairwise(ends):
                    place = f"{name}[{start}:{stop}]"
                    found[place] = tensor_digest(tensor[start:stop], place)
    return found


def joint_digest(digests: dict[str, str]) -> str:
    """One digest for all weights: of the lines ``<name> <digest>``, sorted by name."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return xxhash.xxh3_128_hexdigest(lines.encode())
