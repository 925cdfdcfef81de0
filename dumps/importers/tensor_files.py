"""Tensors out of npy, npz, safetensors and torch files, bit for bit, without running anything.

Pickle is read by ``torch.load(weights_only=True)`` alone, and numpy reads none at all.
"""

from __future__ import annotations

import io
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

from verify.dumps.importers.faults import broken, read_bytes, refused
from verify.dumps.importers.names import natural
from verify.dumps.importers.observation import Tensor
from verify.errors import VerifyError
from verify.formats import FORMATS, word_dtype

SUFFIXES: Final = (".npy", ".npz", ".pt", ".pth", ".safetensors")
_SAFETENSORS: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
_ZIP_ERRORS: Final = (
    OSError, EOFError, ValueError, RuntimeError, KeyError, IndexError, OverflowError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
"""What zipfile raises for damaged archives (NotImplementedError is a RuntimeError)."""
_GLOBAL: Final = re.compile(r"(?:GLOBAL|global:?) `?([\w.]+)`?|type `?([\w.]+)`?")


def read_tensors(path: Path, raw_dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a file and their keys (empty for a bare tensor), whatever its suffix.

    Args:
        raw_dtype: format of the elements of an npy file that stores them as raw bytes.

    Raises:
        DumpError: truncated, of another kind, or with more in it than tensors.
    """
    kind = kind_of(path)
    if kind == "npy":
        yield "", read_npy(_open(path), path, raw_dtype)
    elif kind == "npz":
        yield from _read_npz(path, raw_dtype)
    elif kind == "safetensors":
        yield from _read_safetensors(path)
    elif kind == "torch":
        yield from tensors_in(load_torch(path), path)
    else:
        raise broken(path, "no npy, npz, safetensors or torch file")


def kind_of(path: Path) -> str:
    """``npy``, ``npz``, ``safetensors``, ``torch`` or nothing, by the first bytes of the file."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return ""
    if head.startswith(npy.MAGIC_PREFIX):
        return "npy"
    if head.startswith(b"PK"):
        return _kind_of_zip(path)
    if len(head) > 8 and head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] < 1 << 27:
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return "torch"
    return ""


def _kind_of_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _ZIP_ERRORS:
        return "npz" if path.suffix == ".npz" else "torch"
    return "npz" if all(name.endswith(".npy") for name in names) else "torch"


def _open(path: Path) -> io.BytesIO:
    return io.BytesIO(read_bytes(path))


def read_npy(file: Any, where: object, raw_dtype: str | None = None) -> Tensor:
    """One npy array from an open file.

    Raises:
        DumpError: truncated, no npy, or Python objects.
    """
    try:
        array = npy.read_array(file, allow_pickle=False)
    except ValueError as error:
        if "llow_pickle" in str(error):
            raise refused(where, "an array of Python objects (pickle)") from None
        raise broken(where, error) from None
    except (*_ZIP_ERRORS, SyntaxError, TypeError, MemoryError, tokenize.TokenError) as error:
        raise broken(where, error) from None
    return _of_numpy(array, where, raw_dtype)


def _of_numpy(array: np.ndarray, where: object, raw_dtype: str | None) -> Tensor:
    name = array.dtype.name
    if array.dtype.kind == "V" and array.dtype.fields is None:
        # Formats that numpy does not know are stored as bytes; only one has two of them.
        name = raw_dtype or ("bfloat16" if array.dtype.itemsize == 2 else name)
    if name not in FORMATS or word_dtype(name).itemsize != array.dtype.itemsize:
        raise broken(
            where,
            f"elements of numpy dtype {array.dtype}",
            "name the format of raw bytes with --dtype GLOB=FORMAT, for example float8_e4m3fn",
        )
    strides = [step // array.dtype.itemsize for step in array.strides]
    if array.dtype.byteorder == ">":
        array = array.byteswap()
    words = np.ascontiguousarray(array).reshape(array.shape).view(word_dtype(name))
    return Tensor(words, name, strides)


def _read_npz(path: Path, raw_dtype: str | None) -> Iterator[tuple[str, Tensor]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    where = f"{path}: {name}"
                    yield name.removesuffix(".npy"), read_npy(file, where, raw_dtype)
    except _ZIP_ERRORS as error:
        raise broken(path, error) from None


def _read_safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import SafetensorError, deserialize

    try:
        entries = deserialize(_open(path).getvalue())  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise broken(path, error) from None
    # They come in no order.
    for name, entry in sorted(entries, key=lambda pair: natural(pair[0])):
        dtype = _SAFETENSORS.get(entry["dtype"])
        if dtype is None:
            raise broken(f"{path}: {name}", f"elements of {entry['dtype']}", "save another dtype")
        words = np.frombuffer(entry["data"], word_dtype(dtype)).reshape(entry["shape"])
        yield name, Tensor(words, dtype)


def load_torch(path: Path | io.BytesIO, where: object = None) -> Any:
    """What ``torch.save`` wrote, read by the restricted unpickler of torch.

    Raises:
        DumpError: truncated or no torch file; or an object of a kind that the restricted unpickler
            refuses, which the message names.
    """
    import pickle

    import torch

    where = where or path
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about protocols that are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if found := _GLOBAL.search(str(error)):
            raise refused(where, f"the global {found[1] or found[2]}") from None
        if name := _first_global(path):
            raise refused(
                where, f"a pickle that is no torch file, with the global {name}"
            ) from None
        raise broken(where, str(error).splitlines()[-1]) from None
    except Exception as error:  # noqa: BLE001  torch's readers raise errors of many types
        text = (str(error).splitlines() or [""])[0]
        raise broken(where, f"{type(error).__name__}: {text}"[:200]) from None


def _first_global(path: Path | io.BytesIO) -> str:
    """The first name that a pickle would import, read from its opcodes without running them."""
    import pickletools

    texts: list[str] = []
    try:
        data = path.getvalue() if isinstance(path, io.BytesIO) else path.read_bytes()
        for code, argument, _ in pickletools.genops(data):
            if code.name in ("GLOBAL", "INST"):
                return str(argument).replace(" ", ".")
            if code.name == "STACK_GLOBAL":
                return ".".join(texts[-2:])
            if isinstance(argument, str):
                texts.append(argument)
    except (OSError, ValueError):
        return ""
    return ""


def tensors_in(value: Any, where: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Tensors in nested lists and tables, by their path, for example ``layers.0.k``."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, of_torch(value, f"{where}: {name}" if name else where)
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from tensors_in(item, where, f"{name}.{key}" if name else str(key))


def of_torch(tensor: Any, where: object) -> Tensor:
    """A torch tensor as words.

    Raises:
        DumpError: sparse, quantised, or of a dtype without a format here.
    """
    from verify.dumps.capture.tensor_words import dtype_name, words

    try:
        name = dtype_name(tensor, str(where))
    except VerifyError as error:
        raise broken(where, error.found, "save the tensor as a dense one") from None
    return Tensor(words(tensor), name, list(tensor.stride()), tensor.storage_offset())
