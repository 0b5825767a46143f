"""The errors of an export; each error names the node of the model, even if a pass has rewritten the node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.errors import Diagnostic, DovetailError
from dovetail.ir.builder import describe_op
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op


class Origin(NamedTuple):
    """Origin is the node of the model from which legalization created a node.

    ``op`` is None for a foreign node that was imported as several nodes; the error message then names the node that cannot be
    exported.
    """

    label: str
    place: str
    op: Op | None
    inputs: tuple[Value | None, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.label, self.place

    @property
    def text(self) -> str | None:
        return None if self.op is None else describe_op(self.op, self.inputs)


class ExportErrors:
    """ExportErrors collects the errors of one export, at most one error per node of the model."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.warnings: dict[type[Op], Diagnostic] = {}
        """A warning for each class of custom operators that the export decomposes."""
        self._errors: dict[tuple[str, str], DovetailError] = {}
        self._origins: dict[Node, Origin] = {}
        self._last_at: dict[str, Node] = {}

    def add_graph(self, nodes: Iterable[Node]) -> None:
        """Record the nodes of a graph before legalization rewrites them."""
        self._last_at.update((node.location, node) for node in nodes if node.location)

    def set_origin(self, nodes: Iterable[Node], origin: Origin) -> None:
        """Record ``origin`` as the origin of nodes that a rewrite created."""
        self._origins.update(dict.fromkeys(nodes, origin))

    def origin_of(self, node: Node) -> Origin:
        origin = self._origins.get(node)
        if origin is None:
            last = self._last_at.get(node.location, node)
            origin = Origin(last.label, node.location, node.op if last is node else None, tuple(node.inputs))
        return origin

    def has(self, origin: Origin) -> bool:
        """Return whether an error of the node ``origin`` is recorded."""
        return origin.key in self._errors

    def add(self, origin: Origin, error: DovetailError) -> None:
        """Record that a node cannot be exported, unless an earlier error of ``origin`` exists; the error names ``origin``."""
        error.node, error.op = origin.label, origin.text
        self._errors.setdefault(origin.key, error.at(file=self.file))

    def warn_of_decomposition(self, origin: Origin, op: Op, reason: str) -> None:
        """Record that the decomposition of a custom operator is exported, unless it is recorded for the class of ``op``."""
        message = f"{reason}; its decomposition is written, which is read back as other operators"
        warning = Diagnostic("op.unsayable", message, origin.label, self.file, origin.text, "warning")
        self.warnings.setdefault(type(op), warning)

    def add_input(self, name: str, error: DovetailError) -> None:
        """Record that the graph input ``name`` cannot be exported."""
        self._errors.setdefault((name, ""), error)

    def list(self) -> list[DovetailError]:
        return [*self._errors.values()]
