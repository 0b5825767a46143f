"""The exceptions of dovetail; every error has a stable code.

A rule of an operator raises an error without a node; the rule's caller adds node and file with :meth:`DovetailError.at`.
A code names the broken rule, independent of the operator or command: ``subject.fact`` in lower case, with hyphens between the
words of the fact. The meaning of a code never changes. ``docs/errors.md`` has an entry for each code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar


def printable(text: str) -> str:
    """Escape the characters of ``text`` that are invisible or that a terminal or browser would interpret.

    The escaped characters are control characters, line and paragraph separators, bidirectional controls, white space other
    than the space, unpaired surrogates and unassigned code points. Names in a file are untrusted.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(ord(character)) for character in text)


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error, or its class where it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Diagnostic is one fault or warning: a stable ``code``, a ``message``, and the ``node`` and ``file`` where it occurs."""

    code: str
    message: str
    node: str | None = None
    file: str | None = None
    op: str | None = None
    severity: str = "error"

    @property
    def location(self) -> str:
        """The node and the file as text, each preceded by a line break; empty if both are unknown."""
        node = f"{self.node or '?'} = {self.op}" if self.op else self.node
        lines = (f"  in {node}" if node else "", f"  at {self.file}" if self.file else "")
        return "".join(f"\n{printable(line)}" for line in lines if line)

    def __str__(self) -> str:
        return f"[{self.code}] {printable(self.message)}{self.location}"


Kind = TypeVar("Kind", bound="DovetailError")


class DovetailError(Exception):
    """DovetailError is the base class of dovetail's errors.

    ``code`` is stable. ``node``, ``op`` (the operator as text with its input types) and ``file`` locate the error where they
    are known. ``diagnostics`` has one item for each fault that the same pass reports, and at least one for the error itself.
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

    def as_kind(self, kind: type[Kind]) -> Kind:
        """Return an error of another class with the same code, message, location and diagnostics. Its cause is this error."""
        new = kind(self.code, self.message, node=self.node, op=self.op, file=self.file, diagnostics=self._diagnostics)
        new.__cause__ = self
        return new

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
    """FormatError reports a file that violates the specification of its format."""

    exit_code = 3


class MissingFileError(FormatError, FileNotFoundError):
    """MissingFileError reports a file that does not exist, as a ``FormatError`` and as Python's ``FileNotFoundError``."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(code, message, **details)
        self.errno, self.strerror, self.filename = errno.ENOENT, os.strerror(errno.ENOENT), self.file


class UnsupportedError(DovetailError, NotImplementedError):
    """UnsupportedError reports a valid model that dovetail cannot represent exactly and therefore refuses."""

    exit_code = 4


class RuleError(DovetailError, ValueError):
    """RuleError reports a model that violates a rule of an operator."""

    exit_code = 5


class MissingAttributeError(RuleError, AttributeError):
    """MissingAttributeError is a RuleError that ``hasattr`` and ``getattr`` with a default treat as a missing attribute."""


class ArgumentTypeError(RuleError, TypeError):
    """ArgumentTypeError reports an argument of a wrong Python type, as a ``RuleError`` and as Python's ``TypeError``."""


class EngineError(DovetailError, RuntimeError):
    """EngineError reports a failed run: the inputs do not fit the model, or a kernel cannot run."""

    exit_code = 6


class UnknownOutputError(EngineError, LookupError):
    """UnknownOutputError reports a name or a position of which the results of a run have no output."""


def raise_all(errors: Sequence[DovetailError], subject: str) -> None:
    """Raise ``errors`` as one error of the class of ``errors[0]``; return if ``errors`` is empty."""
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    items = [item for error in errors for item in error.diagnostics]
    first = errors[0]
    raise type(first)(first.code, f"{len(items)} {subject}", node=first.node, op=first.op, file=first.file, diagnostics=items)
