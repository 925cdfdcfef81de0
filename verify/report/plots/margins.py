"""How close every choice of a token was, against how far the logits moved."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from verify.bisect.result import BisectResult, TokenPosition
from verify.report.grouping import by_sequence
from verify.report.numbers import measure, plural
from verify.report.plots.style import (
    BLUE,
    FAINT,
    GREY,
    ORANGE,
    VERMILION,
    Plot,
    drawable,
    new_figure,
)

SEQUENCES = 4
DENSE = 80
"""More tokens than this are drawn as points: lines would cover each other."""
SHIFT_LABEL = "shift of A's choice against its rival"


def draw_margins(result: BisectResult) -> Plot | None:
    """Top-2 margins of both runs and the shift between the candidates, token by token; None
    without compared tokens."""
    tracks = {
        sequence: track
        for sequence, track in by_sequence(result.tokens).items()
        if any(_positive(v) for t in track for v in (t.margin_a, t.margin_b, abs(t.pair_shift)))
    }
    if not tracks:
        return None
    shown = list(tracks)[:SEQUENCES]
    figure, panels = new_figure(0.9 + 2.6 * len(shown), rows=len(shown))
    for axes, sequence in zip(panels, shown, strict=True):
        _track(axes, tracks[sequence])
        several = f", sequence {drawable(sequence)}" if len(tracks) > 1 else ""
        axes.set_title(f"Token margins{several}", pad=18)  # room for the note on the flip
    panels[-1].set_xlabel("number of the generated token")
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)
    return Plot("token-margins", "Token margins", _alt(result, len(tracks) - len(shown)), figure)


def _track(axes: Axes, track: Sequence[TokenPosition]) -> None:
    index = [token.index for token in track]
    dense = len(track) > DENSE
    for values, colour, marker, label in (
        ([token.margin_a for token in track], BLUE, "o", "margin in A (best − next best logit)"),
        ([token.margin_b for token in track], ORANGE, "s", "margin in B"),
    ):
        _line(axes, index, values, colour, marker, "" if dense else "-", label, 2.2 if dense else 4)
    shifts = [abs(token.pair_shift) for token in track]
    _line(axes, index, shifts, GREY, "", "-" if dense else "--", SHIFT_LABEL)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_ylabel("logit units (log)")
    axes.set_xlim(min(index) - 0.6, max(index) + 0.6)
    _ties(axes, track)
    _first_flip(axes, track)


def _line(
    axes: Axes,
    index: Sequence[int],
    values: Sequence[float],
    colour: str,
    marker: str,
    dash: str,
    label: str,
    size: float = 4,
) -> None:
    drawn = [value if _positive(value) else math.nan for value in values]
    axes.plot(
        index, drawn, color=colour, marker=marker, markersize=size, linestyle=dash or "none",
        linewidth=1.2 if dash == "--" or marker else 0.7, label=label, zorder=3 if marker else 2,
    )  # fmt: skip


def _ties(axes: Axes, track: Sequence[TokenPosition]) -> None:
    """An exact tie has the margin 0, which a log axis lacks: marked at the lower edge."""
    for side, colour, marker in (("A", BLUE, "o"), ("B", ORANGE, "s")):
        tied = [t.index for t in track if (t.tie_a if side == "A" else t.tie_b)]
        if tied:
            axes.plot(
                tied, [0.0] * len(tied), transform=axes.get_xaxis_transform(), linestyle="",
                marker=marker, markersize=7, markerfacecolor="none", markeredgewidth=1.6,
                color=colour, clip_on=False, zorder=4, label=f"exact tie in {side}",
            )  # fmt: skip


def _first_flip(axes: Axes, track: Sequence[TokenPosition]) -> None:
    flip = next((t for t in track if t.chosen_a != t.chosen_b), None)
    if flip is not None:
        axes.axvline(flip.index, color=VERMILION, linewidth=1.2, linestyle=":", zorder=1)
        axes.annotate(
            f"first differing token, {flip.index}", (flip.index, 1.0),
            xycoords=("data", "axes fraction"), xytext=(0, 4), textcoords="offset points",
            fontsize=8, ha="left" if flip.index < track[len(track) // 2].index else "right",
        )  # fmt: skip
    changed = [t.index for t in track if not t.same_context]
    if changed:
        axes.axvspan(
            min(changed) - 0.5, max(track[-1].index, max(changed)) + 0.6, facecolor=FAINT,
            alpha=0.35, linewidth=0, zorder=0, label="the tokens before differ",
        )  # fmt: skip


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _alt(result: BisectResult, hidden: int) -> str:
    margins = [t.margin_a for t in result.tokens if _positive(t.margin_a)]
    ties = sum(t.tie_a or t.tie_b for t in result.tokens)
    said = [f"Margins of {plural(len(result.tokens), 'token choice')}."]
    if margins:
        said.append(f"The smallest margin in A that is not a tie is {measure(min(margins))}.")
    said.append(f"{plural(ties, 'exact tie')}." if ties else "No exact tie.")
    if result.first_token is not None:
        said.append(f"Token {result.first_token.index} is the first that differs.")
    if hidden > 0:
        said.append(f"{plural(hidden, 'further sequence')} not drawn.")
    return " ".join(said)
