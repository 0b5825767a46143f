"""Look-up of values by layer name, the name that Netron and OpenVINO's get_friendly_name show."""

from __future__ import annotations

from dovetail.errors import DovetailError, RuleError
from dovetail.ir.graph import Graph, Value


class Layers:
    """Layers maps layer names to the values of a graph. A layer is a node, an input, a constant or a Result of OpenVINO IR."""

    def __init__(self, graph: Graph) -> None:
        self._values: dict[str, dict[int, Value]] = {}
        self._counts: dict[str, int] = {}
        for node in graph.nodes:
            if node.name and node.outputs:
                self._counts[node.name] = self._counts.get(node.name, 0) + 1
                self._add(node.name, node.outputs)
        for value in (*graph.values(), *graph.outputs):
            for key in ("name", "result"):
                if isinstance(name := value.metadata.get(key), str):
                    self._add(name, [value])

    def _add(self, name: str, values: list[Value]) -> None:
        self._values.setdefault(name, {}).update({id(value): value for value in values})

    def value_of(self, name: str) -> Value | None:
        """Return the value of the layer ``name``; None if no layer has that name or the name stands for several values."""
        found = self._values.get(name, {})
        return next(iter(found.values())) if len(found) == 1 else None

    def ambiguous(self, name: str) -> DovetailError | None:
        """Return RuleError [name.ambiguous] for a name of several layers or of a layer with several outputs; else None."""
        found = self._values.get(name, {})
        if len(found) < 2:
            return None
        what = "several layers" if self._counts.get(name, 0) > 1 else "a layer with several outputs"
        names = ", ".join(repr(value.name) for value in list(found.values())[:8])
        return RuleError("name.ambiguous", f"{name!r} is the name of {what}: name one of the values {names}")
