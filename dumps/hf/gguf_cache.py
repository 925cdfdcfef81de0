"""GGUF files, converted once to safetensors in a cache folder that is keyed by their SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from verify.errors import ModelError, StorageError

MAGIC = b"GGUF"
SOURCE = "source.json"
_CHUNK = 1 << 20


def cache_folder() -> Path:
    """``VERIFY_CACHE``, else ``verify`` in the user's cache folder (XDG base directories)."""
    if given := os.environ.get("VERIFY_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "verify" if base else Path.home() / ".cache" / "verify"


def sha256(paths: Sequence[Path]) -> str:
    """SHA-256 of the files, joined."""
    state = hashlib.sha256()
    for block in _blocks(paths):
        state.update(block)
    return state.hexdigest()


def converted_folder(paths: Sequence[Path], digest: str) -> Path:
    """Folder with model and tokenizer of a GGUF file (given in parts) as float32 safetensors.

    Raises:
        ModelError: the file is not GGUF, or transformers cannot convert it.
        StorageError: the cache folder cannot be written.
    """
    folder = cache_folder() / "gguf" / digest
    if (folder / SOURCE).is_file():
        return folder
    _check_magic(paths[0])
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{digest[:12]}.") as name:
            _convert(paths, digest, Path(name))
            # Another process may have been faster; its folder holds the same.
            with contextlib.suppress(OSError):
                os.rename(Path(name) / "model", folder)
    except OSError as error:
        raise StorageError(
            "a converted model could not be stored",
            where=folder,
            found=error,
            hint="free space there, or set VERIFY_CACHE to another folder",
        ) from error
    return folder


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        found = file.read(len(MAGIC))
    if found != MAGIC:
        raise ModelError(
            "this is not a GGUF file",
            where=path,
            found=f"first bytes {found!r}",
            allowed=repr(MAGIC),
            hint="name a .gguf file or a folder that save_pretrained wrote",
        )


def _convert(paths: Sequence[Path], digest: str, scratch: Path) -> None:
    """Write the converted model into ``scratch/model``."""
    from verify.dumps.hf.quiet import quiet_transformers

    source = paths[0]
    if len(paths) > 1:
        source = scratch / "joined.gguf"
        with source.open("wb") as file:
            for block in _blocks(paths):
                file.write(block)
    target = scratch / "model"
    with quiet_transformers():
        model, tokenizer = _load_gguf(source)
        # The weights are plain float32 now: the saved config must not ask for GGUF again.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    facts = {"sha256": digest, "file": paths[0].name, "converted_by": _versions()}
    (target / SOURCE).write_text(json.dumps(facts, indent=1))
    if len(paths) > 1:
        source.unlink()


def _load_gguf(path: Path) -> tuple[Any, Any]:
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        tokenizer = AutoTokenizer.from_pretrained(**where)
        model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except Exception as error:  # transformers raises whatever its parsers meet
        raise ModelError(
            "transformers cannot load this GGUF file",
            where=path,
            found=f"{type(error).__name__}: {error}",
            hint="needs transformers, accelerate and gguf (the `demo` extra), and an architecture "
            "that transformers can read from GGUF",
        ) from error
    return model, tokenizer


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("transformers", "gguf")}


def _blocks(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                yield block
