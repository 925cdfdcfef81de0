"""Running the demo: record, bisect, report. Printing is the command's business."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.bisect.result import BisectResult
from verify.demo.defect import Defect, choose, planted
from verify.demo.scenario import BASE, PROMPT, TOKENS, VARIANTS, Variant
from verify.errors import DumpExistsError

if TYPE_CHECKING:
    from verify.replay.run import Models

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison of the demo, ready to be shown."""

    variant: Variant
    text: str
    result: BisectResult
    report: Path


@dataclass(frozen=True, slots=True)
class Secret:
    """What was planted, for the last line of the demo."""

    defect: Defect
    heads_per_group: int

    def reveal(self) -> str:
        return self.defect.describe(self.heads_per_group)


class Demo:
    """The demo's recordings under ``out``. Loads the model once.

    Args:
        model: as for ``verify capture --model``.
        out: new or empty folder.
        seed: decides where the defect is planted.

    Raises:
        DumpExistsError: ``out`` holds something.
        ModelError: the model cannot be loaded.
    """

    def __init__(self, model: str, out: Path, seed: int) -> None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise DumpExistsError(
                "the demo writes into a new folder and there is something already",
                where=out,
                hint="choose another one with --out",
            )
        from verify.dumps.hf.load import load_model

        self.out = out
        self._loaded = load_model(model, dtype="fp32", attn="sdpa")
        config: Any = self._loaded.model.config
        self.secret = Secret(
            choose(config, seed), config.num_attention_heads // config.num_key_value_heads
        )
        self._model = model

    def record_base(self) -> str:
        """Record the run that the others are compared with; returns its text."""
        return self._record(Variant(name=BASE, title=""))

    def pairs(self, say: Say) -> Iterator[Pair]:
        """Record each variant, bisect it against the base run, and write its report."""
        for variant in VARIANTS:
            say(f"recording the run with {variant.title}")
            text = self._record(variant)
            say("searching, and running both models again to see what each operation adds")
            yield self._bisect(variant, text)

    def _record(self, variant: Variant) -> str:
        from verify.dumps.hf.record import Request, record_generation

        request = Request(
            model=self._model,
            prompts=(PROMPT,),
            tokens=TOKENS,
            prefill_chunk=variant.prefill_chunk,
            kv_cache=variant.kv_cache,
        )
        with planted(self.secret.defect) if variant.planted else nullcontext():
            done = record_generation(request, self._run(variant.name), loaded=self._loaded)
        (text,) = done.texts.values()
        return text

    def _bisect(self, variant: Variant, text: str) -> Pair:
        from verify.bisect.run import bisect
        from verify.dumps.format import open_dump
        from verify.replay.checker import checker
        from verify.replay.run import replay
        from verify.report.html import write_report

        a, b = self._run(BASE), self._run(variant.name)
        dumps = open_dump(a), open_dump(b)
        replayed = replay(*dumps, self._implementations(variant))
        result = bisect(*dumps, checkers=[checker(replayed, *dumps)])
        result.command = ["verify", "bisect", str(a), str(b)]
        report = write_report(result, self.out / f"report-{variant.name}")
        return Pair(variant, text, result, report)

    def _implementations(self, variant: Variant) -> Models:
        """Both sides to run again, the planted defect in its place."""
        from verify.replay.run import Models
        from verify.replay.steps import Implementation

        other = partial(planted, self.secret.defect) if variant.planted else nullcontext
        return Models(
            Implementation(self._loaded.model),
            Implementation(self._loaded.model, kv_cache=variant.kv_cache, around=other),
        )

    def _run(self, name: str) -> Path:
        return self.out / "runs" / name
