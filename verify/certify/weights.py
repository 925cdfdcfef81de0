"""Weights for a certificate: a dump keeps their digests, so a file must bring them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.dumps.format.schema import Manifest
from verify.errors import ArgumentError

if TYPE_CHECKING:
    import torch


class WeightSource:
    """Tensors by name from safetensors files, or from a model that ``verify capture`` can load.

    Args:
        where: a ``.safetensors`` file, a folder of them, or a model name such as ``smollm2``;
            None where no weights were given.
        manifest: of the run; its digests decide whether a tensor is the one that ran.
    """

    def __init__(self, where: str | None, manifest: Manifest) -> None:
        self._where = where
        self._digests = manifest.model.weights

    def check(self) -> None:
        """Open the source, if one was given, so that one that cannot be read is said at once.

        Raises:
            ArgumentError: not a safetensors file.
            ModelError: no file, folder or model of that name.
        """
        if self._where is not None:
            _ = self._readers

    def get(self, name: str) -> torch.Tensor:
        """The weight that the run calls ``name``, in the dtype that ran.

        Raises:
            ArgumentError: no source was given, it lacks the weight, or holds another one.
        """
        if self._where is None:
            raise ArgumentError(
                "this operation reads weights, and a dump keeps only their digests",
                where=name,
                hint="pass --weights: a safetensors file, a folder of them, or a model name",
            )
        given = self._load(name)
        if name not in self._digests:
            return given
        for candidate in _in_dtypes(given):
            if self._digest(candidate, name) == self._digests[name]:
                return candidate
        raise ArgumentError(
            "this is not the weight that ran",
            where=f"{self._where}: {name}",
            found=f"digest {self._digest(given, name)} as {given.dtype}",
            allowed=f"digest {self._digests[name]}, in any floating-point dtype",
        )

    def _digest(self, tensor: torch.Tensor, name: str) -> str:
        from verify.dumps.capture.tensor_words import tensor_digest

        return tensor_digest(tensor, name)

    def _load(self, name: str) -> torch.Tensor:
        # Tied weights have several names and may be stored under any of them.
        alike = [n for n, d in self._digests.items() if d == self._digests.get(name) and n != name]
        for known in (name, *alike):
            if known in self._readers:
                tensor: torch.Tensor = self._readers[known](known)
                return tensor
        raise ArgumentError("no such weight", where=self._where, found=name)

    @cached_property
    def _readers(self) -> dict[str, Callable[[str], Any]]:
        """Name -> how to read it."""
        path = Path(self._where or "")
        files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
        if path.suffix == ".gguf" or not (path.exists() and files):
            return self._from_model()
        from safetensors import SafetensorError, safe_open

        readers: dict[str, Callable[[str], Any]] = {}
        for file in files:
            try:
                opened = safe_open(file, framework="pt")
            except SafetensorError as error:
                raise ArgumentError("not a safetensors file", where=file, found=error) from None
            names: list[str] = opened.keys()  # type: ignore[no-untyped-call]
            readers.update(dict.fromkeys(names, opened.get_tensor))
        return readers

    def _from_model(self) -> dict[str, Callable[[str], Any]]:
        tensors = _model_weights(self._where or "")
        return dict.fromkeys(tensors, tensors.__getitem__)


@lru_cache(maxsize=1)
def _model_weights(name: str) -> dict[str, torch.Tensor]:
    """Weights of a model by name; both sides of a pair read the same one."""
    from verify.dumps.capture.weights import named_weights
    from verify.dumps.hf.load import load_model

    return dict(named_weights(load_model(name).model))


def _in_dtypes(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """As given, and cast as loading a model in another dtype casts."""
    import torch

    yield tensor
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        if tensor.is_floating_point() and tensor.dtype != dtype:
            yield tensor.to(dtype)


def gguf_path(where: str | None) -> Path | None:
    """The GGUF file that weights come from: the file itself, or that of a packaged model."""
    if where is None:
        return None
    if where.endswith(".gguf"):
        return Path(where)
    from verify.dumps.hf.packaged import PACKAGED_MODELS, part_paths

    model = PACKAGED_MODELS.get(where)
    parts = [] if model is None else part_paths(model)
    return parts[0] if len(parts) == 1 else None
