"""Pages taken apart with the standard library's parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "input", "br"}
_FOLDED = {"style", "script", "svg"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find(self, name: str) -> list[Element]:
        return [element for element in self.walk() if element.name == name]

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(page: str) -> Element:
    """The tree of a page; a closing tag that closes nothing is an error."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    assert len(builder.open) == 1, [element.name for element in builder.open]
    return builder.root


def outline(element: Element, depth: int = 0) -> Iterator[str]:
    """One line an element or text, indented; styles, scripts and pictures are folded."""
    for child in element.children:
        if isinstance(child, str):
            if child.strip():
                yield f"{'  ' * depth}{child.strip()}"
            continue
        shown = "".join(
            f" {name}" if value is None else f' {name}="{value}"'
            for name, value in child.attributes.items()
            if name != "content"
        )
        yield f"{'  ' * depth}<{child.name}{shown}>"
        if child.name not in _FOLDED:
            yield from outline(child, depth + 1)
