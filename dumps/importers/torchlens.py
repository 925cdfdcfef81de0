"""TorchLens bundles (``.tlspec``): a manifest and a safetensors file a tensor.

Format: torchlens/_io/manifest.py. The pickle beside them (``metadata.pkl`` and what it became in
newer versions) is never opened: the manifest names every tensor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from verify.dumps.importers.faults import broken, inside, read_bytes, read_json
from verify.dumps.importers.observation import Format, Imported, Observation, Options, Source
from verify.dumps.importers.tensor_files import read_tensors

_MANIFEST: Final = "manifest.json"
_MARK: Final = "torchlens_version"


def recognise(path: Path) -> bool:
    file = path / _MANIFEST
    return file.is_file() and _MARK.encode() in file.read_bytes()


def read(path: Path, options: Options) -> Imported:
    file = path / _MANIFEST
    manifest = read_json(file)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("tensors"), list):
        raise broken(file, "no list 'tensors'")
    entries = [entry for entry in manifest["tensors"] if isinstance(entry, dict)]
    source = Source(
        format="torchlens",
        path=path,
        unknown=[
            "what each tensor was computed from (the graph stands in a pickle, which is not read)",
            "sequences and positions",
        ],
        env={"versions": {key: manifest.get(f"{key}_version") for key in ("torch", "python")}},
    )
    if lost := manifest.get("unsupported_tensors"):
        source.notes.append(f"the bundle lacks {len(lost)} tensors that could not be stored")
    return Imported(source, _observations(path, entries, file))


def _observations(root: Path, entries: list[dict[str, Any]], file: Path) -> Iterator[Observation]:
    for entry in entries:
        blob = inside(root, entry.get("relative_path"), file)
        _check(blob, entry.get("sha256"))
        for _, tensor in read_tensors(blob):
            tap = f"{entry.get('label')}.{entry.get('kind')}"
            yield Observation(tap=tap, tensor=tensor)


def _check(blob: Path, expected: Any) -> None:
    found = hashlib.sha256(read_bytes(blob)).hexdigest()
    if found != expected:
        raise broken(blob, f"SHA-256 {found}, the manifest says {expected}")


FORMAT = Format(name="torchlens", title="TorchLens bundle", recognise=recognise, read=read)
