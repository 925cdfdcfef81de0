"""What a failing check leaves behind: the tensors, and what was said of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify.pytest_plugin.arrays import as_array
from verify.pytest_plugin.outcome import Outcome


def save_tensors(folder: Path, name: str, outcome: Outcome, given: Mapping[str, Any]) -> list[Path]:
    """Write ``<name>.safetensors`` (raw words as unsigned integers; the format of each is in the
    header) and ``<name>.txt`` (the message); give back their paths."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    arrays = {key: as_array(value, key) for key, value in given.items()}
    tensors, text = folder / f"{name}.safetensors", folder / f"{name}.txt"
    formats = json.dumps({key: array.format.name for key, array in arrays.items()})
    save_file({k: a.words for k, a in arrays.items()}, tensors, metadata={"formats": formats})
    text.write_text(outcome.text() + "\n")
    return [tensors, text]
