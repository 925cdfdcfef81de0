"""``run_suite``: record, pair, and say what is the same."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from verify.bisect.confounders import find_confounders
from verify.bisect.result import Confounder
from verify.dumps.format import open_dump
from verify.errors import DumpExistsError, VerifyError
from verify.suite.config import Suite, load_suite
from verify.suite.explain import explain
from verify.suite.result import Pair, Stream, SuiteResult
from verify.suite.streams import Progress, record_streams

_TELLING = ("declared", "likely")
"""Weights of differences that are known to change results."""


def run_suite(
    path: Path,
    out: Path,
    *,
    resume: bool = False,
    explain_splits: bool = False,
    say: Progress = lambda text: None,
    command: Sequence[str] = (),
) -> SuiteResult:
    """Record every prompt under both configurations and compare the streams.

    Args:
        path: SUITE.toml.
        out: folder for dumps, ``streams.jsonl`` and ``suite.json``.
        resume: ``out`` holds an earlier, unfinished run of this suite: its good streams stay.
        explain_splits: record each split again, in full, and bisect it with a replay.

    Raises:
        UsageError: the file is no suite.
        DumpExistsError: ``out`` holds something, and it was not asked to go on with it.
    """
    suite = load_suite(path)
    if not resume and out.exists() and any(out.iterdir()):
        raise DumpExistsError(
            "a suite is recorded into a new folder", where=out,
            hint="choose another --out, or go on with this one: --resume",
        )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    streams = record_streams(suite, path.parent, out, say)
    by_prompt = {(s.prompt, s.side): s for s in streams}
    pairs = []
    for prompt in suite.prompt:
        a, b = by_prompt[prompt.name, "a"], by_prompt[prompt.name, "b"]
        pair = compare_streams(a, b, out)
        if explain_splits and pair.state == "SPLIT":
            say(f"{prompt.name}: recording the split in full")
            pair = explain(suite, prompt, pair, path.parent, out)
        pairs.append(pair)
    differences = _differences(streams, out)
    undeclared = _undeclared(suite, differences)
    same = all(pair.state == "IDENTICAL" for pair in pairs) and not undeclared
    return SuiteResult(
        name=suite.name,
        summary=summarise(pairs, undeclared),
        pairs=pairs,
        streams=streams,
        differences=differences,
        undeclared=undeclared,
        exit_code=0 if same else 1,
        command=list(command),
    )


def compare_streams(a: Stream, b: Stream, out: Path) -> Pair:
    """Two streams of one prompt, token by token."""
    for side, stream in (("A", a), ("B", b)):
        if stream.state == "ERROR":
            return Pair(prompt=a.prompt, state="ERROR", note=f"{side}: {stream.error}")
    first = next(
        (i for i, (x, y) in enumerate(zip(a.generated, b.generated, strict=False)) if x != y), None
    )
    if first is None and len(a.generated) != len(b.generated):
        first = min(len(a.generated), len(b.generated))
    equal = len(a.generated) if first is None else first
    shifts = [
        abs(y - x)
        for x, y in zip(a.log_probabilities[:equal], b.log_probabilities[:equal], strict=False)
    ]
    return Pair(
        prompt=a.prompt,
        state="IDENTICAL" if first is None else "SPLIT",
        prompt_tokens=a.prompt_tokens,
        tokens_a=len(a.generated),
        tokens_b=len(b.generated),
        ended_a=a.ended,
        ended_b=b.ended,
        first=first,
        text_a=_text(a, first, out),
        text_b=_text(b, first, out),
        log_probability_shift=max(shifts, default=0.0),
        note="other prompts" if a.prompt_tokens != b.prompt_tokens else "",
    )


def summarise(pairs: Sequence[Pair], undeclared: Sequence[str]) -> str:
    """ "5 of 6 streams identical; 'summary' first differs at token 109 (157 against 158 tokens)"."""
    same = [pair for pair in pairs if pair.state == "IDENTICAL"]
    limit = [pair for pair in same if "limit" in (pair.ended_a, pair.ended_b)]
    text = f"{len(same)} of {len(pairs)} streams identical"
    if limit:
        text += f" ({len(limit)} of them up to the limit, not to their end)"
    parts = [text]
    for pair in pairs:
        if pair.state == "SPLIT":
            lengths = f"{pair.tokens_a} against {pair.tokens_b} tokens"
            parts.append(f"{pair.prompt!r} first differs at token {pair.first} ({lengths})")
        elif pair.state == "ERROR":
            parts.append(f"{pair.prompt!r} is an ERROR")
    if undeclared:
        parts.append(f"the configurations differ in more than is declared: {', '.join(undeclared)}")
    return "; ".join(parts)


def _text(stream: Stream, index: int | None, out: Path) -> str:
    if index is None:
        return ""
    if index >= len(stream.generated):
        return "(end)"
    texts = open_dump(out / stream.run).manifest.workload.token_text
    return texts.get(str(stream.generated[index]), "")


def _differences(streams: Sequence[Stream], out: Path) -> list[Confounder]:
    """Of the first prompt that both sides recorded."""
    runs: dict[str, dict[str, str]] = {}
    for stream in streams:
        if stream.state == "OK":
            runs.setdefault(stream.prompt, {})[stream.side] = stream.run
    both = next((sides for sides in runs.values() if len(sides) == 2), None)
    if both is None:
        return []
    try:
        return find_confounders(open_dump(out / both["a"]), open_dump(out / both["b"]))
    except VerifyError:
        return []


def _undeclared(suite: Suite, differences: Sequence[Confounder]) -> list[str]:
    return [
        each.name
        for each in differences
        if each.weight in _TELLING and not any(fnmatchcase(each.name, g) for g in suite.declared)
    ]
