"""What an endpoint comparison is asked to do, and how a SPEC is loaded."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from verify.bounds import Bound
from verify.errors import ArgumentError

if TYPE_CHECKING:
    from verify.endpoints.certificates import Judgement
    from verify.endpoints.trial import Pair, Trial

Inputs = dict[str, Any]


class Build(Protocol):
    """Machine code with an identity: ``verify.gpu.compile.KernelBuild``, or a ``ModuleBuild``."""

    @property
    def build_id(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def cubin(self) -> bytes: ...


@dataclass(frozen=True)
class Case:
    """One input: ``make()`` gives fresh keyword arguments, the same values at each call."""

    name: str
    make: Callable[[], Inputs]


@dataclass(frozen=True)
class Endpoint:
    """An implementation.

    Args:
        call: gives a tensor, or a tuple, list or dict of tensors.
        route: every call that the kernels of this project record must have run on this route.
        accuracy: largest error against the reference, over the floor (the error of rounding the
            exact result).
        certificate: judges an output by the arithmetic that the endpoint declares, from the
            outputs by name and the inputs; see ``verify.endpoints.certificates``.
        build: the machine code for ``--sass``; by default what the recorded routes name.
    """

    call: Callable[..., Any]
    route: str | None = None
    accuracy: Bound | None = None
    certificate: Callable[[Mapping[str, Any], Inputs], Judgement] | None = None
    build: Build | None = None


@dataclass(frozen=True)
class Relation:
    """A change of a case that must keep the output of an endpoint.

    Args:
        name: how reports call it.
        kind: ``"bitwise"``, or a ``Bound`` on the relative L2 difference.
        transform: gives the changed inputs; the output must be that of the unchanged ones.
        run: for what a transform cannot say: yields pairs of outputs that must be equal.
        endpoints: names of those for which it is declared; all where empty.
    """

    name: str
    kind: Literal["bitwise"] | Bound
    transform: Callable[[Inputs], Inputs] | None = None
    run: Callable[[Trial], Iterable[Pair]] | None = None
    endpoints: Sequence[str] = ()

    def __post_init__(self) -> None:
        if (self.transform is None) == (self.run is None):
            raise ArgumentError(
                "a relation is a transform or a run", where=self.name, allowed="exactly one of both"
            )
        if self.kind != "bitwise" and not isinstance(self.kind, Bound):
            raise ArgumentError(
                "a relation is bitwise or bounded",
                where=self.name,
                found=repr(self.kind),
                allowed="'bitwise' or a Bound",
            )


@dataclass(frozen=True)
class EndpointSpec:
    """Endpoints by name (the first is the base), an FP64 reference, cases and relations.

    Args:
        axes: names of the output's axes, for example ``"b t h d"`` (t or s: tokens, h: heads, d: channels);
            by output name where there are several. Reports name rows and heads by them.
        reference: gives float64 for the same inputs, in the form of the endpoints' output.
    """

    endpoints: Mapping[str, Endpoint]
    cases: Sequence[Case]
    reference: Callable[..., Any] | None = None
    relations: Sequence[Relation] = ()
    axes: str | Mapping[str, str] = ""

    def __post_init__(self) -> None:
        if len(self.endpoints) < 2:
            raise ArgumentError(
                "too few endpoints", found=len(self.endpoints), allowed="two or more"
            )
        if not self.cases:
            raise ArgumentError("no cases", where="EndpointSpec.cases", allowed="one or more")
        _check_names("case", [case.name for case in self.cases])
        _check_names("relation", [relation.name for relation in self.relations])
        for relation in self.relations:
            if unknown := set(relation.endpoints) - set(self.endpoints):
                raise ArgumentError(
                    "a relation of an endpoint that is not there",
                    where=relation.name,
                    found=", ".join(sorted(unknown)),
                    allowed=", ".join(self.endpoints),
                )

    def select(self, text: str) -> Sequence[Case]:
        """Cases whose name holds ``text``. Raises ArgumentError where there is none."""
        chosen = [case for case in self.cases if text in case.name]
        if not chosen:
            raise ArgumentError(
                "no case is selected",
                where="--cases",
                found=text,
                allowed="; ".join(case.name for case in self.cases[:8]),
            )
        return chosen


def _check_names(what: str, names: Sequence[str]) -> None:
    """Two checks under one name could not be told apart in a report."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(f"two of one {what} name", found=", ".join(twice[:4]))


def load_spec(target: str) -> EndpointSpec:
    """The spec named by a Python file (its ``SPEC``) or by ``module:object``. It is executed.

    Raises:
        ArgumentError: it cannot be found or loaded, or is not an ``EndpointSpec``.
    """
    try:
        found = _load_file(Path(target)) if target.endswith(".py") else _load_object(target)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError("the spec cannot be loaded", where=target, found=repr(error)) from error
    if not isinstance(found, EndpointSpec):
        raise ArgumentError(
            "not a spec", where=target, found=type(found).__name__, allowed="EndpointSpec"
        )
    return found


def _load_file(path: Path) -> object:
    if not path.is_file():
        raise ArgumentError("there is no such spec", where=path, allowed="a Python file")
    spec = importlib.util.spec_from_file_location("_verify_endpoint_spec", path)
    assert spec is not None and spec.loader is not None  # a file that ends in .py has a loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return _attribute(module, "SPEC", str(path))


def _load_object(target: str) -> object:
    name, _, attribute = target.partition(":")
    return _attribute(importlib.import_module(name), attribute or "SPEC", target)


def _attribute(module: object, name: str, where: str) -> object:
    if not hasattr(module, name):
        raise ArgumentError(
            f"the spec does not define {name}", where=where, hint=f"{name} = EndpointSpec(...)"
        )
    found: object = getattr(module, name)
    return found
