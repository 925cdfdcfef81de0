"""Being told when a module has been loaded, without loading it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def when_loaded(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call ``then`` with the module ``name``: now if it is loaded, else right after it was."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        then(loaded)
    else:
        sys.meta_path.insert(0, _Waiting(name, then))


class _Waiting(MetaPathFinder):
    """Finds one module as anybody else would, and is told when it has been executed."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self.then(module)

            loader.exec_module = execute_and_tell
        return spec
