"""Writing a map as TOML, with what each line rests on as a comment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from verify.taps.proposal import Proposal
from verify.taps.sampling import template_of
from verify.taps.types import Alone, TapMap, TapRule, WeightRule

TapRuleKey = tuple[str, str]
"""The taps of A and of B that a rule names."""


def to_toml(tap_map: TapMap, comments: Mapping[TapRuleKey, str] | None = None) -> str:
    """The text of a map; reading it gives the map again.

    Args:
        comments: key of a rule -> what stands above it.
    """
    head = {
        name: getattr(tap_map, name)
        for name in ("format", "version", "name", "a", "b", "about")
        if getattr(tap_map, name) != ""
    }
    parts = ["\n".join(f"{name} = {_value(value)}" for name, value in head.items())]
    if tap_map.sizes:
        sizes = [f"{name} = {_value(value)}" for name, value in tap_map.sizes.items()]
        parts.append("\n".join(["[sizes]", *sizes]))
    for table, rules in (
        ("tap", tap_map.tap),
        ("alone", tap_map.alone),
        ("weight", tap_map.weight),
    ):
        for rule in rules:
            above = ""
            if isinstance(rule, TapRule) and comments and key_of(rule) in comments:
                above = "".join(f"# {line}\n" for line in comments[key_of(rule)].splitlines())
            parts.append(f"{above}[[{table}]]\n{_fields(rule)}")
    return "\n\n".join(parts) + "\n"


def key_of(rule: TapRule) -> TapRuleKey:
    return (rule.a, " ".join(rule.sources))


def proposal_toml(proposal: Proposal) -> str:
    """The proposed map, each line under what speaks for it, and what stays open at the end."""
    comments = {key_of(line.rule): f"{line.confidence}: {line.evidence}" for line in proposal.lines}
    text = to_toml(proposal.tap_map, comments)
    for what, names in (
        ("Open taps of A", proposal.open_a),
        ("Open taps of B", proposal.open_b),
        ("Weights of A that no line relates", proposal.open_weights_a),
        ("Weights of B that no line relates", proposal.open_weights_b),
    ):
        if names:
            shown = dict.fromkeys(template_of(name)[0] for name in names)
            text += f"\n# {what}:\n" + "".join(f"#   {name}\n" for name in shown)
    return text


def _fields(rule: TapRule | WeightRule | Alone) -> str:
    defaults = {field.name: field.default for field in msgspec.structs.fields(rule)}
    return "\n".join(
        f"{name} = {_value(value)}"
        for name, value in msgspec.structs.asdict(rule).items()
        if value != defaults[name]
    )


def _value(value: object) -> str:
    """A TOML value. JSON strings without characters beyond U+FFFF and lists of them are TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
