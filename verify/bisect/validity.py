"""Whether two runs can be compared at all, asked before anything is blamed."""

from __future__ import annotations

from verify.bisect.again import recapture
from verify.bisect.fed import check_fed
from verify.bisect.repeats import check_repeats
from verify.bisect.result import Finding
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.shifts import shift_between
from verify.compare.run import RowComparison
from verify.dumps.format import Dump
from verify.dumps.format.schema import Sequence

# Settings of a configuration without which two models are not the same network.
_SIZES = (
    "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "intermediate_size", "vocab_size", "hidden_act", "num_experts",
    "num_experts_per_tok", "layer_types",
)  # fmt: skip

_SAME = "capture both runs with the same prompts and model"


def check_workloads(a: Dump, b: Dump) -> list[Finding]:
    """Prompts, tape and architecture, from the manifests alone. Empty: go on."""
    same_text = f"give B the prompts and tokens of A: {recapture(b, tape=a, prompts=True)}"
    found = [
        *((*each, same_text) for each in (*_check_sequences(a, b), *_check_tape(a, b))),
        *((*each, _say_map(a, b)) for each in _check_architecture(a, b)),
    ]
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.RUNS)),
            title=title,
            reasons=reasons,
            settle=[settle],
        )
        for title, reasons, settle in found
    ]


def _say_map(a: Dump, b: Dump) -> str:
    return (
        "capture both runs with one model; or, where two implementations of one network are meant, "
        f"relate their taps: verify taps {a.path} {b.path} --out map.toml, and --map map.toml here"
    )


def check_capture(compared: RowComparison) -> list[Finding]:
    """What only the rows show: nothing in common, or a capture that recorded one tensor for all."""
    found = [
        Finding(
            verdict=decide(Measured(subject=Subject.RUNS)),
            title=fault.title,
            reasons=[fault.reason],
            taps=[fault.tap],
            settle=[fault.settle],
        )
        for fault in check_fed(compared)
    ]
    if not compared.comparison.rows:
        found.append(_nothing_compared(compared))
    for side, index in (("A", compared.alignment.a), ("B", compared.alignment.b)):
        found += check_repeats(side, index)
    return found


def _check_sequences(a: Dump, b: Dump) -> list[tuple[str, list[str]]]:
    x, y = (_by_id(dump) for dump in (a, b))
    if x and y and not x.keys() & y.keys():
        first = [next(iter(s.values())).prompt for s in (x, y)]
        if shift_between(*first):
            return [("The prompts are shifted by a few tokens", _first_ids(x, y))]
        found = f"A ran {', '.join(list(x)[:3])}; B ran {', '.join(list(y)[:3])}"
        return [("The runs have no sequence in common", [found, *_first_ids(x, y)])]
    reasons = [
        text
        for name in x.keys() & y.keys()
        if (text := _prompts_differ(name, x[name].prompt, y[name].prompt))
    ]
    return [("The prompts differ", reasons)] if reasons else []


def _by_id(dump: Dump) -> dict[str, Sequence]:
    return {sequence.id: sequence for sequence in dump.manifest.workload.sequences}


def _first_ids(x: dict[str, Sequence], y: dict[str, Sequence]) -> list[str]:
    """Where the first prompts part, which often shows a missing start token."""
    text = _prompts_differ("the first sequence", *(next(iter(s.values())).prompt for s in (x, y)))
    return [text] if text else []


def _prompts_differ(name: str, a: list[int], b: list[int]) -> str | None:
    if a == b:
        return None
    if shift := shift_between(a, b):
        longer, shorter = ("B", "A") if shift > 0 else ("A", "B")
        ids = ", ".join(map(str, (b if shift > 0 else a)[: abs(shift)][:4]))
        by = "one token" if abs(shift) == 1 else f"{abs(shift)} tokens"
        return (
            f"the prompt of {name} is shifted by {by}: {longer} begins with {ids}, which {shorter} "
            f"lacks; the rest is the same"
        )
    for place, (token_a, token_b) in enumerate(zip(a, b, strict=False)):
        if token_a != token_b:
            return f"prompt token {place} of {name} is {token_a} in A and {token_b} in B"
    return f"the prompt of {name} has {len(a)} tokens in A and {len(b)} in B"


def _check_tape(a: Dump, b: Dump) -> list[tuple[str, list[str]]]:
    tape_a, tape_b = a.manifest.workload.tape, b.manifest.workload.tape
    if tape_a is None or tape_b is None or tape_a.digest == tape_b.digest:
        return []
    text = f"A was forced along {tape_a.run_id}, B along {tape_b.run_id}, and the tokens differ"
    return [("The runs were forced along different tapes", [text])]


def _check_architecture(a: Dump, b: Dump) -> list[tuple[str, list[str]]]:
    x, y = a.manifest.model, b.manifest.model
    reasons = []
    if x.architecture and y.architecture and x.architecture != y.architecture:
        reasons.append(f"architecture {x.architecture} in A, {y.architecture} in B")
    reasons += [
        f"{key} is {x.config[key]} in A and {y.config[key]} in B"
        for key in _SIZES
        if key in x.config and key in y.config and x.config[key] != y.config[key]
    ]
    return [("The models are not the same network", reasons)] if reasons else []


def _nothing_compared(compared: RowComparison) -> Finding:
    comparison = compared.comparison
    if not (compared.alignment.a.records and compared.alignment.b.records):
        side = "A" if not compared.alignment.a.records else "B"
        reasons = [f"{side} holds no record at all"]
    else:
        reasons = [f"{u.tap}: {u.reason} ({u.rows} rows of {u.side.upper()})"
                   for u in comparison.unmatched[:4]]  # fmt: skip
    return Finding(
        verdict=decide(Measured(subject=Subject.RUNS)),
        title="Nothing could be compared",
        reasons=reasons,
        settle=["`verify inspect RUN` shows the taps and sequences of each run", _SAME],
    )
