"""Check that each value name is written once, and before its reads. Source: onnx/docs/IR.md, "Names Within a Graph"."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping

from dovetail.errors import DovetailError, FormatError
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue, topological_order

_Scopes = tuple[dict[str, int], ...]


def label(node: ForeignNode) -> str:
    """Return the text that identifies a node in messages: its name, or else its position and kind."""
    return node.name or f"{node.place} ({node.kind})"


def subgraphs(node: ForeignNode) -> Iterator[tuple[str, ForeignGraph]]:
    """Yield the name and the subgraph of each attribute of ``node`` that is a subgraph, or contains subgraphs."""
    for name, value in node.attributes.items():
        # All items of a list have the type of the first, because they come from one field of the attribute.
        if isinstance(value, ForeignGraph):
            yield name, value
        elif isinstance(value, list) and value and isinstance(value[0], ForeignGraph):
            yield from ((name, item) for item in value)


Deviate = Callable[[DovetailError], None]


def check_names(graph: ForeignGraph, errors: list[DovetailError], deviate: Deviate) -> None:
    """Collect faults in the value names of ``graph`` and its subgraphs, and sort the nodes topologically.

    ``errors`` gets FormatError [graph.repeated] for a name that is written twice, or that a node of a subgraph writes although an
    outer graph has the name; [graph.dangling] for a name that is read and never written; and [graph.cycle].

    ``deviate`` gets FormatError [graph.order] for a name that is read before it is written: with unique names, all valid orders
    are equivalent. ``deviate`` also gets [graph.repeated] for a subgraph input with the name of an outer value. Within the
    subgraph that name denotes the input for all readers, and the input is renamed. The same holds for an initializer of a
    subgraph that equals the initializer of that name in an outer graph; it is removed. Runtimes differ for unequal ones: a fault.
    """
    _Scope(graph, (), ChainMap(), errors, None, deviate).check()


class _Scope:
    """_Scope is the state of one graph during the check.

    ``written`` maps each name to the index of its writer, -1 for inputs and constants. ``all`` holds the names of all node
    outputs.
    """

    def __init__(
        self,
        graph: ForeignGraph,
        outer: _Scopes,
        outer_constants: ChainMap[str, ForeignTensor],
        errors: list[DovetailError],
        owner: str | None,
        deviate: Deviate,
    ) -> None:
        self.deviate = deviate
        self.graph = graph
        self.outer = outer
        self.outer_constants = outer_constants
        self.errors = errors
        self.owner = owner
        self.written: dict[str, int] = {}
        self.all: dict[str, int] = {name: index for index, node in enumerate(graph.nodes) for name in node.outputs if name}
        # (index of the reader, name) for each name that is read before it is written.
        self.late: list[tuple[int, str]] = []

    def check(self) -> list[str]:
        """Check the graph; return the outer names that it reads and that the enclosing graphs have not written yet."""
        self._rename_hiding_inputs()
        for value in self.graph.inputs:
            self._write(value.key, -1, self.owner)
        self._remove_repeated_constants()
        for key in self.graph.constants:
            self._write(key, -1, self.owner)
        missing: list[str] = []
        for index, node in enumerate(self.graph.nodes):
            self._node(index, node, missing)
        for value in self.graph.outputs:
            if value.key not in self.written and not self._is_outer(value.key):
                self._add_missing(value.key, f"no node produces the output {value.key!r}", self.owner, missing)
        self._report_late()
        return missing

    def _rename_hiding_inputs(self) -> None:
        hiding = dict.fromkeys(value.key for value in self.graph.inputs if self._is_outer(value.key))
        if not hiding:
            return
        # Runtimes differ for an initializer of an inner graph that has the name too.
        self.outer_constants = ChainMap({key: each for key, each in self.outer_constants.items() if key not in hiding})
        taken = {*_names_within(self.graph), *(name for scope in self.outer for name in scope)}
        names = {}
        for name in hiding:
            self.deviate(
                FormatError(
                    "graph.repeated", f"the input {name!r} must not have the name of a value in an outer graph", node=self.owner
                )
            )
            names[name] = next(new for new in (f"{name}_{count}" for count in itertools.count(2)) if new not in taken)
            taken.add(names[name])
        for value in self.graph.inputs:
            _rename_value(value, names)
        _rename_reads(self.graph, names)

    def _remove_repeated_constants(self) -> None:
        graph = self.graph
        for key in [key for key in graph.constants if key in self.outer_constants and key not in self.written]:
            if key in self._overridable() or not _are_equal(graph.constants[key], self.outer_constants[key]):
                continue
            message = f"the initializer {key!r} must not have the name of a value in an outer graph"
            self.deviate(FormatError("graph.repeated", message, node=self.owner))
            del graph.constants[key]
            graph.values.pop(key, None)
            if key in graph.metadata.get("sparse", ()):
                graph.metadata["sparse"].remove(key)

    def _overridable(self) -> list[str]:
        return self.graph.metadata.get("overridable") or self.graph.metadata.get("defaults") or []

    def _node(self, index: int, node: ForeignNode, missing: list[str]) -> None:
        written = self.written
        for name in node.inputs:
            if name is not None and name not in written:
                self._read(index, node, name, missing)
        for _, inner in subgraphs(node) if node.attributes else ():
            owner = label(node) if self.owner is None else f"{self.owner} / {label(node)}"
            overridable = self._overridable()
            own = {key: tensor for key, tensor in self.graph.constants.items() if key not in overridable}
            constants = self.outer_constants.new_child(own)
            for name in _Scope(inner, (*self.outer, written), constants, self.errors, owner, self.deviate).check():
                self._read(index, node, name, missing)
        for name in node.outputs:
            if name is None:
                continue
            if name in written or self.outer:
                self._write(name, index, label(node))
            else:
                written[name] = index

    def _write(self, name: str, index: int, node: str | None) -> None:
        if name in self.written:
            self._add_fault("graph.repeated", f"each name must be written once, got {name!r} twice", node)
        elif self._is_outer(name):
            self._add_fault("graph.repeated", f"{name!r} must not have the name of a value in an outer graph", node)
        else:
            self.written[name] = index

    def _read(self, index: int, node: ForeignNode, name: str, missing: list[str]) -> None:
        if name in self.all:
            self.late.append((index, name))
        elif not self._is_outer(name):
            self._add_missing(name, f"{node.kind} reads {name!r}, which no node produces", label(node), missing)

    def _add_missing(self, name: str, message: str, node: str | None, missing: list[str]) -> None:
        if self.outer:
            missing.append(name)
        else:
            self._add_fault("graph.dangling", message, node)

    def _is_outer(self, name: str) -> bool:
        return any(name in scope for scope in self.outer)

    def _add_fault(self, code: str, message: str, node: str | None) -> None:
        self.errors.append(FormatError(code, message, node=node))

    def _report_late(self) -> None:
        if not self.late:
            return
        cycle = _find_cycle(self.graph, self.all, self.late)
        if cycle:
            names = " -> ".join(label(self.graph.nodes[index]) for index in cycle[:8])
            self._add_fault(
                "graph.cycle", f"the graph must have no cycle, got {len(cycle)} nodes: {names}", label(self.graph.nodes[cycle[0]])
            )
        for index, name in self.late:
            if index not in cycle:
                node, writer = self.graph.nodes[index], self.graph.nodes[self.all[name]]
                message = f"{node.kind} reads {name!r}, which the later node {label(writer)} produces"
                self.deviate(FormatError("graph.order", message, node=label(node)))
        if not cycle:
            self.graph.nodes = _sort_topologically(self.graph.nodes, self.all)


def _are_equal(first: ForeignTensor, second: ForeignTensor) -> bool:
    a, b = first.data, second.data
    if first.dtype is not second.dtype or a.shape != b.shape:
        return False
    return bool(a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes())


def _names_within(graph: ForeignGraph) -> Iterator[str]:
    """Yield every name that ``graph`` or one of its subgraphs defines or reads."""
    yield from (value.key for value in (*graph.inputs, *graph.outputs))
    yield from graph.constants
    for node in graph.nodes:
        yield from (name for name in (*node.inputs, *node.outputs) if name is not None)
        for _, inner in subgraphs(node):
            yield from _names_within(inner)


def _rename_reads(graph: ForeignGraph, names: Mapping[str, str]) -> None:
    """Replace reads of the keys of ``names`` in ``graph`` and its subgraphs by the new names.

    A subgraph whose input has the old name reads that input, and is left unchanged for that name.
    """
    for node in graph.nodes:
        node.inputs = [None if name is None else names.get(name, name) for name in node.inputs]
        for _, inner in subgraphs(node):
            own = {value.key for value in inner.inputs}
            _rename_reads(inner, {name: new for name, new in names.items() if name not in own})
    for value in (*graph.outputs, *graph.values.values()):
        _rename_value(value, names)
    graph.values = {names.get(name, name): value for name, value in graph.values.items()}


def _rename_value(value: ForeignValue, names: Mapping[str, str]) -> None:
    value.names = tuple(names.get(name, name) for name in value.names)
    value.key = names.get(value.key, value.key)


def rename_repeated_nodes(graph: ForeignGraph, deviate: Deviate) -> None:
    """Rename nodes that have the name of another node in their graph; no part of a model refers to node names.

    ``deviate`` gets a FormatError [node.name] for each. Source: onnx/docs/IR.md, "Names Within a Graph".
    """
    names: set[str] = set()
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.name and node.name in names:
            location = f"{node.place} ({node.kind})"
            deviate(FormatError("node.name", f"nodes must have different names, got {node.name!r} twice", node=location))
            count = counts.get(node.name, 2)
            while f"{node.name}_{count}" in names:
                count += 1
            counts[node.name] = count
            node.name = f"{node.name}_{count}"
        names.add(node.name)
        for _, inner in subgraphs(node):
            rename_repeated_nodes(inner, deviate)


def _sort_topologically(nodes: list[ForeignNode], writers: dict[str, int]) -> list[ForeignNode]:
    """Sort the nodes topologically; among ready nodes, the first in the present order comes first."""
    order = topological_order(
        [{writers[name] for name in _names_read(node) if name in writers} - {index} for index, node in enumerate(nodes)]
    )
    return [nodes[index] for index in order] if len(order) == len(nodes) else nodes


def _names_read(node: ForeignNode) -> Iterator[str]:
    """Yield the names that a node and the nodes and outputs of its subgraphs read; subgraphs never redefine outer names."""
    yield from filter(None, node.inputs)
    for _, inner in subgraphs(node):
        yield from (value.key for value in inner.outputs)
        for inner_node in inner.nodes:
            yield from _names_read(inner_node)


def _find_cycle(graph: ForeignGraph, writers: dict[str, int], late: list[tuple[int, str]]) -> list[int]:
    """Return the indices of the nodes of one cycle, in data-flow order; an empty list if there is no cycle."""
    reads: list[set[int]] = [{writers[name] for name in node.inputs if name in writers} for node in graph.nodes]
    for index, name in late:
        reads[index].add(writers[name])
    return _walk_back(reads, set(range(len(reads))).difference(topological_order(reads)))


def _walk_back(reads: list[set[int]], waiting_nodes: set[int]) -> list[int]:
    """Return one cycle among ``waiting_nodes``, in data-flow order, by following reads backwards until a node repeats."""
    if not waiting_nodes:
        return []
    path: list[int] = []
    positions: dict[int, int] = {}
    index = min(waiting_nodes)
    while index not in positions:
        positions[index] = len(path)
        path.append(index)
        index = min(reads[index] & waiting_nodes)
    cycle = path[positions[index] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
