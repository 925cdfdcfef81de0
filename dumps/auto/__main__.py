"""``python -m verify.dumps.auto script.py ...`` or ``-m module ...``: a program that imports this
package first, and is otherwise run as it is."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(f"{__doc__}\nThe variables are explained in docs/recapture.md.")
        sys.exit(0 if words else 2)
    if words[0] == "-m" and len(words) > 1:
        sys.argv = words[1:]
        sys.path.insert(0, "")
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if not Path(words[0]).is_file():
        print(f"verify: there is no script {words[0]}", file=sys.stderr)
        sys.exit(2)
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
