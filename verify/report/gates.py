"""The status of gates as text, JSON, JUnit XML and a Markdown summary for GitHub.

In every format a waived gate is a failed one that says ``waived``, and a skipped gate is no pass.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from rich.console import Console

from verify.gates.result import GateResult, GateState, Status
from verify.report.names import printable
from verify.report.terminal.blocks import line, table


def render_results(results: list[GateResult], console: Console) -> None:
    """What ``verify gate run`` found."""
    for each in results:
        style = "" if each.result == "PASS" else "bold"
        line(console, printable(f"{each.gate}: {each.result}  {each.reason}"), style)
        if each.output:
            for text in each.output.splitlines()[-5:]:
                line(console, printable(text), "dim", 3)


def render_status(status: Status, console: Console) -> None:
    """A table of all gates and the sentence that decides."""
    line(console, f"Commit {status.commit or 'none (outside git)'}", "bold")
    rows = [
        (printable(each.gate), _need(each), printable(each.state), printable(describe(each)))
        for each in status.gates
    ]
    table(console, (("gate", "left"), ("", "left"), ("state", "left"), ("why", "left")), rows)
    line(console, printable(status.summary), "bold")


def describe(state: GateState) -> str:
    """Why it stands as it does, who waived it and why, and how often it did not pass before."""
    parts = [state.reason]
    if state.waiver is not None:
        parts.append(f"waived by {state.waiver.by}: {state.waiver.reason}")
    if state.runs > 1 and state.not_passed:
        parts.append(f"{state.not_passed} of {state.runs} runs did not pass")
    return "; ".join(parts)


def junit(status: Status) -> str:
    """JUnit XML. Viewers take skipped tests for harmless, so whatever did not pass and is required
    is a failure."""
    failed = sum(each.required and not each.passed for each in status.gates)
    cases = "".join(map(_case, status.gates))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="verify gate" tests="{len(status.gates)}" failures="{failed}">\n'
        f"{cases}</testsuite>\n"
    )


def _case(state: GateState) -> str:
    head = f"  <testcase classname={_attribute(f'gate.{state.kind}')} name={_attribute(state.gate)}"
    if state.passed:
        return f"{head}/>\n"
    kind = "failure" if state.required else "skipped"
    text = f"{state.state}: {describe(state)}"
    return (
        f"{head}>\n    <{kind} message={_attribute(text)} type={_attribute(state.state)}>"
        f"{escape(_xml(text))}</{kind}>\n  </testcase>\n"
    )


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def github(status: Status) -> str:
    """A Markdown table for ``$GITHUB_STEP_SUMMARY``."""
    head = "| gate | | state | why |\n|---|---|---|---|\n"
    rows = "".join(
        f"| {_cell(each.gate)} | {_need(each)} | **{_cell(each.state)}** | {_cell(describe(each))} |\n"
        for each in status.gates
    )
    title = f"### Gates for `{status.commit[:12] or 'no commit'}`\n\n"
    return f"{title}{_cell(status.summary)}\n\n{head}{rows}"


def _cell(text: str) -> str:
    """One table cell that stays one, and in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!@])", r"\\\1", printable(text))


def _need(state: GateState) -> str:
    return "required" if state.required else "optional"
