"""`verify capture --engine onnxruntime MODEL.onnx --tape RUN` or `--inputs FILE.npz`."""

from __future__ import annotations

from pathlib import Path

from verify.dumps.engine_request import EngineRequest
from verify.dumps.onnx_runtime.inputs import inputs_of_tape, read_inputs
from verify.dumps.onnx_runtime.record import record_onnx
from verify.dumps.onnx_runtime.session import OPTIMISATIONS, read_model
from verify.errors import ArgumentError


def record_engine(request: EngineRequest) -> list[str]:
    """Record the ONNX file on the tokens of an earlier run, or on arrays; what the command prints.

    ``--set optimisation=all`` (the default), ``basic`` or ``off``.

    Raises:
        ArgumentError: no such file, no readable inputs, or another setting.
        ModelError, DumpError: as :func:`record_onnx`.
    """
    model, arrays, tape = (
        Path(request.model),
        request.given.get("inputs"),
        request.given.get("tape"),
    )
    if not model.is_file():
        raise ArgumentError("no such ONNX file", where="MODEL", found=model)
    if (arrays is None) == (tape is None):
        raise ArgumentError(
            "the model needs inputs",
            where="--tape, --inputs",
            found="neither" if tape is None else "both",
            allowed="--tape RUN, an earlier run of tokens, or --inputs FILE.npz",
            hint="numpy.savez('inputs.npz', input_ids=...), one array for each input",
        )
    unknown = sorted(set(request.settings) - {"optimisation"})
    optimisation = request.settings.get("optimisation", "all")
    if unknown or optimisation not in OPTIMISATIONS:
        raise ArgumentError(
            "no such setting of ONNX Runtime",
            where="--set",
            found=", ".join(unknown) or optimisation,
            allowed=f"optimisation={' or '.join(OPTIMISATIONS)}",
        )
    if tape is None:
        inputs, sequence = read_inputs(Path(str(arrays))), None
    else:
        inputs, sequence = inputs_of_tape(read_model(model).graph, Path(tape))
    count = record_onnx(
        model,
        inputs,
        request.out,
        sequences=None if sequence is None else [sequence],
        optimisation=optimisation,
        threads=request.given.get("threads") or 1,
    )
    return [f"{count} record{'s' if count > 1 else ''}  ->  {request.out}"]
