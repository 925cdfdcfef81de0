"""What each kind of gate makes of its result file; an empty check is never a pass."""

import copy
import json

import msgspec
import pytest
import torch

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.run import bisect
from verify.bounds import Bound
from verify.certify.run import CertifyResult, RecordCertificate
from verify.endpoints.difference import difference
from verify.endpoints.result import (
    CertificateCheck,
    EndpointComparison,
    PairCheck,
    SpeedCheck,
    State,
)
from verify.gates import config
from verify.gates.readers import artifacts, read
from verify.noise.result import NoiseGroup, NoiseResult, TapNoise
from verify.reference.certificates.result import Certificate, Check, Outcome
from verify.report.json import to_json

PASS, FAIL, ERROR, SKIPPED = "PASS", "FAIL", "ERROR", "SKIPPED"


def judged(tmp_path, kind, result, **options):
    data = result if isinstance(result, bytes) else to_json(result)
    (tmp_path / "result").write_bytes(data)
    gate = kind(name="g", report="result", **options)
    reading = read(gate, tmp_path)
    assert reading.reason
    return reading.result


def run(path, hidden, chosen):
    """One step: two rows at one tap, and the token that they choose."""
    with SyntheticRun(path, {"s": [1, 2]}) as made, made.step():
        ids = made.add("tokens.in", [[1], [2]], "b t", dtype="int64")
        at = made.add("layer.out", [[hidden, 1.0], [2.0, 3.0]], inputs=[ids])
        made.add("tokens.out", [[chosen]], "b t", rows=[("s", 1)], dtype="int64", inputs=[at])
    return made.open()


@pytest.fixture
def pair(tmp_path):
    def make(a, b, **options):
        runs = [run(tmp_path / name, *values) for name, values in (("a", a), ("b", b))]
        return bisect(*runs, **options)

    return make


def without_rows(result):
    empty = copy.deepcopy(result)
    empty.comparison.taps, empty.comparison.rows = [], 0
    return empty


def endpoints(checks, speed=()):
    return EndpointComparison(
        spec="s", summary="", exit_code=0, device="cpu", endpoints=[], cases=["c"], checks=checks,
        speed=list(speed),
    )  # fmt: skip


def pair_check(differing=0, state=State.PASSED):
    a = torch.ones(2, 4)
    b = a.clone()
    b[0, :differing] = 2
    return PairCheck(case="c", a="x", b="y", state=state, tensors=[difference("out", a, b, "t d")])


@pytest.mark.parametrize(
    ("checks", "result"),
    [
        ([pair_check()], PASS),
        ([pair_check(1, State.DIFFERENT)], FAIL),
        ([pair_check(1, State.EXPLAINED)], FAIL),
        ([pair_check(), PairCheck(case="c", a="x", b="y", state=State.FAILED)], FAIL),
        ([pair_check(), PairCheck(case="c", a="x", b="y", state=State.NOT_RUN)], SKIPPED),
        ([PairCheck(case="c", a="x", b="y", state=State.PASSED)], SKIPPED),
        ([], SKIPPED),
    ],
)
def test_bitwise(tmp_path, checks, result):
    assert judged(tmp_path, config.Bitwise, endpoints(checks)) == result


@pytest.mark.parametrize(
    ("outcome", "rows_judged", "state", "result"),
    [
        ("EXPLAINED", None, State.PASSED, PASS),
        ("EXPLAINED", 4, State.PASSED, FAIL),
        ("DEFECT", None, State.FAILED, FAIL),
        ("", None, State.NOT_RUN, SKIPPED),
    ],
)
def test_certificate(tmp_path, outcome, rows_judged, state, result):
    check = CertificateCheck(
        case="c", endpoint="x", state=state, outcome=outcome, rows=8, rows_judged=rows_judged
    )
    assert judged(tmp_path, config.Certificate, endpoints([check])) == result
    assert judged(tmp_path, config.Certificate, endpoints([])) == SKIPPED


