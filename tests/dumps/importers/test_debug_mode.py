"""Logs that the DebugMode of the installed torch records; its JSON is written as documented, since
not every torch that has the mode can save its logs."""

import json
import math

import pytest
import torch
from torch.utils._debug_mode import DebugMode

from tests.support.importing import import_to, run_cli
from verify.bisect.run import bisect
from verify.compare.run import compare
from verify.dumps.importers.opening import open_run
from verify.errors import DumpError
from verify.taps.open import open_mapped

FORMAT = "torch.utils._debug_mode.DebugMode.logs"


def serialise(value):
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "nonfinite_float", "value": str(value)}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {"type": kind, "items": [serialise(each) for each in value]}
    if isinstance(value, dict):
        return {"type": "dict", "items": [[key, serialise(each)] for key, each in value.items()]}
    return {"type": "scalar", "value": value}


def save(logs, path):
    if hasattr(DebugMode, "save_logs"):
        DebugMode.save_logs(logs, path)
        return path
    lines = [
        {
            "type": "op",
            "op_name": str(call.op),
            "call_depth": call.call_depth,
            "log": None if call.log is None else serialise(call.log),
            "output_str": call.output_str,
            "args_str": call.args_str,
            "kwargs_str": call.kwargs_str,
        }
        for call in logs
    ]
    path.write_text(json.dumps({"format": FORMAT, "version": 1, "logs": lines}))
    return path


def log(path, function, hash_fn=("norm", "hash_tensor"), hash_inputs=True):
    """Record what a function runs; its calls, and the path of the log."""
    hashes = DebugMode.log_tensor_hashes(hash_fn=[*hash_fn], hash_inputs=hash_inputs)
    with DebugMode(record_output=True) as mode, hashes:
        function()
    return mode.logs, save(mode.logs, path)


def layers(*, shift=0.5, extra=False):
    def run():
        x = torch.linspace(-1, 1, 16).reshape(2, 8)
        weights = torch.eye(8) * 1.25
        for layer in range(4):
            if extra and layer == 1:
                x = x.clone()
            x = torch.tanh(x @ weights + (shift if layer == 2 else 0.5))
        return x

    return run


def taps_that_differ(result):
    return [tap.tap for tap in result.taps if not tap.equal]


def test_equal_logs_are_equal_and_prove_nothing(tmp_path):
    log(tmp_path / "a.json", layers())
    log(tmp_path / "b.json", layers())
    result = compare(*open_mapped(tmp_path / "a.json", tmp_path / "b.json", None))
    assert not taps_that_differ(result)
    assert result.rows > 0
    assert any("does not prove equal tensors" in each.reason for each in result.unmatched)
    code, _, err = run_cli("compare", tmp_path / "a.json", tmp_path / "b.json")
    assert code == 3
    assert "imported into a temporary run" in err


def test_equal_inputs_and_unequal_outputs_are_an_origin(tmp_path):
    log(tmp_path / "a.json", layers())
    log(tmp_path / "b.json", layers(shift=0.75))
    result = bisect(*open_mapped(tmp_path / "a.json", tmp_path / "b.json", None))
    names = [origin.tap for origin in result.origins]
    assert names and all(".aten.add.Tensor.out." in name for name in names)
    assert result.verdict == "UNRESOLVED"


def test_logs_of_other_length_align_where_the_tool_gives_up(tmp_path):
    first, _ = log(tmp_path / "a.json", layers())
    second, _ = log(tmp_path / "b.json", layers(shift=0.75, extra=True))
    with pytest.raises(ValueError, match="length"):
        DebugMode.check_hash_mismatches(first, second)
    a, b = open_mapped(tmp_path / "a.json", tmp_path / "b.json", None)
    assert any("1 in B alone" in note for note in b.problems)
    result = bisect(a, b)
    assert ".aten.add.Tensor.out." in result.origins[0].tap
    alone = {each.tap for each in result.comparison.unmatched if "has no such tap" in each.reason}
    assert alone and all(".aten.clone." in tap for tap in alone)


def test_without_input_hashes_a_difference_is_first_observed(tmp_path):
    for name, shift in (("a", 0.5), ("b", 0.75)):
        log(tmp_path / f"{name}.json", layers(shift=shift), hash_inputs=False)
    a, b = open_mapped(tmp_path / "a.json", tmp_path / "b.json", None)
    assert any("hashes of inputs" in note for note in a.problems)
    result = bisect(a, b)
    assert "First observed at" in result.findings[0].title


def test_values_are_those_of_the_log(tmp_path):
    def run():
        torch.tensor([float("inf"), 1.0]) * 2.0

    calls, path = log(tmp_path / "a.json", run)
    dump = import_to(path, tmp_path / "run")
    found = {r.tap: dump.read_words(r)[0, 0] for r in dump.records()}
    norm, xor = calls[-1].log["hash"]
    number = next(tap[:5] for tap in found if "mul" in tap)
    assert found[f"{number}.aten.mul.Tensor.out.hash_tensor"] == xor
    assert found[f"{number}.aten.mul.Tensor.out.norm"].view("f8") == norm == math.inf


def line(fields):
    """A log with one line that has these fields."""
    call = f'{{"type": "op", "op_name": "aten.add", "call_depth": 1, {fields}}}'
    return f'{{"format": "{FORMAT}", "version": 1, "logs": [{call}]}}'


def leaves(side):
    return f'"tensor_hash_leaves": {{"type": "dict", "items": [["input", {side}]]}}'


def hashed(number):
    value = f'{{"type": "scalar", "value": {number}}}'
    return f'"log": {{"type": "dict", "items": [["hash", {value}]]}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"format": "{FORMAT}", "version": 1, "logs": [', "Expecting value"),
        (f'{{"format": "{FORMAT}", "version": 2, "logs": []}}', "version 2"),
        (f'{{"format": "{FORMAT}", "version": 1, "logs": [3]}}', "call_depth"),
        (f'{{"format": "{FORMAT}", "version": 1, "logs": []}}', "no tensor"),
        (line('"log": {"type": "scalar", "value": 3}'), "int where a table of hashes stands"),
        (line(leaves('{"type": "scalar", "value": 3}')), "int where a list of hashes stands"),
        (line(leaves('{"type": "nonfinite_float", "value": []}')), "unknown type"),
        (line(hashed("1" + 30 * "0")), "a hash of 100 bits"),
    ],
)
def test_broken_logs_are_refused(tmp_path, text, said):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DumpError, match=said):
        open_run(path)
    code, _, err = run_cli("compare", path, path)
    assert code == 2 and "Traceback" not in err
