"""Imported by every Python process below `verify capture -- COMMAND`, whose PYTHONPATH begins with
this folder: switches the capture on, then hands over to whatever sitecustomize there is otherwise."""

import importlib
import os
import sys


def _switch_on() -> None:
    try:
        from verify.errors import VerifyError
    except ImportError:
        print(
            f"verify: {sys.executable} cannot import verify, so this process is not recorded",
            file=sys.stderr,
        )
        return
    try:
        import verify.dumps.auto  # noqa: F401
    except VerifyError as error:
        # `site` would print one line and go on, and the run would pass for a recorded one.
        print(f"verify: {error}", file=sys.stderr, flush=True)
        os._exit(2)


def _hand_over() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    # Whoever imports us looks us up there once we are through.
    sys.modules.setdefault("sitecustomize", own)


_switch_on()
_hand_over()
