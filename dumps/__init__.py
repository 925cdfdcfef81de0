"""Recording runs: the dump format, capture of modules, and the Hugging Face driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Binds the function over the package of the same name, which stays importable by its path.
from verify.dumps.capture import capture

if TYPE_CHECKING:
    from verify.dumps.engines import attach, detach

__all__ = ["attach", "capture", "detach"]


def __getattr__(name: str) -> Any:
    if name in ("attach", "detach"):
        from verify.dumps import engines

        return getattr(engines, name)
    raise AttributeError(name)
