"""Two or more implementations of one operation, compared bit by bit on declared cases.

The names load with their modules, on first use: results can be written and read without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.endpoints.run import compare_endpoints
    from verify.endpoints.spec import Case, Endpoint, EndpointSpec, Relation, load_spec

__all__ = ["Case", "Endpoint", "EndpointSpec", "Relation", "compare_endpoints", "load_spec"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "run" if name == "compare_endpoints" else "spec"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
