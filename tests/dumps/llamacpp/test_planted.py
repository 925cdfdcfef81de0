"""llama.cpp on small GGUF files: all is explained on a sound one, and a fault is found where it is.

A fault is planted by rewriting the file that llama.cpp runs; the judge reads the sound file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from tests.support.toy_gguf import DIM, Toy
from verify.certify.llamacpp.attention import judge_attention
from verify.certify.llamacpp.node import judge_node
from verify.dumps.format import open_dump
from verify.dumps.format.schema import Sequence
from verify.dumps.importers.observation import Imported, Observation, Source, Tensor
from verify.dumps.importers.writing import write_run
from verify.dumps.llamacpp.gguf_file import open_gguf
from verify.dumps.llamacpp.record import record_llamacpp
from verify.errors import VerifyError
from verify.reference.certificates.result import Outcome

PROMPT, GENERATED = [3, 1, 4, 1, 5, 9, 2, 6, 53], [5, 8, 9]
UNJUDGED = ("tokens.", "norm")
"""Ids, and a norm before its weight: judged together with the weight."""


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tape") / "run"
    words = Tensor(np.array([PROMPT], np.int64).view(np.uint64), "int64")
    source = Source(
        format="test",
        path=out,
        sequences=[Sequence(id="s", prompt=PROMPT, generated=GENERATED)],
    )
    seen = Observation(tap="tokens.in", tensor=words, axes="b t", sequences=["s"])
    write_run(Imported(source, iter([seen])), out)
    return out


def accused(ran: Toy, sound: Toy, tape: Path, folder: Path) -> dict[str, str]:
    """Taps that are no rounding -> why, for the file that ran against the sound one."""
    judge = sound.write(folder / "sound.gguf")
    record_llamacpp(ran.write(folder / "ran.gguf"), tape, folder / "run")
    dump = open_dump(folder / "run")
    found = {}
    for record in dump.records():
        if record.tap.startswith(UNJUDGED):
            continue
        rows = np.arange(len(dump.rows(record).position))
        try:
            node = judge_node(dump, record, rows, judge)
        except VerifyError as error:  # not one tap is left without a judgement
            found[record.tap] = str(error)
            continue
        if node.outcome is Outcome.DEFECT:
            found[record.tap] = node.reason
    return found


@pytest.mark.parametrize(
    "kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
)
def test_all_of_a_sound_file_is_explained(kind: str, tape: Path, tmp_path: Path) -> None:
    assert accused(Toy(kind), Toy(kind), tape, tmp_path) == {}


def norm_scaled(toy: Toy) -> None:
    toy.tensors["blk.1.attn_norm.weight"] *= np.float32(1.03)


def other_base(toy: Toy) -> None:
    toy.theta = 100000.0


def other_eps(toy: Toy) -> None:
    toy.eps = 1e-3


def block_scale(toy: Toy) -> None:
    row = toy.tensors["blk.0.ffn_up.weight"][17]
    row[:2] = (row[:2].view(np.float16) * np.float16(1.05)).view(np.uint8)


def heads_swapped(toy: Toy) -> None:
    for name in ("k", "v"):
        weight = toy.tensors[f"blk.1.attn_{name}.weight"]
        toy.tensors[f"blk.1.attn_{name}.weight"] = np.roll(weight, DIM, axis=0)


@pytest.mark.parametrize(
    ("plant", "taps", "named"),
    [
        (norm_scaled, {"attn_norm-1"}, "rms_norm"),
        (other_base, {"Qcur-0", "Kcur-0", "Qcur-1", "Kcur-1"}, "theta 100000 for 10000"),
        (
            other_eps,
            {"attn_norm-0", "ffn_norm-0", "attn_norm-1", "ffn_norm-1", "result_norm"},
            "rms_norm",
        ),
        (block_scale, {"ffn_up-0"}, "blk.0.ffn_up.weight"),
        (heads_swapped, {"Kcur-1", "Vcur-1"}, "blk.1.attn_"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_fault_is_named_and_nothing_else(
    plant, taps: set[str], named: str, tape: Path, tmp_path: Path
) -> None:
    ran = Toy()
    plant(ran)
    found = accused(ran, Toy(), tape, tmp_path)
    assert set(found) == taps
    assert all(named in reason for reason in found.values()), found


def test_attention_that_read_another_cache_is_no_rounding(tape: Path, tmp_path: Path) -> None:
    file = open_gguf(Toy().write(tmp_path / "toy.gguf"))
    record_llamacpp(file.path, tape, tmp_path / "run")
    dump = open_dump(tmp_path / "run")
    for record in (r for r in dump.records() if r.tap == "kqv_out-0"):
        rows = np.arange(len(dump.rows(record).position))
        own, other = (judge_attention(dump, record, rows, file, layer) for layer in "01")
        assert own.outcome is Outcome.EXPLAINED and other.outcome is Outcome.DEFECT
        # Queries of this step, and keys and values of all steps so far.
        assert len(record.inputs) == 1 + 2 * (record.step + 1)


def test_flash_attention_has_no_model_and_that_is_said(tape: Path, tmp_path: Path) -> None:
    file = open_gguf(Toy().write(tmp_path / "toy.gguf"))
    record_llamacpp(file.path, tape, tmp_path / "run", flash="on")
    dump = open_dump(tmp_path / "run")
    record = next(r for r in dump.records() if r.tap == "kqv_out-0")
    with pytest.raises(VerifyError, match="flash"):
        judge_attention(dump, record, np.arange(1), file, "0")
