"""A reader of the part of JSON Schema 2020-12 that docs/report.schema.json uses."""

from __future__ import annotations

from typing import Any

_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_KNOWN = {
    "$schema", "$id", "$defs", "title", "description", "default", "$ref", "anyOf", "enum", "type",
    "properties", "required", "items", "additionalProperties",
}  # fmt: skip


def violations(value: Any, node: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """Where ``value`` breaks the schema ``node``; an unknown keyword is an error of its own."""
    assert set(node) <= _KNOWN, set(node) - _KNOWN
    found = []
    if "$ref" in node:
        found += violations(value, root["$defs"][node["$ref"].rsplit("/", 1)[1]], root, at)
    if "anyOf" in node and all(violations(value, each, root, at) for each in node["anyOf"]):
        found.append(f"{at}: none of the alternatives fits {value!r:.60}")
    if "enum" in node and value not in node["enum"]:
        found.append(f"{at}: {value!r:.60} is not one of {node['enum']}")
    if "type" in node and not _has_type(value, node["type"]):
        found.append(f"{at}: {value!r:.60} is no {node['type']}")
    if isinstance(value, dict):
        found += [
            f"{at}: {name} is missing" for name in node.get("required", ()) if name not in value
        ]
        for name, item in value.items():
            inner = node.get("properties", {}).get(name, node.get("additionalProperties"))
            if isinstance(inner, dict):
                found += violations(item, inner, root, f"{at}.{name}")
            elif "properties" in node and inner is None:
                found.append(f"{at}: {name} is not in the schema")
    if isinstance(value, list) and "items" in node:
        for i, item in enumerate(value):
            found += violations(item, node["items"], root, f"{at}[{i}]")
    return found


def _has_type(value: Any, name: str) -> bool:
    if name in ("number", "integer"):
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and (name == "number" or isinstance(value, int))
        )
    return isinstance(value, _TYPES[name])
