"""Refusals before anything is loaded or run: what is lacking, and the command that would supply it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from verify.bisect.again import recapture
from verify.bisect.validity import check_workloads
from verify.dumps.format import Dump
from verify.dumps.format.tokens import TOKENS_IN
from verify.errors import NotComparableError, UsageError


def check_dumps(a: Dump, b: Dump) -> None:
    """Refuse pairs of runs that no forward pass can bring together.

    Raises:
        NotComparableError: other workloads, several ranks, no tokens, or no words.
    """
    if findings := check_workloads(a, b):
        raise NotComparableError(
            findings[0].title,
            where=f"{a.path} and {b.path}",
            found="; ".join(findings[0].reasons[:2]),
            hint=recapture(b, tape=a, prompts=True),
        )
    for dump in (a, b):
        _check(dump)


def _check(dump: Dump) -> None:
    records = dump.records()
    if len(dump.ranks) > 1:
        raise NotComparableError(
            "a run on several ranks cannot be replayed",
            where=dump.path,
            found=f"{len(dump.ranks)} ranks",
            allowed="one",
        )
    if not any(record.tap == TOKENS_IN for record in records):
        raise NotComparableError(
            "the dump does not say which tokens its steps were given",
            where=dump.path,
            found=f"no record of {TOKENS_IN}",
            hint=recapture(dump, level="full", taps="default"),
        )
    words = [r for r in records if dump.holder(r).kept == "full" and not r.tap.startswith("tokens")]
    if not words:
        raise NotComparableError(
            "the dump holds no tensors, only digests or statistics: there are no inputs to replay",
            where=dump.path,
            found=f"level {dump.manifest.capture.get('level', 'unknown')}",
            allowed="full",
            hint=recapture(dump, level="full", taps="default"),
        )


def check_globs(a: Dump, b: Dump, globs: Sequence[str]) -> None:
    """Refuse globs that match no tap of both runs.

    Raises:
        UsageError: names the glob and some taps.
    """
    taps = {r.tap for r in a.records()} & {r.tap for r in b.records()}
    for glob in globs:
        if not any(fnmatchcase(tap, glob) for tap in taps):
            raise UsageError(
                "no tap of both runs matches",
                where="--tap",
                found=glob,
                allowed=", ".join(sorted(taps)[:6]) + ", ...",
                hint="`verify inspect RUN` lists the taps; quote the glob against the shell",
            )
