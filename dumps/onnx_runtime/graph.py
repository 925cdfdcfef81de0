"""An ONNX graph as modules see it: which node came from which module, who reads a value."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from os.path import commonpath
from typing import Any

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_SIZES = ("Shape", "Size")
_OF_SIZES = frozenset(
    [
        "Add",
        "Cast",
        "Concat",
        "Div",
        "Equal",
        "Gather",
        "Max",
        "Min",
        "Mul",
        "Reshape",
        "Slice",
        "Squeeze",
        "Sub",
        "Unsqueeze",
        "Where",
    ]
)
"""What exporters do to sizes before they are read as a shape. ``Range`` is not among them: positions
are values."""


@dataclass(slots=True)
class Graph:
    """A GraphProto, topologically sorted, as the format demands."""

    nodes: list[Any]
    inputs: list[str]
    outputs: set[str]
    paths: list[str]
    """Module of each node; empty: the model itself, or not known."""
    modules: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Module -> numbers of its nodes, those of inner modules among them."""
    classes: dict[str, str] = field(default_factory=dict)
    """Module -> name of its class, where the exporter left it."""
    made: dict[str, int] = field(default_factory=dict)
    """Value -> number of the node that makes it."""
    readers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    constants: set[str] = field(default_factory=set)
    sizes: set[str] = field(default_factory=set)
    """Values that say how large a tensor is."""

    def leaves(self, value: str, inside: set[int]) -> bool:
        """Whether an output of the nodes ``inside`` is read by others, for more than its size."""
        outer = (self.nodes[reader] for reader in self.readers[value] if reader not in inside)
        return value in self.outputs or any(node.op_type not in _SIZES for node in outer)


def read_graph(proto: Any) -> Graph:
    """The graph of an onnx GraphProto."""
    nodes = list(proto.node)
    graph = Graph(
        nodes=nodes,
        inputs=[value.name for value in proto.input],
        outputs={value.name for value in proto.output},
        paths=[],
        constants={value.name for value in proto.initializer},
    )
    tables = {value.name for value in proto.initializer if len(value.dims) > 1}
    for index, node in enumerate(nodes):
        read = reads(node)
        for value in read:
            graph.readers[value].append(index)
        if graph.constants.issuperset(read):  # weights that were copied or reshaped as well
            graph.constants.update(node.output)
        known = (graph.constants - tables) | graph.sizes
        if node.op_type in _SIZES or (node.op_type in _OF_SIZES and known.issuperset(read)):
            graph.sizes.update(node.output)
        graph.made.update(dict.fromkeys(node.output, index))
        graph.classes.update(_classes(node))
    graph.paths = _paths(graph)
    for index, path in enumerate(graph.paths):
        parts = path.split(".") if path else []
        for length in range(1, len(parts) + 1):
            graph.modules[".".join(parts[:length])].add(index)
    return graph


def _paths(graph: Graph) -> list[str]:
    """Module of each node. One that an exporter's own rewriting left without a name is inside the module
    that holds all nodes around it."""
    known = [module_of(node) for node in graph.nodes]
    paths = []
    for path, node in zip(known, graph.nodes, strict=True):
        if path is None:
            near = [known[graph.made[value]] for value in reads(node) if value in graph.made]
            near += [known[reader] for value in node.output for reader in graph.readers[value]]
            around = [each.replace(".", "/") for each in near if each is not None]
            path = commonpath(around).replace("/", ".") if around else ""
        paths.append(path)
    return paths


def reads(node: Any) -> list[str]:
    """Inputs of a node, and what the graphs inside it (If, Loop, Scan) read from outside."""
    found = [value for value in node.input if value]
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            own = {value for inner in graph.node for value in inner.output}
            own |= {value.name for value in (*graph.input, *graph.initializer)}
            found += [v for inner in graph.node for v in reads(inner) if v not in own]
            found += [value.name for value in graph.output if value.name not in own]
    return found


def module_of(node: Any) -> str | None:
    """Path of the module that a node came from; empty: the model itself; None: not known."""
    scopes = _listed(node, _SCOPES)
    if scopes:
        path = scopes[-1]
        return "" if path.startswith("_empty_nn_module_stack") else path
    if node.name.startswith("/"):
        return ".".join(node.name.strip("/").split("/")[:-1])
    return None


def _classes(node: Any) -> dict[str, str]:
    scopes, classes = _listed(node, _SCOPES), _listed(node, _CLASSES)
    named = zip(scopes, classes, strict=False) if len(scopes) == len(classes) else ()
    return {path: name.rpartition(".")[2] for path, name in named}


def _listed(node: Any, key: str) -> list[str]:
    """A list that the exporter left, from the model inwards; its last entry is the operation itself."""
    for entry in node.metadata_props:
        if entry.key == key:
            try:
                listed = ast.literal_eval(entry.value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return []
            return [str(each) for each in listed[:-1]] if isinstance(listed, list) else []
    return []
