"""Opening two dumps: as one rank each where their ranks differ, the second through a tap map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from verify.dumps.format import Dump
from verify.dumps.importers.opening import open_run


def open_mapped(
    a: str | Path,
    b: str | Path,
    tap_map: str | None,
    layouts: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[Dump, Dump]:
    """Two dumps, or dumps of other tools, under the names of the first.

    Args:
        tap_map: name of a shipped map or path of a file; None: the dumps as they are.
        layouts: globs on tap names to layouts of tensors over ranks, before declared ones.
        say: told what was imported from another tool.

    Raises:
        ArgumentError: no such map, or it or a layout does not fit the runs.
        DumpError: missing, not a dump, or broken.
    """
    from verify.ranks.pair import same_ranks
    from verify.taps.logs import align_logs

    first, second = same_ranks(open_run(a, say), open_run(b, say), layouts)
    if tap_map is None:
        return first, align_logs(first, second)
    from verify.taps.apply import apply_map
    from verify.taps.load import load_map

    mapped = apply_map(first, second, load_map(tap_map))
    return mapped.a, mapped.b
