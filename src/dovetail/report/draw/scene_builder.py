"""Build the scene of a graph: modules and subgraphs become frames, and weights are listed in the cards of their readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.errors import printable
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.modules import MAX_PARTS, common_prefix, module_paths
from dovetail.ir.op import Op, bodies, has
from dovetail.report.draw.arrangement import arrange
from dovetail.report.draw.attention import MODULE, attention_chains
from dovetail.report.draw.module_calls import Part, call_paths
from dovetail.report.draw.scene import (
    MAX_TITLE,
    Card,
    End,
    Frame,
    Gate,
    Item,
    Scene,
    all_frames,
    full_name,
    shape_label,
    shorten,
    summarize,
)

MAX_NODES = 200_000
"""The maximum number of drawn nodes of a model, which take about 30 seconds."""
MAX_EDGES = 500_000
"""The maximum number of drawn edges of a graph, which take about 20 seconds."""
MAX_SUBGRAPHS = 6
"""The maximum nesting depth of drawn subgraphs."""
MAX_CARDS = 12
"""The maximum number of cards for inputs, and for outputs, of one graph."""
MAX_GATES = 12
"""The maximum number of entries, and of exits, of a frame."""
MAX_LINES = 4
"""The maximum number of lines for weights on a card; a Slice has four: starts, ends, axes and steps."""
MAX_INDEX = 2**63 - 1
"""The index that represents the end of an axis in ONNX."""


def build_scene(model: Model) -> Scene:
    """Build the scene of a model: its nodes as cards in nested frames, without positions."""
    return SceneBuilder().build(model)


class SceneBuilder:
    """SceneBuilder is the state of building one scene: notes, edges, and tokens, which are equal for equal items."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.edges: list[tuple[Item, Item, Value]] = []
        self.tokens: dict[Any, int] = {}
        self.room = MAX_NODES
        self.words = {"input": "input", "output": "output"}

    def build(self, model: Model) -> Scene:
        if model.format == "openvino":
            self.words = {"input": "Parameter", "output": "Result"}
        root = self._graph_frame(model.graph, "graph", printable(model.title), 0)
        _splice_single_module(root)
        self._link()
        copies = arrange(root, self.tokens, self.notes)
        _clear_links(root)
        self._link(copies.representative, copies.are_apart)
        for frame in all_frames(root):
            _merge_gates(frame)
            frame.summary = summarize(frame)
        return Scene(root, list(dict.fromkeys(self.notes)))

    # Items

    def _graph_frame(self, graph: Graph, kind: str, title: str, depth: int) -> Frame:
        """Return a frame with the items of a graph, and add its edges."""
        root = Frame(kind, title, 0)
        items: dict[Node, Item] = {}
        sources: dict[Value, Item] = {}
        modules: dict[tuple[Part, ...], Frame] = {(): root}
        computed = _computed_weights(graph)
        for position, node in enumerate(self._drawn_nodes(graph, computed)):
            items[node] = self._node_item(node, position, depth, computed)
        paths = _paths_with_attention(graph, items)
        readers = {node: [reader for y in node.outputs for reader, _ in y.uses if reader in items] for node in items}
        for node, path in call_paths({node: paths[node] for node in items}, readers).items():
            _module_frame(modules, path, items[node].position).children.append(items[node])
        _count(root)
        _simplify(root)
        _mark_attention(root)
        root.children[:0] = self._terminals("input", graph.inputs, sources, -1)
        targets: dict[Value, Item] = {}
        root.children += self._terminals("output", list(dict.fromkeys(graph.outputs)), targets, len(graph.nodes))
        _set_parents(root)
        limit = self._edges_of_node(items)
        for node, item in items.items():
            for x in list(dict.fromkeys(node.inputs))[:limit]:
                if x is not None:
                    self._add_edge(items, sources, x, item)
        for value, item in targets.items():
            self._add_edge(items, sources, value, item)
        return root

    def _drawn_nodes(self, graph: Graph, computed: ComputedWeights) -> list[Node]:
        """Return the nodes of a graph that get boxes; all graphs together have at most MAX_NODES."""
        nodes = [node for node in graph.nodes if not _is_weight(node) and node not in computed.readers]
        if len(nodes) > self.room:
            self.notes.append(f"very many nodes: the first {self.room:,} of {len(nodes):,} are drawn")
            del nodes[self.room :]
        self.room -= len(nodes)
        return nodes

    def _edges_of_node(self, nodes: Collection[Node]) -> int | None:
        """Return the maximum number of drawn edges into one node; None if all edges are drawn."""
        count = sum(len(node.inputs) for node in nodes)
        if count <= MAX_EDGES:
            return None
        limit = max(MAX_EDGES // len(nodes), 1)
        self.notes.append(f"very many edges: of {count:,} the first {limit:,} of each node are drawn")
        return limit

    def _add_edge(self, items: dict[Node, Item], sources: dict[Value, Item], value: Value, target: Item) -> None:
        source = sources.get(value) if value.node is None else items.get(value.node)
        if source is not None:
            self.edges.append((source, target, value))

    def _node_item(self, node: Node, position: int, depth: int, computed: ComputedWeights) -> Item:
        subgraphs = list(bodies(node.op))
        inner = computed.nodes_of(node)
        names = (node.label, *(each.label for each in inner))
        title, lines = shorten(node.title, 26), _weight_lines(node, computed)
        if not subgraphs or depth >= MAX_SUBGRAPHS:
            if subgraphs:
                self.notes.append(f"subgraphs in more than {MAX_SUBGRAPHS} others are not drawn")
            kind = (
                "control"
                if subgraphs
                else "movement"
                if _is_movement(node.op)
                else "weighted"
                if _has_weights(node, computed)
                else "operator"
            )
            card = Card(kind, title, full_name(node.label), position, lines, names, total=len(names), detail=_detail(node))
            card.node = node
            card.token = self._token(("card", _signature(node), lines, len(names)))
            return card
        frame = Frame("control", f"{title} {shorten(node.label)}", position, nodes=names, detail=_detail(node))
        frame.node = node
        frame.children = [self._graph_frame(body, "subgraph", name, depth + 1) for name, body in subgraphs]
        frame.token = self._token(("control", _signature(node), lines))
        return frame

    def _terminals(self, kind: str, values: list[Value], owners: dict[Value, Item], position: int) -> list[Item]:
        """Return the cards of inputs or outputs: one for each, or else one for each type, or else a single card.

        At most MAX_CARDS cards are returned.
        """
        groups: dict[Any, list[Value]] = {value: [value] for value in values}
        if len(groups) > MAX_CARDS:
            groups = {}
            for value in values:
                groups.setdefault(shape_label(value), []).append(value)
        if len(groups) > MAX_CARDS:
            groups = {None: values}
        cards: list[Item] = []
        for group in groups.values():
            word = self.words[kind]
            title = word if len(group) == 1 else f"{len(group):,} {word}s"
            name = full_name(group[0].name) + (f" … {full_name(group[-1].name)}" if len(group) > 1 else "")
            lines = (shape_label(group[0]),) if kind == "output" and len(group) == 1 else ()
            card = Card(kind, title, name, position, lines, total=0, detail=printable(str(group[0].type))[:MAX_TITLE])
            card.token = self._token((kind, lines, name))
            owners.update(dict.fromkeys(group, card))
            cards.append(card)
        return cards

    def _token(self, key: Hashable) -> int:
        return self.tokens.setdefault(key, len(self.tokens))

    # Links

    def _link(self, representative: Callable[..., Any] | None = None, are_apart: Any = None) -> None:
        """Add each edge to the frames that it crosses, except edges between two merged copies."""
        seen = set()
        for source, target, value in self.edges:
            if representative is not None:
                if are_apart(source, target):
                    continue
                source, target = representative(source), representative(target)
            if (source, target, value) not in seen:
                seen.add((source, target, value))
                _add_link(source, target, value)


def _add_link(source: End, target: End, value: Value) -> None:
    """Link two items through the gates of the frames between them."""
    up, down = _chain(source), _chain(target)
    common = 0
    while common < min(len(up), len(down)) and up[common] is down[common]:
        common += 1
    if common == len(up) or common == len(down):
        return
    for frame, inner in zip(up[common:-1], up[common + 1 :], strict=True):
        assert isinstance(frame, Frame)
        gate = frame.exits.setdefault(value, Gate(False, frame))
        frame.links.setdefault((inner, gate), {})[value] = None
    for frame, inner in zip(down[common:-1], down[common + 1 :], strict=True):
        assert isinstance(frame, Frame)
        gate = frame.entries.setdefault(value, Gate(True, frame))
        frame.links.setdefault((gate, inner), {})[value] = None
    around = up[common - 1]
    assert isinstance(around, Frame)
    around.links.setdefault((up[common], down[common]), {})[value] = None


def _chain(item: End) -> list[End]:
    """Return the enclosing frames of an item, the outermost first, followed by the item."""
    chain: list[End] = [item]
    while (parent := chain[-1].parent) is not None:
        chain.append(parent)
    return chain[::-1]


def _merge_gates(frame: Frame) -> None:
    """Merge the gates of a frame: exits of equal sources and, if there are more than MAX_GATES entries, entries of equal targets.

    If more than MAX_GATES gates remain on a side, all gates of that side are merged.
    """
    for gates, side in ((frame.entries, 0), (frame.exits, 1)):
        ends: dict[Gate, list[int]] = {}
        for pair in frame.links:
            if isinstance(pair[side], Gate) and not isinstance(pair[1 - side], Gate):
                ends.setdefault(pair[side], []).append(id(pair[1 - side]))  # type: ignore[arg-type]
        first: dict[Any, Gate] = {}
        by_items = {gate: first.setdefault(tuple(sorted(items)), gate) for gate, items in ends.items()}
        merged = by_items if side or len(ends) > MAX_GATES else dict(zip(ends, ends, strict=True))
        if len(set(merged.values())) > MAX_GATES:
            merged = dict.fromkeys(ends, next(iter(ends)))
        for value, gate in gates.items():
            gates[value] = merged.get(gate, gate)
        links: dict[tuple[End, End], dict[Value, None]] = {}
        for (source, target), values in frame.links.items():
            pair = (merged.get(source, source), target) if side == 0 else (source, merged.get(target, target))  # type: ignore
            links.setdefault(pair, {}).update(values)
        frame.links = links


def _clear_links(root: Frame) -> None:
    for frame in all_frames(root):
        frame.links, frame.entries, frame.exits = {}, {}, {}
    _set_parents(root)


def _set_parents(root: Frame) -> None:
    for frame in all_frames(root):
        for child in frame.children:
            child.parent = frame


# Modules


ATTENTION = "attention\0"
"""The start of the name of a module that the drawing adds around an attention; no file can have this name."""


def _paths_with_attention(graph: Graph, drawn: Collection[Node]) -> dict[Node, tuple[str, ...]]:
    """Return the module path of each node; the nodes of each attention are in a module of their own."""
    paths = module_paths(graph)
    for number, chain in enumerate(attention_chains(graph)):
        if all(node in drawn for node in chain):
            around = common_prefix([paths[node] for node in chain])[: MAX_PARTS - 1]
            paths |= dict.fromkeys(chain, (*around, f"{ATTENTION}{number}"))
    return paths


def _mark_attention(root: Frame) -> int:
    """Mark the frames to fold: each attention, or the outermost module around a single one that its name calls attention.

    Returns the number of attentions in ``root``.
    """
    inner = sum(_mark_attention(child) for child in root.children if isinstance(child, Frame) and child.kind == "module")
    count = inner + root.is_attention
    root.is_attention = root.is_attention or (root.kind == "module" and count == 1 and bool(MODULE.search(root.title)))
    return count


def _module_frame(modules: dict[tuple[Part, ...], Frame], path: tuple[Part, ...], position: int) -> Frame:
    if path not in modules:
        is_attention = path[-1][0].startswith(ATTENTION)
        frame = Frame("module", "attention" if is_attention else full_name(path[-1][0]), position, is_attention=is_attention)
        _module_frame(modules, path[:-1], position).children.append(frame)
        modules[path] = frame
    return modules[path]


def _count(frame: Frame) -> int:
    frame.total = len(frame.nodes) + sum(_count(child) if isinstance(child, Frame) else child.total for child in frame.children)
    return frame.total


def _simplify(frame: Frame) -> None:
    """Replace each module with a single item by that item; the titles of nested modules are joined."""
    for index, child in enumerate(frame.children):
        if not isinstance(child, Frame) or child.kind != "module":
            continue
        _simplify(child)
        if len(child.children) == 1:
            only = child.children[0]
            if isinstance(only, Frame) and only.kind == "module":
                only.title = shorten(f"{child.title}/{only.title}", MAX_TITLE)
            frame.children[index] = only


def _splice_single_module(root: Frame) -> None:
    """Replace a module that contains all nodes by its content."""
    while True:
        inner = [child for child in root.children if child.total]
        if len(inner) != 1 or not isinstance(inner[0], Frame) or inner[0].kind != "module":
            return
        position = root.children.index(inner[0])
        root.children[position : position + 1] = inner[0].children
        for child in root.children:
            child.parent = root


# Nodes


def _is_weight(node: Node) -> bool:
    """Return whether a node is a constant with readers, which is listed on the cards of its readers."""
    return len(node.outputs) == 1 and node.outputs[0].storage is not None and bool(node.outputs[0].uses)


def _is_movement(op: Op) -> bool:
    """Return whether an operator only moves data, that is, has the rule ``windows``."""
    return has(op, "windows")


@dataclass(slots=True)
class ComputedWeights:
    """ComputedWeights holds the nodes that compute a weight from constants; the card of the weight's reader represents them."""

    readers: dict[Node, Node]
    nodes: dict[Node, list[Node]]

    def nodes_of(self, node: Node) -> list[Node]:
        """Return all nodes that compute weights of ``node``, directly or through other computed weights."""
        found: list[Node] = []
        pending = list(self.nodes.get(node, ()))
        while pending:
            found.append(pending.pop())
            pending += self.nodes.get(found[-1], ())
        return found


def _computed_weights(graph: Graph) -> ComputedWeights:
    computed = ComputedWeights({}, {})
    outputs = set(graph.outputs)
    for node in graph.nodes:
        is_constant = all(
            x is None or (x.node is not None and (_is_weight(x.node) or x.node in computed.readers)) for x in node.inputs
        )
        if not is_constant or _is_weight(node) or len(node.outputs) != 1 or next(bodies(node.op), None) is not None:
            continue
        readers = {reader for reader, _ in node.outputs[0].uses}
        if len(readers) == 1 and node.outputs[0] not in outputs:
            (reader,) = readers
            computed.readers[node] = reader
            computed.nodes.setdefault(reader, []).append(node)
    return computed


def _weights(node: Node, computed: ComputedWeights) -> Iterator[tuple[str, Value]]:
    """Yield the name in the operator's signature and the value of each input that is a weight."""
    for name, x in operands_of(node):
        if x is not None and (x.constant is not None or x.node in computed.readers):
            yield name, x


def operands_of(node: Node) -> Iterator[tuple[str, Value | None]]:
    """Yield the inputs of a node with their names in the operator's signature; a repeated input is numbered.

    The name is empty for an input that the signature does not have, as for all inputs of an operator unknown to dovetail.
    """
    signature, count = node.op.signature, len(node.inputs)
    for index, x in enumerate(node.inputs):
        if not signature.inputs or (signature.repeated is None and index >= len(signature.inputs)):
            yield "", x
            continue
        port = signature.port(index, count)
        yield f"{port.name}[{index - (signature.repeated or 0)}]" if port.repeated else port.name, x


def _has_weights(node: Node, computed: ComputedWeights) -> bool:
    return any((data := x.constant) is None or data.size > 8 for _, x in _weights(node, computed))


def _weight_lines(node: Node, computed: ComputedWeights) -> tuple[str, ...]:
    lines = []
    for name, x in _weights(node, computed):
        data = x.constant
        line = shape_label(x) if data is None else _constant_line(shape_label(x), data)
        lines.append(f"{name}: {line}" if name else line)
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [f"and {len(lines) - MAX_LINES + 1} more constants"]
    return tuple(lines)


def _constant_line(label: str, data: np.ndarray[Any, Any]) -> str:
    if data.size > 6 or data.dtype.kind not in "biuf":
        return label
    items = ", ".join(map(_element_label, data.reshape(-1).tolist()))
    return shorten(items if data.ndim == 0 else f"[{items}]", 26)


def _element_label(item: float) -> str:
    """Return the text of an element; MAX_INDEX is written as a power of two minus one."""
    return "2\u2076\u00b3\u22121" if item == MAX_INDEX else f"{item:.4g}" if isinstance(item, float) else str(item)


def _signature(node: Node) -> tuple[Any, ...]:
    """Return the properties that are equal for equal nodes of repeated blocks: operator, attributes, output types."""
    return (node.title, tuple(_attributes(node.op)), len(node.inputs), tuple(map(shape_label, node.outputs)))


def _attributes(op: Op) -> Iterable[str]:
    for attribute in op.fields:
        if attribute.annotation != "Graph" and attribute.name != "data":
            value = op.__dict__[attribute.name]
            if value is not None:
                yield f"{attribute.name}={shorten(str(value), 80)}"


def _detail(node: Node) -> str:
    """Return the attributes and the output types of a node for its tooltip."""
    attributes = ", ".join(list(_attributes(node.op))[:12])
    types = ", ".join(printable(str(y.type)) for y in node.outputs[:4])
    return shorten(f"{attributes}\n{types}" if attributes else types, MAX_TITLE).replace("\\x0a", "\n")
