"""What an endpoint gives: one tensor or several, brought to the host under names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from verify.endpoints.result import OutputFact
from verify.errors import ArgumentError, ModelError

Outputs = dict[str, torch.Tensor]


def tensors_of(found: Any) -> Outputs:
    """The tensors by name: ``""`` for a single one, ``"0"``, ``"1"`` of a tuple or list, the keys
    of a mapping.

    Raises:
        ArgumentError: something else, or nothing at all.
    """
    if isinstance(found, torch.Tensor):
        return {"": found}
    if isinstance(found, Mapping):
        named = {str(key): value for key, value in found.items()}
    elif isinstance(found, tuple | list):
        named = {str(index): value for index, value in enumerate(found)}
    else:
        raise ArgumentError(f"gave {type(found).__name__}, not a tensor")
    if not named:
        raise ArgumentError(f"gave an empty {type(found).__name__}, not a tensor")
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(f"gave {type(value).__name__} as output {name}, not a tensor")
    return named


def on_host(outputs: Outputs) -> Outputs:
    """Copies in host memory that no later call can change. Waits for the device.

    Raises:
        ArgumentError: a tensor of a dtype or layout that has no words to compare.
    """
    return {name: _copy(name, tensor) for name, tensor in outputs.items()}


def _copy(name: str, tensor: torch.Tensor) -> torch.Tensor:
    from verify.dumps.capture.tensor_words import dtype_name

    try:
        dtype_name(tensor, name)
    except ModelError as error:
        raise ArgumentError(f"gave {error.found}, which cannot be compared bit by bit") from error
    return tensor.detach().to("cpu", copy=True).contiguous()


def facts(outputs: Outputs) -> list[OutputFact]:
    """Names, types, shapes, and how many elements are not finite."""
    return [
        OutputFact(
            name=name,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=list(tensor.shape),
            nan=int(_floats(tensor).isnan().sum()),
            inf=int(_floats(tensor).isinf().sum()),
        )
        for name, tensor in outputs.items()
    ]


def _floats(tensor: torch.Tensor) -> torch.Tensor:
    """For asking about NaN, which narrow formats cannot be asked themselves."""
    if not tensor.dtype.is_floating_point:
        return torch.zeros(1)
    return tensor if tensor.element_size() > 1 else tensor.float()


def named(name: str) -> str:
    """How a sentence calls an output; nothing for the only one."""
    return f"output {name}: " if name else ""
