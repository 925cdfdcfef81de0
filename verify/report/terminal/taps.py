"""What ``verify taps`` prints: lines of a map with what they rest on, and what stays open."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from verify.compare.map_check import MapCheck, RuleCheck, say_how
from verify.report.names import printable
from verify.report.terminal.blocks import bullets, heading, line
from verify.taps.proposal import Line, Proposal
from verify.taps.sampling import template_of

_SHOWN = 12


def render_proposal(proposal: Proposal, console: Console) -> None:
    """The proposed lines in A's execution order, then the open taps of both sides."""
    counts = [
        f"{sum(each.confidence == name for each in proposal.lines)} {name}"
        for name in ("equal", "rounding", "near", "shape")
        if any(each.confidence == name for each in proposal.lines)
    ]
    taps = sum(each.taps for each in proposal.lines)
    line(console, f"{len(proposal.lines)} lines for {taps} taps: {', '.join(counts) or 'none'}",
         "bold")  # fmt: skip
    _sides(proposal.a, proposal.b, console)
    heading(console, "Proposed, in the order in which A ran them")
    for each in proposal.lines:
        _line(each, console)
    if any(each.confidence == "shape" for each in proposal.lines):
        line(console, " ! rests on length, order and name alone: check it before you rely on it")
    _open("Open in A", proposal.open_a, console)
    _open("Open in B", proposal.open_b, console)
    _open("Weights of A that no line relates", proposal.open_weights_a, console)
    _open("Weights of B that no line relates", proposal.open_weights_b, console)
    if proposal.repeats_b:
        many = len(proposal.repeats_b)
        line(console, f"{many} more taps of B hold rows of taps that are used.")


def render_check(check: MapCheck, console: Console) -> None:
    """Every rule with its state, then the open taps of both sides."""
    states = [rule.state for rule in check.rules]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    line(console, f"map {printable(check.tap_map)}: {counts or 'no rules'}", "bold")
    _sides(check.a, check.b, console)
    heading(console, "Rules")
    for rule in check.rules:
        if rule.state != "unused":
            _rule(rule, console)
    unused = [rule for rule in check.rules if rule.state == "unused"]
    if unused:
        heading(console, "Rules without a tap in these runs")
        bullets(console, [f"{rule.a} from {rule.b}: {rule.reason}" for rule in unused], _SHOWN)
    _open("Open in A", check.open_a, console)
    _open("Open in B", check.open_b, console)
    if check.notes:
        heading(console, "Notes")
        bullets(console, check.notes)


def _sides(a: str, b: str, console: Console) -> None:
    line(console, f"A  {printable(a)}")
    line(console, f"B  {printable(b)}")


def _line(each: Line, console: Console) -> None:
    rule = each.rule
    mark = "!" if each.confidence in ("shape", "near") else " "
    line(console, f"{mark}{printable(rule.a)}")
    sources = " + ".join(rule.sources) if rule.join == "add" else ", ".join(rule.sources)
    how = say_how(rule)
    line(console, f"   from {printable(sources)}{'' if how == 'as it is' else f' ({how})'}")
    line(console, f"   {each.confidence}: {each.evidence}", "dim")


def _rule(rule: RuleCheck, console: Console) -> None:
    mark = "!" if rule.state in ("apart", "not presented") else " "
    line(console, f"{mark}{printable(rule.a)}")
    how = "" if rule.how == "as it is" else f" ({rule.how})"
    line(console, f"   from {printable(rule.b)}{how}")
    line(console, f"   {_state(rule)}", "dim")


def _state(rule: RuleCheck) -> str:
    if rule.state == "not presented":
        return f"not presented: {rule.reason}"
    where = f"{rule.rows} rows of {rule.taps} taps" if rule.taps > 1 else f"{rule.rows} rows"
    if rule.state == "equal":
        return f"equal: {where}"
    size = "unknown" if rule.relative_l2 is None else f"{rule.relative_l2:.2g}"
    worst = f", most at {printable(rule.worst)}" if rule.taps > 1 else ""
    return f"{rule.state}: {rule.differing_rows} of {where} differ, relative L2 {size}{worst}"


def _open(title: str, taps: Sequence[str], console: Console) -> None:
    """Taps by name, those of all layers in one line."""
    if not taps:
        return
    heading(console, title)
    counts: dict[str, int] = {}
    for tap in taps:
        template = template_of(tap)[0]
        counts[template] = counts.get(template, 0) + 1
    said = [f"{name}  ({count} layers)" if count > 1 else name for name, count in counts.items()]
    bullets(console, [printable(text) for text in said])
