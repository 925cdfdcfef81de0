"""``verify certify`` on captured runs: operations and inputs are read off the dump."""

import json

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.certify.names import parse_name
from verify.certify.own import own_roundings
from verify.certify.run import Options, certify_records
from verify.cli.certify import certify
from verify.dumps.capture import capture
from verify.dumps.format import open_dump
from verify.errors import ArgumentError
from verify.reference.certificates.result import Outcome


class Block(nn.Module):
    """Pre-norm gated block with a residual; ``eps`` is a parameter so that it can be wrong."""

    def __init__(self, eps: float = 1e-6):
        super().__init__()
        self.norm, self.out_norm = nn.RMSNorm(64, eps=eps), nn.LayerNorm(64)
        self.gate, self.up = nn.Linear(64, 48, bias=False), nn.Linear(64, 48)
        self.act, self.product, self.down = nn.SiLU(), nn.Identity(), nn.Linear(48, 64)

    def forward(self, x):
        h = self.norm(x)
        return self.out_norm(x + self.down(self.product(self.act(self.gate(h)) * self.up(h))))


def record(path, model, dtype=torch.bfloat16, steps=1):
    torch.manual_seed(1)
    batches = [torch.randn(1, 8, 64).to(dtype) for _ in range(steps)]
    with capture(model, path), torch.no_grad():
        for batch in batches:
            model(batch)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, the same model with another eps, the model in float32, and its weights."""
    folder = tmp_path_factory.mktemp("certify")
    torch.manual_seed(0)
    model = Block()
    save_file(model.state_dict(), folder / "weights.safetensors")
    record(folder / "wide", model, torch.float32)
    record(folder / "a", model.bfloat16(), steps=2)
    other = Block(eps=0.5)
    other.load_state_dict(model.state_dict())
    record(folder / "b", other.bfloat16(), steps=2)
    return folder


TAPS = {
    "norm.out": "rms_norm",
    "gate.out": "linear",
    "act.out": "silu",
    "product.out": "product",
    "down.out": "linear",
    "out_norm.in.0": "residual_add",
    "out_norm.out": "layer_norm",
}


def options(runs, **changes):
    settings = {"eps": "1e-6"} if changes.pop("eps", False) else {}
    return Options(weights=str(runs / "weights.safetensors"), settings=settings, **changes)


@pytest.mark.parametrize("tap", sorted(TAPS))
def test_every_tap_of_a_right_run_is_explained(runs, tap):
    eps = {"norm.out": "1e-6", "out_norm.out": "1e-5"}.get(tap)
    chosen = Options(
        weights=str(runs / "weights.safetensors"), settings={"eps": eps} if eps else {}
    )
    result = certify_records([f"{runs}/a::{tap}"], chosen)
    assert [one.certificate.op for one in result.records] == [TAPS[tap]] * 2
    assert result.outcome is Outcome.EXPLAINED, result.records[0].certificate.reasons
    assert result.exit_code == 0


def test_weights_are_cast_to_the_dtype_that_ran_and_checked_by_digest(runs):
    result = certify_records([f"{runs}/wide::gate.out"], options(runs))
    assert result.outcome is Outcome.EXPLAINED
    others = {n: t + 1.0 for n, t in Block().state_dict().items()}
    save_file(others, runs / "others.safetensors")
    with pytest.raises(ArgumentError, match="not the weight that ran"):
        certify_records([f"{runs}/a::gate.out"], Options(weights=str(runs / "others.safetensors")))


def test_a_wrong_eps_is_a_defect(runs):
    result = certify_records([f"{runs}/b::norm.out@0"], options(runs, eps=True))
    assert result.outcome is Outcome.DEFECT
    assert result.exit_code == 1
    assert result.records[0].record == f"{runs}/b::norm.out@0"


def test_the_eps_of_the_module_counts_where_no_configuration_states_one(runs):
    result = certify_records([f"{runs}/a::norm.out@0"], options(runs))
    assert result.outcome is Outcome.EXPLAINED


def test_no_side_of_a_pair_is_excused_by_its_own_eps(runs):
    pair = open_dump(runs / "a"), open_dump(runs / "b")
    result = bisect(*pair, checkers=[own_roundings(*pair, str(runs / "weights.safetensors"))])
    assert result.verdict is Verdict.UNRESOLVED
    assert any("eps is 1e-06 in A and 0.5 in B" in r for f in result.findings for r in f.reasons)


def test_another_convention_is_precision(runs):
    gated = Options(
        op="gated",
        inputs={"gate": f"{runs}/a::gate.out", "up": f"{runs}/a::up.out"},
    )
    fused = certify_records([f"{runs}/a::product.out@1"], gated)
    assert fused.outcome is Outcome.PRECISION
    assert fused.records[0].certificate.conventions == ("cast=before-product",)


def test_a_pair_needs_equal_inputs(runs):
    names = [f"{runs}/a::norm.out@0", f"{runs}/b::norm.out@0"]
    result = certify_records(names, options(runs, eps=True, pair=True))
    one = result.records[0]
    assert one.against == names[1]
    assert one.certificate.outcome is Outcome.DEFECT
    assert one.certificate.numbers["error_a"] < one.certificate.numbers["error_b"]
    with pytest.raises(ArgumentError, match="read different inputs"):
        certify_records(
            [f"{runs}/a::gate.out@0", f"{runs}/b::gate.out@0"], options(runs, pair=True)
        )


@pytest.mark.parametrize(
    ("names", "changes", "pattern"),
    [
        (["{run}"], {}, "not the name of a record"),
        (["{run}::gate.out@x"], {}, "a step is a number"),
        (["{run}::gat.out"], {}, "allowed: gate.out"),
        (["{run}::gate.out@9"], {}, r"allowed: steps 0 \.\. 1"),
        (["{run}::gate.out"], {}, "pass --weights"),
        (["{run}::gate.out"], {"op": "conv"}, "allowed: activation, embedding"),
        (["{run}::gate.out"], {"op": "activation"}, "--set function=..."),
        (["{run}::act.out"], {"settings": {"eps": "1"}}, "allowed: function"),
        (["{run}::norm.out"], {"settings": {"eps": "small"}}, "allowed: float"),
        (["{run}::norm.out"], {"settings": {"eps": "1", "unit_offset": "2"}}, "allowed: bool"),
        (["{run}::act.out"], {"accumulate": "fp8"}, "allowed: fp32, "),
        (["{run}::act.out"], {"pair": True}, "a pair is two records"),
        (["{run}::act.out", "{run}::act.out@0"], {"pair": True}, "2 and 1"),
        (["{run}::norm.in.0"], {}, "name it with --op"),
    ],
)
def test_wrong_calls_are_refused(runs, names, changes, pattern):
    changes = dict(changes)
    if changes.pop("weights", False):
        changes["weights"] = str(runs / "weights.safetensors")
    with pytest.raises(ArgumentError, match=pattern):
        certify_records([name.format(run=runs / "a") for name in names], Options(**changes))


def test_names_keep_what_stands_before_the_last_separator():
    name = parse_name("runs/a::b::model.norm.out@3")
    assert (str(name.run), name.tap, name.step) == ("runs/a::b", "model.norm.out", 3)
    assert str(name) == "runs/a::b::model.norm.out@3"


@pytest.fixture
def command():
    app = typer.Typer()
    app.command()(certify)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_the_command_prints_a_verdict_and_exits_by_it(runs, command):
    fine = command(f"{runs}/a::act.out")
    assert fine.exit_code == 0
    assert fine.output.splitlines()[0] == f"EXPLAINED  {runs}/a::act.out@0"
    assert (
        "declared  Activation(function='silu', sigmoid='quotient'), FP32 sums in any order"
        in fine.output
    )
    wrong = command(f"{runs}/a::act.out@0", "--set", "function=gelu")
    assert wrong.exit_code == 1
    assert "reproduced by: silu for gelu" in wrong.output


def test_the_command_writes_json(runs, command):
    result = command(f"{runs}/a::act.out@0", "--json")
    parsed = json.loads(result.output)
    assert parsed["outcome"] == "EXPLAINED"
    assert parsed["records"][0]["certificate"]["op"] == "silu"
    assert np.isfinite(parsed["records"][0]["certificate"]["numbers"]["error"])


def test_a_setting_without_a_value_is_refused(runs, command):
    result = command(f"{runs}/a::act.out@0", "--set", "function")
    assert isinstance(result.exception, ArgumentError)
    assert "allowed: NAME=VALUE" in str(result.exception)
