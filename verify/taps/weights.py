"""Weights of a proposal: those that the taps of a line were computed with."""

from __future__ import annotations

from verify.dumps.format import Dump
from verify.taps.patterns import match
from verify.taps.proposal import Line
from verify.taps.types import WeightRule


def propose_weights(a: Dump, b: Dump, lines: list[Line]) -> list[WeightRule]:
    """Weights beside the outputs of lines: `x.out` from `y.out` makes `x.weight` one of `y.weight`,
    where both manifests have it."""
    known_a, known_b = a.manifest.model.weights, b.manifest.model.weights
    found: dict[str, WeightRule] = {}
    for line in lines:
        rule = line.rule
        if not isinstance(rule.b, str) or not rule.b.endswith(".out") or rule.columns is not None:
            continue
        for kind in ("weight", "bias"):
            name_a, name_b = _beside(rule.a, kind), _beside(rule.b, kind)
            if name_a == name_b and rule.split is None and rule.heads is None:
                continue
            if _has(known_a, name_a) and _has(known_b, name_b):
                found.setdefault(
                    name_a,
                    WeightRule(
                        a=name_a,
                        b=name_b,
                        split=rule.split,
                        take=rule.take,
                        reordered=rule.heads is not None or rule.dims is not None,
                    ),
                )
    return list(found.values())


def open_weights(a: Dump, b: Dump, rules: list[WeightRule]) -> tuple[list[str], list[str]]:
    """Weights of each side that no rule relates and that the other has not by the same name."""
    known_a = {name for name in a.manifest.model.weights if not name.endswith("]")}
    known_b = {name for name in b.manifest.model.weights if not name.endswith("]")}
    related_a = {n for n in known_a for rule in rules if match(rule.a, n) is not None}
    related_b = {n for n in known_b for rule in rules if match(rule.b, n) is not None}
    return sorted(known_a - known_b - related_a), sorted(known_b - known_a - related_b)


def _beside(tap: str, kind: str) -> str:
    return "lm_head." + kind if tap == "logits" else f"{tap.removesuffix('.out')}.{kind}"


def _has(weights: dict[str, str], pattern: str) -> bool:
    return any(match(pattern, name) is not None for name in weights)
