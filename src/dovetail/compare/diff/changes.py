"""Changes of matched nodes, and nodes that only one of two graphs has."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

from dovetail.compare.diff.constant_keys import Weight, op_key, type_key
from dovetail.compare.diff.dimensions import Dimensions
from dovetail.compare.diff.equivalence import align
from dovetail.compare.diff.node_matches import Matching
from dovetail.compare.diff.regions import Regions
from dovetail.compare.diff.side import NONE, Ref
from dovetail.compare.diff.weights import WeightChange, compare_constants
from dovetail.errors import DovetailError
from dovetail.ir.graph import Graph, Node
from dovetail.ir.op import Op, bodies, host_inputs
from dovetail.ir.types import Unknown, is_static
from dovetail.laws.terms.keys import freeze

DERIVED = ("broadcast", "empty")
"""Attributes that the import derives from the types of operands."""
MAX_ELEMENTS = 32
"""Maximum number of elements of an integer operand of shape rules that is shown element by element."""
MAX_SEEDS = 8
MAX_TEXT = 200
"""Maximum number of characters of the text of an attribute."""


@dataclass(frozen=True, slots=True)
class FactChange:
    """FactChange holds a fact of a node in both models: an attribute, an operand, or the type of an output."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name}: {self.before} became {self.after}"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """NodeChange is a difference between nodes of two models.

    ``kind`` is "changed" (one node of each model), "added", "removed", or "replaced" (several nodes). ``first`` and ``second``
    are the labels of the nodes in the two models; ``first_operators`` and ``second_operators`` are the operators of these nodes.
    ``path`` is the path of the subgraph.
    """

    kind: str
    path: str
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    first_operators: tuple[str, ...] = ()
    second_operators: tuple[str, ...] = ()
    attributes: tuple[FactChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    operands: tuple[FactChange, ...] = ()
    types: tuple[FactChange, ...] = ()

    @property
    def details(self) -> list[str]:
        """The changes, each as one line of text."""
        lines = []
        if self.kind == "changed" and self.first_operators != self.second_operators:
            lines.append(f"operator: {self.first_operators[0]} became {self.second_operators[0]}")
        return lines + [item.text for group in (self.attributes, self.weights, self.operands, self.types) for item in group]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class GraphChanges:
    """GraphChanges holds the differences between two graphs and their subgraphs, with counts of matched and renamed nodes."""

    changes: list[NodeChange] = field(default_factory=list)
    matched: int = 0
    renamed: int = 0
    resized: int = 0
    """Number of values whose types differ only because types of earlier values differ."""
    notes: list[str] = field(default_factory=list)

    def add(self, other: GraphChanges) -> None:
        """Add the differences of a subgraph to those of the graph."""
        self.changes += other.changes
        self.matched += other.matched
        self.renamed += other.renamed
        self.resized += other.resized
        self.notes += other.notes


class NodeComparison:
    """NodeComparison compares the matched nodes of two graphs, and the regions of nodes without a match."""

    def __init__(self, matching: Matching, dimensions: Dimensions, path: str, outputs: Sequence[tuple[int, int]]) -> None:
        self._outputs = outputs
        self._matching = matching
        self._dimensions = dimensions
        self._path = path
        self._sides = matching.sides
        self._regions = Regions(matching)
        self._compared: dict[Hashable, tuple[Weight, Weight, WeightChange | None]] = {}
        self.found = GraphChanges(notes=list(matching.notes))
        seeds = [seed for side in self._sides for seed in side.drawn_seeds]
        if self._sides[0].drawn_seeds != self._sides[1].drawn_seeds:
            self.found.notes.append(f"seeds that loading has assigned are not compared: {', '.join(seeds[:MAX_SEEDS])}")

    def run(self) -> Iterator[tuple[str, Graph, Graph]]:
        """Compare all nodes; yield the pairs of subgraphs of matched nodes, with their paths."""
        for first, second in enumerate(self._matching.partners[0]):
            if second < 0:
                continue
            nodes = self._sides[0].nodes[first], self._sides[1].nodes[second]
            self.found.matched += 1
            self.found.renamed += nodes[0].label != nodes[1].label
            yield from self._compare_pair(first, second, nodes)
        for pair in self._outputs:
            self._compare_output(*pair)
        self._add_regions()
        self._compare_identities()

    def _compare_output(self, first: int, second: int) -> None:
        one, other = self._sides[0].output_refs[first], self._sides[1].output_refs[second]
        names = tuple(side.graph.outputs[index].name for side, index in zip(self._sides, (first, second), strict=True))
        details: dict[str, Any] = {}
        if one.kind == other.kind == "constant":
            constants = self._sides[0].constants[one.number], self._sides[1].constants[other.number]
            change = compare_constants("elements", *constants)
            details = {} if change is None else {"weights": (change,)}
        elif not self._are_same(one, other) and not self._regions.explain(one, other):
            details = {"operands": (FactChange("computed by", self._sides[0].describe(one), self._sides[1].describe(other)),)}
        if details:
            kind = ("graph output",)
            self.found.changes.append(NodeChange("changed", self._path, names[:1], names[1:], kind, kind, **details))

    def _compare_pair(self, first: int, second: int, nodes: tuple[Node, Node]) -> Iterator[tuple[str, Graph, Graph]]:
        ops = self._sides[0].ops[first], self._sides[1].ops[second]
        attributes = () if self._sides[0].structure[first] == self._sides[1].structure[second] else compare_attributes(*ops)
        facts, weights, operands, explained = self._compare_operands(first, second, nodes)
        attributes = tuple(item for item in attributes if item.name not in explained) + facts
        if any(item.name in DERIVED for item in attributes) and self._may_have_other_inputs(nodes):
            attributes = tuple(item for item in attributes if item.name not in DERIVED)
        types: tuple[FactChange, ...] = ()
        differing = [
            FactChange(y.name, str(y.type), str(z.type))
            for y, z in zip(nodes[0].outputs, nodes[1].outputs, strict=False)
            if not self._dimensions.are_equal(y.type, z.type)
        ]
        if differing:
            if attributes or weights or operands or not self._has_other_inputs(nodes):
                types = tuple(differing)
            else:
                self.found.resized += len(differing)
        if attributes or weights or operands or types:
            self._add("changed", [nodes[0]], [nodes[1]], attributes=attributes, weights=weights, operands=operands, types=types)
        yield from self._subgraphs(nodes, ops)

    def _subgraphs(self, nodes: tuple[Node, Node], ops: tuple[Op, Op]) -> Iterator[tuple[str, Graph, Graph]]:
        for name in ops[0].fields_by_name:
            one, other = ops[0].__dict__[name], ops[1].__dict__.get(name)
            if isinstance(one, Graph) and isinstance(other, Graph):
                yield f"{self._path}{nodes[0].label}/{name}/", one, other

    def _has_other_inputs(self, nodes: tuple[Node, Node]) -> bool:
        """Return whether operands of two nodes differ in types or known elements, which may explain types of outputs."""
        pairs = [(x, z) for x, z in zip(nodes[0].inputs, nodes[1].inputs, strict=False) if x is not None and z is not None]
        return any(not self._dimensions.are_equal(x.type, z.type) or str(x.value) != str(z.value) for x, z in pairs)

    def _may_have_other_inputs(self, nodes: tuple[Node, Node]) -> bool:
        are_static = all(x is None or is_static(x.type) for node in nodes for x in node.inputs)
        return not are_static or self._has_other_inputs(nodes)

    def _compare_constants(self, name: str, first: Weight, second: Weight, is_host: bool) -> WeightChange | None:
        """Compare two constants. The result is cached, because several nodes may read the same pair."""
        key = _layout(first), _layout(second), is_host
        if key not in self._compared:
            # The arrays must stay alive, because the key contains their addresses.
            self._compared[key] = first, second, compare_constants(name, first, second, is_host=is_host)
        change = self._compared[key][-1]
        return None if change is None else replace(change, operand=name)

    def _in_order(self, refs: list[tuple[Ref, Ref]]) -> list[tuple[Ref, Ref]]:
        """Return new pairs of operands: each operand of the first node with an equal operand of the second node, if it exists."""
        free = [other for _, other in refs]
        partners: list[Ref | None] = []
        for one, _ in refs:
            same = next((index for index, other in enumerate(free) if self._are_same(one, other)), None)
            partners.append(None if same is None else free.pop(same))
        return [(one, free.pop(0) if other is None else other) for (one, _), other in zip(refs, partners, strict=True)]

    def _compare_operands(
        self, first: int, second: int, nodes: tuple[Node, Node]
    ) -> tuple[tuple[FactChange, ...], tuple[WeightChange, ...], tuple[FactChange, ...], set[str]]:
        """Return the changes of small integers, of weights and of other operands, and the attributes that weights explain."""
        ops = self._sides[0].ops[first], self._sides[1].ops[second]
        explained: set[str] = set()
        refs = list(zip_longest(self._sides[0].refs[first], self._sides[1].refs[second], fillvalue=NONE))
        if not all(self._are_same(*pair) for pair in refs) and all(_is_commutative(node) for node in nodes):
            ordered = self._in_order(refs)
            if sum(self._are_same(*pair) for pair in ordered) > sum(self._are_same(*pair) for pair in refs):
                refs = ordered
        hosts = host_inputs(nodes[0].op, len(nodes[0].inputs)) if nodes[0].inputs else ()
        facts: list[FactChange] = []
        weights: list[WeightChange] = []
        operands: list[FactChange] = []
        for slot, (one, other) in enumerate(refs):
            name = _operand_name(nodes[0], slot)
            if one.kind == other.kind == "constant":
                is_host = slot < len(hosts) and hosts[slot]
                stored = self._sides[0].constants[one.number], self._sides[1].constants[other.number]
                before, after, attribute = align(nodes, ops, name, *stored)
                constants = before, after
                change = self._compare_constants(name, *constants, is_host)
                if attribute and change is None:
                    explained.add(attribute)
                elif attribute:
                    # The changed attribute does not explain the elements: compare the stored elements.
                    constants = stored
                    change = self._compare_constants(name, *constants, is_host)
                if change is not None and is_host and all(each.data.size <= MAX_ELEMENTS for each in constants):
                    # A small integer operand, such as an axis or a shape, is reported like an attribute.
                    facts.append(FactChange(name, *(str(each.data.tolist()) for each in constants)))
                elif change is not None:
                    weights.append(change)
            elif not self._are_same(one, other) and not self._regions.explain(one, other):
                operands.append(FactChange(name, self._sides[0].describe(one), self._sides[1].describe(other)))
        return tuple(facts), tuple(weights), tuple(operands), explained

    def _are_same(self, first: Ref, second: Ref) -> bool:
        """Return whether two operands are the same value: paired values, or values with equal computations from the inputs."""
        if first.kind == second.kind == "constant":
            return self._sides[0].constant_number(first.number) == self._sides[1].constant_number(second.number)
        keys = self._matching.ref_key(0, first), self._matching.ref_key(1, second)
        if keys[0] is not None and keys[0] == keys[1]:
            return True
        if first.kind != "node" or second.kind != "node" or first.output != second.output:
            return False
        return self._matching.have_equal_values(first.number, second.number)

    def _add_regions(self) -> None:
        for region in self._regions.collect():
            first, second = ([self._sides[side].nodes[node] for node in region.nodes[side]] for side in (0, 1))
            if first and second:
                kind = "changed" if len(first) == len(second) == 1 else "replaced"
                self._add(kind, first, second)
                continue
            for node in first:
                self._add("removed", [node], [])
            for node in second:
                self._add("added", [], [node])

    def _compare_identities(self) -> None:
        """Report Identity nodes as removed or added if the graphs have different numbers of Identity nodes of one value."""
        groups: dict[Hashable, tuple[list[Node], list[Node]]] = {}
        for side in (0, 1):
            for node, ref in self._sides[side].identities:
                key = self._matching.ref_key(side, ref)
                if ref.kind == "constant":
                    # Different elements are reported as changes of the nodes that read the constant.
                    key = "constant", type_key(self._sides[side].constants[ref.number])
                if key is None:
                    key = "region", side, ref.number
                groups.setdefault(key, ([], []))[side].append(node)
        for first, second in groups.values():
            count = min(len(first), len(second))
            self.found.matched += count
            for node in _without_common_names(first, second, count):
                self._add("removed", [node], [])
            for node in _without_common_names(second, first, count):
                self._add("added", [], [node])

    def _add(self, kind: str, first: list[Node], second: list[Node], **details: Any) -> None:
        self.found.changes.append(
            NodeChange(
                kind,
                self._path,
                tuple(node.label for node in first),
                tuple(node.label for node in second),
                tuple(node.title for node in first),
                tuple(node.title for node in second),
                **details,
            )
        )


def _layout(weight: Weight) -> Hashable:
    """Return a key of the memory of a constant: address, shape, strides and types."""
    data = weight.data
    return data.ctypes.data, data.shape, data.strides, weight.dtype, weight.stored


def _without_common_names(nodes: list[Node], others: list[Node], count: int) -> list[Node]:
    """Return ``nodes`` without ``count`` of them; nodes whose names also occur among ``others`` are left out first."""
    names = {node.label for node in others}
    ordered = sorted(nodes, key=lambda node: node.label not in names)
    return ordered[count:]


def _is_commutative(node: Node) -> bool:
    try:
        return bool(node.inputs) and None not in node.inputs and node.op.is_commutative(*node.inputs)
    except (Unknown, DovetailError):
        return False


def compare_attributes(first: Op, second: Op) -> tuple[FactChange, ...]:
    """Return the attributes in which two operators of one class differ."""
    if type(first) is not type(second):
        return (FactChange("operator", first.title, second.title),)
    if op_key(first) == op_key(second):
        return ()
    subgraphs = {name for name, _ in bodies(first)}
    names = [name for name in dict.fromkeys([*first.__dict__, *second.__dict__]) if name not in subgraphs]
    found = [
        FactChange(name, _text(first.__dict__.get(name)), _text(second.__dict__.get(name)))
        for name in names
        if freeze(first.__dict__.get(name)) != freeze(second.__dict__.get(name))
    ]
    return tuple(found)


def _text(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _operand_name(node: Node, slot: int) -> str:
    if not node.inputs:
        return f"operand {slot}"
    try:
        port = node.op.signature.port(min(slot, len(node.inputs) - 1), len(node.inputs))
    except (LookupError, TypeError):
        return f"operand {slot}"
    return f"{port.name}[{slot}]" if port.repeated else port.name
