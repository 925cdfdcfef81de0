"""What else differs between the runs: settings, configuration, environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from verify.bisect.result import Confounder
from verify.dumps.format import Dump
from verify.dumps.format.schema import Manifest
from verify.env import Difference, difference, redact
from verify.env.diff import flatten, text
from verify.env.weights import ORDER, THREADS
from verify.formats import FORMATS

# Settings and configuration; what concerns the machine is weighed in verify.env. First match counts:
# pattern, weight, subject ("" for the name itself), note.
_WEIGHTS: tuple[tuple[str, str, str, str], ...] = (
    (r"settings\.threads", "likely", THREADS,
     "sums are split among threads; CPU flash attention depends on the number in decode"),
    (r"settings\.weights_alignment", "likely", "",
     "one-row fp32 products depend on the weights' address modulo 16"),
    (r"settings\.device", "likely", "", "other kernels, other order of summation"),
    (r"settings\.", "declared", "", ""),
    (r"model\.config\.(_|transformers_version|torch_dtype|dtype|architectures)", "possible", "", ""),
    (r"model\.config$", "possible", "model", "one run alone states the configuration of its model"),
    (r"model\.config\.", "likely", "model", "the network computes something else"),
)  # fmt: skip

# Other spellings of formats in settings such as kv_cache=e4m3 or dtype=bf16.
_SPELLINGS = {
    "e4m3": "float8_e4m3fn", "e4m3fn": "float8_e4m3fn", "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "fp8_e5m2": "float8_e5m2",
    "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz", "bf16": "bfloat16",
    "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64",
}  # fmt: skip


def find_confounders(a: Dump, b: Dump) -> list[Confounder]:
    """Every recorded setting, configuration entry and fact of the machine that differs, those that
    weigh most first."""
    x, y = _facts(a.manifest), _facts(b.manifest)
    _count_lone_config(x, y)
    found = [
        _confounder(name, text(x.get(name)), text(y.get(name)))
        for name in sorted(x.keys() | y.keys())
        if x.get(name) != y.get(name)
    ]
    found += map(_of_environment, difference(a.manifest.env, b.manifest.env))
    return sorted(found, key=lambda c: ORDER.index(c.weight))


def _count_lone_config(x: dict[str, Any], y: dict[str, Any]) -> None:
    """Entries of a configuration that one run alone has differ from nothing: their number is all."""
    held = [[name for name in facts if name.startswith("model.config.")] for facts in (x, y)]
    for facts, own, other in ((x, held[0], held[1]), (y, held[1], held[0])):
        if own and not other:
            for name in own:
                del facts[name]
            facts["model.config"] = f"{len(own)} entries"


def _of_environment(d: Difference) -> Confounder:
    name = f"env.{d.name}"
    return Confounder(
        name=name, a=redact(d.a), b=redact(d.b), weight=d.weight, note=d.note, subject=d.subject
    )


def _confounder(name: str, a: str, b: str) -> Confounder:
    weight, subject, note = _weigh(name)
    return Confounder(
        name=name, a=redact(a), b=redact(b), weight=weight, note=note, subject=subject or name
    )


def _weigh(name: str) -> tuple[str, str, str]:
    for pattern, weight, subject, note in _WEIGHTS:
        if re.search(pattern, name):
            return weight, subject, note
    return "possible", "", ""


def declared_formats(confounders: list[Confounder]) -> dict[str, str]:
    """Number formats that a differing setting names: format -> the setting in words."""
    found: dict[str, str] = {}
    for c in confounders:
        if c.name.startswith("settings."):
            for text in (c.a, c.b):
                for name in _formats_in(text):
                    found.setdefault(
                        name, f"{c.name.removeprefix('settings.')}: {c.a} against {c.b}"
                    )
    return found


def _formats_in(text: str) -> Iterator[str]:
    for word in re.findall(r"[a-z0-9_]+", text.lower()):
        name = _SPELLINGS.get(word, word)
        if name in FORMATS:
            yield name


def _facts(manifest: Manifest) -> dict[str, Any]:
    config = {k: v for k, v in manifest.model.config.items() if k != "_name_or_path"}
    named = {"name": manifest.model.name, "architecture": manifest.model.architecture}
    tree = {"settings": manifest.settings, "model": {**named, "config": config}}
    return dict(flatten(tree))
