"""Steps of a proof: applications of operators to terms, the terms that equal them, and the applications that a law built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.ir.graph import Value
from dovetail.ir.op import Op


class Application(NamedTuple):
    """Application is an operator with its operands, and the terms that equal its outputs."""

    op: Op
    operands: tuple[Value | None, ...]
    results: tuple[Value, ...]


class ProofStep(NamedTuple):
    """ProofStep says that an application equals its results.

    ``parts`` are the applications that the law of the step built, in order: each has a step of its own, or defines a term.
    Without parts the results are constants, which follow from the elements of the operands.
    """

    application: Application
    parts: tuple[Application, ...]


class ProofSteps:
    """ProofSteps records the steps of a table of terms, each after the steps of its parts."""

    def __init__(self) -> None:
        self.steps: list[ProofStep] = []
        self._parts: list[list[Application]] = [[]]

    def begin(self) -> None:
        self._parts.append([])

    def end(self, op: Op, operands: Sequence[Value | None], results: Sequence[Value] | None) -> None:
        """End the step that began last; without results it failed."""
        parts = self._parts.pop()
        if results is not None:
            self.steps.append(ProofStep(Application(op, tuple(operands), tuple(results)), tuple(parts)))

    def mark(self) -> int:
        """Return the number of parts of the step that began last, for :meth:`forget`."""
        return len(self._parts[-1])

    def forget(self, mark: int) -> None:
        """Forget the parts since ``mark``: those of a law that did not apply."""
        del self._parts[-1][mark:]

    def add(self, op: Op, operands: Sequence[Value | None], results: Sequence[Value]) -> None:
        """Add an application to the parts of the step that began last."""
        self._parts[-1].append(Application(op, tuple(operands), tuple(results)))