def record_certificate(outcome):
    check = Check(name="c", statistic=0.5, limit=Bound(1.0, "of a test"), passed=True)
    made = Certificate(
        outcome=Outcome(outcome), op="sum", arithmetic="fp32", checks=(check,), reasons=()
    )
    return RecordCertificate(record="r", declared="sum", certificate=made)


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        (["EXPLAINED"] * 2, PASS),
        (["EXPLAINED", "SUSPECT"], FAIL),
        (["DEFECT"], FAIL),
        ([], SKIPPED),
    ],
)
def test_certificates_of_records(tmp_path, outcomes, result):
    records = [record_certificate(each) for each in outcomes]
    whole = Outcome(outcomes[-1] if outcomes else "EXPLAINED")
    found = CertifyResult(outcome=whole, records=records, exit_code=0)
    assert judged(tmp_path, config.Certificate, found) == result


@pytest.mark.parametrize(
    ("low", "high", "result"), [(0.97, 0.99, PASS), (0.99, 1.02, FAIL), (1.2, 1.3, FAIL)]
)
def test_speed(tmp_path, low, high, result):
    timed = SpeedCheck(
        case="c",
        a="x",
        b="y",
        state=State.NOTED,
        pairs=20,
        ratio=(low + high) / 2,
        low=low,
        high=high,
    )
    assert judged(tmp_path, config.Speed, endpoints([], [timed]), max_ratio=1.0) == result
    assert judged(tmp_path, config.Speed, endpoints([]), max_ratio=1.0) == SKIPPED
    untimed = SpeedCheck(case="c", a="x", b="z", state=State.NOT_RUN)
    both = endpoints([], [timed, untimed])
    assert judged(tmp_path, config.Speed, both, max_ratio=9.0) == SKIPPED


def noise(taps=(), repeats=2):
    group = NoiseGroup(
        name="repeats", runs=["r"] * repeats, taps=list(taps), flips=[], positions=4, unmatched=0
    )
    return NoiseResult(
        base="b", workload="", weights="", settings={}, groups=[group], summary="s", exit_code=0
    )


def varying(relative_l2):
    return TapNoise(
        tap="layer.out",
        order=0,
        differing_runs=1,
        differing_rows=1,
        max_ulp=1,
        relative_l2=relative_l2,
    )


def test_repeatability(tmp_path):
    assert judged(tmp_path, config.Repeatability, noise(), min_runs=3) == PASS
    assert judged(tmp_path, config.Repeatability, noise(repeats=1), min_runs=3) == SKIPPED
    assert judged(tmp_path, config.Repeatability, noise(repeats=0)) == SKIPPED
    assert judged(tmp_path, config.Repeatability, noise([varying(1e-6)])) == FAIL


@pytest.mark.parametrize(
    ("cases", "result"),
    [
        ("<testcase name='a'/>", PASS),
        ("<testcase name='a'/><testcase name='b'><failure/></testcase>", FAIL),
        ("<testcase name='a'/><testcase name='b'><error/></testcase>", FAIL),
        ("<testcase name='a'><skipped/></testcase>", SKIPPED),
        ("", SKIPPED),
        ("<testcase", ERROR),
    ],
)
def test_tests(tmp_path, cases, result):
    xml = f"<testsuites><testsuite>{cases}</testsuite></testsuites>".encode()
    assert judged(tmp_path, config.Tests, xml) == result


def test_junit_that_declares_entities_is_not_read(tmp_path):
    xml = b'<!DOCTYPE x [<!ENTITY a "aa">]><testsuite><testcase name="a"/></testsuite>'
    assert judged(tmp_path, config.Tests, xml) == ERROR


def differences(*found):
    keys = ("name", "weight", "subject")
    listed = [dict(zip(keys, each, strict=True)) for each in found]
    return json.dumps({"differences": listed}).encode()


def test_env(tmp_path):
    torch = ("packages.torch", "likely", "torch")
    seen = differences(torch, ("packages.x", "unlikely", "x"))
    assert judged(tmp_path, config.Env, differences()) == PASS
    assert judged(tmp_path, config.Env, seen) == FAIL
    assert judged(tmp_path, config.Env, seen, allow=["torch"]) == PASS
    both = {"allow": ["torch"], "weights": ["likely", "unlikely"]}
    assert judged(tmp_path, config.Env, seen, **both) == FAIL
    assert judged(tmp_path, config.Env, b"{}") == ERROR


