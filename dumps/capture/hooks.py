"""Forward hooks on every module: they know which module runs, and hand over what it reads and
returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch

# These classes leave their fused path as soon as one of their modules has a hook, which would
# change the numbers: torch/nn/modules/transformer.py and activation.py (`why_not_sparsity_fast_path`).
_FUSED = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoderLayer,
    torch.nn.TransformerEncoder,
)


class Observer(Protocol):
    """Whom the hooks report to."""

    def entered(
        self, path: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None: ...

    def left(
        self,
        path: str,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None: ...

    def failed(self, path: str) -> None: ...


class Unobserved:
    """For hooks that only know which module runs."""

    def entered(self, *report: Any) -> None: ...

    def left(self, *report: Any) -> None: ...

    def failed(self, *report: Any) -> None: ...


class ModuleHooks:
    """Hooks on all modules of a model, and the stack of those that run."""

    def __init__(self, model: torch.nn.Module, observer: Observer) -> None:
        self._observer = observer
        self._modules = list(_hookable(model))
        hooked = {id(module) for _, module in self._modules}
        self._paths = {id(module): path for path, module in self._modules}
        self._stack: list[tuple[str, int]] = []
        self._calls = 0
        self.opaque = [path for path, m in model.named_modules() if id(m) not in hooked]

    @property
    def current(self) -> str | None:
        """Path of the innermost module that runs."""
        return self._stack[-1][0] if self._stack else None

    @property
    def frame(self) -> tuple[str, int] | None:
        """Path of the innermost module that runs, and the number of this call of it."""
        return self._stack[-1] if self._stack else None

    def path_of(self, module: object) -> str | None:
        return self._paths.get(id(module))

    @contextmanager
    def attached(self) -> Iterator[None]:
        with ExitStack() as exits:
            for path, module in self._modules:
                for handle in self._attach(path, module):
                    exits.callback(handle.remove)
            yield

    def _attach(self, path: str, module: torch.nn.Module) -> list[Any]:
        def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            self._calls += 1
            self._stack.append((path, self._calls))
            self._observer.entered(path, module, args, kwargs)

        def after(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            while self._stack and self._stack.pop()[0] != path:
                pass
            if output is None:  # nothing to see, or forward raised
                self._observer.failed(path)
            else:
                self._observer.left(path, module, args, kwargs, output)

        return [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after, with_kwargs=True, always_call=True),
        ]


def _hookable(module: torch.nn.Module, path: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    if isinstance(module, _FUSED):
        return
    yield path, module
    for name, child in module.named_children():
        yield from _hookable(child, f"{path}.{name}" if path else name)


def output_ports(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a module returns: ``out``; ``out.<i>`` in a tuple; ``out.<key>`` in a table."""
    if isinstance(output, torch.Tensor):
        yield "out", output
    elif isinstance(output, Mapping):
        yield from ((f"out.{key}", v) for key, v in output.items() if isinstance(v, torch.Tensor))
    elif isinstance(output, list | tuple):
        for index, value in enumerate(output):
            if isinstance(value, torch.Tensor):
                yield (f"out.{index}" if index else "out"), value


def input_ports(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a module is given: ``in.<i>`` by place, ``in.<name>`` by keyword."""
    yield from (
        (f"in.{i}", value) for i, value in enumerate(args) if isinstance(value, torch.Tensor)
    )
    yield from (
        (f"in.{k}", value) for k, value in kwargs.items() if isinstance(value, torch.Tensor)
    )
