"""What ``verify inspect`` shows on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console

from verify.dumps.overview import Overview, SequenceView, TapView
from verify.dumps.tensor_numbers import RowSpan, TensorNumbers
from verify.report.names import printable, quoted, shorten
from verify.report.numbers import anything, count, measure, plural, size
from verify.report.terminal.blocks import Justify, bullets, heading, labelled, line, table
from verify.report.terminal.environment import summary_lines

STEPS_SHOWN = 12
TEXT_SHOWN = 400
"""Characters of a prompt or an answer."""
SPANS_SHOWN = 6
_TAP_COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("tap", "left"),
    ("dtype", "left"),
    ("shape", "left"),
    ("rows", "right"),
    ("words", "right"),
)
NAME_WIDTH, OTHER_COLUMNS = 31, 51
"""Characters of a tap's name, at least, and of what stands beside it."""


def render_overview(view: Overview, console: Console) -> None:
    """Print what is in a dump; --json has what is put together or cut here."""
    state = "complete" if view.complete else "PARTIAL"
    line(console, f"{printable(view.path)} · {state}", "bold")
    bullets(console, map(printable, view.problems))
    model = f"{view.model} ({view.architecture})" if view.architecture else view.model
    labelled(console, "model", printable(model))
    labelled(console, "run", printable(view.run_id))
    labelled(console, "size", _size_text(view))
    labelled(console, "window", printable(view.window))
    settings = ", ".join(f"{key} {value}" for key, value in _flat(view.settings))
    labelled(console, "settings", printable(settings))
    labelled(console, "command", printable(" ".join(view.command)))
    for label, text in summary_lines(view.env):
        labelled(console, label, printable(text))
    _render_sequences(view.sequences, console)
    _render_steps(view, console)
    _render_taps(view.taps, console)


