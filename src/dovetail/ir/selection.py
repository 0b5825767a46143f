"""Selection of values of a model by name, in the model's graph or in a subgraph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dovetail.errors import DovetailError, RuleError, raise_all
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.layer_names import Layers
from dovetail.ir.op import bodies
from dovetail.ir.suggestions import closest


class Scope(NamedTuple):
    """Scope is a graph to select values from: the graph of the model, or the subgraph ``attribute`` of ``node``.

    ``path`` joins the names of the enclosing nodes and of ``node`` by "/"; it is empty for the graph of the model.
    """

    graph: Graph
    path: str = ""
    node: Node | None = None
    attribute: str = ""

    @property
    def description(self) -> str:
        """The subgraph as text, for messages."""
        if self.node is None:
            return "the graph"
        return f"the subgraph {self.attribute!r} of {type(self.node.op).__name__} {self.path!r}"


def names_of(names: str | Iterable[str]) -> list[str]:
    """Return a list of the given names without duplicates; the argument may be a single name."""
    return list(dict.fromkeys([names] if isinstance(names, str) else names))


def values_by_name(graph: Graph) -> dict[str, Value]:
    """Map every name of every value of a graph to the value; primary names take precedence over additional names."""
    values = {value.name: value for value in graph.values()}
    for value in graph.values():
        for name in value.names:
            values.setdefault(name, value)
    return values


def select_values(model: Model, names: Sequence[str]) -> list[Value]:
    """Return the values of the model's graph with these names; values of subgraphs are not selected.

    The name of a layer with one output selects that output. Raises RuleError [name.unknown] with all unknown names,
    [name.ambiguous].
    """
    values = values_by_name(model.graph)
    _add_layers(model.graph, values, names)
    raise_all([_unknown_or_ambiguous(model, values, name) for name in names if name not in values], "unknown names")
    return [values[name] for name in names]


def _add_layers(graph: Graph, values: dict[str, Value], names: Sequence[str]) -> None:
    """Add to ``values`` the outputs of the layers that ``names`` lists, for names that are not in ``values``."""
    lacking = [name for name in names if name not in values]
    if lacking:
        layers = Layers(graph)
        values.update({name: value for name in lacking if (value := layers.value_of(name)) is not None})


def _unknown_or_ambiguous(model: Model, values: dict[str, Value], name: str, *, is_scope: bool = False) -> DovetailError:
    return Layers(model.graph).ambiguous(name) or unknown_name(model, values, name, is_scope=is_scope)


def select_scope(model: Model, names: Sequence[str]) -> tuple[Scope, list[Value]]:
    """Return the graph that contains all values with these names, and the values.

    The name of a layer with one output selects that output. A value of a subgraph is named "node/value", or
    "node/attribute/value" if several subgraphs of the node have a value of that name. Raises RuleError [name.unknown],
    [name.ambiguous], and [name.scope] for values of different graphs.
    """
    values = values_by_name(model.graph)
    _add_layers(model.graph, values, names)
    scopes: list[Scope] = []
    selected: list[Value] = []
    errors: list[DovetailError] = []
    inner: dict[str, list[tuple[Scope, Value]]] | None = None
    for name in names:
        if name in values:
            candidates = [(Scope(model.graph), values[name])]
        else:
            inner = _values_of_subgraphs(model.graph) if inner is None else inner
            candidates = inner.get(name, [])
        if not candidates:
            errors.append(_unknown_or_ambiguous(model, values, name, is_scope=True))
        elif len(candidates) > 1:
            attributes = ", ".join(f"{scope.path}/{scope.attribute}/{value.name}" for scope, value in candidates)
            errors.append(RuleError("name.ambiguous", f"{name!r} is a value of several subgraphs: name one of {attributes}"))
        else:
            scopes.append(candidates[0][0])
            selected.append(candidates[0][1])
    raise_all(errors, "unknown names")
    others = [scope for scope in scopes if scope.graph is not scopes[0].graph]
    if others:
        raise RuleError(
            "name.scope",
            f"all values must be in one graph, got values of {scopes[0].description} and of {others[0].description}; "
            "values that a subgraph captures become inputs of its part without being named",
        )
    return (scopes[0] if scopes else Scope(model.graph)), selected


def _values_of_subgraphs(graph: Graph) -> dict[str, list[tuple[Scope, Value]]]:
    """Return the values of all subgraphs by "node/value" and by "node/attribute/value"."""
    values: dict[str, list[tuple[Scope, Value]]] = {}
    for scope in _subgraphs(graph, ""):
        for name, value in values_by_name(scope.graph).items():
            values.setdefault(f"{scope.path}/{name}", []).append((scope, value))
            values.setdefault(f"{scope.path}/{scope.attribute}/{name}", []).append((scope, value))
    return values


def _subgraphs(graph: Graph, prefix: str) -> Iterator[Scope]:
    """Yield every subgraph, including nested subgraphs, in topological order."""
    for node in graph.nodes:
        for attribute, body in bodies(node.op):
            yield Scope(body, f"{prefix}{node.label}", node, attribute)
            yield from _subgraphs(body, f"{prefix}{node.label}/")


def unknown_name(model: Model, values: dict[str, Value], name: str, *, is_scope: bool = False) -> DovetailError:
    """Return RuleError [name.unknown] for an unknown name; it suggests a value of a subgraph, or the most similar name.

    ``is_scope``: the caller accepts "node/value" as the name of a value of a subgraph.
    """
    for scope in _subgraphs(model.graph, ""):
        names = values_by_name(scope.graph)
        own = next((each for each in (name, _name_within(scope, name)) if each in names), None)
        if own is None:
            continue
        path = f"'{scope.path}/{own}'"
        remedy = f"use the name {path}" if is_scope else f"only extract accepts values of subgraphs, with the name {path}"
        message = f"the graph has no value {name!r}; {scope.description} has a value of that name: {remedy}"
        return RuleError("name.unknown", message, file=model.file)
    return RuleError("name.unknown", f"the model has no value {name!r}{closest(name, values)}", file=model.file)


def _name_within(scope: Scope, name: str) -> str:
    """Return the part of "node/value" or "node/attribute/value" after the path of the subgraph; empty for another path."""
    for prefix in (f"{scope.path}/{scope.attribute}/", f"{scope.path}/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""
