"""What a ``ggml_tensor`` is: read through ctypes, and held against the library's own accessors.

The struct is no stable interface of ggml, so every tensor that is read is checked: its name, its
number of elements and of bytes as the library gives them. A build with another layout is refused.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.errors import ModelError

_DTYPES = {0: ("float32", np.uint32), 1: ("float16", np.uint16), 26: ("int32", np.uint32),
           27: ("int64", np.uint64), 30: ("bfloat16", np.uint16)}  # fmt: skip
"""Number of enum ggml_type -> dtype and word; https://github.com/ggml-org/ggml, include/ggml.h."""
_SOURCES = 10


class _Struct(ctypes.Structure):
    _fields_ = (
        ("type", c_int), ("buffer", c_void_p), ("ne", c_int64 * 4), ("nb", c_size_t * 4),
        ("op", c_int), ("op_params", c_int32 * 16), ("flags", c_int32),
        ("src", c_void_p * _SOURCES), ("view_src", c_void_p), ("view_offs", c_size_t),
        ("data", c_void_p), ("name", c_char * 64),
    )  # fmt: skip


class Library:
    """The ggml that llama-cpp-python brings."""

    def __init__(self, folder: Path) -> None:
        found = sorted(folder.glob("libggml-base*"))
        if not found:
            raise ModelError(
                "no ggml library beside llama_cpp", where=folder, allowed="libggml-base"
            )
        self._lib = ctypes.CDLL(str(found[0]))
        for name, result in (
            ("ggml_get_name", c_char_p), ("ggml_op_desc", c_char_p), ("ggml_type_name", c_char_p),
            ("ggml_nelements", c_int64), ("ggml_nbytes", c_size_t), ("ggml_version", c_char_p),
            ("ggml_commit", c_char_p),
        ):  # fmt: skip
            getattr(self._lib, name).restype = result
        for name in ("ggml_get_name", "ggml_op_desc", "ggml_nelements", "ggml_nbytes"):
            getattr(self._lib, name).argtypes = [c_void_p]
        self._lib.ggml_type_name.argtypes = [c_int]
        self._lib.ggml_backend_tensor_get.argtypes = [c_void_p, c_void_p, c_size_t, c_size_t]

    @property
    def version(self) -> str:
        """Version and commit of the build."""
        return f"{self._lib.ggml_version().decode()} ({self._lib.ggml_commit().decode()})"

    def name(self, address: int) -> str:
        name: str = self._lib.ggml_get_name(address).decode(errors="replace")
        return name

    def tensor(self, address: int) -> Tensor:
        """The tensor at ``address``.

        Raises:
            ModelError: the struct of this build has another layout.
        """
        struct = _Struct.from_address(address)
        elements = int(self._lib.ggml_nelements(address))
        if prod(struct.ne) != elements or struct.name.decode(errors="replace") != self.name(
            address
        ):
            raise ModelError(
                "the tensors of this ggml build have another layout than is known here",
                where=f"ggml {self.version}",
                found=f"{list(struct.ne)} for {elements} elements of {self.name(address)!r}",
                hint="install the version of llama-cpp-python that the extra `llamacpp` names",
            )
        return Tensor(self, address, struct)

    def read(self, tensor: Tensor, ndim: int = 4) -> NDArray[Any]:
        """Raw words of the whole tensor, with the last ``ndim`` sizes of :attr:`Tensor.shape`.

        Raises:
            ModelError: blocks of a quantised type, or a tensor that is not contiguous.
        """
        kind = _DTYPES.get(tensor.struct.type)
        size = int(self._lib.ggml_nbytes(tensor.address))
        if kind is None or size != prod(tensor.shape) * np.dtype(kind[1]).itemsize:
            name = self._lib.ggml_type_name(tensor.struct.type).decode()
            raise ModelError("a tensor that is not plain numbers", where=tensor.name, found=name)
        words = np.empty(size, np.uint8)
        self._lib.ggml_backend_tensor_get(tensor.address, words.ctypes.data, 0, size)
        return words.view(kind[1]).reshape(tensor.shape[4 - ndim :])

    def operation(self, address: int) -> str:
        """What the tensor is computed by, for example ``MUL_MAT``."""
        found: str = self._lib.ggml_op_desc(address).decode()
        return found


class Tensor:
    """One node of a graph. ``shape``: its four sizes, from the slowest axis to the fastest."""

    def __init__(self, library: Library, address: int, struct: _Struct) -> None:
        self.address, self.struct = address, struct
        self.name = library.name(address)
        self.shape = tuple(int(n) for n in struct.ne)[::-1]

    @property
    def plain(self) -> bool:
        return self.struct.type in _DTYPES

    @property
    def dtype(self) -> str:
        return _DTYPES[self.struct.type][0]

    @property
    def sources(self) -> list[int]:
        """Addresses of what it was computed from, or is a view of."""
        found = [int(at) for at in self.struct.src if at]
        if not found and self.struct.view_src:
            found = [int(self.struct.view_src)]
        return found
