"""The first differing token, and how close the choices were."""

from __future__ import annotations

from rich.console import Console

from verify.bisect.result import BisectResult, TokenPosition, TopToken
from verify.report.numbers import count, measure, plural
from verify.report.terminal.blocks import Justify, heading, line, table
from verify.report.words import flip_lines, token_headline, token_reasons, token_text

_COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("run", "left"),
    ("chosen", "left"),
    ("logit", "right"),
    ("next best", "left"),
    ("logit", "right"),
    ("margin", "right"),
    ("steps", "right"),
)


def render_tokens(result: BisectResult, console: Console) -> None:
    heading(console, "Tokens")
    line(console, token_headline(result), "", 1)
    token = result.first_token
    if token is not None:
        console.print()
        table(console, _COLUMNS, (_side(token, "A"), _side(token, "B")))
        console.print()
        for text in token_reasons(token):
            line(console, text, "", 1)
    differing = sum(each.chosen_a != each.chosen_b for each in result.tokens)
    if differing:
        total = plural(len(result.tokens), "compared choice")
        line(console, f"{count(differing)} of {total} differ in all.", "", 1)
    for text in flip_lines(result):
        line(console, text, "", 1)
    ties = sum(each.tie_a or each.tie_b for each in result.tokens)
    if ties and result.flips is None:
        line(console, f"Exact ties: {plural(ties, 'position')}.", "", 1)


def _side(token: TokenPosition, side: str) -> list[str]:
    candidates = token.a if side == "A" else token.b
    chosen = token.chosen_a if side == "A" else token.chosen_b
    margin = token.margin_a if side == "A" else token.margin_b
    steps = token.margin_a_steps if side == "A" else token.margin_b_steps
    tie = token.tie_a if side == "A" else token.tie_b
    top = next((each for each in candidates if each.id == chosen), None)
    other = next((each for each in candidates if each.id != chosen), None)
    return [
        side,
        _named(token, chosen),
        _logit(top),
        _named(token, other.id) if other else "-",
        _logit(other),
        "tie" if tie else measure(margin),
        measure(steps),
    ]


def _named(token: TokenPosition, chosen: int) -> str:
    text = token_text(token, chosen)
    return text if text == f"id {chosen}" else f"{text} {chosen}"


def _logit(token: TopToken | None) -> str:
    return "-" if token is None else measure(token.logit)
