"""Recording one run of an ONNX model in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.dumps.capture.axes import infer_axes
from verify.dumps.capture.masks import MaskRule, canonical_mask
from verify.dumps.capture.positions import PositionTracker, Step
from verify.dumps.format.schema import Sequence
from verify.dumps.importers.observation import Imported, Observation, Source, Tensor
from verify.dumps.importers.writing import write_run
from verify.dumps.onnx_runtime.plan import Wanted, sources, wanted_values
from verify.errors import ModelError

OPTIMISATIONS = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "off": "ORT_DISABLE_ALL"}
_TOKENS = "input_ids"
_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def record_onnx(
    model: Path,
    inputs: dict[str, NDArray[Any]],
    out: Path,
    *,
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
        optimisation: ``all``, ``basic`` or ``off``, of ONNX Runtime's graph optimisations.

    Raises:
        ModelError: onnx or onnxruntime is missing, the file is no model that ONNX Runtime loads, or
            the inputs are not those of the graph.
        DumpExistsError: there is something at ``out``.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise ModelError(
            "onnx and onnxruntime are needed", found=error, hint="pip install 'firstdiff[onnx]'"
        ) from None
    try:
        proto = onnx.load(str(model), load_external_data=False)
        wanted, omitted = wanted_values(proto.graph)
        plain = [value.name for value in proto.graph.output]
        edges = sources(proto.graph, {each.value for each in wanted} | {_TOKENS})
        given = {value.name for value in proto.graph.input}
        inner = list(dict.fromkeys(w.value for w in wanted if w.value and w.value not in given))
        before = proto.SerializeToString()
    except Exception as error:  # protobuf raises what it likes on a foreign file
        raise ModelError("not an ONNX model that can be read", where=model, found=error) from error
    proto.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(value) for value in inner if value not in plain
    )

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, OPTIMISATIONS[optimisation]
    )
    options.intra_op_num_threads = threads
    # Weights beside the file; the models themselves come from memory.
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(model.resolve().parent)
    )

    def run(data: bytes, names: list[str]) -> dict[str, Any]:
        try:
            session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ModelError(
                "ONNX Runtime cannot load the model", where=model, found=error
            ) from error
        needed = sorted(each.name for each in session.get_inputs())
        if needed != sorted(inputs):
            raise ModelError(
                "the inputs are not those of the graph",
                where="--inputs", found=", ".join(sorted(inputs)), allowed=", ".join(needed),
            )  # fmt: skip
        try:
            return dict(zip(names, session.run(names, inputs), strict=True))
        except Exception as error:
            raise ModelError(
                "ONNX Runtime cannot run the model", where=model, found=error
            ) from error

    values = run(proto.SerializeToString(), list(dict.fromkeys([*plain, *inner])))
    untouched = run(before, plain)
    source = Source(
        format="onnxruntime",
        path=model,
        model=model.stem,
        settings={
            "engine": "onnxruntime", "version": onnxruntime.__version__, "threads": threads,
            "providers": ["CPUExecutionProvider"], "optimisation": optimisation,
            "opset": {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
            "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
            "observer": {name: _same(values[name], untouched[name]) for name in plain},
        },
    )  # fmt: skip
    changed = [name for name in plain if not _same(values[name], untouched[name])]
    if changed:
        source.notes.append(
            f"with intermediate outputs ONNX Runtime computes other bits of {', '.join(changed)}:"
            " operations that it fuses otherwise are recorded one by one"
        )
    if omitted:
        source.notes.append(f"no single output in the graph: {', '.join(omitted)}")
    return write_run(Imported(source, _observations(source, wanted, values, inputs, edges)), out)


def _observations(
    source: Source,
    wanted: list[Wanted],
    values: dict[str, Any],
    inputs: dict[str, NDArray[Any]],
    edges: dict[str, list[str]],
) -> Iterator[Observation]:
    leading = inputs.get(_TOKENS, next(iter(inputs.values()), np.zeros(())))
    batch, tokens = leading.shape[:2] if leading.ndim >= 2 else (1, 1)
    named = [f"sequence#{index}" for index in range(batch)]
    if _TOKENS in inputs:
        source.sequences += [
            Sequence(id=name, prompt=row.tolist(), generated=[])
            for name, row in zip(named, leading, strict=False)
        ]
    step = PositionTracker().begin(np.tile(np.arange(tokens), (batch, 1)), named, cached=0)
    entries = [Wanted(_TOKENS, "tokens.in")] if _TOKENS in inputs else []
    at: dict[str, int] = {}
    count = 0
    for each in [*entries, *wanted]:
        array = inputs.get(each.value, values.get(each.value))
        if each.tap.endswith(".attn.in.mask"):
            array = _mask(array, each.causal, step)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
            source.notes.append(f"{each.tap}: not a tensor of numbers, left out")
            continue
        array = np.ascontiguousarray(array)
        strides = [size // array.itemsize for size in array.strides]
        axes = infer_axes(array.shape, strides, batch, tokens)
        if ".attn." in f".{each.tap}" and array.ndim == 4:
            axes = "b h t d"  # without a cache, keys are those of the same tokens
        names = set(axes.split())
        near = [each.value] if each.value in at else edges.get(each.value, [])
        yield Observation(
            tap=each.tap,
            tensor=Tensor(array.view(_WIDTHS[array.itemsize]), str(array.dtype)),
            axes=axes,
            positions=np.arange(tokens) if "t" in names else None,
            sequences=list(named) if names & {"b", "t"} else None,
            inputs=[at[value] for value in near if value in at],
        )
        at.setdefault(each.value, count)
        count += 1


def _mask(array: Any, causal: bool, step: Step) -> NDArray[np.int64] | None:
    """Which keys each query reads, int64 [b, t, 3] (docs/dump-format.md); None where a mask says
    more than that."""
    tensor = None if array is None else torch.from_numpy(np.array(array))
    found, more = canonical_mask(tensor, MaskRule(causal=causal), step.tokens, step.tokens, step)
    return None if more else found


def _same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return repr(a) == repr(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
