"""Tensors through the pinned ring: all bytes, in order, bounded, and never lost in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from verify.dumps.device.ring import PinnedRing
from verify.errors import ArgumentError, StorageError

DEVICES = [
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu),
]


class Sink:
    def __init__(self) -> None:
        self.got: list[tuple[Any, bytes]] = []

    def __call__(self, tag: Any, raw: np.ndarray) -> None:
        self.got.append((tag, raw.tobytes()))


@pytest.mark.parametrize("device", DEVICES)
def test_every_byte_arrives_in_order_also_of_tensors_that_change(device: str) -> None:
    sink, expected = Sink(), []
    with PinnedRing(sink, nbytes=64 << 10) as ring:
        for index in range(200):
            tensor = torch.randn(7 + index * 13 % 900, 3, device=device).half()
            if index % 3 == 0:
                tensor = tensor.t()
            expected.append((index, tensor.contiguous().cpu().numpy().tobytes()))
            assert ring.put(index, tensor)
            tensor.zero_()  # in place, at once
    assert sink.got == expected
    assert ring.lost == []


@pytest.mark.parametrize("device", DEVICES)
def test_a_full_ring_may_drop_but_says_so(device: str) -> None:
    sink = Sink()
    ring = PinnedRing(sink, nbytes=4096, when_full="drop")
    tensor = torch.arange(300, device=device)  # 2400 bytes
    assert [ring.put(name, tensor) for name in "abc"] == [True, False, False]
    ring.flush()
    assert [tag for tag, _ in sink.got] == ["a"]
    assert ring.lost == ["b", "c"]
    assert ring.put("d", tensor)


def test_the_budget_and_the_disk_bound_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    ring = PinnedRing(Sink(), nbytes=4096, byte_budget=1000)
    assert ring.put("a", torch.zeros(200))
    with pytest.raises(StorageError, match="byte budget"):
        ring.put("b", torch.zeros(200))

    class Full:
        f_bavail, f_frsize = 1, 4096

    ring = PinnedRing(Sink(), nbytes=4096, folder=tmp_path)
    monkeypatch.setattr("os.statvfs", lambda path: Full)
    with pytest.raises(StorageError, match="nearly full"):
        ring.put("a", torch.zeros(200))


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="larger than the ring"):
        PinnedRing(Sink(), nbytes=4096).put("a", torch.zeros(5000))
    with pytest.raises(ArgumentError, match="unknown policy"):
        PinnedRing(Sink(), nbytes=4096, when_full="skip")  # type: ignore[arg-type]


@pytest.mark.gpu
def test_the_forward_pass_does_not_wait() -> None:
    big = torch.randn(8192, 4096, device="cuda")
    with PinnedRing(Sink(), nbytes=1 << 30) as ring:
        torch.cuda.set_sync_debug_mode("error")
        try:
            ring.put("a", big)
        finally:
            torch.cuda.set_sync_debug_mode("default")
