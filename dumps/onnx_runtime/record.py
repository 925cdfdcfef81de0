"""Recording one run of an ONNX model in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verify.dumps.format.schema import Sequence
from verify.dumps.importers.observation import Imported, Source
from verify.dumps.importers.writing import write_run
from verify.dumps.onnx_runtime.inputs import TOKENS, Arrays
from verify.dumps.onnx_runtime.observe import observations
from verify.dumps.onnx_runtime.plan import sources, wanted_values
from verify.dumps.onnx_runtime.session import Runner, read_model


def record_onnx(
    model: Path,
    inputs: Arrays,
    out: Path,
    *,
    sequences: list[Sequence] | None = None,
    optimisation: str = "all",
    threads: int = 1,
) -> int:
    """Run the ONNX file on ``inputs`` and write a dump to ``out``; how many records it has.

    The file stays as it is: outputs are added to a copy in memory. That can keep ONNX Runtime from
    fusing operations, so the model also runs without them, and the manifest says whether its
    outputs had the same bits (``observer``).

    Args:
        inputs: an array for each input of the graph; the first two axes of ``input_ids``, else of
            the first input, are [batch, tokens].
        sequences: one for each row of the batch; None: the prompts are ``input_ids``.
        optimisation: ``all``, ``basic`` or ``off``, of ONNX Runtime's graph optimisations.

    Raises:
        ModelError: onnx or onnxruntime is missing, the file is no model that ONNX Runtime loads, or
            the inputs are not those of the graph or have rows without known positions.
        DumpExistsError: there is something at ``out``.
    """
    proto = read_model(model)
    wanted, omitted = wanted_values(proto.graph)
    edges = sources(proto.graph, {each.value for each in wanted} | {TOKENS})
    plain = [value.name for value in proto.graph.output]
    given = {value.name for value in proto.graph.input}
    inner = list(dict.fromkeys(w.value for w in wanted if w.value and w.value not in given))
    outputs = list(dict.fromkeys([*plain, *inner]))

    runner = Runner(model, optimisation, threads)
    untouched = runner.run(proto.SerializeToString(), inputs, plain)
    for name in outputs[len(plain) :]:
        proto.graph.output.add().name = name  # its type is inferred
    values = runner.run(proto.SerializeToString(), inputs, outputs)

    source = Source(
        format="onnxruntime",
        path=model,
        model=model.stem,
        sequences=list(sequences or []),
        settings={
            "engine": "onnxruntime",
            "version": runner.version,
            "threads": threads,
            "providers": ["CPUExecutionProvider"],
            "optimisation": optimisation,
            "opset": {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
            "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
            "observer": {name: _same(values[name], untouched[name]) for name in plain},
        },
    )
    changed = [name for name in plain if not _same(values[name], untouched[name])]
    if changed:
        source.notes.append(
            f"with intermediate outputs ONNX Runtime computes other bits of {', '.join(changed)}:"
            " operations that it fuses otherwise are recorded one by one"
        )
    if any(
        str(getattr(value, "dtype", "")) in ("float16", "bfloat16") for value in values.values()
    ):
        source.notes.append(
            "values of 16 bits: the CPU provider computes them in float32, and an operation reads"
            " what was not rounded yet, so none is judged by its recorded inputs"
        )
    if omitted:
        source.notes.append(f"no single output in the graph: {', '.join(omitted)}")
    return write_run(Imported(source, observations(source, wanted, values, inputs, edges)), out)


def _same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return repr(a) == repr(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
