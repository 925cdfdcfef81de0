"""Gates that read report.json of ``verify bisect``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from verify.bisect.result import BisectResult, Verdict
from verify.compare.result import Comparison
from verify.dumps.format.schema import Manifest
from verify.gates.config import Coverage, Gate, Parity
from verify.gates.result import Reading, Result
from verify.noise.result import NoiseResult
from verify.report.json import from_json

TOKENS = "tokens.out"


def load(path: Path) -> BisectResult:
    """The result in report.json.

    Raises:
        ValueError: the file holds something else (msgspec's errors are ValueErrors).
    """
    return from_json(path.read_bytes(), BisectResult)


def tokens(gate: Gate, path: Path) -> Reading:
    """PASS: every generated token has an equal counterpart, and both runs came to their ends on
    their own. Tokens that were forced show nothing."""
    found = load(path)
    compared = found.comparison
    taps = [tap for tap in compared.taps if tap.tap == TOKENS]
    rows = sum(tap.rows for tap in taps)
    numbers = {"tokens": rows, "differing": sum(tap.differing_rows for tap in taps)}
    if found.first_token is not None or numbers["differing"]:
        return Reading(Result.FAIL, _first_token(found), dict(numbers))
    if forced := [run for run in (compared.a, compared.b) if _forced(path.parent, run)]:
        return Reading(Result.SKIPPED, f"the tokens of {', '.join(forced)} were forced")
    if found.verdict is Verdict.NOT_COMPARABLE or not rows:
        return Reading(Result.SKIPPED, f"no token was compared: {found.summary}", dict(numbers))
    if missing := _incomplete(compared, TOKENS):
        return Reading(Result.SKIPPED, missing, dict(numbers))
    return Reading(Result.PASS, f"{rows} tokens are equal", dict(numbers))


def _first_token(found: BisectResult) -> str:
    first = found.first_token
    if first is None:
        return "tokens differ"
    return (
        f"{first.sequence} first differs at generated token {first.index}: "
        f"{first.chosen_a} against {first.chosen_b} ({found.verdict})"
    )


def _forced(folder: Path, run: str) -> bool:
    """Whether the manifest of a run, if it is at hand, names a tape."""
    for base in (folder, folder.parent, Path.cwd()):
        try:
            data = (base / run / "manifest.json").read_bytes()
            return msgspec.json.decode(data, type=Manifest).workload.tape is not None
        except (OSError, msgspec.MsgspecError):
            continue
    return False


def _incomplete(compared: Comparison, tap: str = "") -> str:
    """Why not everything was compared; empty if it was. ``tap``: at this tap alone."""
    partial = [
        n for n, whole in (("A", compared.complete_a), ("B", compared.complete_b)) if not whole
    ]
    if partial:
        return f"the dump of {' and '.join(partial)} is partial"
    windows = [n for n, w in (("A", compared.window_a), ("B", compared.window_b)) if w]
    if windows:
        return f"the dump of {' and '.join(windows)} holds a window of its run alone"
    alone = [each for each in compared.unmatched if each.tap == tap or not tap]
    if alone:
        return f"{sum(each.rows for each in alone)} rows stand in one run alone: {alone[0].reason}"
    if compared.other_context_rows and not tap:
        return f"{compared.other_context_rows} rows belong to texts that had parted before"
    return ""


def identical(path: Path) -> Reading:
    """PASS: every row of both runs was compared and is bitwise equal."""
    found = load(path)
    compared = found.comparison
    differing = [tap.tap for tap in compared.taps if not tap.equal]
    numbers = {"rows": compared.rows, "differing_taps": len(differing)}
    if differing:
        reason = f"{len(differing)} taps differ, first {differing[0]} ({found.verdict})"
        return Reading(Result.FAIL, reason, dict(numbers))
    if not compared.rows:
        return Reading(Result.SKIPPED, f"nothing was compared: {found.summary}")
    if missing := _incomplete(compared):
        return Reading(Result.SKIPPED, missing, dict(numbers))
    if found.verdict is not Verdict.IDENTICAL:
        return Reading(Result.FAIL, f"{found.verdict}: {found.summary}", dict(numbers))
    return Reading(Result.PASS, f"{compared.rows} rows are bitwise equal", dict(numbers))


def parity(gate: Parity, path: Path) -> Reading:
    """PASS: identical, explained as rounding by what was checked, or within measured noise."""
    found = load(path)
    compared = found.comparison
    if not compared.rows or found.verdict is Verdict.NOT_COMPARABLE:
        return Reading(Result.SKIPPED, f"nothing was compared: {found.summary}")
    if missing := _incomplete(compared):
        return Reading(Result.SKIPPED, missing)
    if found.verdict in (Verdict.IDENTICAL, Verdict.ROUNDING):
        return Reading(Result.PASS, f"{found.verdict}: {found.summary}")
    if not gate.noise:
        return Reading(Result.FAIL, f"{found.verdict}: {found.summary}")
    noise_path = path.parent / gate.noise
    if not noise_path.is_file():
        return Reading(Result.ERROR, f"there is no {gate.noise} beside {path.name}")
    return _within_noise(found, noise_path)


def _within_noise(found: BisectResult, path: Path) -> Reading:
    """Each tap that differs varies among repeats too, and by at least as much."""
    noise = msgspec.convert(msgspec.json.decode(path.read_bytes()), NoiseResult, strict=False)
    if not noise.repeats.repeats:
        return Reading(Result.SKIPPED, "no repeat was measured")
    known = {tap.tap: tap.relative_l2 for tap in noise.repeats.taps}
    # `not <=`: a NaN on either side is beyond the noise.
    beyond = [
        tap.tap
        for tap in found.comparison.taps
        if not tap.equal and not tap.relative_l2 <= known.get(tap.tap, 0.0)
    ]
    numbers = {"taps_beyond_noise": len(beyond), "repeats": noise.repeats.repeats}
    if beyond:
        reason = f"{len(beyond)} taps differ by more than repeats do, first {beyond[0]}"
        return Reading(Result.FAIL, reason, dict(numbers))
    return Reading(Result.PASS, "every difference is within that of repeats", dict(numbers))


def coverage(gate: Coverage, path: Path) -> Reading:
    """PASS: enough rows, and a large enough share of all rows, were compared."""
    compared = load(path).comparison
    left_out = sum(each.rows for each in compared.unmatched) + compared.other_context_rows
    total = compared.rows + left_out
    share = compared.rows / total if total else 0.0
    numbers = {"rows": compared.rows, "left_out": left_out, "share": share}
    reason = f"{compared.rows} of {total} rows were compared ({share:.1%})"
    if not compared.rows:
        return Reading(Result.SKIPPED, "nothing was compared", dict(numbers))
    enough = share >= gate.min_share and compared.rows >= gate.min_rows
    wanted = f"; at least {gate.min_rows} rows and {gate.min_share:.1%} are asked for"
    if enough:
        return Reading(Result.PASS, reason, dict(numbers))
    return Reading(Result.FAIL, reason + wanted, dict(numbers))
