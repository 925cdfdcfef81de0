"""Plain trees: npy, npz, torch and safetensors files whose paths name the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verify.dumps.importers.faults import broken
from verify.dumps.importers.names import chosen, compile_pattern, files_below, natural, take_marks
from verify.dumps.importers.observation import Format, Imported, Observation, Options, Source
from verify.dumps.importers.tensor_files import SUFFIXES, kind_of, read_tensors


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    tap: str
    step: int
    rank: int
    order: int


def recognise(path: Path) -> bool:
    if path.is_file():
        return bool(kind_of(path))
    return path.is_dir() and bool(files_below(path, SUFFIXES))


def read(path: Path, options: Options) -> Imported:
    files, skipped = _files(path, options.pattern)
    if not files:
        raise broken(path, "no tensor file whose name fits the pattern", f"{options.pattern}")
    unknown = ["what each tensor was computed from"]
    if not (options.pattern and "{order}" in options.pattern):
        unknown.insert(0, "the order of execution (taps stand in the order of their names)")
    if not options.axes:
        unknown.append("sequences and positions (each tensor is one row; --axes names its axes)")
    source = Source(
        format="plain", path=path, unknown=unknown, ranks=1 + max(f.rank for f in files)
    )
    if skipped:
        source.notes.append(f"{len(skipped)} files do not fit the pattern: {skipped[0]}")
    return Imported(source, _observations(files, options))


def _observations(files: list[_File], options: Options) -> Iterator[Observation]:
    for file in files:
        for key, tensor in read_tensors(file.path, chosen(options.dtypes, file.tap)):
            tap = ".".join(part for part in (file.tap, key) if part)
            axes = chosen(options.axes, tap)
            yield Observation(tap=tap, tensor=tensor, axes=axes, step=file.step, rank=file.rank)


def _files(root: Path, pattern: str | None) -> tuple[list[_File], list[str]]:
    """Files in order of steps, and names that do not fit the pattern."""
    if root.is_file():
        return [_File(root, "" if kind_of(root) == "npz" else root.stem, 0, 0, 0)], []
    regex = compile_pattern(pattern) if pattern else None
    found, skipped = [], []
    for path in files_below(root, SUFFIXES):
        name = path.relative_to(root).as_posix()
        if regex is None:
            text, marks = take_marks(name.removesuffix(path.suffix))
        elif match := regex.fullmatch(name):
            fields = match.groupdict()
            text = fields.pop("tap")
            marks = {field: int(number) for field, number in fields.items() if number}
        else:
            skipped.append(name)
            continue
        tap = text.replace("/", ".")
        found.append(
            _File(path, tap, marks.get("step", 0), marks.get("rank", 0), marks.get("order", 0))
        )
    found.sort(key=lambda file: (file.step, file.order, natural(file.tap)))
    return found, skipped


FORMAT = Format(
    name="plain", title="npy, npz, pt, safetensors files", recognise=recognise, read=read
)
