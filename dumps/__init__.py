"""Recording runs: the dump format, capture of modules, and the Hugging Face driver."""

from __future__ import annotations

# Binds the function over the package of the same name, which stays importable by its path.
from verify.dumps.capture import capture

__all__ = ["capture"]
