"""Running somebody's command with the capture switched on in its Python processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verify.dumps.program.names import COMMAND, PREFIX, SESSION
from verify.dumps.program.settings import Settings, read_settings
from verify.errors import DumpExistsError, UsageError

_SITE: Final = Path(__file__).with_name("site")


def run_command(
    command: Sequence[str], settings: Settings, *, cwd: str | None = None, log: Path | None = None
) -> int:
    """Run ``command``, recording the model that it calls; its exit code.

    Args:
        cwd: where to run it; None: here.
        log: file for what it prints; None: it prints as ever.

    Raises:
        ArgumentError: settings that cannot be meant.
        DumpExistsError: there is something at ``settings.out``.
        UsageError: no such program or folder.
    """
    environ = _environment(command, settings)
    if settings.out.exists() and (not settings.out.is_dir() or any(settings.out.iterdir())):
        raise DumpExistsError(
            "there is something already, and a dump never overwrites",
            where=settings.out,
            hint="choose another --out, or remove the old one yourself",
        )
    try:
        if log is None:
            return subprocess.run(command, env=environ, cwd=cwd, check=False).returncode
        with log.open("wb") as file:
            return subprocess.run(
                command, env=environ, cwd=cwd, check=False, stdout=file, stderr=subprocess.STDOUT
            ).returncode
    except OSError as error:
        raise UsageError(
            "the command cannot be run", where=" ".join(command), found=error.strerror
        ) from None


def _environment(command: Sequence[str], settings: Settings) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environ |= settings.variables()
    read_settings(environ)
    paths = [str(_SITE), *filter(None, [environ.get("PYTHONPATH")])]
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    environ[COMMAND] = json.dumps(list(command))
    environ[SESSION] = str(os.getpid())
    return environ
