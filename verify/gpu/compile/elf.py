"""Read named data out of a cubin, which is a 64-bit little-endian ELF file.

No tool of the CUDA toolkit is needed: the symbol table names each ``__device__`` variable, and its
section holds the initial bytes (ELF-64 Object File Format, version 1.5, sections 4 to 6).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from verify.gpu.errors import CompileError

_SYMTAB = 2
_NOBITS = 8


@dataclass(frozen=True, slots=True)
class _Section:
    name_offset: int
    kind: int
    offset: int
    size: int
    link: int


def read_symbol(cubin: bytes, name: str) -> bytes:
    """Initial bytes of the ``__device__`` variable ``name``. Raises CompileError if absent."""
    sections = _sections(cubin)
    for table in (s for s in sections if s.kind == _SYMTAB):
        strings = sections[table.link]
        for start in range(table.offset, table.offset + table.size, 24):
            name_at, _info, _other, index, value, size = struct.unpack_from("<IBBHQQ", cubin, start)
            if _string(cubin, strings.offset + name_at) != name or not 0 < index < len(sections):
                continue
            section = sections[index]
            if section.kind != _NOBITS:
                begin = section.offset + value
                return bytes(cubin[begin : begin + size])
    raise CompileError("a module lacks a variable that every kernel exports", found=name)


def read_ints(cubin: bytes, name: str) -> tuple[int, ...]:
    """The ``__device__ int`` array ``name`` as Python integers."""
    raw = read_symbol(cubin, name)
    return struct.unpack(f"<{len(raw) // 4}i", raw)


def read_text(cubin: bytes, name: str) -> str:
    """The NUL-terminated ``__device__ char`` array ``name``."""
    return read_symbol(cubin, name).split(b"\0", 1)[0].decode("ascii")


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise CompileError("a compiled kernel is not a 64-bit ELF file", found=cubin[:6].hex())
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count = struct.unpack_from("<HH", cubin, 0x3A)
    found = []
    for start in range(table, table + entry_size * count, entry_size):
        fields = struct.unpack_from("<IIQQQQIIQQ", cubin, start)
        found.append(_Section(fields[0], fields[1], fields[4], fields[5], fields[6]))
    return found


def _string(cubin: bytes, start: int) -> str:
    return bytes(cubin[start : cubin.index(b"\0", start)]).decode("utf-8", "replace")
