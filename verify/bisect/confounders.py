"""What else differs between the runs: settings, configuration, environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from verify.bisect.result import Confounder
from verify.dumps.format import Dump
from verify.dumps.format.schema import Manifest
from verify.formats import FORMATS

# First match counts. ``declared``: what the user set out to compare. ``likely``: known to change
# bits on equal inputs. ``unlikely``: names and paths.
_WEIGHTS: tuple[tuple[str, str, str], ...] = (
    (r"settings\.threads|env\.torch\.(interop_)?threads|OMP_NUM_THREADS|MKL_NUM_THREADS", "likely",
     "sums are split among threads; CPU flash attention depends on the number in decode"),
    (r"settings\.weights_alignment", "likely",
     "one-row fp32 products depend on the weights' address modulo 16"),
    (r"settings\.device|env\.torch\.gpu", "likely", "other kernels, other order of summation"),
    (r"settings\.", "declared", ""),
    (r"cpu_capability|CPU_CAPABILITY|MAX_CPU_ISA|MKL_CBWR|ENABLE_INSTRUCTIONS|env\.cpu$|machine",
     "likely", "another instruction set sums in another order"),
    (r"matmul_precision|TF32|FPMATH|deterministic|sdp_|mkldnn|CUBLAS", "likely",
     "selects other kernels or precisions"),
    (r"env\.torch\.(version|git|cuda)|packages\.(torch|transformers|triton|flash-attn)|cudnn",
     "likely", "other kernels may be in use"),
    (r"model\.config\.(_|transformers_version|torch_dtype|dtype|architectures)", "possible", ""),
    (r"model\.config\.", "likely", "the network computes something else"),
    (r"model\.(name|architecture)", "possible", ""),
    (r"env\.(python|system|cores)|packages\.|PYTHONHASHSEED|OMP_WAIT_POLICY", "unlikely", ""),
)  # fmt: skip

_ORDER = ("declared", "likely", "possible", "unlikely")

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
    found = [
        Confounder(name=name, a=_text(x.get(name)), b=_text(y.get(name)), weight=w, note=note)
        for name in sorted(x.keys() | y.keys())
        if x.get(name) != y.get(name)
        for w, note in [_weigh(name)]
    ]
    return sorted(found, key=lambda c: _ORDER.index(c.weight))


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
    tree = {
        "settings": manifest.settings,
        "model": {**named, "config": config},
        "env": manifest.env,
    }
    return dict(_flatten("", tree))


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield prefix, value
        return
    for key, item in value.items():
        yield from _flatten(f"{prefix}.{key}" if prefix else str(key), item)


def _weigh(name: str) -> tuple[str, str]:
    for pattern, weight, note in _WEIGHTS:
        if re.search(pattern, name):
            return weight, note
    return "possible", ""


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
