"""What engines load by themselves: plugins that attach when they are told to by the environment.

Named in the entry point groups ``vllm.general_plugins`` and ``sglang.srt.plugins``; each process of
the engine calls the function. Without ``VERIFY_ATTACH`` it does nothing, and nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, Final

FOLDER: Final = "VERIFY_ATTACH"
_PREFIX: Final = f"{FOLDER}_"
_OPTIONS: Final = ("LEVEL", "EDGES", "TAPS", "OPS", "NAMES", "BYTE_BUDGET", "GRAPHS", "INPUTS")
_WITH_GRAPHS: Final = ("level", "taps", "names", "byte_budget", "inputs")

VLLM_WORKER: Final = ("vllm.v1.worker.gpu_worker", "Worker")
SGLANG_RUNNER: Final = ("sglang.srt.model_executor.model_runner", "ModelRunner")


def register_vllm() -> None:
    """Attach to each worker once it has loaded its model, before it warms up."""
    _when_told("vllm", *VLLM_WORKER)


def register_sglang() -> None:
    """Attach to each model runner once it has loaded its model; draft models are left alone."""
    _when_told("sglang", *SGLANG_RUNNER)


class WorkerExtension:
    """Methods that vLLM adds to its workers by ``worker_extension_cls``: they are called by name,
    ``LLM.collective_rpc("verify_attach", args=(folder,))``, so that no function has to be sent."""

    def verify_attach(self, path: str, options: dict[str, Any] | None = None) -> str:
        """As :func:`verify.dumps.attach`; the folder."""
        from verify.dumps.engines.session import attach

        return str(attach(self, path, **(options or {})).run.writer.path)

    def verify_detach(self) -> list[str]:
        """As :func:`verify.dumps.detach`."""
        from verify.dumps.engines.session import detach

        return detach()


def _when_told(engine: str, module: str, name: str) -> None:
    if not os.environ.get(FOLDER):
        return
    from verify.dumps.program.loading import when_loaded

    path, options = os.environ[FOLDER], read_options(os.environ)

    def patch(loaded: ModuleType) -> None:
        _patch(loaded, name, lambda worker: _attach(engine, worker, path, options))

    when_loaded(module, patch)


def read_options(environ: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of :func:`verify.dumps.attach` from ``VERIFY_ATTACH_*``; with ``GRAPHS`` those of
    :func:`verify.dumps.engines.graphs.attach_graphs`, and ``graphs`` itself.

    Raises:
        ArgumentError: an unknown variable, one that does not go with graphs or without them, or a
            size that is none.
    """
    from verify.dumps.sizes import parse_bytes
    from verify.errors import ArgumentError

    found: dict[str, Any] = {}
    for variable, value in environ.items():
        name = variable.removeprefix(_PREFIX)
        if name == variable or not value:
            continue
        if name not in _OPTIONS:
            allowed = ", ".join(f"{_PREFIX}{each}" for each in _OPTIONS)
            raise ArgumentError("an unknown variable", where=variable, allowed=allowed)
        found[name.lower()] = value
    graphs = found.pop("graphs", "0") not in ("0", "false")
    fitting = _WITH_GRAPHS if graphs else tuple(o.lower() for o in _OPTIONS if o != "INPUTS")
    for name, value in found.items():
        if name not in fitting:
            raise ArgumentError(
                f"this does not go {'with' if graphs else 'without'} {_PREFIX}GRAPHS",
                where=f"{_PREFIX}{name.upper()}", found=value,
                allowed=", ".join(f"{_PREFIX}{each.upper()}" for each in fitting),
            )  # fmt: skip
    for name in ("taps", "ops", "inputs"):
        if name in found:
            found[name] = found[name].split(",")
    if "byte_budget" in found:
        found["byte_budget"] = parse_bytes(found["byte_budget"], f"{_PREFIX}BYTE_BUDGET")
    return found | ({"graphs": True} if graphs else {})


def _patch(module: ModuleType, name: str, then: Callable[[Any], None]) -> None:
    """Call ``then`` with the object after its ``load_model``."""
    from verify.dumps.engines.batches import need

    owner = need(module, name, module.__name__, "as loaded")
    original = need(owner, "load_model", f"{module.__name__}.{name}", "as loaded")

    @wraps(original)
    def load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        then(self)
        return found

    owner.load_model = load_model


def _attach(engine: str, target: Any, path: str, options: dict[str, Any]) -> None:
    from verify.dumps.engines.graphs import attach_graphs
    from verify.dumps.engines.session import attach

    if getattr(target, "is_draft_worker", False):
        return
    given = {name: value for name, value in options.items() if name != "graphs"}
    if "graphs" in options:
        attach_graphs(target, path, engine=engine, **given)  # type: ignore[arg-type]
    else:
        attach(target, path, engine=engine, **given)  # type: ignore[arg-type]
