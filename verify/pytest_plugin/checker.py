"""The checks of one test: run, keep what failing ones rest on, remember everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from verify.bounds import Bound
from verify.pytest_plugin.bitwise import check_bitwise
from verify.pytest_plugin.certified import check_certified
from verify.pytest_plugin.evidence import save_tensors
from verify.pytest_plugin.outcome import Outcome
from verify.pytest_plugin.runs import check_runs
from verify.pytest_plugin.within import check_within

if TYPE_CHECKING:
    from verify.dumps.capture.session import Capture


class CheckFailedError(AssertionError):
    """A check that did not pass; its text is the whole message."""


class Checker:
    """What the fixtures of one test share.

    Args:
        folder: where the evidence of failing checks goes; made when there is some.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: list[Outcome] = []
        self.files: list[Path] = []

    def bitwise(self, a: Any, b: Any) -> None:
        """Fail unless both hold the same bits."""
        __tracebackhide__ = True
        self._conclude(check_bitwise(a, b), {"a": a, "b": b})

    def within(self, actual: Any, exact: Any, bound: Bound | Any, why: str = "") -> None:
        """Fail unless every element lies within its bound of ``exact``."""
        __tracebackhide__ = True
        given = {"actual": actual, "exact": exact}
        if not isinstance(bound, Bound):
            given["bound"] = bound
        self._conclude(check_within(actual, exact, bound, why), given)

    def certified(
        self, actual: Any, inputs: Any, op: Any, arithmetic: Any = None, *, store: str | None = None
    ) -> None:
        """Fail unless the declared arithmetic explains the output."""
        __tracebackhide__ = True
        named = dict(inputs) if isinstance(inputs, Mapping) else {}
        given = {"actual": actual, **{k: v for k, v in named.items() if v is not None}}
        self._conclude(check_certified(actual, inputs, op, arithmetic, store=store), given)

    def capture(self, model: Any, name: str, **options: Any) -> Capture:
        """Record a run of ``model`` under ``name``; options as ``verify.dumps.capture``."""
        from verify.dumps import capture

        self.folder.mkdir(parents=True, exist_ok=True)
        return capture(model, self.folder / name, **options)

    def runs(self, a: str | Path, b: str | Path, *, accept: Sequence[str] = ()) -> None:
        """Fail unless bisect finds the runs equal or explained. Runs are folders, or names that
        were given to :meth:`capture`."""
        __tracebackhide__ = True
        first, second = self._run(a), self._run(b)
        report = self.folder / f"report-{len(self.outcomes) + 1}"
        outcome, files = check_runs(first, second, report, accept)
        self.outcomes.append(outcome)
        if not outcome.passed:
            self.files += files
            _fail(outcome, files)

    def _run(self, run: str | Path) -> Path:
        named = self.folder / run
        return named if named.is_dir() else Path(run)

    def _conclude(self, outcome: Outcome, given: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        self.outcomes.append(outcome)
        if not outcome.passed:
            name = f"{outcome.check}-{len(self.outcomes)}"
            files = save_tensors(self.folder, name, outcome, given)
            self.files += files
            _fail(outcome, files)


def _fail(outcome: Outcome, files: Sequence[Path]) -> NoReturn:
    __tracebackhide__ = True
    kept = "".join(f"\n  evidence:    {path}" for path in files)
    raise CheckFailedError(outcome.text() + kept)
