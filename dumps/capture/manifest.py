"""The manifest of a capture: which model ran, and on what."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import torch

from verify.dumps.capture.weights import joint_digest, part_digests, weight_digests
from verify.dumps.format.schema import Manifest, Model, Workload
from verify.env import collect, redact, redact_all, redact_command


def new_manifest(
    model: torch.nn.Module,
    workload: Workload | None,
    settings: dict[str, Any] | None,
    model_info: Model | None,
    *,
    ranks: int,
    run_id: str | None,
    command: list[str],
) -> Manifest:
    """An open manifest for a run of ``model``."""
    described = model_info or describe_model(model)
    described.name = redact(described.name)
    return Manifest(
        run_id=run_id or uuid.uuid4().hex,
        workload=workload or Workload(sequences=[]),
        model=described,
        settings=redact_all({**observed_settings(model), **(settings or {})}),
        env=collect(),
        command=redact_command(command),
        ranks=ranks,
    )


def describe_model(model: torch.nn.Module, name: str | None = None) -> Model:
    """Identity of a model: class, config if it has one, digests of all weights and of the parts of
    fused ones."""
    digests = weight_digests(model)
    config = getattr(model, "config", None)
    table = config.to_dict() if config is not None and hasattr(config, "to_dict") else {}
    return Model(
        name=name or type(model).__name__,
        architecture=type(model).__name__,
        config=json.loads(json.dumps(table, default=str)),
        weights={**digests, **part_digests(model)},
        weights_digest=joint_digest(digests),
    )


def observed_settings(model: torch.nn.Module) -> dict[str, Any]:
    """What can be seen of how a model will compute."""
    tensors = list(model.parameters())
    return {
        "dtype": _listed(str(tensor.dtype).removeprefix("torch.") for tensor in tensors),
        "device": _listed(str(tensor.device) for tensor in tensors),
        "threads": torch.get_num_threads(),
        "weights_alignment": weights_alignment(tensors),
        "training": model.training,
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def weights_alignment(tensors: list[torch.nn.Parameter]) -> int:
    """Largest power of two, up to 64 bytes, that divides the addresses of all weights. One-row
    matrix products on CPUs may depend on the addresses modulo 16."""
    alignment = 64
    for tensor in tensors:
        while tensor.data_ptr() % alignment:
            alignment //= 2
    return alignment
