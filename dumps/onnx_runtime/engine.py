"""`verify capture --engine onnxruntime MODEL.onnx --inputs FILE.npz`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from verify.dumps.engine_request import EngineRequest
from verify.dumps.onnx_runtime.record import record_onnx
from verify.dumps.onnx_runtime.session import OPTIMISATIONS
from verify.errors import ArgumentError


def record_engine(request: EngineRequest) -> list[str]:
    """Record the ONNX file on the arrays of the npz file; what the command prints.

    ``--set optimisation=all`` (the default), ``basic`` or ``off``.

    Raises:
        ArgumentError: no such file, no readable inputs, or another setting.
        ModelError, DumpError: as :func:`record_onnx`.
    """
    model, given = Path(request.model), request.given.get("inputs")
    if not model.is_file():
        raise ArgumentError("no such ONNX file", where="MODEL", found=model)
    if given is None:
        raise ArgumentError(
            "the model needs inputs", where="--inputs", found="none", allowed="an npz file",
            hint="numpy.savez('inputs.npz', input_ids=...), one array for each input",
        )  # fmt: skip
    unknown = sorted(set(request.settings) - {"optimisation"})
    optimisation = request.settings.get("optimisation", "all")
    if unknown or optimisation not in OPTIMISATIONS:
        raise ArgumentError(
            "no such setting of ONNX Runtime",
            where="--set",
            found=", ".join(unknown) or optimisation,
            allowed=f"optimisation={' or '.join(OPTIMISATIONS)}",
        )
    try:
        with np.load(given, allow_pickle=False) as file:
            inputs = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ArgumentError(
            "not a readable npz file of plain arrays", where="--inputs", found=error
        ) from error
    count = record_onnx(
        model,
        inputs,
        request.out,
        optimisation=optimisation,
        threads=request.given.get("threads") or 1,
    )
    return [f"{count} record{'s' if count > 1 else ''}  ->  {request.out}"]
