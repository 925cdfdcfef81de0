"""A model file in ONNX Runtime: read, run, and run with further outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verify.dumps.onnx_runtime.inputs import Arrays
from verify.errors import ModelError

OPTIMISATIONS = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "off": "ORT_DISABLE_ALL"}
_QUIET = 3  # errors alone: warnings of a graph that is optimised would fill the terminal


def read_model(path: Path) -> Any:
    """The ModelProto of a file, without the weights that lie beside it.

    Raises:
        ModelError: onnx or onnxruntime is missing, or it is no model.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ModelError(
            "onnx and onnxruntime are needed", found=error, hint="pip install 'firstdiff[onnx]'"
        ) from None
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises what it likes on a foreign file
        raise ModelError("not an ONNX model", where=path, found=error) from error
    if not model.graph.node:
        raise ModelError("not an ONNX model", where=path, found="no operation in it")
    return model


class Runner:
    """Runs a model with weights beside ``path``, its graph from memory."""

    def __init__(self, path: Path, optimisation: str, threads: int) -> None:
        import onnxruntime

        self.version: str = onnxruntime.__version__
        self._path = path
        self._options = onnxruntime.SessionOptions()
        level = getattr(onnxruntime.GraphOptimizationLevel, OPTIMISATIONS[optimisation])
        self._options.graph_optimization_level = level
        self._options.intra_op_num_threads = threads
        self._options.log_severity_level = _QUIET
        self._options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(path.resolve().parent)
        )

    def run(self, model: bytes, inputs: Arrays, outputs: list[str]) -> dict[str, Any]:
        """Values of ``outputs`` by name.

        Raises:
            ModelError: ONNX Runtime does not load or run it, or the inputs are not those of the graph.
        """
        import onnxruntime

        try:
            session = onnxruntime.InferenceSession(
                model, self._options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ModelError(
                "ONNX Runtime cannot load the model", where=self._path, found=error
            ) from error
        needed = sorted(each.name for each in session.get_inputs())
        if needed != sorted(inputs):
            raise ModelError(
                "the inputs are not those of the graph",
                where="--inputs",
                found=", ".join(sorted(inputs)) or "none",
                allowed=", ".join(needed),
            )
        try:
            return dict(zip(outputs, session.run(outputs, inputs), strict=True))
        except Exception as error:
            raise ModelError(
                "ONNX Runtime cannot run the model", where=self._path, found=error
            ) from error
