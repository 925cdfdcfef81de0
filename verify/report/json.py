"""Results as JSON and back, and the schema of that JSON (docs/report.md, docs/report.schema.json).

JSON has no NaN and no infinities: they are written as the strings ``"NaN"``, ``"Infinity"`` and
``"-Infinity"`` wherever the schema says number. Integers outside 64 bits are written as decimal
strings. Keys keep the order of the types, free-form maps are sorted, so equal results give equal
bytes.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison
from verify.endpoints.result import SCHEMA as ENDPOINTS_MARK
from verify.endpoints.result import EndpointComparison

SCHEMA_ID = "verify-report/1"
ENDPOINTS_SCHEMA_ID = ENDPOINTS_MARK
NON_FINITE = ("NaN", "Infinity", "-Infinity")
_INTEGERS = range(-(2**63), 2**64)

# An array of numbers over several lines. Strings cannot match: they hold no line breaks.
_NUMBER = rb"(?:-?[0-9][-+.0-9eE]*|null|\"NaN\"|\"-?Infinity\")"
_NUMBERS = re.compile(rb"\[\n *" + _NUMBER + rb"(?:,\n *" + _NUMBER + rb")*\n *\]")

Result = TypeVar("Result", BisectResult, Comparison, EndpointComparison)


def to_json(result: msgspec.Struct) -> bytes:
    """The whole result as indented UTF-8 JSON with a final line break."""
    plain = msgspec.to_builtins(result, order="deterministic", enc_hook=_to_plain)
    encoded = msgspec.json.encode(finite(plain))
    return _NUMBERS.sub(_on_one_line, msgspec.json.format(encoded, indent=1)) + b"\n"


def from_json(data: bytes, kind: type[Result]) -> Result:
    """The result that ``to_json`` wrote; ``kind`` is its type.

    Raises:
        msgspec.ValidationError: the bytes hold something else.
        msgspec.DecodeError: the bytes are not JSON.
    """
    # Not strict: a number field accepts the three strings for values that JSON lacks.
    return msgspec.convert(msgspec.json.decode(data), kind, strict=False)


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what ``to_json`` writes for a bisect or a comparison."""
    title = "Result of verify bisect or verify compare"
    return _schema((BisectResult, Comparison), SCHEMA_ID, title)


def endpoints_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of endpoints.json."""
    return _schema((EndpointComparison,), ENDPOINTS_SCHEMA_ID, "Result of verify endpoints")


def _schema(kinds: tuple[type, ...], identity: str, title: str) -> dict[str, Any]:
    references, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identity,
        "title": title,
        "anyOf": list(references),
        "$defs": _admit_nonfinite(components),
    }


def _on_one_line(array: re.Match[bytes]) -> bytes:
    return b"[" + b", ".join(array.group()[1:-1].replace(b" ", b"").strip().split(b",\n")) + b"]"


def finite(value: Any) -> Any:
    """The value as JSON has it: no NaN or infinities, and no integer beyond 64 bits."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value in _INTEGERS else str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _to_plain(value: Any) -> Any:
    """Scalars of numpy and torch by their Python value, anything else in words."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", None) == 1:
        return item()
    return str(value)


def _admit_nonfinite(node: Any) -> Any:
    if isinstance(node, list):
        return [_admit_nonfinite(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "number":
        return {"anyOf": [node, {"enum": list(NON_FINITE)}]}
    # msgspec writes "discriminator", which belongs to OpenAPI: the tags themselves are enums.
    plain = {key: item for key, item in node.items() if key != "discriminator"}
    return {key: _admit_nonfinite(item) for key, item in plain.items()}
