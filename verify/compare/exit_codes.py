"""Exit codes of comparing commands (docs/exit-codes.md)."""

from __future__ import annotations

from verify.compare.result import Comparison

SAME = 0
"""Everything was compared and is equal, or every difference is explained."""
DIFFERENT = 1
TROUBLE = 2
"""Usage, or input that cannot be read."""
INCOMPLETE = 3
"""No difference was found, but something was not compared."""
CANNOT_TEST = 125
"""What `git bisect run` takes as "skip this commit"."""


def of_comparison(comparison: Comparison) -> int:
    """Exit code of ``verify compare``."""
    if not all(tap.equal for tap in comparison.taps):
        return DIFFERENT
    complete = comparison.complete_a and comparison.complete_b
    complete = complete and not (comparison.window_a or comparison.window_b)
    alone = comparison.unmatched or comparison.other_context_rows
    if alone or not complete or not comparison.rows:
        return INCOMPLETE
    return SAME


def for_git_bisect(code: int) -> int:
    """Trouble and incomplete comparisons as :data:`CANNOT_TEST`."""
    return CANNOT_TEST if code in (TROUBLE, INCOMPLETE) else code
