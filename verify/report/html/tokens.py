"""The token section: the first choice that differs, and all of them on demand."""

from __future__ import annotations

from verify.bisect.result import BisectResult, TokenPosition, TopToken
from verify.report.html.markup import Child, Markup, tag
from verify.report.html.tables import Column, bullets, code, folded, section, table
from verify.report.names import quoted
from verify.report.numbers import measure, plural
from verify.report.words import flip_lines, token_headline, token_reasons, token_text

ROWS = 2000
"""Tokens in the full table; report.json has any beyond."""

_CANDIDATES: tuple[Column, ...] = (
    ("Run", False),
    ("Rank", True),
    ("Token", False),
    ("Id", True),
    ("Logit", True),
    ("Chosen", False),
)
_SIDES: tuple[Column, ...] = (
    ("Run", False),
    ("Margin (logit units)", True),
    ("Margin (logit steps)", True),
    ("Exact tie", False),
)
_ALL: tuple[Column, ...] = (
    ("Token", True),
    ("Position", True),
    ("A chose", False),
    ("B chose", False),
    ("Margin A", True),
    ("Steps A", True),
    ("Margin B", True),
    ("Steps B", True),
    ("Shift", True),
    ("Note", False),
)


def tokens_section(result: BisectResult, figures: Child) -> Markup:
    token = result.first_token
    return section(
        "tokens",
        "First differing token",
        tag("p", token_headline(result)),
        [] if token is None else _first(token),
        bullets(lines) if (lines := flip_lines(result)) else None,
        figures,
        _all(result.tokens) if result.tokens else None,
    )


def _first(token: TokenPosition) -> list[Markup]:
    rows = [
        _candidate(side, rank, candidate, chosen)
        for side, candidates, chosen in (
            ("A", token.a, token.chosen_a),
            ("B", token.b, token.chosen_b),
        )
        for rank, candidate in enumerate(candidates, 1)
    ]
    margins = [
        ("A", measure(token.margin_a), measure(token.margin_a_steps), _yes(token.tie_a)),
        ("B", measure(token.margin_b), measure(token.margin_b_steps), _yes(token.tie_b)),
    ]
    return [
        bullets(token_reasons(token)),
        tag(
            "div",
            table("Margins between the two best logits; a step is one ULP of the logits' dtype "
                  "at that size", _SIDES, margins),
            table("The best candidates of either run", _CANDIDATES, rows),
            class_="side-by-side",
        ),
    ]  # fmt: skip


def _candidate(side: str, rank: int, token: TopToken, chosen: int) -> list[Child]:
    mark = "chosen" if token.id == chosen else ""
    return [
        side,
        str(rank),
        code(quoted(token.text)) if token.text else "-",
        str(token.id),
        measure(token.logit),
        mark,
    ]


def _all(tokens: list[TokenPosition]) -> Markup:
    shown = tokens[:ROWS]
    flips = [i for i, token in enumerate(shown) if token.chosen_a != token.chosen_b]
    more = f", the first {ROWS} of them" if len(tokens) > ROWS else ""
    caption = f"{plural(len(tokens), 'compared token')}{more}; differing ones are marked"
    several = len({token.sequence for token in shown}) > 1
    return folded(
        f"Table of {plural(len(tokens), 'compared token')}",
        table(caption, _ALL, (_row(token, several) for token in shown), marked=flips),
    )


def _row(token: TokenPosition, several: bool) -> list[Child]:
    return [
        str(token.index),
        str(token.position),
        code(token_text(token, token.chosen_a)),
        code(token_text(token, token.chosen_b)),
        measure(token.margin_a),
        measure(token.margin_a_steps),
        measure(token.margin_b),
        measure(token.margin_b_steps),
        measure(token.pair_shift),
        _note(token, several),
    ]


def _note(token: TokenPosition, several: bool) -> str:
    ties = [f"tie in {side}" for side, tie in (("A", token.tie_a), ("B", token.tie_b)) if tie]
    notes = ["differs"] if token.chosen_a != token.chosen_b else []
    notes += ties
    if token.closeness and not ties:
        notes.append(token.closeness)
    if not token.same_context:
        notes.append("context differs")
    if several:
        notes.append(f"sequence {token.sequence}")
    return ", ".join(notes)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
