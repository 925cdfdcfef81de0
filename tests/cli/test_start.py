"""What the command line loads before it knows which command is meant."""

import subprocess
import sys

HEAVY = ("torch", "numpy", "scipy", "pyarrow", "matplotlib", "transformers", "msgspec")


def test_nothing_heavy_is_loaded_to_print_help():
    code = f"import verify.cli.app, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
