"""Opening two dumps, the second through a tap map if there is one."""

from __future__ import annotations

from pathlib import Path

from verify.dumps.format import Dump, open_dump


def open_mapped(a: str | Path, b: str | Path, tap_map: str | None) -> tuple[Dump, Dump]:
    """Two dumps under the names of the first.

    Args:
        tap_map: name of a shipped map or path of a file; None: the dumps as they are.

    Raises:
        ArgumentError: no such map, or it does not fit the runs.
        DumpError: missing, not a dump, or broken.
    """
    first, second = open_dump(a), open_dump(b)
    if tap_map is None:
        return first, second
    from verify.taps.apply import apply_map
    from verify.taps.load import load_map

    mapped = apply_map(first, second, load_map(tap_map))
    return mapped.a, mapped.b
