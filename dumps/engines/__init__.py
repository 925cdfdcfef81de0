"""Recording what serving engines compute, under the names and positions of their requests
(docs/engines.md).

This module imports without torch and without an engine; attaching needs both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.dumps.engines.session import Attached, attach, detach

__all__ = ["Attached", "attach", "detach"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from verify.dumps.engines import session

        return getattr(session, name)
    raise AttributeError(name)
