"""One endpoint on one case: calls that are checked for their route, and what a relation gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verify.endpoints.outputs import Outputs, on_host, tensors_of
from verify.endpoints.spec import Endpoint, Inputs
from verify.errors import VerifyError
from verify.gpu.route import RouteRecord, record_routes


class DidNotRun(VerifyError):
    """An endpoint raised, gave no tensor, or ran on another route than named: a failure."""


class CannotRun(VerifyError):
    """A relation has no means here (no CUDA device, nothing to permute): not run, not passed."""

    exit_code = 3


class RelationBroken(VerifyError):
    """A relation found a fault that is no difference of outputs, such as memory overwritten."""


@dataclass(frozen=True)
class Pair:
    """Two outputs that a relation declares equal; ``what`` says which trial they are of."""

    expected: Outputs
    found: Outputs
    what: str = ""


@dataclass
class Trial:
    """The calls of one endpoint on one case.

    Args:
        output: of the plain call, on the host; filled when that call is done.
        routes: of all calls so far.
    """

    endpoint: Endpoint
    make: Callable[[], Inputs]
    output: Outputs = field(default_factory=dict)
    routes: list[RouteRecord] = field(default_factory=list)

    def inputs(self) -> Inputs:
        """Fresh inputs. Raises DidNotRun where the case cannot be made."""
        try:
            return self.make()
        except Exception as error:
            raise DidNotRun(f"the case cannot be made: {error!r}") from error

    def raw(self, inputs: Inputs) -> Outputs:
        """The outputs where the endpoint left them; the device may still be busy.

        Raises:
            DidNotRun: the endpoint raised, gave no tensor, or ran on another route than named.
        """
        with record_routes() as routes:
            try:
                found: Any = self.endpoint.call(**inputs)
            except Exception as error:  # user code may raise anything
                raise DidNotRun(f"did not run: {error!r}") from error
        self.routes += routes
        self._check_routes([route.route for route in routes])
        try:
            return tensors_of(found)
        except VerifyError as error:
            raise DidNotRun(error.what) from error

    def call(self, inputs: Inputs) -> Outputs:
        """The outputs on the host. Raises as :meth:`raw`, also for what fails on the device."""
        found = self.raw(inputs)
        try:
            return on_host(found)
        except VerifyError as error:
            raise DidNotRun(error.what) from error
        except RuntimeError as error:  # an asynchronous failure shows in the copy
            raise DidNotRun(f"did not run: {error!r}") from error

    def _check_routes(self, ran: list[str]) -> None:
        wanted = self.endpoint.route
        if wanted is not None and (not ran or set(ran) != {wanted}):
            found = ", ".join(dict.fromkeys(ran)) or "no recorded route"
            raise DidNotRun(f"ran on {found}, not on {wanted}")
