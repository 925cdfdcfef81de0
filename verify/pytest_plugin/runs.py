"""Two recorded runs of a model: bisect's verdict as the outcome of a check."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from verify.pytest_plugin.outcome import Outcome

_CHECK = "verify_runs"


def check_runs(
    a: str | Path, b: str | Path, report: Path, accept: Sequence[str] = ()
) -> tuple[Outcome, list[Path]]:
    """Pass where ``verify bisect`` would end with exit code 0; write its report otherwise.

    Args:
        report: new or empty folder for report.html and report.json.
        accept: verdicts that pass, as ``--accept``.

    Returns:
        The outcome, and the files written.

    Raises:
        DumpError: a run that cannot be read.
    """
    from rich.console import Console

    from verify.bisect.run import bisect
    from verify.bisect.verdict import parse_accept
    from verify.dumps.format import open_dump
    from verify.report.html import write_report
    from verify.report.terminal import render_bisect

    result = bisect(open_dump(a), open_dump(b), accept=parse_accept(accept))
    passed = result.exit_code == 0
    outcome = Outcome(
        _CHECK,
        passed,
        f"{_CHECK}: {result.verdict}: {result.summary}",
        numbers={"verdict": str(result.verdict), "exit_code": result.exit_code},
    )
    if passed:
        return outcome, []
    screen = Console(file=io.StringIO(), width=80, color_system=None)
    render_bisect(result, screen)
    assert isinstance(screen.file, io.StringIO)
    outcome.lines = screen.file.getvalue().splitlines()
    page = write_report(result, report, formats=())
    return outcome, [page, report / "report.json"]
