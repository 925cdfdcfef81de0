"""Opening a run, whoever wrote it: a dump as it is, a dump of another tool by way of a temporary one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from verify.dumps.format import Dump, layout, open_dump
from verify.dumps.format.remote import is_url
from verify.dumps.format.schema import FORMAT_NAME


def open_run(path: str | Path, say: Callable[[str], None] | None = None) -> Dump:
    """The dump at ``path``; a dump of another tool is imported into a temporary run, which is there
    until the process ends.

    Args:
        say: told what was imported.

    Raises:
        DumpError: nothing there, of no known kind, or broken.
    """
    if is_own(path):
        return open_dump(path)
    from verify.dumps.importers.registry import open_source, recognise
    from verify.dumps.importers.writing import write_run

    place = Path(path)
    found = recognise(place)
    if found is None:
        return open_dump(path)  # says what is wrong with it as a dump
    imported = open_source(place, found.name)
    folder = Path(tempfile.mkdtemp(prefix="verify-import-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run = folder / place.resolve().name
    count = write_run(imported, run)
    if say is not None:
        say(f"{path}: {found.title}: {count:,} records imported into a temporary run")
    return open_dump(run)


def is_own(path: str | Path) -> bool:
    """Whether a path is for dump format 1 to open: a URL, a dump, what is left of one, or nothing."""
    if is_url(path):
        return True
    place = Path(path)
    if not place.exists():
        return True
    if not place.is_dir():
        return False
    manifest = place / layout.MANIFEST
    try:
        if manifest.is_file() and FORMAT_NAME.encode() in manifest.read_bytes():
            return True
    except OSError:
        return True  # opening it as a dump says what is wrong
    ranks = [entry for entry in place.iterdir() if layout.rank_of(entry.name) is not None]
    return any(layout.part_of(part.name) is not None for rank in ranks for part in rank.glob("*"))
