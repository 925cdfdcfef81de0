"""llama.cpp's example ``debug --save-logits``: last-token logits and token ids as raw numbers.

Format: examples/debug/debug.cpp of llama.cpp: ``llamacpp-<model>.bin`` holds float32,
``llamacpp-<model>-tokens.bin`` int32.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from verify.dumps.format.schema import Sequence
from verify.dumps.hf.prompts import name_sequences
from verify.dumps.importers.faults import broken, read_bytes
from verify.dumps.importers.observation import (
    Format,
    Imported,
    Observation,
    Options,
    Source,
    Tensor,
)

_TOKENS: Final = "-tokens.bin"


def recognise(path: Path) -> bool:
    return _pair(path) is not None


def _pair(path: Path) -> tuple[Path, Path] | None:
    """The logits and the token ids."""
    if path.is_dir():
        found = sorted(path.glob(f"*{_TOKENS}"))
        if len(found) != 1:
            return None
        path = found[0]
    stem = path.name.removesuffix(_TOKENS).removesuffix(".bin")
    logits, tokens = path.with_name(f"{stem}.bin"), path.with_name(f"{stem}{_TOKENS}")
    return (logits, tokens) if logits.is_file() and tokens.is_file() else None


def read(path: Path, options: Options) -> Imported:
    pair = _pair(path)
    if pair is None:
        raise broken(path, f"no pair <name>.bin and <name>{_TOKENS}")
    logits, ids = _words(pair[0]), _words(pair[1])
    sequence = name_sequences([[int(token) for token in ids.view(np.int32)]])[0]
    source = Source(
        format="llama-logits",
        path=path,
        model=pair[0].stem.removeprefix("llamacpp-"),
        sequences=[sequence],
        unknown=["everything between the tokens and the logits of the last of them"],
    )
    return Imported(source, _observations(logits, ids, sequence))


def _words(path: Path) -> np.ndarray:
    data = read_bytes(path)
    if not data or len(data) % 4:
        raise broken(path, f"{len(data)} bytes", "the file holds numbers of 4 bytes each")
    return np.frombuffer(data, np.uint32)


def _observations(logits: np.ndarray, ids: np.ndarray, sequence: Sequence) -> Iterator[Observation]:
    count = len(ids)
    yield Observation(
        tap="tokens.in",
        tensor=Tensor(ids, "int32"),
        axes="t",
        positions=np.arange(count),
        sequences=[sequence.id] * count,
    )
    yield Observation(
        tap="logits",
        tensor=Tensor(logits.reshape(1, -1), "float32"),
        axes="t v",
        positions=np.array([count - 1]),
        sequences=[sequence.id],
    )


FORMAT = Format(name="llama-logits", title="llama.cpp logits", recognise=recognise, read=read)
