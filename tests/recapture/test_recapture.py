"""Two passes over toy programs, run in this process: which window is chosen, what its bisect says,
and what is said of runs that do not repeat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.recapture.toy_program import build, generate
from verify.bisect.result import BisectResult, Verdict
from verify.bisect.run import bisect
from verify.dumps import capture
from verify.dumps.format import Dump, open_dump
from verify.errors import ArgumentError, DumpExistsError
from verify.recapture import run as module
from verify.recapture.commands import Order, Ran
from verify.recapture.result import Recaptured
from verify.recapture.run import Plan, recapture
from verify.recapture.split import block_of

LEAN = {"edges": "none", "level": "hash", "taps": ["*.out"]}
Program = Callable[[], tuple[Any, int]]


def program(*, fault: bool = False, noise: bool = False, steps: int = 4) -> Program:
    def start() -> tuple[Any, int]:
        return build(fault, noise), steps

    return start


def record(start: Program, path: Path, **options: Any) -> Dump:
    model, steps = start()
    with capture(model, path, **options):
        generate(model, steps)
    return open_dump(path)


@pytest.fixture
def twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recaptured]:
    """First passes of two programs, and their recapture with second passes in this process."""

    def run(a: Program, b: Program, plan: Plan | None = None, **first: Any) -> Recaptured:
        programs = {"--command-a": a, "--command-b": b}

        def again(dump: Dump, given: Any, order: Order, out: Path, option: str) -> Ran:
            record(
                programs[option],
                out,
                taps=order.taps,
                edges=order.edges,
                steps=str(order.steps),
                rows=order.rows,
                ops=order.ops,
            )
            return Ran(["toy"], 0)

        monkeypatch.setattr(module, "run_again", again)
        options = {**LEAN, **first}
        dumps = [record(p, tmp_path / name, **options) for name, p in (("1", a), ("2", b))]
        return recapture(*dumps, tmp_path / "out", plan)

    return run


def origins(result: BisectResult) -> list[tuple[str, int, bool]]:
    return [(o.tap, o.step_a, o.proven) for o in result.origins]


@pytest.mark.parametrize(
    ("level", "taps"), [("hash", ["*.out"]), ("digest", ["layers.*.out"]), ("stats", None)]
)
def test_names_the_origin_that_a_full_capture_names(
    tmp_path: Path, twice: Callable[..., Recaptured], level: str, taps: list[str] | None
) -> None:
    whole = bisect(record(program(), tmp_path / "a"), record(program(fault=True), tmp_path / "b"))
    assert origins(whole)[0] == ("layers.1.mlp.0.out", 2, True)
    found = twice(program(), program(fault=True), level=level, taps=taps)
    assert [(s.tap, s.step_a, s.step_b, s.position) for s in found.splits] in (
        [("layers.1.mlp.0.out", 2, 2, 6)],
        [("layers.1.out", 2, 2, 6)],  # as far as the first pass looked
    )
    assert origins(found.result)[0] == origins(whole)[0]
    assert all(again.repeats and again.rows for again in found.again)
    said = [f.title for f in found.result.findings if f.verdict is Verdict.IDENTICAL]
    assert said == ["A repeats itself", "B repeats itself"]
    assert found.result.exit_code == whole.exit_code == 1


def test_window_holds_the_block_and_its_neighbours_in_one_step(
    twice: Callable[..., Recaptured], tmp_path: Path
) -> None:
    found = twice(program(), program(fault=True))
    dump = open_dump(tmp_path / "out" / "a")
    recorded = {(r.step, r.tap.split(".")[0]) for r in dump.records() if r.tap != "tokens.in"}
    assert {step for step, _ in recorded} == {2}
    assert "default:layers.1.*" in found.taps and {name for _, name in recorded} == {"layers"}
    assert found.again[0].bytes == dump.total_bytes


def test_steps_and_taps_beside_the_split(twice: Callable[..., Recaptured], tmp_path: Path) -> None:
    found = twice(program(), program(fault=True), Plan(margin=9, margin_steps=1))
    assert found.again[0].steps == "1:4"
    assert {"default:layers.0.*", "default:embed.*", "default:head.*"} & {*found.taps}


def test_operations_in_the_window_name_the_one_that_parts(
    twice: Callable[..., Recaptured],
) -> None:
    found = twice(program(), program(fault=True), Plan(ops=["around"]))
    compared = {each.tap: each.equal for each in found.result.comparison.taps}
    assert compared["layers.1.mlp.0/aten.addmm#0.out"] and not compared["layers.1.mlp.0.out"]
    # The product that A does not compute is looked through.
    assert origins(found.result)[0] == ("layers.1.mlp.0.out", 2, True)
    alone = {each.tap for each in found.result.comparison.unmatched}
    assert alone and all(tap.startswith("layers.1.mlp.0/aten.mul#0") for tap in alone)


@pytest.mark.parametrize(
    ("around", "tap", "step"),
    [
        ("layers.0.out@3", "layers.0.out", 3),
        ("layers.1.out", "layers.1.out", 2),
        ("@2", "layers.1.mlp.0.out", 2),
        ("@4", "embed.out", 4),  # nothing differs there for the first time
        ("head.*@0", "head.out", 0),
    ],
)
def test_a_place_can_be_asked_for(
    twice: Callable[..., Recaptured], around: str, tap: str, step: int
) -> None:
    found = twice(program(), program(fault=True), Plan(around=[around]))
    assert [(s.tap, s.step_a, s.step_b) for s in found.splits] == [(tap, step, step)]


def test_a_jump_behind_innocent_rounding(twice: Callable[..., Recaptured]) -> None:
    """From step 0 on the first block differs by roundings, from step 2 on the second is wrong."""

    def both() -> tuple[Any, int]:
        model = build(fault=True)
        model.layers[0].norm.register_forward_hook(lambda m, a, out: out * (1 + 2**-22))
        return model, 4

    found = twice(program(), both, Plan(around=["jump"]), level="digest")
    assert [(s.tap, s.step_a, s.step_b) for s in found.splits] == [("layers.1.mlp.0.out", 2, 2)]


@pytest.mark.parametrize(("level", "found"), [("hash", "no sizes"), ("digest", "a factor of")])
def test_no_jump(
    twice: Callable[..., Recaptured], monkeypatch: pytest.MonkeyPatch, level: str, found: str
) -> None:
    noise_of_this_call(monkeypatch)
    with pytest.raises(ArgumentError, match=f"no difference grows at once(.|\n)*{found}"):
        twice(program(), program(noise=True), Plan(around=["jump"]), level=level)


def test_an_equal_window_of_runs_that_differ_is_incomplete(
    twice: Callable[..., Recaptured],
) -> None:
    found = twice(program(), program(fault=True), Plan(around=["layers.0.out@0"]))
    assert (found.result.verdict, found.result.exit_code) == (Verdict.INCOMPLETE, 3)
    assert "A window of the runs was compared" in found.result.findings[0].title


def test_bisect_of_digests_names_the_command(tmp_path: Path) -> None:
    result = bisect(
        record(program(), tmp_path / "a", **LEAN),
        record(program(fault=True), tmp_path / "b", **LEAN),
    )
    command = f"verify recapture {tmp_path / 'a'} {tmp_path / 'b'} --out around"
    assert any(step.startswith(command) for f in result.findings for step in f.settle)


def test_equal_runs_need_no_second_pass(twice: Callable[..., Recaptured], tmp_path: Path) -> None:
    found = twice(program(), program())
    assert found.again == [] and found.result.verdict is Verdict.IDENTICAL
    assert not (tmp_path / "out").exists()


def noise_of_this_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other noise each time, as processes of their own have it."""
    numbers = iter(range(100))
    monkeypatch.setattr("os.getpid", lambda: next(numbers))


