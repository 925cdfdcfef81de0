"""One fixture that opens writers, and one dump that has been written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dumps.format.small_dumps import make_manifest, write_dump
from verify.dumps.format import DumpWriter


@pytest.fixture
def dump_path(tmp_path: Path) -> Path:
    """A complete dump of three parts."""
    return write_dump(tmp_path / "run")


@pytest.fixture
def writer_at(tmp_path: Path) -> Callable[..., DumpWriter]:
    """Opens writers on fresh folders."""
    count = iter(range(100))

    def open_writer(**options: Any) -> DumpWriter:
        return DumpWriter(tmp_path / f"run-{next(count)}", make_manifest(), **options)

    return open_writer
