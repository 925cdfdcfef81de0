"""``noise.json``: written beside the repeats, read by ``verify bisect --noise``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from verify.dumps.format import Dump
from verify.errors import DumpError
from verify.noise.measure import workload_digest
from verify.noise.result import SCHEMA, NoiseResult

NAME = "noise.json"


def read_noise(path: Path) -> NoiseResult:
    """Read a noise result: the file, or the folder that holds it.

    Raises:
        DumpError: not there, or not a noise result.
    """
    file = path / NAME if path.is_dir() else path
    try:
        data = msgspec.json.decode(file.read_bytes())
        found = msgspec.convert(_non_finite(data), NoiseResult)
    except (OSError, msgspec.MsgspecError) as error:
        raise DumpError(
            "this is no noise result",
            where=file,
            found=error,
            allowed=f"a {NAME} of verify noise, or its folder",
        ) from error
    if found.schema != SCHEMA:
        raise DumpError("a noise result of another version", where=file, found=found.schema)
    return found


def is_of(noise: NoiseResult, dump: Dump) -> bool:
    """Whether the noise was measured of the configuration that recorded ``dump``."""
    manifest = dump.manifest
    return (
        noise.weights == manifest.model.weights_digest
        and noise.workload == workload_digest(manifest)
        and noise.settings == manifest.settings
    )


def _non_finite(value: object) -> object:
    """Sizes that JSON spells as words."""
    if isinstance(value, dict):
        return {k: float(v) if k == "relative_l2" else _non_finite(v) for k, v in value.items()}
    return [_non_finite(item) for item in value] if isinstance(value, list) else value
