"""Which values of an ONNX graph are recorded, and under which names.

An exporter leaves at each node the module that it came from: torch.onnx's dynamo exporter in
`metadata_props` (`pkg.torch.onnx.name_scopes`), the TorchScript exporter in the node's name
(`/layers.0/fc1/MatMul`). The output of a module is the one value of its nodes that is read outside
and rests on every other such value. Modules without one are left out, never guessed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from verify.dumps.capture.selection import shows_input
from verify.dumps.onnx_runtime.cores import cores

_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, slots=True)
class Wanted:
    """``value``: its name in the graph, empty for a mask that is a flag; ``tap``: its name in the
    run. A value may have several taps. ``causal``: of a mask."""

    value: str
    tap: str
    causal: bool = False


def wanted_values(graph: Any) -> tuple[list[Wanted], list[str]]:
    """Values to record in order of computation, and the modules left out.

    Args:
        graph: an onnx GraphProto, topologically sorted, as the format demands.
    """
    nodes = list(graph.node)
    outputs = {value.name for value in graph.output}
    readers: dict[str, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        for value in _reads(node):
            readers[value].append(index)
    paths = [module_of(node) for node in nodes]
    inside: dict[str, set[int]] = defaultdict(set)
    for index, path in enumerate(paths):
        parts = path.split(".") if path else []
        for length in range(1, len(parts) + 1):
            inside[".".join(parts[:length])].add(index)

    made = {value: index for index, node in enumerate(nodes) for value in node.output}
    inputs = [value.name for value in graph.input]
    taps: dict[str, list[Wanted]] = {name: [] for name in (*inputs, "", *made)}
    omitted = []
    # Inner modules first: a value that several modules return is the innermost one's.
    for module in sorted(inside, key=lambda name: (-name.count("."), name)):
        found = _outputs_of(inside[module], nodes, readers, outputs)
        if not found:
            omitted.append(module)
        for port, value in zip(("out", "out.1"), found, strict=False):
            if not taps[value]:
                taps[value].append(Wanted(value, f"{module}.{port}"))
    for core in cores(graph, made):
        at = f"{paths[made[core.out]]}.attn" if paths[made[core.out]] else "attn"
        for port, value in (("in.q", core.q), ("in.k", core.k), ("in.v", core.v)):
            taps[value].append(Wanted(value, f"{at}.{port}"))
        taps[core.mask].append(Wanted(core.mask, f"{at}.in.mask", core.causal))
        taps[core.out] = [Wanted(core.out, f"{at}.out")]
    for value in outputs & set(made):
        if value == "logits" or not taps[value]:
            taps[value] = [Wanted(value, value)]
    constant = {value.name for value in graph.initializer}
    for node in nodes:  # weights that were copied or reshaped are constants as well
        if constant.issuperset(_reads(node)):
            constant.update(node.output)
    for module in sorted(inside, key=lambda name: min(inside[name])):
        if shows_input(module, "norm" in module.rpartition(".")[2].lower()):
            read = {v: None for index in sorted(inside[module]) for v in _reads(nodes[index])}
            entering = [v for v in read if v not in constant and made.get(v) not in inside[module]]
            if len(entering) == 1:
                taps[entering[0]].append(Wanted(entering[0], f"{module}.in.0"))
    return [each for value in taps for each in taps[value]], sorted(omitted)


def sources(graph: Any, recorded: set[str]) -> dict[str, list[str]]:
    """Of every recorded value the recorded values and graph inputs that it was computed from, with
    no recorded one in between."""
    found: dict[str, dict[str, None]] = {}
    nearest = {value.name: [value.name] for value in graph.input if value.name in recorded}
    for node in graph.node:
        near = {each: None for value in _reads(node) for each in nearest.get(value, ())}
        for value in node.output:
            if value in recorded:
                found[value] = near
                nearest[value] = [value]
            else:
                nearest[value] = list(near)
    return {value: list(near) for value, near in found.items()}


def _outputs_of(
    inside: set[int], nodes: list[Any], readers: dict[str, list[int]], outputs: set[str]
) -> list[str]:
    """What a module returns: one value, cosines and sines, or, where that is open, nothing."""
    first, last = min(inside), max(inside)
    leaving = [
        value
        for index in sorted(inside)
        for value in nodes[index].output
        if value in outputs or any(reader not in inside for reader in readers[value])
    ]
    if not leaving:
        return []
    result = leaving[-1]
    # Values that rest on what left the module: one of its nodes that reads such a value from
    # outside belongs to a second call of the same module, whose outputs must not be mixed up.
    outside: set[str] = set()
    within: set[str] = set()
    for index in range(first, last + 1):
        reads = _reads(nodes[index])
        if index in inside:
            if any(value in outside for value in reads):
                return []
            within.update(nodes[index].output)
        elif any(value in within or value in outside for value in reads):
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
        for read in _reads(nodes[index]):
            if read not in needed:
                needed.add(read)
                waiting.append(read)
    return needed, operations


def _reads(node: Any) -> list[str]:
    """Inputs of a node, and what the graphs inside it (If, Loop, Scan) read from outside."""
    found = [value for value in node.input if value]
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            own = {value for inner in graph.node for value in inner.output}
            own |= {value.name for value in (*graph.input, *graph.initializer)}
            found += [v for inner in graph.node for v in _reads(inner) if v not in own]
            found += [value.name for value in graph.output if value.name not in own]
    return found


def module_of(node: Any) -> str:
    """Path of the module that a node came from; empty: the model itself, or not known."""
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            try:
                scopes = ast.literal_eval(entry.value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return ""
            # The last entry is the operation itself.
            known = scopes[:-1] if isinstance(scopes, list) else []
            path = str(known[-1]) if known else ""
            return "" if path.startswith("_empty_nn_module_stack") else path
    if node.name.startswith("/"):
        return ".".join(node.name.strip("/").split("/")[:-1])
    return ""
