"""Taps below the module: what operations read and return inside modules that were chosen.

A tap is ``<module path>/<operation>#<n>.<port>``, for example
``model.layers.3.self_attn/aten._softmax#0.out``; ``n`` counts the operation within the call of the
module. The dispatch mode that follows ancestry (:class:`Tracer`) shows the operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

import torch

from verify.dumps.capture.axes import free_axes
from verify.dumps.capture.hooks import ModuleHooks, output_ports
from verify.dumps.capture.positions import Step
from verify.dumps.capture.selection import OPERATION
from verify.dumps.capture.storages import StorageTable, place
from verify.dumps.capture.tracing import UNWRITTEN, has_storage, tensors_among
from verify.errors import ArgumentError, ModelError

# Products of attention, and the operand whose rows are keys and not tokens.
_MATRICES: Final = {"aten.bmm": "in.1", "aten.baddbmm": "in.2"}
# Not values of the computation: state of random numbers that nobody drew, and unused memory.
_NO_VALUES: Final = frozenset(
    {"rng_state", "philox_seed", "philox_offset", "debug_attn_mask", "unused"}
)


class OpRecords(Protocol):
    """Where tensors go: a recorder, or a capture that keeps digests alone."""

    def record_op(
        self, tap: str, tensor: torch.Tensor, *, axes: str | None, attributes: dict[str, Any]
    ) -> int:
        """Store the tensor as it is now; its ``seq``, or -1 where it has none."""

    @property
    def current_step(self) -> Step | None: ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is known of an operation before it is called."""

    name: str
    plain: bool
    """False for views and for memory that nobody has written to: taken only if asked by name."""
    names: tuple[str, ...]
    written: tuple[int, ...]
    unused: frozenset[int]
    """Results that are no values of the computation."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that is under way."""

    tap: str
    kind: _Kind
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class OpSelection:
    """Globs ``<module path>[:<operation>]``, both case-sensitive and whole.

    Raises:
        ArgumentError: a glob without a module, or with an empty part.
        ModelError: a glob whose module part matches no module that can be seen into.
    """

    def __init__(self, globs: Sequence[str], model: torch.nn.Module) -> None:
        self.globs = list(globs)
        self.opaque = compiled_modules(model)
        self._pairs = [_parse(glob) for glob in globs]
        self._known: dict[tuple[str, str], bool] = {}
        self._matched: set[str] = set()
        paths = [path for path, _ in model.named_modules() if not self._is_opaque(path)]
        for glob, (modules, _) in zip(self.globs, self._pairs, strict=True):
            if not any(fnmatchcase(path, modules) for path in paths):
                raise ModelError(
                    "no module of the model matches",
                    where="ops",
                    found=glob,
                    allowed="<glob on module paths>:<glob on operations>",
                    hint=f"torch.compile hides {', '.join(self.opaque)}" if self.opaque else "",
                )

    def chooses(self, path: str, kind: _Kind) -> bool:
        key = (path, kind.name)
        found = self._known.get(key)
        if found is None:
            hits = [
                glob
                for glob, (modules, op) in zip(self.globs, self._pairs, strict=True)
                if fnmatchcase(path, modules)
                and (fnmatchcase(kind.name, op) if kind.plain else kind.name == op)
            ]
            found = self._known[key] = bool(hits) and not self._is_opaque(path)
            self._matched.update(hits)
        return found

    def as_json(self) -> dict[str, Any]:
        return {"ops": self.globs}

    def unmatched(self) -> list[str]:
        """Globs that no operation which came by has matched."""
        return [glob for glob in self.globs if glob not in self._matched]

    def _is_opaque(self, path: str) -> bool:
        return any(not top or path == top or path.startswith(f"{top}.") for top in self.opaque)


