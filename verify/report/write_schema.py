"""Write the published JSON schema: ``python -m verify.report.write_schema docs/report.schema.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verify.report.json import schema


def schema_text() -> str:
    return json.dumps(schema(), indent=1, sort_keys=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), "utf-8")
