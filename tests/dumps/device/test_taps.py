"""Taps that write into a ring: eager, compiled and captured, each step drained once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from verify.dumps import digests, summaries
from verify.dumps.device.drain import Drain
from verify.dumps.device.layout import Keep, StepLayout
from verify.dumps.device.taps import ModuleTaps, output_taps
from verify.errors import ArgumentError, ModelError

DEVICES = [
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu),
]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, 7)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        if lengths is not None:
            x = x * lengths.view(-1, 1, 1)
        return self.head(x)


def make(device: str) -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    return Model().eval().to(device), torch.randn(2, 3, 32).to(device)


def outputs(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    """What each module returns, the plain way."""
    found: dict[str, Tensor] = {}
    handles = [
        module.register_forward_hook(
            lambda m, a, out, path=path: found.__setitem__(f"{path}.out", out.clone())
        )
        for path, module in model.named_modules()
        if path and not isinstance(module, nn.ModuleList)
    ]
    model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return found


def check(step: Any, expected: dict[str, Tensor], taps: ModuleTaps) -> None:
    """Digests (and summaries) of a drained step against numpy on the plain outputs."""
    seen = {taps.buffers.taps[r.observed.tap]: r for r in step.regions}
    assert expected.keys() <= seen.keys()
    for tap, tensor in expected.items():
        words = tensor.reshape(-1, tensor.shape[-1]).cpu().numpy().view(np.uint32)
        region = seen[tap]
        assert (step.digests(region) == digests.row_digests(words, "float32")).all()
        if region.observed.keep == "summary":
            sketch = summaries.row_sketches(words, "float32")
            assert step.sketches(region).tobytes() == sketch.tobytes()
            statistics = summaries.row_statistics(words, "float32")
            assert step.statistics(region).tobytes() == statistics.tobytes()
        if region.observed.keep == "words":
            assert (step.row_words(region) == words).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("keep", ["digest", "summary", "words"])
@torch.no_grad()
def test_eager_steps(keep: Keep, device: str) -> None:
    model, x = make(device)
    plain = model(x)
    taps = ModuleTaps(model, output_taps(model, keep), device)
    drain = Drain(taps.buffers)
    with taps.attached():
        for scale in (1.0, 2.0):
            drain.before()
            assert torch.equal(model(x * scale), plain if scale == 1.0 else model_of(model, x * 2))
            drain.after()
    collected = list(drain.collect())
    for scale, steps in zip((1.0, 2.0), collected, strict=True):
        check(steps[0], outputs(model, x * scale), taps)
    assert drain.lost == 0


def model_of(model: Model, x: Tensor) -> Tensor:
    """The model without its hooks."""
    bare = Model().eval().to(x.device)
    bare.load_state_dict(model.state_dict())
    return bare(x)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@torch.no_grad()
def test_compiled_without_a_break_and_with_the_same_bits(backend: str) -> None:
    model, x = make("cpu")
    torch._dynamo.reset()
    plain = torch.compile(model, fullgraph=True, backend=backend)(x)
    torch._dynamo.reset()
    taps = ModuleTaps(model, output_taps(model), "cpu")
    drain = Drain(taps.buffers)
    with taps.attached():
        compiled = torch.compile(model, fullgraph=True, backend=backend)
        compiled(x)
        drain.before()
        assert torch.equal(compiled(x), plain)
        drain.after()
    (steps,) = drain.collect()
    assert drain.foreign == 1  # the call that compiled
    if backend == "aot_eager":  # inductor fuses, and may round otherwise than eager does
        check(steps[0], outputs(model, x), taps)
    assert len(steps[0].regions) == len(taps.buffers.layout.regions)


@pytest.mark.parametrize("device", DEVICES)
@torch.no_grad()
def test_steps_that_nobody_drained_are_counted(device: str) -> None:
    model, x = make(device)
    taps = ModuleTaps(model, output_taps(model), device, slots=3)
    drain = Drain(taps.buffers)
    with taps.attached():
        drain.before()
        for index in range(5):
            model(x + index)
        drain.after()
    (steps,) = drain.collect()
    assert [step.index for step in steps] == [2, 3, 4]
    assert drain.lost == 2
    for index, step in zip((2, 3, 4), steps, strict=True):
        check(step, outputs(model, x + index), taps)


@pytest.mark.parametrize("device", DEVICES)
@torch.no_grad()
def test_a_module_that_runs_twice_has_two_occurrences(device: str) -> None:
    model, x = make(device)
    shared = nn.Sequential(model.layers[0], model.layers[0]).to(device)
    taps = ModuleTaps(shared, {"0.out": "digest"}, device)
    drain = Drain(taps.buffers)
    with taps.attached():
        drain.before()
        shared(x)
        drain.after()
    ((step,),) = drain.collect()
    assert [r.observed.occurrence for r in step.regions] == [0, 1]
    first, second = (step.digests(region) for region in step.regions)
    assert (first != second).all()


@torch.no_grad()
def test_taps_without_room_are_named() -> None:
    model, x = make("cpu")
    taps = ModuleTaps(model, output_taps(model, "words"), "cpu", step_bytes=4096)
    with taps.attached():
        model(x)
    assert taps.buffers.missed["layers.1.up.out"] == 1


def test_what_is_refused() -> None:
    model, _ = make("cpu")
    with pytest.raises(ModelError, match="no module of the model"):
        ModuleTaps(model, {"layers.9.out": "digest"}, "cpu")
    with pytest.raises(ArgumentError, match="multiple of 16"):
        ModuleTaps(model, {"head.out": "digest"}, "cpu", step_bytes=5000)
    assert StepLayout(4096).used == 16


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["digest", "summary", "words"])
@torch.no_grad()
def test_every_replay_of_a_graph_has_its_own_records(keep: Keep) -> None:
    model, x = make("cuda")
    plain = torch.cuda.CUDAGraph()
    model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(plain):
        expected_out = model(x)
    taps = ModuleTaps(model, output_taps(model, keep), "cuda", slots=4)
    drain = Drain(taps.buffers)
    graph = torch.cuda.CUDAGraph()
    with taps.attached():
        model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            out = model(x)
    for _ in range(6):
        x.normal_()
        drain.before()
        graph.replay()
        drain.after()
        plain.replay()
        assert torch.equal(out, expected_out)
        ((step,),) = drain.collect()
        check(step, outputs(model, x), taps)
    assert drain.lost == 0 and drain.foreign == 1


@pytest.mark.gpu
@torch.no_grad()
def test_a_replay_shows_the_inputs_that_it_reads() -> None:
    model, x = make("cuda")
    lengths = torch.ones(2, device="cuda")
    taps = ModuleTaps(model, {"head.out": "digest"}, "cuda", inputs=("lengths",))
    drain = Drain(taps.buffers)
    graph = torch.cuda.CUDAGraph()
    with taps.attached():
        model(x, lengths=lengths)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(x, lengths=lengths)
    drain.before()
    lengths.fill_(3.0)
    graph.replay()
    drain.after()
    ((step,),) = drain.collect()
    region = next(r for r in step.regions if taps.buffers.taps[r.observed.tap] == "inputs.lengths")
    assert step.row_words(region).view(np.float32).ravel().tolist() == [3.0, 3.0]


@pytest.mark.gpu
@torch.no_grad()
def test_reduce_overhead_keeps_its_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = make("cuda")
    torch._dynamo.reset()
    taps = ModuleTaps(model, output_taps(model), "cuda")
    drain = Drain(taps.buffers)
    taken: list[int] = []
    take = taps.buffers.take

    def counting(*args: Any) -> None:
        taken.append(1)
        take(*args)

    monkeypatch.setattr(taps.buffers, "take", counting)
    with taps.attached():
        compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
        for _ in range(3):
            compiled(x)
        found = []
        for shift in (0.0, 1.0):
            before = len(taken)
            drain.before()
            compiled(x + shift)
            drain.after(1)
            # A replay runs no Python: the step is there, and nobody called the operator.
            assert len(taken) == before
            ((step,),) = drain.collect()
            found.append({r.observed.tap: step.digests(r) for r in step.regions})
    assert found[0].keys() == found[1].keys() and len(found[0]) == len(taps.buffers.taps) - 1
    assert all((found[0][tap] != found[1][tap]).any() for tap in found[0])


@pytest.mark.gpu
@torch.no_grad()
def test_a_compiled_model_with_taps_is_off_by_rounding_at_most() -> None:
    """Inductor may compile another program where a tap reads a value (docs/device-capture.md), so
    equal bits are not promised; the error of either program against float64 is of one size."""
    model, x = make("cuda")
    torch._dynamo.reset()
    plain = torch.compile(model, fullgraph=True)(x).double()
    torch._dynamo.reset()
    taps = ModuleTaps(model, output_taps(model), "cuda")
    with taps.attached():
        tapped = torch.compile(model, fullgraph=True)(x).double()
    exact = make("cpu")[0].double()(x.cpu().double()).to("cuda")
    # Two sums of 64 products a layer, two layers and a head: within 64 units of the last place.
    limit = 64 * 2.0**-24 * float(exact.abs().max())
    assert float((tapped - exact).abs().max()) <= limit
    assert float((plain - exact).abs().max()) <= limit


@pytest.mark.parametrize("device", DEVICES)
@torch.no_grad()
def test_a_tensor_that_was_written_to_is_left_out_and_named(device: str) -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).mul_(2.0))

    x = torch.randn(2, 3, 32).to(device)
    model = InPlace().to(device)
    for held, expected in ((1 << 20, {"first.out": 1}), (0, {})):
        taps = ModuleTaps(model, output_taps(model), device, held_bytes=held)
        drain = Drain(taps.buffers)
        with taps.attached():
            drain.before()
            model(x)
            drain.after(1)
        assert dict(taps.changed) == expected
        ((step,),) = drain.collect()
        seen = {taps.buffers.taps[r.observed.tap]: step.digests(r) for r in step.regions}
        assert ("first.out" in seen) == (held == 0)
        if held == 0:
            words = model.first(x).reshape(6, 32).cpu().numpy().view(np.uint32)
            assert (seen["first.out"] == digests.row_digests(words, "float32")).all()
