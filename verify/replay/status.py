"""From measurements at one tap to what is said about it: one table, in this order."""

from __future__ import annotations

from collections.abc import Mapping

from verify.reference.certificates.result import Outcome
from verify.replay.judgement import Judgement
from verify.replay.parts import Parts
from verify.replay.result import Status

_STATUS = {
    Outcome.EXPLAINED: Status.ROUNDING,
    Outcome.PRECISION: Status.PRECISION,
    Outcome.SUSPECT: Status.SUSPECT,
    Outcome.DEFECT: Status.DEFECT,
}


def conclude(
    parts: Parts,
    back: Parts | None,
    faithful: Mapping[str, bool | None],
    judged: list[Judgement],
) -> tuple[Status, str]:
    """Status of a tap and the reason in a sentence.

    Args:
        parts: B's implementation on A's inputs; ``back``: A's on B's.
        faithful: side -> its model gives its run's bits on its run's inputs.
        judged: what the reference says about rows with a local part, both ways.
    """
    unlike = [side.upper() for side, good in faithful.items() if good is False]
    if unlike:
        return Status.UNFAITHFUL, (
            f"on the inputs that {' and '.join(unlike)} recorded, the model at hand gives other "
            f"bits than {' and '.join(unlike)} recorded here: other threads, memory alignment, "
            f"library or machine, or an operation that does not repeat"
        )
    local = parts.local_rows + (back.local_rows if back is not None else 0)
    if not local:
        if not parts.differing_rows:
            return Status.EQUAL, "equal, and nothing is added on the other run's inputs"
        ways = "each implementation gives" if back is not None else "B's implementation gives"
        return Status.INHERITED, f"{ways} the other run's bits on the other run's inputs"
    if not judged:
        return Status.UNCHECKED, "it adds something itself, and no reference knows the operation"
    worst = max(judged, key=lambda j: (list(Outcome).index(j.outcome), j.used))
    return _STATUS[worst.outcome], worst.reason
