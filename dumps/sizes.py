"""Sizes in bytes, as people write them."""

from __future__ import annotations

from verify.errors import ArgumentError

_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_bytes(text: str, where: str) -> int:
    """``500M`` and the like; K, M, G and T are powers of 1000.

    Raises:
        ArgumentError: no number of bytes.
    """
    unit = _UNITS.get(text[-1:].upper())
    number, factor = (text, 1) if unit is None else (text[:-1], unit)
    try:
        return int(float(number) * factor)
    except (ValueError, OverflowError):
        raise ArgumentError(
            "not a number of bytes", where=where, found=text, allowed="500M, 2G, 1000000"
        ) from None
