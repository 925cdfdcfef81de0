"""The lean capture: the same digests, rows and bits as the one that follows every input."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.plain_models import TinyDecoder
from verify.dumps import capture
from verify.dumps.format import Dump, open_dump
from verify.errors import ArgumentError, UsageError

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def run_cached(model: Any) -> torch.Tensor:
    """Prefill of three tokens, then one token at a time, with the model's own cache."""
    logits, caches = model(IDS[:, :3])
    found = [logits]
    for column in (3, 4):
        logits, caches = model(IDS[:, column : column + 1], caches)
        found.append(logits)
    return torch.cat(found, dim=1)


def captured(path: Path, **options: Any) -> Dump:
    model = TinyDecoder()
    plain = run_cached(model)
    with capture(model, path, taps=["*.out"], **options):
        assert torch.equal(run_cached(model), plain)
    return open_dump(path)


@pytest.mark.parametrize(("level", "other"), [("digest", "digest"), ("stats", "stats")])
def test_rows_are_those_of_the_full_capture(tmp_path: Path, level: str, other: str) -> None:
    lean = captured(tmp_path / "lean", edges="none", level=level)
    full = captured(tmp_path / "full", edges="identity", level=other)
    expected = {(r.step, r.tap, r.occurrence): r for r in full.records()}
    compared = 0
    for record in lean.records():
        twin = expected[record.step, record.tap, record.occurrence]
        a, b = full.rows(twin), lean.rows(record)
        assert (a.digest == b.digest).all()
        assert (a.position == b.position).all() and (a.visit == b.visit).all()
        assert a.sequence.tolist() == b.sequence.tolist()
        if record.kept == "full":  # token ids
            assert (full.read_words(twin) == lean.read_words(record)).all()
            continue
        if twin.kept != "same":
            assert (a.sketch is None) == (b.sketch is None)
            assert a.statistics is not None and b.statistics is not None
            assert a.statistics.tobytes() == b.statistics.tobytes()
            if a.sketch is not None and b.sketch is not None:
                assert a.sketch.tobytes() == b.sketch.tobytes()
        compared += 1
    assert compared > 40


def test_digests_alone(tmp_path: Path) -> None:
    dump = captured(tmp_path / "run", edges="none", level="hash")
    assert dump.complete
    rows = [dump.rows(r) for r in dump.records() if r.kept == "digest"]
    assert rows and all(r.sketch is None and r.statistics is None for r in rows)
    assert dump.part_count == 1  # steps within a second share a part


def test_large_and_small_tensors_have_the_same_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = captured(tmp_path / "staged", edges="none", level="digest")
    module = import_module("verify.dumps.capture.fingerprints")  # `capture` names a function, too
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "_THREAD_BYTES", 64)
    direct = captured(tmp_path / "direct", edges="none", level="digest")
    for a, b in zip(staged.records(), direct.records(), strict=True):
        x, y = staged.rows(a), direct.rows(b)
        assert (x.digest == y.digest).all()
        if x.sketch is not None and y.sketch is not None:
            assert x.sketch.tobytes() == y.sketch.tobytes()


def test_a_tensor_written_to_later_keeps_the_digest_of_its_tap(tmp_path: Path) -> None:
    class InPlace(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x).mul_(2.0)

    model, x = InPlace(), torch.randn(1, 3, 4)
    for name, edges in (("a", "none"), ("b", "identity")):
        with torch.no_grad(), capture(model, tmp_path / name, level="digest", edges=edges):  # type: ignore[arg-type]
            model(x)
    found = []
    for name in "ab":
        dump = open_dump(tmp_path / name)
        record = next(r for r in dump.records() if r.tap == "first.out")
        found.append(dump.rows(record).digest)
    assert (found[0] == found[1]).all()


def test_what_is_refused(tmp_path: Path) -> None:
    model = TinyDecoder()
    with pytest.raises(ArgumentError, match="needs edges"):
        capture(model, tmp_path / "a", edges="none", level="full")
    with (
        capture(model, tmp_path / "b", edges="none", level="hash") as run,
        pytest.raises(UsageError, match="no step"),
    ):
        run.record("x", torch.zeros(1))
