"""Operations that change a graph. Each operation keeps uses, names and topological order consistent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dovetail.ir.graph import EXTENSIONS, Graph, Model, Node, Value
from dovetail.ir.op import Op, bodies, infer_types

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder


def connect(node: Node) -> Node:
    """Enter a new node as a reader of its inputs and as the producer of its outputs."""
    for index, x in enumerate(node.inputs):
        if x is not None:
            x.uses[node, index] = None
    for index, y in enumerate(node.outputs):
        y.node = node
        y.index = index
    return node


def grow(graph: Graph, node: Node, op: Op, names: Iterable[str]) -> list[Value]:
    """Replace a node's operator by ``op``, which has additional outputs. Returns these outputs, with names from ``names``."""
    first = len(node.outputs)
    types = infer_types(op, tuple(node.inputs), node.label)
    added = [Value(graph.claim(name), type, node) for name, type in zip(names, types[first:], strict=True)]
    node.op = op
    node.outputs += added
    for index, y in enumerate(node.outputs):
        y.index = index
    return added


def set_input(node: Node, index: int, value: Value | None) -> None:
    """Replace input ``index`` of ``node`` by ``value``."""
    old = node.inputs[index]
    if old is value:
        return
    if old is not None:
        del old.uses[node, index]
    node.inputs[index] = value
    if value is not None:
        value.uses[node, index] = None


def connect_input(node: Node, value: Value) -> None:
    """Add ``value`` as the last input of ``node``."""
    value.uses[node, len(node.inputs)] = None
    node.inputs.append(value)


def disconnect(node: Node) -> None:
    """Remove a node from the uses of its inputs, before the node is removed from its graph."""
    for index, x in enumerate(node.inputs):
        if x is not None:
            del x.uses[node, index]
    node.inputs = [None] * len(node.inputs)


def replace_uses(graph: Graph, old: Value, new: Value) -> None:
    """Replace the value ``old`` by ``new`` in the inputs of all nodes and in the graph's outputs."""
    move_readers(old, new)
    graph.outputs = [new if value is old else value for value in graph.outputs]


def move_readers(old: Value, new: Value) -> None:
    """Replace the value ``old`` by ``new`` in the inputs of all nodes."""
    for node, index in old.uses:
        node.inputs[index] = new
    new.uses.update(old.uses)
    old.uses = {}


def rename(graph: Graph, value: Value, name: str) -> None:
    """Rename ``value`` to ``name``; if that name is in use, to the first free name of name_2, name_3, ..."""
    if value.name != name:
        graph.release(value.name)
        value.name = graph.claim(name)


def free_names(graph: Graph, names: Mapping[str, str]) -> None:
    """Rename values inside of a graph, and remove aliases, that have one of the new names in ``names``, a map from old names."""
    wanted = set(names.values())
    for value in graph.values():
        value.names = tuple(name for name in value.names if name not in wanted)
        if value.name in wanted and value.name not in names:
            rename(graph, value, graph.free_name(f"{value.name}_inner"))


def take_name(graph: Graph, old: Value, new: Value) -> None:
    """Move the names and metadata of ``old`` to ``new``, which replaces it."""
    name = old.name
    rename(graph, old, f"{name}_old")
    graph.release(new.name)
    new.name = graph.claim(name)
    new.names, new.doc, new.metadata = old.names or new.names, old.doc or new.doc, {**new.metadata, **old.metadata}


def names_in(graph: Graph) -> set[str]:
    """Return the names of all values of a graph."""
    return {name for value in graph.values() for name in (value.name, *value.names)}


def remove_dead(graph: Graph, kept: Collection[int] = ()) -> int:
    """Remove every node whose outputs are all unused (dead code elimination). Returns the number of removed nodes.

    Graph inputs, DefaultInput nodes (the optional inputs) and nodes whose ``id`` is in ``kept`` are not removed.
    """
    outputs = {id(value) for value in graph.outputs}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        is_read = any(y.uses or id(y) in outputs for y in node.outputs)
        if is_read or id(node) in kept or type(node.op).__name__ == "DefaultInput":
            nodes.append(node)
            continue
        disconnect(node)
        for y in node.outputs:
            graph.release(y.name)
    removed = len(graph.nodes) - len(nodes)
    graph.nodes = nodes[::-1]
    return removed


def inherit(graph: Graph, mark: int, node: Node) -> None:
    """Give the location of ``node`` to all later nodes, from index ``mark`` of the graph, that have no location."""
    for new in graph.nodes[mark:]:
        new.location = new.location or node.location


def copy_graph(graph: Graph, mapping: dict[int, Value] | None = None) -> Graph:
    """Copy a graph: nodes, values and subgraphs are new; operators, types and constant data are shared."""
    new = Graph(graph.name)
    new.doc, new.metadata, new._names = graph.doc, dict(graph.metadata), dict(graph._names)
    new._released, new.fault = dict(graph._released), graph.fault
    copies: dict[int, Value] = {} if mapping is None else mapping
    new.inputs = [copy_value(value, copies) for value in graph.inputs]
    for node in graph.nodes:
        new.nodes.append(copy_node(node, copies))
    new.outputs = [copies[id(value)] for value in graph.outputs]
    return new


