"""`verify capture --engine llama.cpp`: what it refuses, before any model loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.dumps.engine_request import EngineRequest
from verify.dumps.llamacpp.engine import record_engine
from verify.errors import ArgumentError


@pytest.mark.parametrize(
    ("model", "given", "settings", "said"),
    [
        ("none.gguf", {}, {}, "no such GGUF file"),
        ("m.gguf", {}, {}, "earlier run"),
        ("m.gguf", {"tape": Path("run")}, {"flash": "maybe"}, "no such setting"),
        ("m.gguf", {"tape": Path("run")}, {"cache": "q8"}, "no such setting"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(
    model: str, given: dict, settings: dict, said: str, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    request = EngineRequest(str(tmp_path / model), tmp_path / "out", given, settings)
    with pytest.raises(ArgumentError, match=said):
        record_engine(request)
