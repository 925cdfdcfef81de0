"""Candidates as rules of a map, with sizes spelled by the configuration where it has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from verify.taps.candidates import Candidate
from verify.taps.types import TapRule

_SPELLED = (
    "num_attention_heads * head_dim",
    "num_key_value_heads * head_dim",
    "intermediate_size",
    "hidden_size",
    "vocab_size",
)
"""Expressions that a size may be, the first that has its value is taken."""


class Speller:
    """Writes rules, and collects the sizes that they need."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self.known = known
        self.sizes: dict[str, str] = {}

    def rule(self, candidate: Candidate) -> TapRule:
        """The rule of one candidate."""
        a, source = candidate.a, candidate.sources[0]
        single = a.is_single
        b = [
            shifted(family.any.name if single else family.template, candidate.shift)
            for family in candidate.sources
        ]
        fit = candidate.fit if candidate.fits else None
        rule = TapRule(
            a=a.any.name if single else a.template,
            b=b[0] if len(b) == 1 else b,
            join=candidate.join if len(b) > 1 else None,
            occurrence=source.place or None,  # type: ignore[arg-type]
        )
        if fit is None or fit.is_plain:
            return rule
        fields: dict[str, object] = {}
        if fit.start is not None:
            length = a.any.row_length
            fields["columns"] = [str(fit.start), str(fit.start + length)]
        if fit.heads is not None:
            fields["heads"] = fit.heads
            fields["head_dim"] = self._head_dim(fit.head_dim)
        if fit.transposed is not None:
            fields["dims"], fields["order"] = [str(n) for n in fit.transposed], [1, 0]
        return _with(rule, fields)

    def _head_dim(self, value: int) -> str:
        return "head_dim" if self.known.get("head_dim") == value else str(value)

    def split(self, rules: list[TapRule], lengths: Mapping[str, int]) -> list[TapRule]:
        """Rules that cut one tap of B into parts without a gap, written as a split by names.

        Args:
            lengths: pattern of B -> elements in its row.
        """
        groups: dict[str, list[TapRule]] = defaultdict(list)
        for rule in rules:
            if isinstance(rule.b, str) and rule.columns is not None:
                groups[rule.b].append(rule)
        renamed: dict[int, TapRule] = {}
        for b, parts in groups.items():
            renamed |= self._split(parts, lengths[b])
        return [renamed.get(id(rule), rule) for rule in rules]

    def _split(self, parts: list[TapRule], length: int) -> dict[int, TapRule]:
        """By identity of the rule its split form; empty unless the parts fill the row."""
        cuts: dict[tuple[int, int], str] = {}
        for rule in parts:
            cut = _cut(rule)
            cuts.setdefault(cut, _short(rule.a))
        at = 0
        for start, stop in sorted(cuts):
            if start != at:
                return {}
            at = stop
        if at != length or len(set(cuts.values())) != len(cuts):
            return {}
        names = [cuts[cut] for cut in sorted(cuts)]
        for (start, stop), name in cuts.items():
            self.sizes[name] = self._spelled(stop - start)
        return {
            id(rule): _with(rule, {"columns": None, "split": names, "take": cuts[_cut(rule)]})
            for rule in parts
        }

    def _spelled(self, value: int) -> str:
        for text in _SPELLED:
            product = 1
            for name in text.split(" * "):
                product *= self.known.get(name, 0)
            if product == value:
                return text
        return str(value)


def _cut(rule: TapRule) -> tuple[int, int]:
    start, stop = rule.columns or ("0", "0")
    return int(start), int(stop)


def _short(tap: str) -> str:
    """A name for a part: the module that A's tap is of."""
    module = tap.removesuffix(".out").rpartition(".")[2]
    return "".join(c if c.isalnum() else "_" for c in module)


def _with(rule: TapRule, fields: Mapping[str, object]) -> TapRule:
    return msgspec.structs.replace(rule, **fields)


def shifted(template: str, shift: int) -> str:
    """A pattern of the layer that is ``shift`` further on."""
    return template.replace("{n}", f"{{n{shift:+d}}}") if shift else template
