"""What a GGUF file states: its tensors and the numbers of its header."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.errors import ModelError


class GgufFile:
    """A GGUF file, mapped into memory; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

    Raises:
        ModelError: gguf is not installed, or this is no GGUF file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            from gguf import GGUFReader
        except ImportError as error:
            raise ModelError(
                "gguf is not installed", found=error, hint="pip install 'firstdiff[llamacpp]'"
            ) from None
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError) as error:
            raise ModelError("not a GGUF file", where=path, found=error) from None

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        return {tensor.name: tensor for tensor in self._reader.tensors}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    @property
    def architecture(self) -> str:
        return str(self._field("general.architecture"))

    def number(self, key: str, default: float | None = None) -> float:
        """A number of the header under the name of the architecture, for example ``rope.freq_base``.

        Raises:
            ModelError: it is not there, and there is no ``default``.
        """
        found = self._field(f"{self.architecture}.{key}")
        found = default if found is None else found
        if not isinstance(found, int | float):
            raise ModelError(
                "the GGUF file does not state this number",
                where=self.path, found=found, allowed=f"{self.architecture}.{key}",
            )  # fmt: skip
        return found

    def states(self, key: str) -> bool:
        """Whether the header has an entry of that name, under the name of the architecture."""
        return self._field(f"{self.architecture}.{key}") is not None

    def raw(self, name: str) -> tuple[str, NDArray[np.uint8], int]:
        """Format of a matrix, its bytes [rows, bytes a row], and its columns.

        Raises:
            ModelError: no such tensor.
        """
        found = self._tensors.get(name)
        if found is None and name == "output.weight":  # tied to the embedding
            found = self._tensors.get("token_embd.weight")
        if found is None:
            raise ModelError("the GGUF file has no such tensor", where=self.path, found=name)
        columns, rows = int(found.shape[0]), int(np.prod(found.shape[1:], dtype=np.int64))
        data = np.ascontiguousarray(found.data).reshape(rows, -1).view(np.uint8)
        return str(found.tensor_type.name), data, columns

    def values(self, name: str) -> NDArray[np.float32]:
        """A tensor as float32 [rows, columns], decoded by the package ``gguf``.

        Raises:
            ModelError: no such tensor.
        """
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        kind, data, _ = self.raw(name)
        found: NDArray[np.float32] = dequantize(
            data.view(np.float32) if kind == "F32" else data.view(np.float16)
            if kind == "F16" else data, GGMLQuantizationType[kind],
        )  # fmt: skip
        return found.reshape(len(data), -1)

    def _field(self, key: str) -> Any:
        field = self._reader.get_field(key)
        return None if field is None else field.contents()


@lru_cache(maxsize=4)
def open_gguf(path: Path) -> GgufFile:
    """The file at ``path``; opened once."""
    return GgufFile(path)