def _flat(table_: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Entries of nested tables, with dotted names; lists as words."""
    for key, value in table_.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, " ".join(map(anything, value)) or "none"
        else:
            yield prefix + key, anything(value)


def _size_text(view: Overview) -> str:
    parts = f"{size(view.total_bytes)} in {plural(view.parts, 'part')}"
    text = f"{parts}, {plural(view.ranks, 'rank')}; {plural(view.records, 'record')}"
    if view.verified_bytes is not None:
        text += f"; {size(view.verified_bytes)} of words agree with their checksums"
    return text


def _render_sequences(sequences: list[SequenceView], console: Console) -> None:
    heading(console, "Sequences")
    if not sequences:
        line(console, "None.", "", 1)
    for each in sequences:
        tokens = f"{plural(len(each.prompt), 'prompt token')}, {len(each.generated)} generated"
        line(console, f"{printable(each.id)}: {tokens}", "", 1)
        labelled(console, "prompt", _tokens(each.prompt, each.prompt_text))
        labelled(console, "answer", _tokens(each.generated, each.generated_text))


def _tokens(ids: list[int], text: str | None) -> str:
    """The text, or the ids where the dump does not hold the text of every token."""
    if not ids:
        return ""
    shown = quoted(text) if text is not None else "ids " + " ".join(map(str, ids))
    return shown if len(shown) <= TEXT_SHOWN else shown[: TEXT_SHOWN - 2] + " …"


def _render_steps(view: Overview, console: Console) -> None:
    heading(console, "Steps")
    rows = [
        (_range(each.first, each.last), count(each.records), count(each.rows))
        for each in view.steps[:STEPS_SHOWN]
    ]
    if not rows:
        line(console, "None.", "", 1)
        return
    table(console, (("step", "left"), ("records", "right"), ("rows", "right")), rows)
    if len(view.steps) > STEPS_SHOWN:
        line(console, f"… up to step {view.steps[-1].last} (--json lists them all)", "", 1)


def _render_taps(taps: list[TapView], console: Console) -> None:
    groups = group_layers(taps)
    heading(console, f"Taps: {count(len(taps))}")
    if not groups:
        line(console, "None.", "", 1)
        return
    names = [name for name, _ in groups]
    short = _short_names(names, max(NAME_WIDTH, console.width - OTHER_COLUMNS))
    rows = [
        (f"{short[name]}{_times(members)}", *map(printable, _tap_cells(members)))
        for name, members in groups
    ]
    table(console, _TAP_COLUMNS, rows)
    if len(groups) < len(taps):
        line(
            console,
            "* stands for any layer, ×n for n of them: rows of each, words of all together",
            "",
            1,
        )


def group_layers(taps: list[TapView]) -> list[tuple[str, list[TapView]]]:
    """Taps that differ in the layer number alone and agree in everything else, put together under
    their name with ``*`` for the number."""
    groups: dict[tuple[str, bytes], list[TapView]] = {}
    for tap in taps:
        stem, port = _split_port(tap.tap)
        pattern = ".".join("*" if part.isdigit() else part for part in stem.split("."))
        alike = msgspec.json.encode(msgspec.structs.replace(tap, tap=""))
        groups.setdefault((pattern + port, alike), []).append(tap)
    return [
        (pattern if len(members) > 1 else members[0].tap, members)
        for (pattern, _), members in groups.items()
    ]


def _times(members: list[TapView]) -> str:
    return f" ×{len(members)}" if len(members) > 1 else ""


def _split_port(tap: str) -> tuple[str, str]:
    """A tap without and with only its port (``.out``, ``.out.1``, ``.in.0``), whose number is no
    layer."""
    parts = tap.split(".")
    for length in (2, 1):
        if len(parts) > length and parts[-length] in ("in", "out"):
            port = "." + ".".join(parts[-length:])
            return tap.removesuffix(port), port
    return tap, ""


def _short_names(names: list[str], width: int) -> dict[str, str]:
    """Long names without what stands before the layer, unless that makes two of them equal."""
    patterns = {name: f"…{name[name.index('*') :]}" for name in names if "*" in name}
    times = Counter(patterns.values())
    plain = [name for name in names if name not in patterns]
    short = {
        name: text if len(name) > width and times[text] == 1 else name
        for name, text in patterns.items()
    }
    return {**shorten(plain, width + len(" ×30")), **{n: printable(t) for n, t in short.items()}}


def _tap_cells(members: list[TapView]) -> tuple[str, ...]:
    tap = members[0]
    stored = sum(each.word_bytes for each in members)
    return (
        ", ".join(tap.dtypes),
        shape_text(tap.axes, tap.shapes),
        count(tap.rows),
        size(stored) if "full" in tap.kept else ", ".join(tap.kept),
    )


def shape_text(axes: str, shapes: Sequence[Sequence[int]]) -> str:
    """Axis names with their sizes, ``b1 t1-46 d576``; a range where they vary."""
    names = axes.split()
    if any(len(shape) != len(names) for shape in shapes):
        return " or ".join(str(list(shape)) for shape in shapes)
    columns = zip(*shapes, strict=True)
    return " ".join(
        f"{name}{_range(min(sizes), max(sizes))}"
        for name, sizes in zip(names, columns, strict=True)
    ) or ("scalar" if not names else axes)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def render_numbers(
    tensors: Iterable[TensorNumbers], console: Console, *, left_out: int = 0
) -> None:
    """Print the numbers of records, one block each."""
    for number, each in enumerate(tensors):
        if number:
            console.print()
        _render_tensor(each, console)
    if left_out:
        console.print()
        hint = "narrow it down with --tap and --step, or use --json"
        line(console, f"… and {plural(left_out, 'more record')}: {hint}")


def _render_tensor(each: TensorNumbers, console: Console) -> None:
    visit = f" #{each.occurrence}" if each.occurrence else ""
    title = f"{printable(each.tap)}{visit} · step {each.step} · record {each.seq}"
    line(console, title if not each.rank else f"{title} · rank {each.rank}", "bold")
    shape = shape_text(each.axes, [each.shape])
    kept = f"the same tensor as {each.same_as}" if each.same_as else f"kept {each.kept}"
    labelled(console, "tensor", printable(f"{each.dtype}, {shape}, {kept}"))
    labelled(console, "rows", _rows_text(each))
    labelled(console, "values", _statistics_text(each))
    labelled(console, "first", "  ".join(map(_value, each.first_values)))
    labelled(console, "words", "  ".join(each.first_words))
    labelled(console, "from", printable("; ".join(each.inputs)))
    labelled(console, "by", printable(", ".join(each.ops)))


def _rows_text(each: TensorNumbers) -> str:
    spans = [_span(span) for span in each.rows[:SPANS_SHOWN]]
    if len(each.rows) > SPANS_SHOWN:
        spans.append(f"and {len(each.rows) - SPANS_SHOWN} more ranges")
    per_row = plural(each.row_length, "element")
    return f"{'; '.join(spans) or 'none'} ({per_row} a row)"


def _span(span: RowSpan) -> str:
    if span.sequence is None:
        return f"padding {_range(span.first, span.last)}"
    if span.first == -1:
        return "the whole tensor"
    again = f", visit {span.visit}" if span.visit else ""
    return f"{printable(span.sequence)} {_range(span.first, span.last)}{again}"


def _statistics_text(each: TensorNumbers) -> str:
    if each.statistics is None:
        return "not kept"
    counts = {name: int(each.statistics[name]) for name in ("nan", "pos_inf", "neg_inf", "zero")}
    finite = each.elements - counts["nan"] - counts["pos_inf"] - counts["neg_inf"]
    parts = [f"max |x| {measure(each.statistics['max_abs'])}"]
    if finite > 0:
        parts.append(f"mean {measure(each.statistics['sum'] / finite)}")
        parts.append(f"rms {measure((each.statistics['sum_sq'] / finite) ** 0.5)}")
    names = {"nan": "NaN", "pos_inf": "+inf", "neg_inf": "-inf", "zero": "zero"}
    parts.extend(f"{count(n)} {names[name]}" for name, n in counts.items() if n)
    return ", ".join(parts) + f" of {plural(each.elements, 'element')}"


def _value(value: complex) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)
