"""The options that say where tensors are compared."""

from __future__ import annotations

from typing import Annotated

import typer

ExecutorOption = Annotated[
    str, typer.Option("--executor", help="Where tensors are compared: serial, processes, dask.")
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", help="Number of processes; default: one a core.")
]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", help="Address of the dask scheduler.")
]