class TestBisects:
    def test_equal_runs(self, tmp_path, pair):
        found = pair((1.0, 7), (1.0, 7))
        for kind in (config.Tokens, config.Bitwise, config.Parity, config.Coverage, config.Env):
            assert judged(tmp_path, kind, found) == PASS, kind
        assert judged(tmp_path, config.Repeatability, found) == PASS
        assert judged(tmp_path, config.Repeatability, found, min_runs=3) == SKIPPED

    def test_other_tokens(self, tmp_path, pair):
        found = pair((1.0, 7), (1.0, 8))
        assert judged(tmp_path, config.Tokens, found) == FAIL
        assert judged(tmp_path, config.Bitwise, found) == FAIL

    def test_other_bits_and_equal_tokens(self, tmp_path, pair):
        found = pair((1.0, 7), (1.5, 7))
        assert judged(tmp_path, config.Tokens, found) == PASS
        assert judged(tmp_path, config.Bitwise, found) == FAIL
        assert judged(tmp_path, config.Parity, found) == FAIL

    def test_noise_covers_what_repeats_do_as_well(self, tmp_path, pair):
        found = pair((1.0, 7), (1.5, 7))
        (tmp_path / "noise.json").write_bytes(to_json(noise([varying(1.0)])))
        assert judged(tmp_path, config.Parity, found, noise="noise.json") == PASS
        (tmp_path / "noise.json").write_bytes(to_json(noise([varying(1e-9)])))
        assert judged(tmp_path, config.Parity, found, noise="noise.json") == FAIL
        assert judged(tmp_path, config.Parity, found, noise="none.json") == ERROR

    @pytest.mark.parametrize(
        "kind", [config.Tokens, config.Bitwise, config.Parity, config.Coverage]
    )
    def test_nothing_compared_is_no_pass(self, tmp_path, pair, kind):
        found = without_rows(pair((1.0, 7), (1.0, 7)))
        assert judged(tmp_path, kind, found) == SKIPPED

    @pytest.mark.parametrize("kind", [config.Tokens, config.Bitwise, config.Parity])
    def test_a_partial_dump_is_no_pass(self, tmp_path, pair, kind):
        found = pair((1.0, 7), (1.0, 7))
        found.comparison.complete_b = False
        assert judged(tmp_path, kind, found) == SKIPPED

    def test_forced_tokens_are_no_identity(self, tmp_path, pair):
        found = pair((1.0, 7), (1.0, 7))
        manifest = tmp_path / "b" / "manifest.json"
        table = json.loads(manifest.read_bytes())
        table["workload"]["tape"] = {"run_id": "r", "digest": "d"}
        manifest.write_text(json.dumps(table))
        assert judged(tmp_path, config.Tokens, found) == SKIPPED

    def test_coverage_counts_what_was_left_out(self, tmp_path, pair):
        found = pair((1.0, 7), (1.0, 7))
        found.comparison.other_context_rows = found.comparison.rows
        assert judged(tmp_path, config.Coverage, found, min_share=0.5) == PASS
        assert judged(tmp_path, config.Coverage, found, min_share=0.51) == FAIL
        assert judged(tmp_path, config.Coverage, found, min_share=0.5, min_rows=10**6) == FAIL

    def test_the_manifests_belong_to_the_evidence(self, tmp_path, pair):
        judged(tmp_path, config.Tokens, pair((1.0, 7), (1.0, 7)))
        gate = config.Tokens(name="g", report="result")
        assert artifacts(gate, tmp_path) == [
            tmp_path / "result", tmp_path / "a/manifest.json", tmp_path / "b/manifest.json",
        ]  # fmt: skip


KINDS = [
    config.Tokens, config.Bitwise, config.Certificate, config.Parity, config.Repeatability,
    config.Coverage, config.Env, config.Tests,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"schema": "other/1"}', b"\xff", None]
)
def test_anything_else_is_an_error(tmp_path, kind, content):
    if content is not None:
        assert judged(tmp_path, kind, content) == ERROR
    else:
        assert read(kind(name="g", report="absent"), tmp_path).result == ERROR


def test_every_kind_with_a_report_has_a_reader():
    from verify.gates.readers import READERS

    kinds = {kind.__struct_config__.tag for kind in config.AnyGate.__args__}
    assert kinds == READERS.keys() | {"command"}
    assert msgspec.json.schema(config.Gates)
