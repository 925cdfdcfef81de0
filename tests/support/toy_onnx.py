"""A small Llama as PyTorch runs it, as an exported file, and faults planted into that file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

IDS = [[3, 1, 4, 1, 5, 9, 2, 6]]
_SIZES = {"vocab_size": 260, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


def toy_llama() -> torch.nn.Module:
    """Two layers, two query heads on one key head; every weight is a tensor of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**_SIZES, num_attention_heads=2, num_key_value_heads=1)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:  # of equal weights an exporter keeps one
                weight.uniform_(0.5, 1.5)
            else:
                weight.mul_(10)
    return model


def export_llama(model: torch.nn.Module, path: Path) -> None:
    sizes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    torch.onnx.export(
        model,
        (),
        str(path),
        kwargs={"input_ids": torch.tensor(IDS), "use_cache": False},
        dynamo=True,
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes={"input_ids": sizes, "use_cache": None},
        verbose=False,
    )


def save_with(path: Path, out: Path, plant: Callable[[Any], None] | None) -> Path:
    """The file with a fault in its graph, its weights inside."""
    import onnx

    model = onnx.load(str(path))
    if plant is not None:
        plant(model.graph)
    onnx.save(model, str(out))
    return out


def scale_read(graph: Any, output: str, place: int, factor: float) -> None:
    """Multiply the constant that the node with this output reads at ``place``, for it alone."""
    from onnx import numpy_helper

    (node,) = [node for node in graph.node if output in node.output]
    (held,) = [each for each in graph.initializer if each.name == node.input[place]]
    value = numpy_helper.to_array(held)
    scaled = np.asarray(value * factor, value.dtype)
    graph.initializer.append(numpy_helper.from_array(scaled, f"{held.name}.planted"))
    node.input[place] = f"{held.name}.planted"


def node_of(graph: Any, module: str, operation: str) -> Any:
    """The last node of this operation that came from the module."""
    from verify.dumps.onnx_runtime.graph import module_of

    return [n for n in graph.node if n.op_type == operation and module_of(n) == module][-1]