def test_side_that_does_not_repeat_is_named_and_nothing_else_is_blamed(
    twice: Callable[..., Recaptured], monkeypatch: pytest.MonkeyPatch
) -> None:
    noise_of_this_call(monkeypatch)
    found = twice(program(), program(noise=True))
    result = found.result
    assert (result.verdict, result.exit_code) == (Verdict.NON_REPEATABLE, 1)
    assert [each.repeats for each in found.again] == [True, False]
    finding = result.findings[0]
    assert finding.title.startswith("B does not repeat itself")
    assert finding.taps[0] == "layers.0.mlp.out" and "layers.0.mlp.0.out" not in finding.taps
    assert finding.support == "step 0, sequence#0 position 0"
    assert result.origins == [] and "does not repeat" in result.summary
    assert [f.title for f in result.findings if f.verdict is Verdict.IDENTICAL] == [
        "A repeats itself"
    ]
    assert {f.verdict for f in result.findings} == {
        Verdict.NON_REPEATABLE,
        Verdict.INCOMPLETE,
        Verdict.IDENTICAL,
    }


def test_tokens_that_do_not_repeat(
    twice: Callable[..., Recaptured], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window itself repeats, and another token is fed later."""
    calls: list[int] = []

    def other_token() -> tuple[Any, int]:
        model = build(fault=True)
        calls.append(1)
        if len(calls) > 1:

            def change(module: Any, args: Any, output: Any) -> Any:
                logits, caches = output
                return (logits.flip(-1) if caches[0][0].shape[2] > 7 else logits), caches

            model.register_forward_hook(change)
        return model, 4

    found = twice(program(), other_token)
    assert [each.repeats for each in found.again] == [True, False]
    assert found.again[1].parted == {"sequence#0": 8}
    finding = found.result.findings[0]
    assert finding.verdict is Verdict.NON_REPEATABLE and "tokens.in" in finding.taps
    assert any("another token is fed at position 8" in reason for reason in finding.reasons)


def test_run_that_computes_less_the_second_time(twice: Callable[..., Recaptured]) -> None:
    lengths = iter([4, 1])

    def shorter() -> tuple[Any, int]:
        return build(fault=True), next(lengths)

    found = twice(program(), shorter)
    assert found.result.verdict is Verdict.NON_REPEATABLE
    assert any("the second pass did not compute them" in text for text in found.again[1].lacking)


def test_first_pass_without_a_row_of_the_window(twice: Callable[..., Recaptured]) -> None:
    found = twice(program(), program(fault=True), taps=["head.out"])
    assert found.result.verdict is not Verdict.IDENTICAL
    titles = [finding.title for finding in found.result.findings]
    assert found.again[0].repeats
    assert found.again[0].rows or "Whether A repeats itself is not known" in titles


def test_rows_of_the_window(twice: Callable[..., Recaptured], tmp_path: Path) -> None:
    plan = Plan(around=["layers.0.out@0"], rows="0:2")
    found = twice(program(), program(fault=True), plan)
    dump = open_dump(tmp_path / "out" / "a")
    rows = [dump.rows(r) for r in dump.records() if r.tap == "layers.0.out"]
    assert [row.position.tolist() for row in rows] == [[0, 1]]
    assert all(again.repeats and not again.lacking for again in found.again)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(margin=-1), "too small"),
        (Plan(rows="3-4"), "not a list of spans"),
        (Plan(around=["layers.9.out"]), "A has no record there"),
        (Plan(around=["layers.1.out@x"]), "not a place"),
    ],
)
def test_what_cannot_be_meant(twice: Callable[..., Recaptured], plan: Plan, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        twice(program(), program(fault=True), plan)


@pytest.mark.parametrize(("around", "wanted"), [("head.out@0", True), ("embed.out@0", False)])
def test_logits_where_they_are_near(
    tmp_path: Path, twice: Callable[..., Recaptured], around: str, wanted: bool
) -> None:
    def headed() -> tuple[Any, int]:
        made = build(fault=True)
        forward = made.forward
        made.forward = lambda ids, caches=None: Named(forward(ids, caches))
        return made, 1

    found = twice(headed, headed, Plan(around=[around]), taps=["*.out", "logits"])
    assert ("logits" in found.taps) == wanted


class Named(dict[str, Any]):
    """What models of transformers return: by name, and by place."""

    def __init__(self, output: Any) -> None:
        super().__init__(logits=output[0])
        self.output = output

    def __iter__(self) -> Any:
        return iter(self.output)


def test_a_taken_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    dump = record(program(), tmp_path / "a", **LEAN)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("x")
    with pytest.raises(DumpExistsError):
        recapture(dump, dump, tmp_path / "out")


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("model.layers.7.mlp.down_proj", "model.layers.7"),
        ("model.norm", "model.norm"),
        ("features.0.1", "features.0"),
        ("0", "0"),
    ],
)
def test_blocks(path: str, block: str) -> None:
    assert block_of(path) == block


def test_torch_is_deterministic_here() -> None:
    """What all of the above rests on."""
    assert torch.equal(build()(torch.tensor([[1, 2]]))[0], build()(torch.tensor([[1, 2]]))[0])
