"""Compiled kernels on disk, under the hash of everything that decided their code."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from verify.env.user_cache import cache_folder


def cache_dir() -> Path:
    """``kernels`` in the user's cache folder."""
    return cache_folder() / "kernels"


def load(build_id: str) -> tuple[bytes, str] | None:
    """Cubin and compiler log stored under ``build_id``; None when absent or damaged."""
    path = cache_dir() / f"{build_id}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        cubin = path.with_suffix(".cubin").read_bytes()
        intact = hashlib.sha256(cubin).hexdigest() == record["cubin_sha256"]
        return (cubin, record["log"]) if intact else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(build_id: str, cubin: bytes, log: str, inputs: dict[str, object]) -> None:
    """Keep a build. A cache that cannot be written costs time later and nothing else."""
    record = {"cubin_sha256": hashlib.sha256(cubin).hexdigest(), "log": log, "inputs": inputs}
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        _replace(cache_dir() / f"{build_id}.cubin", cubin)
        _replace(cache_dir() / f"{build_id}.json", json.dumps(record, indent=1).encode())
    except OSError:
        return


def _replace(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees all of it or the file before."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.replace(temporary, path)
