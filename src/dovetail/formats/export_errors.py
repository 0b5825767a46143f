"""The errors of an export: each names the node of the model, also where the node has been rewritten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir.builder import describe_op
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op


class Origin(NamedTuple):
    """The node of the model that a node was written for.

    ``op`` is None for a foreign node that was imported as several nodes: there the message names the one that cannot be exported.
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
    """The errors of one export, at most one per node of the model."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self._errors: dict[tuple[str, str], DovetailError] = {}
        self._origins: dict[Node, Origin] = {}
        self._last_at: dict[str, Node] = {}

    def add_graph(self, nodes: Iterable[Node]) -> None:
        """Enter the nodes of a graph before they are rewritten."""
        self._last_at.update((node.location, node) for node in nodes if node.location)

    def set_origin(self, nodes: Iterable[Node], origin: Origin) -> None:
        """Enter the nodes that a rewrite wrote for ``origin``."""
        self._origins.update(dict.fromkeys(nodes, origin))

    def origin_of(self, node: Node) -> Origin:
        origin = self._origins.get(node)
        if origin is None:
            last = self._last_at.get(node.location, node)
            origin = Origin(last.label, node.location, node.op if last is node else None, tuple(node.inputs))
        return origin

    def has(self, origin: Origin) -> bool:
        """Tell whether the node of the model has an error."""
        return origin.key in self._errors

    def add(self, origin: Origin, error: DovetailError) -> None:
        """Note that a node cannot be exported, unless it has an error; the message names the node of the model."""
        error.node, error.op = origin.label, origin.text
        self._errors.setdefault(origin.key, error.at(file=self.file))

    def add_input(self, name: str, error: DovetailError) -> None:
        """Note that the graph input ``name`` cannot be exported."""
        self._errors.setdefault((name, ""), error)

    def list(self) -> list[DovetailError]:
        return [*self._errors.values()]
