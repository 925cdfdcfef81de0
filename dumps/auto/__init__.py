"""Capture without a change of code: importing this module is enough (docs/recapture.md).

With ``VERIFY_CAPTURE`` set to a folder, the first model that this process calls is recorded there,
until the process ends. Without it, importing this does nothing and loads nothing. torch is never
loaded from here: the capture waits until somebody else has.

Raises on import:
    ArgumentError: a setting that cannot be meant; before anything ran.
    DumpExistsError: there is something in the folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verify.dumps.program.names import CONFIG, FOLDER

if TYPE_CHECKING:
    from verify.dumps.capture.session import Capture

__all__ = ["recording"]


def recording() -> Capture | None:
    """The capture of this process, once its model was called: for ``step`` and ``record`` of your
    own loop."""
    if not (os.environ.get(FOLDER) or os.environ.get(CONFIG)):
        return None
    from verify.dumps.program import attach

    return attach.recording()


if os.environ.get(FOLDER) or os.environ.get(CONFIG):
    from verify.dumps.program.attach import switch_on

    switch_on(os.environ)
