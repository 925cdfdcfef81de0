"""manifest.json, read and checked."""

from __future__ import annotations

import msgspec

from verify.dumps.format import layout
from verify.dumps.format.faults import corrupt, read_file
from verify.dumps.format.files import Place
from verify.dumps.format.schema import FORMAT_NAME, FORMAT_VERSION, Manifest
from verify.errors import DumpError


class _Version(msgspec.Struct):
    """The only fields that every version has."""

    format: str
    version: int


def read_manifest(root: Place) -> Manifest:
    """The manifest of the dump in folder ``root``.

    Raises:
        DumpError: there is no dump, or one of a newer version.
        CorruptDumpError: the manifest is not what its writer stored.
    """
    path = root / layout.MANIFEST
    _check_folder(root, path)
    text = read_file(path)
    _check_version(path, text)
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except _DECODE_ERRORS as error:
        raise corrupt("the manifest does not parse", path, error) from None
    if not layout.is_sealed(text, manifest.checksum):
        raise corrupt(
            "the manifest was changed after it was written", path, f"checksum {manifest.checksum}"
        )
    _check_ranks(path, manifest)
    return manifest


_DECODE_ERRORS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def _check_folder(root: Place, path: Place) -> None:
    if not root.exists():
        raise DumpError(
            "there is no dump", where=root, found="nothing", hint="check the path, or record a run"
        )
    if not root.is_dir():
        raise DumpError("a dump is a folder", where=root, found="a file")
    if not path.exists():
        empty = not any(root.iterdir())
        raise DumpError(
            "this is not a dump",
            where=root,
            found="an empty folder" if empty else f"a folder without {layout.MANIFEST}",
            allowed=f"a folder with {layout.MANIFEST}",
            hint="name the folder that `verify capture --out` wrote",
        )


def _check_version(path: Place, text: bytes) -> None:
    try:
        found = msgspec.json.decode(text, type=_Version)
    except _DECODE_ERRORS as error:
        raise corrupt("the manifest does not parse", path, error) from None
    if found.format != FORMAT_NAME:
        raise DumpError("this is not a dump", where=path, found=found.format, allowed=FORMAT_NAME)
    if found.version != FORMAT_VERSION:
        raise DumpError(
            "the dump has another format version",
            where=path,
            found=found.version,
            allowed=FORMAT_VERSION,
            hint="read it with the release that wrote it, or a newer one",
        )


def _check_ranks(path: Place, manifest: Manifest) -> None:
    """A complete run says where every rank ends; an open one says nothing yet."""
    if not 1 <= manifest.ranks <= layout.MAX_RANKS:
        raise corrupt("the number of ranks is impossible", path, manifest.ranks)
    expected = (
        {str(rank) for rank in range(manifest.ranks)} if manifest.status == "complete" else set()
    )
    if set(manifest.ends) != expected:
        raise corrupt(
            f"the ends of the ranks do not fit the status {manifest.status!r}",
            path,
            sorted(manifest.ends),
            sorted(expected),
        )
