"""Tensors that the lean capture reads in place have the digests of the reference, however they lie."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from verify.dumps import capture
from verify.dumps.capture.tensor_words import row_matrix
from verify.dumps.digests import row_digests
from verify.dumps.format import open_dump
from verify.dumps.summaries import row_sketches, row_statistics

BATCH, TOKENS, WIDTH = 2, 3, 10


def values(dtype: torch.dtype) -> torch.Tensor:
    """[2, 3, 10] of every kind of bits."""
    size = torch.empty(0, dtype=dtype).element_size()
    top = 2 if dtype == torch.bool else 256
    raw = np.random.default_rng(size).integers(0, top, (BATCH, TOKENS, WIDTH * size), np.uint8)
    return torch.from_numpy(raw).view(dtype)


def apart() -> torch.Tensor:
    wide = torch.full((BATCH, TOKENS, 2 * WIDTH), 7.0)
    wide[..., ::2] = values(torch.float32)
    return wide[..., ::2]


CASES = {
    **{
        str(dtype).removeprefix("torch."): (values(dtype), "b t c")
        for dtype in (
            *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn),
            *(torch.int64, torch.int8, torch.bool, torch.complex64),
        )
    },
    "elements apart": (apart(), "b t c"),
    "a part that begins inside": (values(torch.float32).repeat(2, 1, 1)[1:3], "b t c"),
    "columns first": (values(torch.float32).mT.contiguous().mT, "b t c"),
    "rows inside": (values(torch.float32).reshape(BATCH, 2, TOKENS, 5), "b h t d"),
    "negative view": (torch._neg_view(values(torch.float32)), "b t c"),
    "no elements": (torch.zeros(BATCH, TOKENS, 0), "b t c"),
    "one row": (values(torch.float32), "c h d"),
    "one number": (torch.tensor(3.0), ""),
}


@pytest.mark.parametrize("name", CASES)
def test_any_layout_has_the_digests_of_the_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("verify.dumps.capture.fingerprints")  # `capture` names a function, too
    monkeypatch.setattr(module, "SMALL", -1)  # nothing is staged
    tensor, axes = CASES[name]
    words, now = row_matrix(tensor, axes), tensor.clone()
    positions = np.tile(np.arange(TOKENS), (BATCH, 1))
    path = tmp_path / "run"
    with capture(torch.nn.Identity(), path, edges="none", level="digest", taps=["*"]) as run:
        for step in range(2):  # what is known of a kind of tensor is used again
            with run.step(positions=positions + TOKENS * step):
                run.record("x", tensor, axes=axes or None)
                now.copy_(tensor)
                run.record("y", now, axes=axes or None)
                now.zero_()  # what comes later is not seen
    dump = open_dump(path)
    records = [record for record in dump.records() if record.tap in "xy"]
    assert len(records) == 4
    for record in records:
        rows = dump.rows(record)
        assert rows.sketch is not None and rows.statistics is not None
        assert rows.digest.tolist() == row_digests(words, record.dtype).tolist()
        assert rows.sketch.tobytes() == row_sketches(words, record.dtype).tobytes()
        assert rows.statistics.tobytes() == row_statistics(words, record.dtype).tobytes()
