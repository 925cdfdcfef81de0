"""Scalars that a module's operation reads and that no tensor holds."""

from __future__ import annotations

from typing import Any

import torch

# As torch's norms name it, and as transformers' RMS norms do.
_EPS = ("eps", "variance_epsilon")


def scalars_of(module: torch.nn.Module) -> dict[str, Any]:
    """``eps`` of a norm and ``approximate`` of a GELU; empty for other modules."""
    for name in _EPS:
        eps = getattr(module, name, None)
        if isinstance(eps, float):
            return {"eps": eps}
    if isinstance(module, torch.nn.GELU):
        return {"approximate": module.approximate}
    return {}
