"""What is stored is what the tap saw: every dtype and layout, and memory that is reused later."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.dump_reading import input_names, record_of, values_of
from tests.support.plain_models import Steps
from verify.dumps import capture
from verify.dumps.capture.tensor_words import row_matrix
from verify.dumps.format import open_dump
from verify.errors import ModelError


def captured(path, function, x=None, **options):
    """Run ``function(module, x)`` as a model under capture and open the dump."""
    model = Steps(function)
    x = torch.arange(12, dtype=torch.float32).reshape(1, 3, 4) if x is None else x
    with torch.no_grad(), capture(model, path, **options):
        model(x)
    return open_dump(path)


def test_in_place_reuse_does_not_reach_a_record(tmp_path):
    seen = {}

    def forward(module, x):
        y = module.first(x)
        seen["first"] = y.clone()
        y.mul_(0.0)
        return module.second(y)

    dump = captured(tmp_path / "run", forward)
    first = record_of(dump, "first.out")
    assert np.array_equal(values_of(dump, first), seen["first"][0].double().numpy())
    assert not np.array_equal(values_of(dump, first), np.zeros((3, 4)))
    second = record_of(dump, "second.out")
    assert "aten.mul_" in second.ops
    assert "first.out" in input_names(dump, second)


def test_a_view_that_is_overwritten_later(tmp_path):
    seen = {}

    def forward(module, x):
        buffer = torch.zeros(1, 3, 8)
        view = buffer[..., :4]
        view.copy_(module.first(x))
        out = module.second(view)
        seen["second"] = out.clone()
        buffer.fill_(7.0)
        return out + buffer[..., 4:]

    dump = captured(tmp_path / "run", forward, taps=["second.*", "out"])
    view = record_of(dump, "second.in.0")
    assert view.strides == [24, 8, 1]
    assert not (values_of(dump, view) == 7.0).any()
    assert np.array_equal(
        values_of(dump, record_of(dump, "second.out")), seen["second"][0].double().numpy()
    )
    assert np.array_equal(
        values_of(dump, record_of(dump, "out")), (seen["second"][0] + 7.0).double().numpy()
    )


@pytest.mark.parametrize("edges", ["trace", "identity"])
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_a_repeated_tensor_is_stored_once_unless_it_changed(tmp_path, guard, edges):
    """Inference tensors count no versions: there the bits decide."""

    def forward(module, x):
        y = module.first(x)
        module.second(y)
        y.add_(1.0)
        return module.second(y)

    model = Steps(forward)
    with guard(), capture(model, tmp_path / "run", taps=["*.out", "*.in.0"], edges=edges):
        model(torch.ones(1, 3, 4))
    dump = open_dump(tmp_path / "run")
    first = record_of(dump, "first.out")
    before, after = (record_of(dump, "second.in.0", occurrence=i) for i in (0, 1))
    assert (before.kept, before.same_as) == ("same", first.seq)
    assert after.kept == "full"
    assert np.array_equal(values_of(dump, after), values_of(dump, first).astype("f4") + 1.0)
    expected = {"first.out"} if edges == "trace" else {"unknown"}
    assert input_names(dump, after) == expected


def tensors():
    """One tensor of each stored kind, with the bits that are easily lost."""
    floats = torch.tensor([0.0, -0.0, 1.5, torch.inf, -torch.inf, torch.nan])
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        yield floats.to(dtype)
    payload = torch.tensor([0x7FC12345, 0xFF800001 - 2**32], dtype=torch.int32)
    yield payload.view(torch.float32)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        yield torch.arange(256, dtype=torch.uint8).view(dtype)
    yield torch.tensor([True, False])
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        info = torch.iinfo(dtype)
        yield torch.tensor([info.min, info.max], dtype=dtype)
    yield torch.tensor([1 + 2j, -0.0 - 1j], dtype=torch.complex64)
    yield torch.zeros(0, 5)
    yield torch.zeros(3, 0)
    yield torch.tensor(3.5)
    yield torch.randn(3, 4).t()
    yield torch.randn(1, 4).expand(3, 4)
    yield torch.randn(6, 8)[::2, 1::3]
    yield torch.randn(4, dtype=torch.complex64).conj()


@pytest.mark.parametrize("tensor", list(tensors()), ids=lambda t: f"{t.dtype}{list(t.shape)}"[6:])
def test_bits_survive(tmp_path, tensor):
    model = Steps(lambda module, x: module.first(x))
    with capture(model, tmp_path / "run") as run, run.step([[0]], ["x"]):
        run.record("probe", tensor, axes=" ".join(f"x{i}" for i in range(tensor.ndim)))
    dump = open_dump(tmp_path / "run")
    record = record_of(dump, "probe")
    assert record.dtype == str(tensor.dtype).removeprefix("torch.")
    assert record.shape == list(tensor.shape)
    plain = tensor.resolve_conj().contiguous().reshape(-1)
    expected = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    assert dump.read_words(record).tobytes() == expected


def test_a_tensor_under_other_axes_is_another_record(tmp_path):
    tensor = torch.arange(9.0).reshape(1, 3, 3)
    with capture(Steps(None), tmp_path / "run") as run, run.step([[0, 1, 2]], ["x"]):
        run.record("rows", tensor, axes="b t c")
        run.record("columns", tensor, axes="b c t")
        run.record("again", tensor, axes="b c t")
    dump = open_dump(tmp_path / "run")
    rows, columns, again = (record_of(dump, tap) for tap in ("rows", "columns", "again"))
    assert (columns.kept, again.same_as) == ("full", columns.seq)
    assert np.array_equal(values_of(dump, rows), values_of(dump, columns).T)


def test_a_dtype_without_words_is_refused_by_name(tmp_path):
    def forward(module, x):
        return module.first(x).to(torch.complex128)

    with pytest.raises(ModelError, match=r"(?s)cannot be stored.*where: +out.*complex128"):
        captured(tmp_path / "run", forward, taps=["out"])


def test_rows_come_first_whatever_the_layout():
    tensor = torch.arange(24).reshape(1, 2, 3, 4)  # b h t d
    by_head = row_matrix(tensor, "b h t d")
    flat = row_matrix(tensor.transpose(1, 2).reshape(1, 3, 8), "b t c")
    assert np.array_equal(by_head, flat)
