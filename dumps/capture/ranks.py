"""Several processes that write one dump: which rank this is, and who waits for whom.

The processes agree through the folder alone. A collective of their own would show in the run that is
observed, and would hang where a rank has died.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from verify.dumps.format import DumpWriter, layout
from verify.dumps.format.manifest import read_manifest
from verify.errors import DumpError

WAIT_SECONDS: Final = 60.0
"""How long a rank waits for rank 0 to begin, and rank 0 for the others to end."""
_PAUSE: Final = 0.02


def this_rank(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """Rank and number of ranks: as given, else as torch.distributed says, else one."""
    distributed = sys.modules.get("torch.distributed")
    found = (0, 1)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        found = (distributed.get_rank(), distributed.get_world_size())
    return (found[0] if rank is None else rank, found[1] if ranks is None else ranks)


def shared_run_id(path: str | Path, rank: int, run_id: str | None) -> str | None:
    """The id that all ranks write under: as given, else rank 0 chooses and the others read it.

    Raises:
        DumpError: rank 0 has not begun its dump in time.
    """
    if rank == 0 or run_id is not None:
        return run_id
    manifest = Path(path) / layout.MANIFEST
    until = time.monotonic() + WAIT_SECONDS
    while not manifest.exists():
        if time.monotonic() > until:
            raise DumpError(
                "rank 0 has not begun its dump",
                where=path,
                found=f"no {layout.MANIFEST} after {WAIT_SECONDS:.0f} s",
                hint="all ranks write into one folder; where they share none, give run_id=...",
            )
        time.sleep(_PAUSE)
    return read_manifest(Path(path)).run_id


def wait_for_others(writer: DumpWriter) -> None:
    """Rank 0 closes last: wait until the others have. One that does not leaves the dump open."""
    if writer.rank != 0:
        return
    until = time.monotonic() + WAIT_SECONDS
    for rank in range(1, writer.manifest.ranks):
        end = writer.path / layout.rank_name(rank) / layout.RANK_END
        while not end.exists() and time.monotonic() < until:
            time.sleep(_PAUSE)