def copy_node(node: Node, copies: dict[int, Value]) -> Node:
    """Copy a node with its outputs. ``copies`` maps its inputs to their copies, and receives the copies of its outputs."""
    copy = Node(copy_op(node.op), [None if x is None else copies[id(x)] for x in node.inputs], [], node.name, node.location)
    copy.outputs = [copy_value(value, copies) for value in node.outputs]
    copy.doc, copy.metadata, copy.kind = node.doc, dict(node.metadata), node.kind
    return connect(copy)


def copy_op(op: Op) -> Op:
    """Return ``op`` with copies of its subgraphs."""
    changes = {name: copy_graph(body) for name, body in bodies(op)}
    return op.with_(**changes) if changes else op


def copy_value(value: Value, copies: dict[int, Value]) -> Value:
    """Copy a value without its producer and readers, and enter the copy into ``copies`` by the identity of ``value``."""
    new = Value(value.name, value.type)
    new.names, new._value, new.doc, new.metadata = value.names, value._value, value.doc, dict(value.metadata)
    copies[id(value)] = new
    return new


Flat = tuple[dict[str, Any], list[tuple[Any, ...]], list[tuple[Any, ...]], list[int], list[int]]


def flat(graph: Graph) -> Flat:
    """Convert a graph to tuples that can be pickled: nodes refer to values by their position in ``graph.values()``."""
    values = list(graph.values())
    number = {id(value): index for index, value in enumerate(values)}
    rows = [(x.name, x.type, x.names, x._value, x.doc, x.metadata) for x in values]
    nodes = [
        (
            node.op,
            [None if x is None else number[id(x)] for x in node.inputs],
            [number[id(y)] for y in node.outputs],
            (node.name, node.location, node.doc, node.metadata, node.kind),
        )
        for node in graph.nodes
    ]
    facts = {name: getattr(graph, name) for name in ("name", "doc", "metadata", "fault", "_names", "_released")}
    return facts, rows, nodes, [number[id(x)] for x in graph.inputs], [number[id(y)] for y in graph.outputs]


def unflat(rows: Flat) -> Graph:
    """Rebuild a graph from the tuples that ``flat`` returned."""
    facts, value_rows, node_rows, inputs, outputs = rows
    graph = Graph()
    for name, fact in facts.items():
        setattr(graph, name, fact)
    values = []
    for name, type, names, value, doc, metadata in value_rows:
        new = Value(name, type)
        new.names, new._value, new.doc, new.metadata = names, value, doc, metadata
        values.append(new)
    for op, xs, ys, (name, location, doc, metadata, kind) in node_rows:
        node = Node(op, [None if x is None else values[x] for x in xs], [values[y] for y in ys], name, location)
        node.doc, node.metadata, node.kind = doc, metadata, kind
        graph.nodes.append(connect(node))
    graph.inputs, graph.outputs = [values[x] for x in inputs], [values[y] for y in outputs]
    return graph


def copy_model(model: Model, graph: Graph | None = None) -> Model:
    """Copy a model. The graph of the new model is ``graph``, by default a copy of the model's graph."""
    new = Model(
        copy_graph(model.graph) if graph is None else graph, format=model.format, versions=model.versions, file=model.file
    )
    new.metadata, new.producer, new.doc = dict(model.metadata), model.producer, model.doc
    new.warnings = list(model.warnings)
    new.states = list(model.states)
    new.limits = model.limits
    return new


def inline(b: Builder, body: Graph, inputs: Iterable[Value | None], *, keep_names: bool = False) -> list[Value]:
    """Copy the nodes of the subgraph ``body`` into ``b``, replacing the subgraph's inputs by ``inputs``. Returns its outputs.

    With ``keep_names`` the new nodes keep the names and locations of the nodes of ``body``.
    """
    mapping: dict[int, Value | None] = {id(old): new for old, new in zip(body.inputs, inputs, strict=True)}
    for node in body.nodes:
        xs = [None if x is None else mapping[id(x)] for x in node.inputs]
        if keep_names:
            outputs = b.add(copy_op(node.op), *xs, names=[y.name for y in node.outputs], name=node.name)
            b.graph.nodes[-1].location = node.location
        else:
            outputs = b.add(copy_op(node.op), *xs)
        mapping.update({id(old): new for old, new in zip(node.outputs, outputs, strict=True)})
    results: list[Any] = [mapping[id(value)] for value in body.outputs]
    return results


def _reduce_graph(graph: Graph) -> tuple[Any, ...]:
    # pickle would recurse from each node to the next, to a depth of the number of nodes; the tuples of `flat` need no recursion.
    return unflat, (flat(graph),)


EXTENSIONS.copy_graph = copy_graph
EXTENSIONS.copy_model = copy_model
EXTENSIONS.reduce_graph = _reduce_graph
