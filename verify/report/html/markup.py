"""HTML built from elements: every text is escaped where it enters, so no dump can add markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

from verify.report.names import printable


class Markup(str):
    """Finished HTML; only this module and literal assets make it."""

    __slots__ = ()


Child = str | Markup | Iterable["Child"] | None
_VOID = frozenset({"meta", "input", "br"})


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """``<name attributes>children</name>``.

    ``class_`` and ``for_`` lose their underscore, other underscores become hyphens; ``True``
    writes a bare attribute, ``None`` and ``False`` leave it out.
    """
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{head}>")
    return Markup(f"<{name}{head}>{join(children)}</{name}>")


def join(children: Iterable[Child], between: str = "") -> Markup:
    """The children one after the other; plain text is escaped."""
    return Markup(between.join(_text(child) for child in children))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return html.escape(printable(child), quote=True)
    return join(child)


def _attribute(key: str, value: str | int | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(printable(str(value)), quote=True)}"'
