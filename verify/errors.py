"""The errors that users see. Each names what is wrong, where, what was found, what is allowed
and what to do next; the command line prints them without a traceback."""

from __future__ import annotations


class VerifyError(Exception):
    """Base of every error that a user can cause or meet.

    Args:
        what: the fault in one clause, for example ``"the dump is not complete"``.
        where: the file, record, tap or argument concerned.
        found: the offending value.
        allowed: what would have been accepted.
        hint: the next step, as a sentence or a command.

    The exit code is the one of docs/exit-codes.md: 2 for usage or broken input, 3 for what cannot
    be compared.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        found: object = None,
        allowed: object = None,
        hint: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.found = None if found is None else str(found)
        self.allowed = None if allowed is None else str(allowed)
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [self.what]
        for label, value in (
            ("where", self.where),
            ("found", self.found),
            ("allowed", self.allowed),
            ("next", self.hint),
        ):
            if value is not None:
                lines.append(f"  {label + ':':<9}{value}")
        return "\n".join(lines)


class UsageError(VerifyError):
    """A command or a call that cannot be carried out as it was asked."""


class ArgumentError(UsageError, ValueError):
    """An argument outside what a function admits; also a ``ValueError`` for Python callers."""


class DumpError(VerifyError):
    """A dump that cannot be read: missing, foreign, newer, or not a dump at all."""


class CorruptDumpError(DumpError):
    """Bytes of a dump that are not what its writer stored. Never a divergence."""


class DumpExistsError(DumpError):
    """A capture was pointed at a place that already holds something. Nothing is overwritten."""


class StorageError(VerifyError):
    """The disk is full, a budget is spent, or a write failed. What was committed stays readable."""


class ModelError(VerifyError):
    """A model, tokenizer or tap that cannot be had."""


class NotComparableError(VerifyError):
    """Two dumps between which no comparison has a meaning."""

    exit_code = 3