class OpTaps:
    """Watches the operations of chosen modules and hands their tensors to ``records``.

    Args:
        table: knows the weights, which are named as inputs and not recorded again.
    """

    def __init__(
        self, selection: OpSelection, hooks: ModuleHooks, table: StorageTable, records: OpRecords
    ) -> None:
        self.selection = selection
        self._hooks = hooks
        self._table = table
        self._records = records
        self._kinds: dict[Any, _Kind] = {}
        self._counts: Counter[tuple[int, str]] = Counter()

    def begin_step(self) -> None:
        self._counts.clear()

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
        """Record what the operation reads, if it is to be recorded."""
        frame = self._hooks.frame
        if frame is None or self._records.current_step is None:
            return None
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _kind_of(func)
        path, number = frame
        if not self.selection.chooses(path, kind):
            return None
        count = self._counts[number, kind.name]
        self._counts[number, kind.name] += 1
        call = _Call(f"{path}{OPERATION}{kind.name}#{count}", kind, args, kwargs)
        for name, tensor in _operands(args, kwargs):
            if not self._is_weight(tensor):
                self._record(call, f"in.{name}", tensor, {})
        return call

    def after(self, call: _Call, result: Any) -> None:
        """Record what the operation returned, and what it wrote to."""
        attributes = _scalars(call)
        written = list(_written(call))
        for _, tensor in written:
            self._table.forget_recorded(tensor)
        shown = set()
        for index, (name, tensor) in enumerate(output_ports(result)):
            shown.add((tensor.data_ptr(), place(tensor)) if has_storage(tensor) else None)
            if index not in call.kind.unused:
                self._record(call, name, tensor, attributes)
        for name, tensor in written:
            if (tensor.data_ptr(), place(tensor)) not in shown:
                self._record(call, f"out.{name}", tensor, attributes)

    def _record(
        self, call: _Call, port: str, tensor: torch.Tensor, attributes: dict[str, Any]
    ) -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not has_storage(tensor):
            return
        if not tensor.numel():
            return
        step = self._records.current_step
        assert step is not None
        shaped, axes = tensor, None
        if _MATRICES.get(call.kind.name) == port:
            axes = free_axes(tensor.ndim)
        elif call.kind.name in _MATRICES and _holds_heads(tensor, step):
            shaped, axes = tensor.view(step.batch, -1, *tensor.shape[1:]), "b h t d"
        seq = self._records.record_op(
            f"{call.tap}.{port}", shaped, axes=axes, attributes=attributes
        )
        if shaped is not tensor and seq >= 0:
            self._table.stand_for(tensor, seq)

    def _is_weight(self, tensor: torch.Tensor) -> bool:
        if not has_storage(tensor):
            return False
        memory = self._table.find(tensor)
        known = memory.ancestry(tensor) if memory is not None else None
        return (
            known is not None
            and bool(known.inputs)
            and all(source.kind == "weight" for source in known.inputs)
        )


def compiled_modules(model: torch.nn.Module) -> list[str]:
    """Outermost modules that torch.compile has compiled: what runs there is no operation."""
    found: list[str] = []
    for path, module in model.named_modules():
        compiled = hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None)
        if compiled and not any(not top or path.startswith(f"{top}.") for top in found):
            found.append(path)
    return found


def _parse(glob: str) -> tuple[str, str]:
    modules, colon, op = glob.replace("::", ".").partition(":")
    if colon and not op:
        raise ArgumentError(
            "a glob without an operation", where="ops", found=glob,
            allowed="<glob on module paths>:<glob on operations>, such as *.self_attn:aten._softmax",
        )  # fmt: skip
    return modules, op or "*"


def _kind_of(func: Any) -> _Kind:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator, for example flex attention
        return _Kind(str(func), True, (), (), frozenset())
    name = str(func.overloadpacket)
    written = tuple(
        i for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write
    )
    unused = frozenset(i for i, r in enumerate(schema.returns) if r.name in _NO_VALUES)
    plain = not func.is_view and name not in UNWRITTEN and name != "aten._unsafe_view"
    return _Kind(name, plain, tuple(a.name for a in schema.arguments), written, unused)


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that an operation is given: by place, in a list by place there, or by keyword."""
    for name, value in [*((str(i), v) for i, v in enumerate(args)), *kwargs.items()]:
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            for index, tensor in enumerate(tensors_among(value)):
                yield f"{name}_{index}", tensor


def _written(call: _Call) -> Iterator[tuple[str, torch.Tensor]]:
    """Operands that the operation writes to, by the name of the argument."""
    for index in call.kind.written:
        name = call.kind.names[index]
        value = call.args[index] if index < len(call.args) else call.kwargs.get(name)
        for number, tensor in enumerate(tensors_among([value])):
            yield (f"{name}_{number}" if number else name), tensor


def _scalars(call: _Call) -> dict[str, Any]:
    """What the operation was told beside tensors, by the names of its arguments."""
    given = [*zip(call.kind.names, call.args, strict=False), *call.kwargs.items()]
    shown = {name: _shown(value) for name, value in given if not tensors_among([value])}
    return {"op": call.kind.name, **({"scalars": shown} if shown else {})}


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    return str(value)


def _holds_heads(tensor: torch.Tensor, step: Step) -> bool:
    """[b * h, t, d], as products of attention have it, with more than one head."""
    return (
        tensor.ndim == 3
        and tensor.shape[1] == step.tokens
        and tensor.shape[0] % step.batch == 0
        and tensor.shape[0] > step.batch
    )


def watch_ops(
    globs: Sequence[str],
    model: torch.nn.Module,
    hooks: ModuleHooks,
    table: StorageTable,
    records: OpRecords,
) -> OpTaps | None:
    """The taps of ``globs``; None where there are none."""
    return OpTaps(OpSelection(globs, model), hooks, table, records) if globs else None
