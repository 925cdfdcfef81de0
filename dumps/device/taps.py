"""Taps on the modules of a model that write through ``verify::tap``.

The hooks hold on to what modules return until enough has come together, or the model returns, and
hand it to the operator in one call: one launch for many small tensors. They are plain enough for
torch.compile to trace, and nothing of them is left in a captured graph but the launches.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from verify.dumps.device.buffers import TapBuffers
from verify.dumps.device.layout import Keep
from verify.errors import ModelError

HELD_BYTES: Final = 256 << 20
"""Tensors are kept alive until this much has come together, for one launch."""


class ModuleTaps:
    """Hooks on modules, and the tensors that wait for the operator.

    Args:
        model: its calls are the steps.
        taps: ``<module path>.out``, ``.out.1`` or ``.in.0`` -> what is kept.
        inputs: names of tensor arguments of the model that are recorded in full, as
            ``inputs.<name>``: block tables, lengths, positions. A replay of a graph records what it
            then reads.
        find: called with the arguments of the model: more tensors that it reads, by name, where they
            are no arguments.
        held_bytes: of tensors that are kept alive until they are fingerprinted together.

    ``changed``: taps whose tensor was written to in between, with how often. What is recorded would
    not be what the module returned, so it is left out; ``held_bytes=0`` takes each tensor at once.

    Raises:
        ModelError: a tap that names no module.
    """

    def __init__(
        self,
        model: nn.Module,
        taps: Mapping[str, Keep],
        device: torch.device | str,
        *,
        inputs: tuple[str, ...] = (),
        find: Callable[[Any, Any], Mapping[str, Any]] | None = None,
        slots: int = 8,
        step_bytes: int = 8 << 20,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self.model = model
        names = [*taps, *(f"inputs.{name}" for name in inputs)]
        words: Keep = "words"
        keep = [*taps.values(), *([words] * len(inputs))]
        self.buffers = TapBuffers(names, keep, device, slots=slots, step_bytes=step_bytes)
        self.inputs = {name: len(taps) + index for index, name in enumerate(inputs)}
        self.changed: Counter[str] = Counter()
        self._find_input = find
        self._order = list(inspect.signature(model.forward).parameters)
        self._ring, self._owner = self.buffers.ring, self.buffers.owner
        self._tensors: list[Tensor] = []
        self._numbers: list[int] = []
        self._versions: list[int] = []
        self._held, self._most = 0, held_bytes
        self._batch, self._tokens = 1, 1
        self._plans = [self._find(tap, number) for number, tap in enumerate(taps)]

    def _find(self, tap: str, number: int) -> tuple[nn.Module, str, int]:
        for port in ("out.1", "out", "in.0"):
            if tap == port or tap.endswith(f".{port}"):
                try:
                    return (
                        self.model.get_submodule(tap.removesuffix(port).rstrip(".")),
                        port,
                        number,
                    )
                except AttributeError:
                    break
        raise ModelError(
            "no module of the model has this tap",
            found=tap,
            allowed="<module path>.out, <module path>.out.1, <module path>.in.0",
        )

    @contextmanager
    def attached(self) -> Iterator[ModuleTaps]:
        """Hooks in place. Graphs captured and models compiled inside keep their taps afterwards."""
        with ExitStack() as exits:
            handle = self.model.register_forward_pre_hook(
                self._begin, with_kwargs=True, prepend=True
            )
            exits.callback(handle.remove)
            for module, port, number in self._plans:
                if port != "in.0":
                    hook = self._out(number, 1 if port == "out.1" else 0)
                    exits.callback(module.register_forward_hook(hook).remove)
                else:
                    exits.callback(module.register_forward_pre_hook(self._in(number)).remove)
            exits.callback(self.model.register_forward_hook(self._end).remove)
            yield self

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        first = next((v for v in [*args, *kwargs.values()] if isinstance(v, Tensor)), None)
        if first is not None and first.dim() >= 2:
            self._batch, self._tokens = first.shape[0], first.shape[1]
        elif first is not None and first.dim() == 1 and not first.is_floating_point():
            self._batch, self._tokens = 1, first.shape[0]  # token ids of a flattened batch
        more = {} if self._find_input is None else self._find_input(args, kwargs)
        for name, number in self.inputs.items():
            value = kwargs.get(name, more.get(name))
            if value is None and name in self._order[: len(args)]:
                value = args[self._order.index(name)]
            if isinstance(value, Tensor):
                self._take(value, number)

    def _out(self, number: int, place: int = 0) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            several = output if isinstance(output, tuple) else (output,)
            value = several[place] if place < len(several) else None
            if isinstance(value, Tensor):
                self._take(value, number)

        return hook

    def _in(self, number: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            if args and isinstance(args[0], Tensor):
                self._take(args[0], number)

        return hook

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        self._flush(True)

    def _take(self, tensor: Tensor, number: int) -> None:
        self._tensors.append(tensor)
        self._numbers.append(number)
        if not torch.compiler.is_compiling():  # compiled code is free of such writes
            self._versions.append(_version(tensor))
        self._held += tensor.numel() * tensor.element_size()
        if self._held > self._most:
            self._flush(False)

    def _flush(self, last: bool) -> None:
        if not torch.compiler.is_compiling():
            self._drop_changed()
        torch.ops.verify.tap(
            self._tensors, self._numbers, self._ring, self._owner, self._batch, self._tokens, last
        )
        self._tensors = []
        self._numbers = []
        self._held = 0

    def _drop_changed(self) -> None:
        """Leave out tensors that were written to since their module returned them."""
        now = [_version(tensor) for tensor in self._tensors]
        changed = [i for i, (a, b) in enumerate(zip(now, self._versions, strict=True)) if a != b]
        for index in reversed(changed):
            self.changed[self.buffers.taps[self._numbers[index]]] += 1
            del self._tensors[index], self._numbers[index]
        self._versions = []


def _version(tensor: Tensor) -> int:
    """Count of in-place writes; inference tensors do not count them."""
    return -1 if tensor.is_inference() else tensor._version


def output_taps(model: nn.Module, keep: Keep = "digest") -> dict[str, Keep]:
    """Outputs of all modules."""
    return {f"{path}.out": keep for path, _ in model.named_modules() if path}
