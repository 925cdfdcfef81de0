"""One rank of a group of processes that records several runs of examples/tensor_parallel.py."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "tensor_parallel.py"


def main() -> None:
    root, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
    spec = importlib.util.spec_from_file_location("tensor_parallel", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.set_num_threads(1)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    if ranks > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    else:
        save_file(example.make().state_dict(), str(root / "weights.safetensors"))
    for name, fault, at in plan:
        example.run(root / str(ranks) / name, ranks, rank, fault, at)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
