"""Which values of an ONNX graph are recorded, and under which names.

An exporter leaves at each node the module that it came from: torch.onnx's dynamo exporter in
`metadata_props` (`pkg.torch.onnx.name_scopes`), the TorchScript exporter in the node's name
(`/layers.0/fc1/MatMul`). The output of a module is the one value of its nodes that is read outside
and rests on every other such value. Modules without one are left out, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verify.dumps.capture.selection import shows_input
from verify.dumps.onnx_runtime.cores import cores
from verify.dumps.onnx_runtime.graph import Graph, read_graph, reads


@dataclass(frozen=True, slots=True)
class Wanted:
    """``value``: its name in the graph, empty for a mask that is a flag; ``tap``: its name in the
    run. A value may have several taps. ``causal``: of a mask."""

    value: str
    tap: str
    causal: bool = False


def wanted_values(proto: Any) -> tuple[list[Wanted], list[str]]:
    """Values to record in order of computation, and the modules left out.

    Args:
        proto: an onnx GraphProto.
    """
    graph = read_graph(proto)
    made, paths, modules = graph.made, graph.paths, graph.modules
    taps: dict[str, list[Wanted]] = {name: [] for name in (*graph.inputs, "", *made)}
    omitted = []
    # Inner modules first: a value that several modules return is the innermost one's.
    for module in sorted(modules, key=lambda name: (-name.count("."), name)):
        if not _is_shown(module, graph):
            continue
        found = _outputs_of(modules[module], graph)
        if not found:
            omitted.append(module)
        for port, value in zip(("out", "out.1"), found, strict=False):
            if not taps[value]:
                taps[value].append(Wanted(value, f"{module}.{port}"))
    for core in cores(proto, made):
        at = f"{paths[made[core.out]]}.attn" if paths[made[core.out]] else "attn"
        for port, value in (("in.q", core.q), ("in.k", core.k), ("in.v", core.v)):
            taps[value].append(Wanted(value, f"{at}.{port}"))
        taps[core.mask].append(Wanted(core.mask, f"{at}.in.mask", core.causal))
        taps[core.out] = [Wanted(core.out, f"{at}.out")]
    for value in graph.outputs & set(made):
        if value == "logits" or not taps[value]:
            taps[value] = [Wanted(value, value)]
    for module in sorted(modules, key=lambda name: min(modules[name])):
        if shows_input(module, _is_norm(module, graph)):
            read = {v: None for i in sorted(modules[module]) for v in reads(graph.nodes[i])}
            own = graph.constants | graph.sizes
            entering = [v for v in read if v not in own and made.get(v) not in modules[module]]
            if len(entering) == 1:
                taps[entering[0]].append(Wanted(entering[0], f"{module}.in.0"))
    return [each for value in taps for each in taps[value]], sorted(omitted)


def sources(graph: Any, recorded: set[str]) -> dict[str, list[str]]:
    """Of every recorded value the recorded values and graph inputs that it was computed from, with
    no recorded one in between."""
    found: dict[str, dict[str, None]] = {}
    nearest = {value.name: [value.name] for value in graph.input if value.name in recorded}
    for node in graph.node:
        near = {each: None for value in reads(node) for each in nearest.get(value, ())}
        for value in node.output:
            if value in recorded:
                found[value] = near
                nearest[value] = [value]
            else:
                nearest[value] = list(near)
    return {value: list(near) for value, near in found.items()}


def _is_norm(module: str, graph: Graph) -> bool:
    name = module.rpartition(".")[2] + graph.classes.get(module, "")
    layer = {graph.nodes[index].op_type for index in graph.modules[module]}
    return "norm" in name.lower() or layer == {"LayerNormalization"}


def _is_shown(module: str, graph: Graph) -> bool:
    """Whether the default selection of a capture shows what a module returns: blocks, which have a
    number, norms, rotary tables, and modules without inner ones."""
    name = module.rpartition(".")[2].lower()
    leaf = not any(other.startswith(f"{module}.") for other in graph.modules)
    return leaf or name.isdigit() or "rotary" in name or _is_norm(module, graph)


def _outputs_of(inside: set[int], graph: Graph) -> list[str]:
    """What a module returns: one value, cosines and sines, or, where that is open, nothing."""
    nodes, (first, last) = graph.nodes, (min(inside), max(inside))
    leaving = [
        value
        for index in sorted(inside)
        for value in nodes[index].output
        if value not in graph.sizes and graph.leaves(value, inside)
    ]
    if not leaving:
        return []
    result = leaving[-1]
    # Values that rest on what left the module: one of its nodes that reads such a value from
    # outside belongs to a second call of the same module, whose outputs must not be mixed up.
    outside: set[str] = set()
    within: set[str] = set()
    for index in range(first, last + 1):
        read = reads(nodes[index])
        if index in inside:
            if any(value in outside for value in read):
                return []
            within.update(nodes[index].output)
        elif any(value in within or value in outside for value in read):
            outside.update(nodes[index].output)
    rests = {value: _ancestry(value, inside, nodes) for value in leaving}
    if rests[result][0].issuperset(leaving):
        return [result]
    tables = [
        [value for value in leaving if rests[value][1] & {"Cos", "Sin"} == {function}]
        for function in ("Cos", "Sin")
    ]
    if [len(each) for each in tables] == [1, 1] and len(leaving) == 2:
        return [tables[0][0], tables[1][0]]
    return []


def _ancestry(value: str, inside: set[int], nodes: list[Any]) -> tuple[set[str], set[str]]:
    """The values that a value of a module rests on, itself among them, and the operations."""
    made_by = {value: index for index in inside for value in nodes[index].output}
    needed, operations, waiting = {value}, set(), [value]
    while waiting:
        index = made_by.get(waiting.pop())
        if index is None:
            continue
        operations.add(nodes[index].op_type)
        for read in reads(nodes[index]):
            if read not in needed:
                needed.add(read)
                waiting.append(read)
    return needed, operations
