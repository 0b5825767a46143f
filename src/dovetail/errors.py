"""The exceptions of dovetail, each with a stable code.

A rule of an operator raises an error without a node; the caller adds node and file with :meth:`DovetailError.at`.
A code names the rule that is broken, in whatever operator or command: ``subject.fact`` in lower case, with hyphens between the
words of the fact. Its meaning never changes. ``docs/errors.md`` has an entry for each code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def printable(text: str) -> str:
    """Escape the characters of ``text`` that are invisible, or that a terminal or browser would interpret.

    These are control characters, line and paragraph separators, bidirectional controls, white space other than the space,
    unpaired surrogates and unassigned code points. Names in a file are untrusted.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(ord(character)) for character in text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault or warning: its stable ``code``, its ``message``, and the ``node`` and ``file`` that have it."""

    code: str
    message: str
    node: str | None = None
    file: str | None = None
    op: str | None = None
    severity: str = "error"

    @property
    def location(self) -> str:
        """The node and file as text, each preceded by a line break; empty where both are unknown."""
        node = f"{self.node or '?'} = {self.op}" if self.op else self.node
        lines = (f"  in {node}" if node else "", f"  at {self.file}" if self.file else "")
        return "".join(f"\n{printable(line)}" for line in lines if line)

    def __str__(self) -> str:
        return f"[{self.code}] {printable(self.message)}{self.location}"


class DovetailError(Exception):
    """The base class of dovetail's errors.

    ``code`` is stable; ``node``, ``op`` (its text with its input types) and ``file`` locate the error where they are known.
    ``diagnostics`` has one item for each fault of the same pass: for a single fault, that of the error itself.
    """

    exit_code = 3

    def __init__(
        self,
        code: str,
        message: str,
        *,
        node: str | None = None,
        op: str | None = None,
        file: str | None = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.node = node
        self.op = op
        self.file = file
        self._diagnostics = tuple(diagnostics)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self._diagnostics or (Diagnostic(self.code, self.message, self.node, self.file, self.op),)

    def at(self, *, node: str | None = None, op: str | None = None, file: str | None = None) -> DovetailError:
        """Set the node, operator and file of the error where they are not known yet, and return the error."""
        self.node = self.node or node
        self.op = self.op or op
        self.file = self.file or file
        return self

    def __str__(self) -> str:
        if len(self._diagnostics) > 1:
            return f"{printable(self.message)}\n" + "\n".join(str(item) for item in self._diagnostics)
        return str(self.diagnostics[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.message, self.node, self.op, self.file, self._diagnostics)


def _rebuild(
    kind: type[DovetailError],
    code: str,
    message: str,
    node: str | None,
    op: str | None,
    file: str | None,
    diagnostics: tuple[Diagnostic, ...],
) -> DovetailError:
    return kind(code, message, node=node, op=op, file=file, diagnostics=diagnostics)


class FormatError(DovetailError, ValueError):
    """A file violates its format."""

    exit_code = 3


class MissingFileError(FormatError, FileNotFoundError):
    """A file does not exist: as ``FormatError`` and as Python's own ``FileNotFoundError``."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(code, message, **details)
        self.errno, self.strerror, self.filename = errno.ENOENT, os.strerror(errno.ENOENT), self.file


class UnsupportedError(DovetailError, NotImplementedError):
    """A valid model that dovetail does not support exactly, and therefore refuses."""

    exit_code = 4


class RuleError(DovetailError, ValueError):
    """A model violates a rule of an operator."""

    exit_code = 5


class MissingAttributeError(RuleError, AttributeError):
    """A RuleError for Python's attribute protocol: to ``hasattr`` and ``getattr`` with a default the attribute is missing."""


class ArgumentTypeError(RuleError, TypeError):
    """A RuleError for an argument of a wrong Python type: as ``RuleError`` and as Python's own ``TypeError``."""


class EngineError(DovetailError, RuntimeError):
    """A run fails: inputs do not fit the model, or a kernel cannot run."""

    exit_code = 6


class UnknownOutputError(EngineError, LookupError):
    """The results of a run hold no output of this name or at this position."""


def raise_all(errors: Sequence[DovetailError], subject: str) -> None:
    """Raise ``errors`` as one error of the first one's class; return if there are none."""
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    items = [item for error in errors for item in error.diagnostics]
    first = errors[0]
    raise type(first)(first.code, f"{len(items)} {subject}", node=first.node, op=first.op, file=first.file, diagnostics=items)
