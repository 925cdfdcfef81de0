"""What would settle a finding, in words that findings share."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from verify.bisect.again import recapture
from verify.bisect.result import Finding
from verify.dumps.format import Dump

REPLAY = "add --replay: both models run again, and what each operation adds is held against FP64"
REFERENCE = "add --replay: it says which side is off, against FP64 on the recorded inputs"
TAPE = "capture B with --tape A, so that the positions after the flip compare as well"
MORE_TAPS = "record what it was computed from, with edges traced: --taps default --edges trace"


def drop_replay(findings: Iterable[Finding]) -> None:
    """Take the advice to replay out of the findings of runs that were replayed."""
    for finding in findings:
        finding.settle = [step for step in finding.settle if step not in (REPLAY, REFERENCE)]


def spell_commands(findings: Iterable[Finding], a: Dump, b: Dump, *, parted: bool) -> None:
    """Advice to capture again becomes the command to do it with.

    Args:
        parted: the runs were given other tokens from somewhere on, and nothing is compared there.
    """
    tape = [f"{recapture(b, tape=a)}  (positions after the flip compare as well)"]
    spelled = {
        TAPE: tape if parted else [],
        MORE_TAPS: [recapture(dump, taps="default") for dump in (a, b)],
    }
    if not (_has_words(a) and _has_words(b)):
        again = shlex.join(["verify", "recapture", str(a.path), str(b.path), "--out", "around"])
        second = [f"{again}  (both runs again, with full tensors around the split)"]
        spelled |= {MORE_TAPS: second, REPLAY: second}
    for finding in findings:
        finding.settle = [s for step in finding.settle for s in spelled.get(step, [step])]


def _has_words(dump: Dump) -> bool:
    """Whether a capture kept tensors; digests alone can neither be replayed nor looked into."""
    level = dump.manifest.capture.get("level", "full")
    return level not in ("hash", "digest", "stats")
