"""Results as JSON: golden bytes, exact round trips, and the published schema."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.report.support.cases import CASES, SMALL, empty
from tests.report.support.golden import check
from tests.report.support.schemas import violations
from verify.bisect.result import BisectResult, Finding, Verdict
from verify.compare.result import Comparison
from verify.report.json import from_json, schema, to_json
from verify.report.write_schema import schema_text

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"


@pytest.mark.parametrize("name", ["hostile", "not_comparable", "partial"])
def test_golden(name: str) -> None:
    check(f"{name}.json", to_json(SMALL[name]()).decode())


@pytest.mark.parametrize("name", CASES)
def test_round_trip_is_exact(name: str) -> None:
    result = CASES[name]()
    data = to_json(result)
    assert data == to_json(from_json(data, BisectResult))
    compared = to_json(result.comparison)
    assert compared == to_json(from_json(compared, Comparison))


def test_values_that_json_lacks_are_strings() -> None:
    result = CASES["hostile"]()
    plain = json.loads(to_json(result), parse_constant=pytest.fail)  # no NaN, no Infinity
    taps = plain["comparison"]["taps"]
    assert taps[1]["relative_l2"] == "Infinity"
    assert taps[3]["relative_l2"] == "NaN"
    assert plain["first_token"]["pair_shift"] == "-Infinity"
    back = from_json(to_json(result), BisectResult)
    assert math.isnan(back.comparison.taps[3].relative_l2)
    assert back.first_token is not None and back.first_token.pair_shift == -math.inf


def test_integers_are_exact_or_strings() -> None:
    plain = json.loads(to_json(CASES["hostile"]()))
    assert plain["comparison"]["taps"][3]["ulp_max"] == 2**64 - 1
    assert plain["origins"][0]["measure"]["huge"] == str(10**40)


def test_scalars_of_numpy_are_their_values() -> None:
    result = empty()
    result.findings = [
        Finding(
            verdict=Verdict.UNRESOLVED, title="", reasons=[],
            numbers={"a": np.float64("inf"), "b": np.int64(3), "c": np.float32(0.5)},  # type: ignore[dict-item]
        )
    ]  # fmt: skip
    numbers = json.loads(to_json(result))["findings"][0]["numbers"]
    assert numbers == {"a": "Infinity", "b": 3, "c": 0.5}


def test_free_form_maps_are_sorted_and_fields_keep_their_order() -> None:
    result = empty()
    result.findings = [
        Finding(verdict=Verdict.UNRESOLVED, title="", reasons=[], numbers={"b": 1, "a": 2})
    ]
    data = to_json(result)
    assert data.index(b'"a": 2') < data.index(b'"b": 1')
    assert data.startswith(b'{\n "verdict":') and data.endswith(b"}\n")


@pytest.mark.parametrize("name", SMALL)
def test_what_is_written_fits_the_schema(name: str) -> None:
    root = schema()
    result = SMALL[name]()
    for value in (result, result.comparison):
        assert violations(json.loads(to_json(value)), root, root) == []


def test_the_schema_refuses_what_is_wrong() -> None:
    root = schema()
    plain = json.loads(to_json(empty()))
    for change in ({"exit_code": "zero"}, {"verdict": "FINE"}, {"surprise": 1}):
        assert violations(plain | change, root, root)
    del plain["summary"]
    assert violations(plain, root, root)


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text("utf-8") == schema_text(), (
        "run: python -m verify.report.write_schema docs/report.schema.json"
    )


def test_foreign_bytes_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_json(b'{"verdict": "FINE"}', BisectResult)
    with pytest.raises(msgspec.DecodeError):
        from_json(b"\x00", BisectResult)


def test_results_are_written_without_torch() -> None:
    import subprocess
    import sys

    code = "import sys, verify.report.json; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
