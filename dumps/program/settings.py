"""What the environment variables say, and the TOML file that says the same."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, get_args

from verify.dumps.format.schema import Kept
from verify.dumps.program.names import COMMAND, CONFIG, FOLDER, PREFIX, SESSION
from verify.dumps.sizes import parse_bytes
from verify.dumps.window import Window
from verify.errors import ArgumentError

Level = str | dict[str, str]

_LEAN: Final = ("hash", "digest", "stats")
_EDGES: Final = ("trace", "identity", "none")


@dataclass(frozen=True, slots=True)
class Settings:
    """A capture to be switched on. ``model``: glob on the name of its class; empty: the first
    module with parameters that is called. The rest is as for :func:`verify.dumps.capture`."""

    out: Path
    level: Level = "digest"
    edges: str = "none"
    taps: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    steps: str | None = None
    rows: str | None = None
    byte_budget: int | None = None
    model: str = ""

    def variables(self) -> dict[str, str]:
        """The environment variables that say this.

        Raises:
            ArgumentError: a level a tap, which only a file can say.
        """
        if not isinstance(self.level, str):
            raise ArgumentError("a level for each tap needs a file", where="level", hint=CONFIG)
        said = {
            "LEVEL": self.level, "EDGES": self.edges, "TAPS": ",".join(self.taps),
            "OPS": ",".join(self.ops),
            "STEPS": self.steps, "ROWS": self.rows, "BYTE_BUDGET": self.byte_budget,
            "MODEL": self.model,
        }  # fmt: skip
        found = {f"{PREFIX}{name}": str(value) for name, value in said.items() if value}
        return {FOLDER: str(self.out), **found}


_NAMES: Final = tuple(field.name for field in fields(Settings))


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Settings from variables and, below them, from the file of ``VERIFY_CAPTURE_CONFIG``.

    Raises:
        ArgumentError: an unknown name, a value that cannot be meant, a file that cannot be read.
    """
    table: dict[str, Any] = _from_file(environ[CONFIG]) if environ.get(CONFIG) else {}
    own = {name: f"{PREFIX}{name.upper()}" for name in _NAMES if name != "out"}
    own["out"] = FOLDER
    allowed = {*own.values(), CONFIG, COMMAND, SESSION}
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in allowed:
            raise ArgumentError(
                "an unknown variable", where=variable, allowed=", ".join(sorted(allowed))
            )
    sources = {name: environ.get(CONFIG, "") for name in table}
    for name, variable in own.items():
        if environ.get(variable):
            table[name], sources[name] = environ[variable], variable
    return _settings(table, sources)


def _from_file(name: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArgumentError("the file cannot be read as TOML", where=name, found=error) from None
    for key in table:
        if key not in _NAMES:
            raise ArgumentError("an unknown key", where=name, found=key, allowed=", ".join(_NAMES))
    return table


def _settings(table: dict[str, Any], sources: dict[str, str]) -> Settings:
    if not table.get("out"):
        raise ArgumentError("no folder to record into", where=FOLDER, hint=f"set {FOLDER}=runs/a")
    level = table.get("level", "digest")
    full = not isinstance(level, str) or level == "full"
    edges = str(table.get("edges", "trace" if full or table.get("rows") else "none"))
    _check_level(level, edges, sources.get("level", "level"), sources.get("edges", "edges"))
    budget = table.get("byte_budget")
    settings = Settings(
        out=Path(str(table["out"])).absolute(),
        level=level,
        edges=edges,
        taps=_globs(table.get("taps", ())),
        ops=_globs(table.get("ops", ())),
        steps=_text(table.get("steps")),
        rows=_text(table.get("rows")),
        byte_budget=None if budget is None else parse_bytes(str(budget), sources["byte_budget"]),
        model=str(table.get("model", "")),
    )
    window = Window.parse(settings.steps, settings.rows)
    if window.rows is not None and edges == "none":
        raise ArgumentError(
            "a window of rows needs edges", where=sources["rows"], found=window.rows,
            hint=f"{PREFIX}EDGES=trace",
        )  # fmt: skip
    return settings


def _globs(found: Any) -> tuple[str, ...]:
    return tuple(found.split(",") if isinstance(found, str) else map(str, found))


def _check_level(level: Any, edges: str, where: str, where_edges: str) -> None:
    if edges not in _EDGES:
        raise ArgumentError(
            "unknown edges", where=where_edges, found=edges, allowed=", ".join(_EDGES)
        )
    kept = [each for each in get_args(Kept) if each != "same"]
    allowed = list(_LEAN) if edges == "none" else kept
    for each in [level] if isinstance(level, str) else level.values():
        if each not in allowed or (edges == "none" and not isinstance(level, str)):
            raise ArgumentError(
                f"this level cannot be had with edges {edges!r}",
                where=where,
                found=each,
                allowed=", ".join(allowed),
                hint=f"full tensors need {PREFIX}EDGES=trace or identity",
            )


def _text(value: Any) -> str | None:
    """Spans; a single number needs no quotes in TOML, and neither does a list of numbers."""
    if value is None:
        return None
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read_command(environ: Mapping[str, str]) -> list[str] | None:
    """The command that started everything, if another process noted it."""
    text = environ.get(COMMAND)
    return None if not text else [str(word) for word in json.loads(text)]
