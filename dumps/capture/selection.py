"""Which taps are recorded, and how much is kept of each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar, get_args

import torch

from verify.dumps.format.schema import Kept
from verify.errors import ArgumentError, ModelError

DEFAULT = "default"
"""Stands for the default selection among tap globs."""
WITHIN = "default:"
"""``default:<glob>``: the taps of the default selection that match the glob."""

OPERATION = "/"
"""Between module path and operation in the name of a tap below a module."""

CORE_PORTS = ("attn.in.q", "attn.in.k", "attn.in.v", "attn.in.mask", "attn.out")
CACHE_PORTS = ("cache.in.k", "cache.in.v")
TOKEN_TAPS = ("tokens.in", "tokens.out")
"""Token ids are what a run is told by: always recorded, at every level in full."""
ROOT_TAPS = (*TOKEN_TAPS, "positions.in", "logits")
_PORT = re.compile(r"\.?(out(\.\w+)?|in\.\w+|attn\.(in\.[qkv]|in\.mask|out)|cache\.in\.[kv])$")

T = TypeVar("T")


def port(path: str, name: str) -> str:
    """Name of the tap at a port of the module at ``path`` (empty for the root)."""
    return f"{path}.{name}" if path else name


def default_taps(model: torch.nn.Module) -> list[str]:
    """Embeddings, norms with what enters them, linear layers, activations, what leaves each
    repeated block, the attention core, and the tokens and logits.

    Inputs of a linear layer are added where no other tap shows them: products of gated units.
    """
    found = [*ROOT_TAPS]
    found += [glob for name in (*CORE_PORTS, *CACHE_PORTS) for glob in (name, f"*.{name}")]
    blocks = {
        id(child)
        for module in model.modules()
        if isinstance(module, torch.nn.ModuleList)
        for child in module
    }
    head = _output_head(model)
    for path, module in model.named_modules():
        kind = type(module).__name__.lower()
        leaf = next(module.children(), None) is None
        if module is head or not path:
            continue
        if "norm" in kind or "rotary" in kind:  # one that adds a residual stream returns it as well
            found += [port(path, "out"), port(path, "out.1")]
        elif id(module) in blocks or (leaf and not isinstance(module, torch.nn.ModuleList)):
            found.append(port(path, "out"))
        if shows_input(path, "norm" in kind):
            found.append(port(path, "in.0"))
    return found


def shows_input(path: str, norm: bool) -> bool:
    """Whether the default selection shows what enters the module at ``path``: a norm, or a linear
    layer that reads a product of gated units."""
    name = path.rpartition(".")[2]
    if norm:  # what enters these two is the projection, seen already
        return name not in ("q_norm", "k_norm")
    return name in ("down_proj", "w2", "fc2", "c_proj")


def _output_head(model: torch.nn.Module) -> torch.nn.Module | None:
    """The layer whose output is the logits, which have a tap of their own."""
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if callable(getter) else None
    return head if isinstance(head, torch.nn.Module) else None


class TapSelection:
    """Tap globs, matched case-sensitively against whole tap names."""

    def __init__(self, globs: Sequence[str] | None, model: torch.nn.Module) -> None:
        """
        Raises:
            ModelError: a glob that can match no tap of this model.
        """
        given = list(globs) if globs else [DEFAULT]
        self.globs = given
        defaults = default_taps(model) if DEFAULT in given else []
        within = [glob.removeprefix(WITHIN) for glob in given if glob.startswith(WITHIN)]
        chosen = [glob for glob in given if glob != DEFAULT and not glob.startswith(WITHIN)]
        _check_globs([*chosen, *within], model)
        self._within = within
        self._among = default_taps(model) if within else []
        patterns = [*defaults, *chosen, *TOKEN_TAPS]
        self._exact = frozenset(p for p in patterns if not set(p) & set("*?["))
        self._patterns = [p for p in patterns if p not in self._exact]
        self._known: dict[str, bool] = {}

    def __contains__(self, tap: str) -> bool:
        found = self._known.get(tap)
        if found is None:
            found = tap in self._exact or any(fnmatchcase(tap, p) for p in self._patterns)
            found = found or (
                any(fnmatchcase(tap, p) for p in self._within)
                and any(fnmatchcase(tap, p) for p in self._among)
            )
            self._known[tap] = found
        return found

    def unmatched(self) -> list[str]:
        """Globs of the caller that no tap which came by has matched."""
        seen = [tap for tap, wanted in self._known.items() if wanted]
        chosen = [g.removeprefix(WITHIN) for g in self.globs if g != DEFAULT and OPERATION not in g]
        return [glob for glob in chosen if not any(fnmatchcase(tap, glob) for tap in seen)]


def _check_globs(globs: Iterable[str], model: torch.nn.Module) -> None:
    paths = [path for path, _ in model.named_modules()]
    ports = ("out", "out.1", "in.0", *CORE_PORTS, *CACHE_PORTS)
    known = [*ROOT_TAPS, *(port(path, name) for path in paths for name in ports)]
    for glob in globs:
        if OPERATION in glob:
            continue  # a tap below a module: `ops` says which of them there are
        if any(fnmatchcase(tap, glob) for tap in known):
            continue
        owner = _PORT.sub("", glob)
        if owner != glob and any(fnmatchcase(path, owner) for path in paths):
            continue  # a port that only a run can show, such as a keyword argument
        near = difflib.get_close_matches(glob, known, n=4, cutoff=0.5)
        raise ModelError(
            "no tap of the model has this name",
            where="taps",
            found=glob,
            allowed=", ".join(near) + ", ..." if near else f"for example {', '.join(known[4:7])}",
            hint="a tap is <module path>.<port>; docs/capture.md lists the ports",
        )


class Levels:
    """What is kept of a tap: one level for all, or a level a glob (the first that matches)."""

    def __init__(self, level: str | Mapping[str, str]) -> None:
        self._levels = {"*": level} if isinstance(level, str) else {**level}
        allowed = [kept for kept in get_args(Kept) if kept != "same"]
        for glob, kept in self._levels.items():
            if kept not in allowed:
                raise ArgumentError(
                    "an unknown capture level", where=glob, found=kept, allowed=", ".join(allowed)
                )

    def of(self, tap: str) -> Kept:
        if tap in TOKEN_TAPS:
            return "full"
        found = self.match(self._levels, tap)
        return "digest" if found is None else found  # type: ignore[return-value]

    @staticmethod
    def match(table: Mapping[str, T], tap: str) -> T | None:
        """Value of the first glob in ``table`` that matches ``tap``."""
        return next((value for glob, value in table.items() if fnmatchcase(tap, glob)), None)

    def as_json(self) -> str | dict[str, str]:
        return self._levels["*"] if list(self._levels) == ["*"] else dict(self._levels)
