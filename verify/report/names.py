"""Names and texts that come from dumps: made printable, and shortened without ambiguity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

ELLIPSIS = "…"


def printable(text: str) -> str:
    """``text`` with control, bidirectional and other invisible characters written as escapes, so
    that a dump cannot steer the terminal or reorder a line. Line breaks are escaped as well."""
    return text if text.isprintable() else "".join(map(_escape, text))


def quoted(text: str) -> str:
    """Token text in double quotes: leading spaces show, backslashes and quotes are escaped."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(inner)}"'


def shorten(names: Iterable[str], width: int) -> dict[str, str]:
    """A form of at most ``width`` characters for each name, cut in the middle.

    The layer number and the end of the name, which carry the information, stay. No two different
    names get the same form: where shortening would make them equal they keep their full length.
    """
    wanted = list(dict.fromkeys(names))
    shown = {name: printable(name) for name in wanted}
    pending = [name for name in wanted if len(shown[name]) > width]
    taken = Counter(text for name, text in shown.items() if len(text) <= width)
    options = {name: _forms(shown[name], width) for name in pending}
    while pending:
        offered = {name: next(options[name], None) for name in pending}
        seen = Counter(form for form in offered.values() if form is not None) + taken
        done = [name for name, form in offered.items() if form is None or seen[form] == 1]
        for name in done:
            form = offered[name]
            shown[name] = shown[name] if form is None else form
        # A form that was offered twice stays closed, else a later name could be taken for it.
        taken.update(form for form in offered.values() if form is not None)
        pending = [name for name in pending if name not in set(done)]
    return shown


def _forms(name: str, width: int) -> Iterator[str]:
    """Shortened forms of one name, the most readable first: without the containers before the
    layer, then also without those after it, then cut inside the remaining words."""
    parts = name.split(".")
    layer = next((i for i, part in enumerate(parts[1:-1], 1) if part.isdigit()), None)
    for start in range(layer or 1, len(parts) - 1):
        tail = ".".join(parts[start:])
        if layer is not None and start > layer:
            tail = f"{parts[layer]}{ELLIPSIS}{tail}"
        candidates = (f"{parts[0]}{ELLIPSIS}{tail}", f"{ELLIPSIS}{tail}")
        yield from (text for text in candidates if len(text) <= width)
    lead = "" if layer is None else f"{ELLIPSIS}{parts[layer]}."
    rest = name if layer is None else ".".join(parts[layer + 1 :])
    room = width - len(lead) - len(ELLIPSIS)
    for head in range(room // 2, room):
        yield lead + rest[:head] + ELLIPSIS + rest[len(rest) - (room - head) :]


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if character in known:
        return known[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
