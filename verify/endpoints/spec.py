"""What an endpoint comparison is asked to do, and how a SPEC is loaded."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verify.bounds import Bound
from verify.errors import ArgumentError


@dataclass(frozen=True)
class Case:
    """One input: ``make()`` gives fresh keyword arguments, the same values at each call."""

    name: str
    make: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Endpoint:
    """An implementation. With ``route``, every call it records must have run on that route."""

    call: Callable[..., Any]
    route: str | None = None


@dataclass(frozen=True)
class Relation:
    """``transform(inputs)`` changes a case in a way that must keep the output.

    ``kind`` is ``"bitwise"``, or a ``Bound`` on the relative L2 difference.
    """

    name: str
    kind: Literal["bitwise"] | Bound
    transform: Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class EndpointSpec:
    """Endpoints by name (the first is the base), an FP64 reference, cases and relations."""

    endpoints: Mapping[str, Endpoint]
    cases: Sequence[Case]
    reference: Callable[..., Any] | None = None
    relations: Sequence[Relation] = ()

    def __post_init__(self) -> None:
        if len(self.endpoints) < 2:
            raise ArgumentError(
                "too few endpoints", found=len(self.endpoints), allowed="two or more"
            )
        if not self.cases:
            raise ArgumentError("no cases", where="EndpointSpec.cases", allowed="one or more")


def load_spec(target: str) -> EndpointSpec:
    """The spec named by a Python file (its ``SPEC``) or by ``module:object``.

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
        raise ArgumentError("not a spec", where=target, found=type(found), allowed="EndpointSpec")
    return found


def _load_file(path: Path) -> object:
    spec = importlib.util.spec_from_file_location("_verify_endpoint_spec", path)
    if spec is None or spec.loader is None:
        raise ArgumentError("not a Python file", where=path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "SPEC", None)


def _load_object(target: str) -> object:
    name, _, attribute = target.partition(":")
    return getattr(importlib.import_module(name), attribute or "SPEC")
