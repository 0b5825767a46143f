"""One graph of a comparison as numbered nodes and references, with Identity and the names of values gone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from dovetail.difference.constant_keys import canonical_op, constant_key, op_key, type_key
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, bodies, host_inputs
from dovetail.ops.constant import Constant, Identity


class Ref(NamedTuple):
    """The source of an operand: ``kind`` is "none", "input", "constant" or "node", ``number`` its number of that kind.

    ``output`` is the output of the node.
    """

    kind: str
    number: int = 0
    output: int = 0


NONE = Ref("none")


class Interner:
    """Numbers for keys, shared by both sides: two nodes have one number where their keys are equal."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


class Use(NamedTuple):
    """One read of a node's output: operand ``slot`` of the node ``reader``."""

    reader: int
    slot: int
    output: int


class Side:
    """A graph with its nodes numbered in topological order, constants and Identity apart.

    ``refs`` are the operands of each node, ``uses`` the readers, ``results`` the positions of graph outputs. Keys of three
    levels: ``exact`` has attributes and the elements of constants, ``structure`` attributes and the types of constants, ``kinds``
    the class of the operator.
    """

    def __init__(self, graph: Graph, interner: Interner) -> None:
        self.graph = graph
        self.interner = interner
        self.constants: list[Constant] = []
        self.nodes: list[Node] = []
        self.ops: list[Op] = []
        self.refs: list[tuple[Ref, ...]] = []
        self.identities: list[tuple[Node, Ref]] = []
        self.refs_of_values: dict[int, Ref] = {id(x): Ref("input", index) for index, x in enumerate(graph.inputs)}
        self._constant_numbers: dict[tuple[int, bool], int] = {}
        for node in graph.nodes:
            self._add(node)
        self.uses: list[list[Use]] = [[] for _ in self.nodes]
        for reader, refs in enumerate(self.refs):
            for slot, ref in enumerate(refs):
                if ref.kind == "node":
                    self.uses[ref.number].append(Use(reader, slot, ref.output))
        self.output_refs = [self.ref(y) for y in graph.outputs]
        self.results: dict[int, list[tuple[int, int]]] = {}
        for position, ref in enumerate(self.output_refs):
            if ref.kind == "node":
                self.results.setdefault(ref.number, []).append((position, ref.output))
        self.exact: list[int] = []
        self.structure: list[int] = []
        self.kinds: list[int] = []
        for number in range(len(self.nodes)):
            self._add_keys(number)

    def ref(self, value: Value | None) -> Ref:
        return NONE if value is None else self.refs_of_values.get(id(value), NONE)

    def describe(self, ref: Ref) -> str:
        """Return the name of an operand."""
        if ref.kind == "input":
            return self.graph.inputs[ref.number].name
        if ref.kind == "node":
            return self.nodes[ref.number].outputs[ref.output].name
        if ref.kind == "constant":
            return str(self.constants[ref.number])
        return "nothing"

    def _add(self, node: Node) -> None:
        if isinstance(node.op, Constant):
            ref = Ref("constant", len(self.constants))
            self.constants.append(node.op)
            self.refs_of_values[id(node.outputs[0])] = ref
            return
        refs = tuple(map(self.ref, node.inputs))
        if isinstance(node.op, Identity):
            self.identities.append((node, refs[0]))
            self.refs_of_values[id(node.outputs[0])] = refs[0]
            return
        for output, value in enumerate(node.outputs):
            self.refs_of_values[id(value)] = Ref("node", len(self.nodes), output)
        while refs and refs[-1] == NONE:
            refs = refs[:-1]
        self.nodes.append(node)
        self.ops.append(canonical_op(node))
        self.refs.append(refs)

    def _add_keys(self, number: int) -> None:
        node, op, refs = self.nodes[number], self.ops[number], self.refs[number]
        hosts = host_inputs(node.op, len(node.inputs)) if node.inputs else ()
        subgraphs = tuple(graph_key(body, self.interner) for _, body in bodies(op))
        key = (op_key(op), subgraphs, len(node.outputs))
        intern = self.interner.number
        contents = tuple(
            self.constant_number(ref.number, hosts[slot]) if ref.kind == "constant" else -1 for slot, ref in enumerate(refs)
        )
        types = tuple(type_key(self.constants[ref.number]) if ref.kind == "constant" else None for ref in refs)
        self.exact.append(intern(("exact", key, contents)))
        self.structure.append(intern(("structure", (op_key(op), len(subgraphs), len(node.outputs)), types)))
        self.kinds.append(intern(("kind", op_key(op)[:3] if type(op).__name__ == "Foreign" else type(op).__name__)))

    def constant_number(self, index: int, is_host: bool = False) -> int:
        """Return the number of a constant's content."""
        known = self._constant_numbers.get((index, is_host))
        if known is None:
            known = self.interner.number(("constant", constant_key(self.constants[index], is_host)))
            self._constant_numbers[index, is_host] = known
        return known


def graph_key(graph: Graph, interner: Interner) -> int:
    """Return the number of a subgraph's content: equal where its nodes compute the same from its inputs by position."""
    side = Side(graph, interner)
    colors: list[int] = []
    for number, refs in enumerate(side.refs):
        colors.append(interner.number(("inner", side.exact[number], tuple(_inner(side, ref, colors) for ref in refs))))
    outputs = tuple(_inner(side, ref, colors) for ref in side.output_refs)
    return interner.number(("graph", len(graph.inputs), outputs, tuple(sorted(colors)), len(side.identities)))


def _inner(side: Side, ref: Ref, colors: list[int]) -> tuple[str, int, int]:
    if ref.kind == "node":
        return ref.kind, colors[ref.number], ref.output
    return ref.kind, side.constant_number(ref.number) if ref.kind == "constant" else ref.number, 0
