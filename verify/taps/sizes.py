"""Sizes of a model from its configuration: what `split` and `dims` of a map are spelled in."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verify.errors import ArgumentError

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: x // y,
}


def sizes_of(configs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Integers of the configurations, the first one that has an entry counts, with what Hugging
    Face models derive where it is not given: ``num_key_value_heads`` and ``head_dim``."""
    found: dict[str, int] = {}
    for config in configs:
        text = config.get("text_config")
        for table in (config, text if isinstance(text, Mapping) else {}):
            for name, value in table.items():
                if isinstance(value, int) and not isinstance(value, bool):
                    found.setdefault(name, value)
    heads = found.get("num_attention_heads", 0)
    if heads:
        found.setdefault("num_key_value_heads", heads)
        if "hidden_size" in found:
            found.setdefault("head_dim", found["hidden_size"] // heads)
    return found


class Sizes:
    """Evaluates the size expressions of a map.

    Args:
        names: the map's own names -> expressions.
        known: configuration entries.
        where: what is being evaluated, for messages.
    """

    def __init__(self, names: Mapping[str, str], known: Mapping[str, int], where: str) -> None:
        self.names, self.known, self.where = names, known, where

    def value(self, text: str) -> int:
        """The size that an expression stands for.

        Raises:
            ArgumentError: it does not parse, or a name is neither in the map nor in a configuration.
        """
        return self._value(text, ())

    def _value(self, text: str, within: tuple[str, ...]) -> int:
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise self._fault("a size does not parse", text) from None
        return self._of(tree, text, within)

    def _of(self, node: ast.expr, text: str, within: tuple[str, ...]) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            return self._named(node.id, text, within)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            left, right = (self._of(side, text, within) for side in (node.left, node.right))
            if isinstance(node.op, ast.FloorDiv) and right == 0:
                raise self._fault("a size divides by zero", text)
            return _OPERATIONS[type(node.op)](left, right)
        raise self._fault("a size is no sum or product of sizes", text)

    def _named(self, name: str, text: str, within: tuple[str, ...]) -> int:
        if name in self.names and name not in within:
            return self._value(self.names[name], (*within, name))
        if name in self.known:
            return self.known[name]
        raise ArgumentError(
            "a size of the tap map is not known",
            where=self.where,
            found=f"{name} (in {text!r})",
            allowed=", ".join(sorted({*self.names, *self.known})) or "nothing is known",
            hint="give it as a number under [sizes] of a copy of the map; no configuration names it",
        )

    def _fault(self, what: str, text: str) -> ArgumentError:
        allowed = "integers, names, + - * // and brackets"
        return ArgumentError(what, where=self.where, found=text, allowed=allowed)
