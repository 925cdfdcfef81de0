"""Read the result of an endpoint comparison back."""

from __future__ import annotations

from pathlib import Path

import msgspec

from verify.endpoints.result import SCHEMA, EndpointComparison
from verify.errors import UsageError
from verify.report.json import from_json


def read_endpoints(path: Path) -> EndpointComparison:
    """The result in ``path``: endpoints.json, or the folder that holds it.

    Raises:
        UsageError: there is none, or it is something else.
    """
    file = path / "endpoints.json" if path.is_dir() else path
    try:
        result = from_json(file.read_bytes(), EndpointComparison)
    except OSError as error:
        raise UsageError(
            "there is no result of verify endpoints",
            where=file,
            found=error.strerror,
            hint="name endpoints.json or its folder; two runs to plot a bisect",
        ) from error
    except msgspec.MsgspecError as error:
        raise UsageError(
            "not a result of verify endpoints", where=file, found=error, allowed=SCHEMA
        ) from error
    if result.schema != SCHEMA:
        raise UsageError(
            "a result of another version", where=file, found=result.schema, allowed=SCHEMA
        )
    return result
