"""Loading a causal language model and its tokenizer from local files, never from a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verify.dumps.hf.gguf_cache import converted_folder, sha256
from verify.dumps.hf.packaged import PACKAGED_MODELS, PackagedModel, part_paths
from verify.dumps.hf.quiet import quiet_transformers
from verify.errors import ArgumentError, ModelError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ATTENTIONS = ("sdpa", "eager")

_ALIGNMENT = 64
"""Bytes: what torch's allocator aligns to."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory; ``tokenizer`` is a Hugging Face tokenizer, ``source`` says from where."""

    name: str
    model: torch.nn.Module
    tokenizer: Any
    source: dict[str, str]


def load_model(name: str, *, dtype: str = "fp32", attn: str = "sdpa") -> LoadedModel:
    """Load the model that ``--model`` names.

    Args:
        name: ``smollm2``, ``gemma3-270m``, a folder in Hugging Face layout, or a GGUF file.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        attn: attention implementation, ``sdpa`` or ``eager``.

    Raises:
        ModelError: it is not there, does not load, or lacks weights.
        ArgumentError: an unknown dtype or attention.
    """
    _choose("dtype", dtype, DTYPES)
    _choose("attn", attn, ATTENTIONS)
    folder, source = _folder_of(name)
    with quiet_transformers():
        model, tokenizer = _load_folder(folder, DTYPES[dtype], attn)
    model.eval()
    own_aligned_memory(model)
    return LoadedModel(Path(name).name or name, model, tokenizer, source)


def own_aligned_memory(model: torch.nn.Module, alignment: int = _ALIGNMENT) -> None:
    """Copy all weights into memory of their own, aligned to 64 bytes.

    Weights mapped from a file start wherever the file's header ends, and one-row matrix products
    of a CPU give other bits at other addresses modulo 16.

    Args:
        alignment: a smaller power of two puts them at addresses that are odd multiples of it, to
            run again what was recorded with mapped weights.
    """
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = _placed(tensor.data, alignment % _ALIGNMENT)


def _placed(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """A copy whose address is ``offset`` modulo 64, as far as its elements allow."""
    size = tensor.element_size()
    if offset % size or not tensor.numel():
        return tensor.clone()
    memory = torch.empty(tensor.numel() + 2 * _ALIGNMENT // size, dtype=tensor.dtype)
    first = (offset - memory.data_ptr()) % _ALIGNMENT // size
    return memory[first : first + tensor.numel()].view(tensor.shape).copy_(tensor)


def _choose(what: str, value: str, allowed: Any) -> None:
    if value not in allowed:
        raise ArgumentError(f"unknown {what}", where=what, found=value, allowed=", ".join(allowed))


def _folder_of(name: str) -> tuple[Path, dict[str, str]]:
    """Folder in Hugging Face layout, and facts about where it comes from."""
    if packaged := PACKAGED_MODELS.get(name):
        return _packaged_folder(packaged)
    path = Path(name)
    if path.is_file():
        digest = sha256([path])
        return converted_folder([path], digest), {"file": path.name, "sha256": digest}
    if not path.exists():
        raise ModelError(
            "there is no such model",
            where=name,
            allowed=f"a Hugging Face folder, a GGUF file, or {', '.join(PACKAGED_MODELS)}",
            hint="models are loaded from local files only; download it first",
        )
    if not (path / "config.json").is_file():
        raise ModelError(
            "the folder is not a model in Hugging Face layout",
            where=path,
            found="no config.json",
            allowed="config.json, *.safetensors and a tokenizer, as save_pretrained writes them",
        )
    return path, {"folder": path.name}


def _packaged_folder(packaged: PackagedModel) -> tuple[Path, dict[str, str]]:
    paths = part_paths(packaged)
    digest = sha256(paths)
    if digest != packaged.sha256:
        raise ModelError(
            f"the file of the model {packaged.name!r} is not the one that is pinned",
            where=paths[0],
            found=f"sha256 {digest}",
            allowed=f"sha256 {packaged.sha256}",
            hint=packaged.install,
        )
    source = {"file": paths[0].name, "sha256": digest, "licence": packaged.licence}
    return converted_folder(paths, digest), source


def _load_folder(folder: Path, dtype: torch.dtype, attn: str) -> tuple[Any, Any]:
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        model, report = AutoModelForCausalLM.from_pretrained(
            str(folder),
            local_files_only=True,
            dtype=dtype,
            attn_implementation=attn,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises whatever its parsers meet
        raise ModelError(
            "the model does not load",
            where=folder,
            found=f"{type(error).__name__}: {error}",
            hint="it must load with AutoModelForCausalLM and AutoTokenizer without a network",
        ) from error
    missing = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if missing:
        # transformers would fill them with random numbers.
        raise ModelError(
            "the folder lacks weights of the model",
            where=folder,
            found=f"{len(missing)} missing or of another shape, first {missing[0]}",
            hint="restore the folder from its source",
        )
    return model, tokenizer
