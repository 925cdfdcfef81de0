"""How a tensor of one rank stands to the tensor that all ranks hold together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Self

from verify.errors import ArgumentError

ATTRIBUTE = "layout"
"""Key of a record's attributes: the layout as text."""

Kind = Literal["replicated", "shard", "partial"]


@dataclass(frozen=True, slots=True)
class Layout:
    """``replicated``: every rank holds all of it. ``shard:D``: ranks hold consecutive parts of
    dimension D (negative: from the end), in the order of their numbers. ``partial``: the sum over the
    ranks is the tensor."""

    kind: Kind
    dim: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``replicated``, ``shard:D`` or ``partial``.

        Raises:
            ArgumentError: anything else.
        """
        kind, colon, dim = text.partition(":")
        if kind == "shard" and colon and dim.lstrip("-").isdecimal():
            return cls("shard", int(dim))
        if text == "replicated" or text == "partial":
            return cls("replicated" if text == "replicated" else "partial")
        raise ArgumentError(
            "unknown layout",
            where="layouts",
            found=text,
            allowed="replicated, partial, shard:D (D: a dimension, for example shard:-1)",
        )

    def __str__(self) -> str:
        return f"shard:{self.dim}" if self.kind == "shard" else self.kind

    def of(self, ndim: int) -> Layout:
        """The same for a tensor of ``ndim`` dimensions, counted from the front.

        Raises:
            ArgumentError: there is no such dimension.
        """
        if self.kind != "shard":
            return self
        if not -ndim <= self.dim < ndim:
            raise ArgumentError(
                "a layout names a dimension that the tensor does not have",
                where="layouts",
                found=f"{self} for {ndim} dimensions",
                allowed=f"shard:{-ndim} .. shard:{ndim - 1}",
            )
        return Layout("shard", self.dim % ndim)


class Layouts:
    """Layouts by globs on tap names; the first glob that matches counts.

    Raises:
        ArgumentError: an unknown layout.
    """

    def __init__(self, table: Mapping[str, str] | None = None) -> None:
        self.table = {glob: Layout.parse(text) for glob, text in (table or {}).items()}

    def of(self, tap: str) -> Layout | None:
        return next((at for glob, at in self.table.items() if fnmatchcase(tap, glob)), None)

    def as_json(self) -> dict[str, str]:
        return {glob: str(layout) for glob, layout in self.table.items()}


def parse_layouts(texts: Iterable[str]) -> dict[str, str]:
    """From lines ``GLOB=LAYOUT``.

    Raises:
        ArgumentError: a line without ``=``, or an unknown layout.
    """
    found: dict[str, str] = {}
    for text in texts:
        glob, equals, layout = text.rpartition("=")
        if not equals or not glob:
            raise ArgumentError(
                "not a layout", where="--layout", found=text, allowed="GLOB=LAYOUT, for example "
                "'*.o_proj.out=partial'",
            )  # fmt: skip
        found[glob] = str(Layout.parse(layout))
    return found
