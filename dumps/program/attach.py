"""Waiting for the model of this process, recording it, and closing the dump at the end."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import MutableMapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from verify.dumps.program.loading import when_loaded
from verify.dumps.program.names import FOLDER, SESSION
from verify.dumps.program.settings import Settings, read_command, read_settings
from verify.errors import DumpExistsError, StorageError

if TYPE_CHECKING:
    from verify.dumps.capture.session import Capture

_MODULES: Final = "torch.nn.modules.module"
_TRIES: Final = 1000  # numbered folders of child processes


class _Process:
    """The capture of this process."""

    def __init__(self, settings: Settings, environ: MutableMapping[str, str]) -> None:
        self.settings = settings
        self.command = read_command(environ) or sys.orig_argv
        self.child = SESSION in environ
        """Another process of the same run was switched on before, and may hold the folder."""
        self.run: Capture | None = None
        self.done = False
        self._restore: Any = None
        environ.setdefault(SESSION, str(os.getpid()))

    def watch(self, modules: Any) -> None:
        """Look at every call of a module until the one that is meant is called."""
        original = modules.Module.__call__

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self.run is None and not self.done and self._is_meant(module):
                self._restore()
                self._start(module)
            return original(module, *args, **kwargs)

        def restore() -> None:
            modules.Module.__call__ = original

        self._restore = restore
        modules.Module.__call__ = call

    def _is_meant(self, module: Any) -> bool:
        wanted = self.settings.model
        if wanted:
            kind = type(module)
            names = (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
            return any(fnmatchcase(name, wanted) for name in names)
        return next(module.parameters(), None) is not None

    def _start(self, model: Any) -> None:
        """Enter the capture of ``model``; what is wrong with its taps is said before it computes."""
        from verify.dumps.capture import capture
        from verify.env import redact

        self.done = True
        settings = self.settings
        started = {"cwd": redact(os.getcwd()), "model": type(model).__name__}
        rank, ranks = _distributed()
        for folder in [settings.out] if ranks > 1 else self._folders():
            try:
                run = capture(
                    model,
                    folder,
                    taps=settings.taps or None,
                    ops=settings.ops,
                    level=settings.level,
                    edges=settings.edges,  # type: ignore[arg-type]
                    byte_budget=settings.byte_budget,
                    steps=settings.steps,
                    rows=settings.rows,
                    rank=rank,
                    ranks=ranks,
                    command=self.command,
                    started={"started": started},
                )
                break
            except DumpExistsError:
                if ranks > 1 or not self.child:
                    raise
        run.__enter__()
        self.run = run
        os.register_at_fork(after_in_child=self._leave)

    def _folders(self) -> list[Path]:
        """Where this process may record: its own place if it has a rank of its own, else the first
        that is free."""
        out = self.settings.out
        if rank := _rank():
            out = out.with_name(f"{out.name}-rank-{rank}")
        more = [out.with_name(f"{out.name}-{number}") for number in range(2, _TRIES)]
        return [out, *(more if self.child else [])]

    def _leave(self) -> None:
        """A forked child: the dump belongs to the parent."""
        if self.run is not None:
            self.run._exits.close()
            self.run = None

    def finish(self) -> None:
        """Close the dump; after an exception that ended the process it stays partial."""
        run, self.run = self.run, None
        if run is None:
            if not self.done and not self.child:
                _say(f"{FOLDER} is set, and no model was called{self._wanted()}: nothing recorded")
            return
        failed = getattr(sys, "last_value", None)
        try:
            run.__exit__(None if failed is None else type(failed), failed, None)
        except StorageError as error:
            _say(str(error))
            return
        ended = "complete" if failed is None else f"partial, after {type(failed).__name__}"
        size = run.writer.bytes_written / 1e6
        _say(f"{run.records} records, {size:.1f} MB, {ended}  ->  {run.writer.path}")

    def _wanted(self) -> str:
        return f" whose class is {self.settings.model!r}" if self.settings.model else ""


_process: _Process | None = None


def switch_on(environ: MutableMapping[str, str]) -> None:
    """Wait for the model that ``environ`` asks for.

    Raises:
        ArgumentError: settings that cannot be meant.
        DumpExistsError: the folder holds something, and this is the first process of the run.
    """
    global _process
    settings = read_settings(environ)
    process = _Process(settings, environ)
    if not process.child and not _rank():
        _refuse_taken(settings.out)
    _process = process
    when_loaded(_MODULES, process.watch)
    atexit.register(process.finish)


def recording() -> Capture | None:
    return None if _process is None else _process.run


def _refuse_taken(out: Path) -> None:
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise DumpExistsError(
            "there is something already, and a dump never overwrites",
            where=out,
            hint=f"set {FOLDER} to another folder, or remove the old one yourself",
        )


def _rank() -> int:
    """The rank that a launcher gave this process."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else 0


def _distributed() -> tuple[int, int]:
    """Rank and number of ranks of torch.distributed, whose processes share one dump."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _say(text: str) -> None:
    print(f"verify: {text}", file=sys.stderr)
