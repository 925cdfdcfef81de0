"""What a tap name says about its place in the model."""

from __future__ import annotations

import re

LOGITS = "logits"
TOKENS = ("tokens.in", "tokens.out")

# A number between dots is a layer, and so is one in front ("0.attn" of a bare list of layers).
_LAYER = re.compile(r"(?:^|\.)(\d+)\.")
_LAYER_OUTPUT = re.compile(r"(?:^|\.)\d+\.out$")


def layer_of(tap: str) -> int | None:
    """Layer number: the first number between dots; None where there is none."""
    found = _LAYER.search(tap)
    return int(found.group(1)) if found else None


def without_layer(tap: str) -> str:
    """The tap with its layer number replaced by ``*``: what taps of all layers share."""
    found = _LAYER.search(tap)
    return f"{tap[: found.start(1)]}*{tap[found.end(1) :]}" if found else tap


def is_residual(tap: str) -> bool:
    """Whether the tap is the output of a whole layer: the residual stream after it."""
    return bool(_LAYER_OUTPUT.search(tap))
