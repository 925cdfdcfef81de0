"""Write a published JSON schema: ``python -m verify.report.write_schema docs/report.schema.json``, or
``docs/endpoints.schema.json``: the name of the file says which."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verify.report.json import endpoints_schema, schema


def schema_text(name: str = "report.schema.json") -> str:
    found = endpoints_schema() if name.startswith("endpoints") else schema()
    return json.dumps(found, indent=1, sort_keys=False) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(schema_text(target.name), "utf-8")
