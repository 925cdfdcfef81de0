"""Attention cores of a graph that torch.onnx's dynamo exporter wrote.

The exporter writes a core as several nodes and leaves at each the call that it came from, operands by
name (`pkg.torch.onnx.fx_node`); values of the graph keep these names where they survive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_CALL = "pkg.torch.onnx.fx_node"
_ATTENTION = re.compile(
    r"scaled_dot_product_attention\.default\]\(args = \((?P<args>[^()]*)\),"
    r" kwargs = \{(?P<kwargs>[^{}]*)\}\)"
)
_REPEAT = ("Reshape", "Expand", "Unsqueeze")
"""From the last operation to the first: key heads that are repeated for their query heads."""


@dataclass(frozen=True, slots=True)
class Core:
    """Names of values; ``mask`` is empty where there is no tensor."""

    q: str
    k: str
    v: str
    mask: str
    causal: bool
    out: str


def cores(graph: Any, made: Mapping[str, int]) -> Iterator[Core]:
    """Cores whose operands are all values of the graph.

    Args:
        made: value -> number of the node that makes it.
    """
    nodes = list(graph.node)
    calls: dict[str, str] = {}  # the call -> the last value that it makes
    for node in nodes:
        for entry in node.metadata_props:
            if entry.key == _CALL and _ATTENTION.search(entry.value):
                calls[entry.value] = node.output[0]
    for text, out in calls.items():
        found = _ATTENTION.search(text)
        assert found is not None
        operands = [part.strip() for part in found["args"].split(",")]
        named = [part.removeprefix("%") for part in operands if part.startswith("%")]
        if len(named) not in (3, 4) or any(value not in made for value in named):
            continue
        causal = "is_causal: True" in found["kwargs"] or operands[5:6] == ["True"]
        q, k, v = named[0], *(_unrepeated(value, nodes, made) for value in named[1:3])
        yield Core(q, k, v, named[3] if len(named) == 4 else "", causal, out)


def _unrepeated(value: str, nodes: list[Any], made: Mapping[str, int]) -> str:
    at = value
    for operation in _REPEAT:
        node = nodes[made[at]] if at in made else None
        if node is None or node.op_type != operation:
            return value
        at = node.input[0]
    return at
