"""One graph of a comparison as numbered nodes and references, without Identity and names of values."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from dovetail.compare.diff.constant_keys import Weight, canonical_op, constant_key, is_whole, op_key, type_key
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, bodies, host_inputs
from dovetail.laws.terms.keys import digest
from dovetail.ops.constant import Constant, Foreign, Identity
from dovetail.ops.elementwise.cast import Cast


class Ref(NamedTuple):
    """Ref is the source of an operand: ``kind`` is "none", "input", "constant" or "node".

    ``number`` is the index among the sources of this kind; ``output`` is the index of the node's output.
    """

    kind: str
    number: int = 0
    output: int = 0


NONE = Ref("none")
NEAR = 8
PLAIN = frozenset(("f16", "bf16", "f32", "f64"))
MIN_WEIGHT = 16
"""Minimum number of elements of a constant by which its reader may be matched without matched neighbours."""
MAX_WEIGHT = 1 << 22
"""Maximum number of elements of a constant whose minimum and maximum are computed."""


class Interner:
    """Interner assigns numbers to keys, shared by both sides: equal keys have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


class Use(NamedTuple):
    """Use is one read of a node's output ``output`` by the operand ``slot`` of the node ``reader``."""

    reader: int
    slot: int
    output: int


class Side:
    """Side is a graph with its nodes numbered in topological order, except constants and Identity.

    ``refs`` holds the operands of each node; ``uses`` holds the reads of each node; ``results`` holds the positions of graph
    outputs by node. Each node has keys of four levels:

    - ``exact``: attributes and elements of constants
    - ``structure``: attributes and types of constants
    - ``shapes``: operator class and sizes of constants
    - ``kinds``: only the operator class
    """

    def __init__(self, graph: Graph, interner: Interner) -> None:
        self.graph = graph
        self.interner = interner
        self.constants: list[Weight] = []
        self.nodes: list[Node] = []
        self.ops: list[Op] = []
        self.refs: list[tuple[Ref, ...]] = []
        self.identities: list[tuple[Node, Ref]] = []
        self.refs_of_values: dict[int, Ref] = {id(x): Ref("input", index) for index, x in enumerate(graph.inputs)}
        self._ranges: dict[int, tuple[int, float, float]] = {}
        self._constant_numbers: dict[tuple[int, bool], int] = {}
        self.drawn_seeds: list[str] = []
        for position, node in enumerate(graph.nodes):
            self._add(node, position)
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
        self.shapes: list[int] = []
        self.kinds: list[int] = []
        for number in range(len(self.nodes)):
            self._add_keys(number)

    def ref(self, value: Value | None) -> Ref:
        return NONE if value is None else self.refs_of_values.get(id(value), NONE)

    def describe(self, ref: Ref) -> str:
        """Return the name of an operand's source; the text of a constant, or "nothing" for an absent operand."""
        if ref.kind == "input":
            return self.graph.inputs[ref.number].name
        if ref.kind == "node":
            return self.nodes[ref.number].outputs[ref.output].name
        if ref.kind == "constant":
            return str(self.constants[ref.number])
        return "nothing"

    def _add(self, node: Node, position: int) -> None:
        if isinstance(node.op, Constant):
            self._add_constant(node, Weight(node.op.data, node.op.dtype, node.op.dtype))
            return
        if isinstance(node.op, Cast) and (widened := self._widen(node, node.op.to)) is not None:
            self._add_constant(node, widened)
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
        self.ops.append(self._without_drawn_seed(node, canonical_op(node), position))
        self.refs.append(refs)

    def _add_constant(self, node: Node, weight: Weight) -> None:
        self.refs_of_values[id(node.outputs[0])] = Ref("constant", len(self.constants))
        self.constants.append(weight)

    def _widen(self, node: Node, to: DType) -> Weight | None:
        """Return the constant operand of a Cast to a wider float type, with this type; None for any other Cast."""
        ref = self.ref(node.inputs[0])
        weight = self.constants[ref.number] if ref.kind == "constant" else None
        is_widened = weight is not None and weight.stored.is_float and to.is_float and weight.dtype.bits <= to.bits
        is_plain = is_widened and weight is not None and {weight.stored.name, weight.dtype.name, to.name} <= PLAIN
        return weight._replace(dtype=to) if is_plain and weight is not None and weight.stored.bits < to.bits else None

    def _without_drawn_seed(self, node: Node, op: Op, position: int) -> Op:
        """Return a random operator without the seed that the import assigned, because the file has no seed.

        An assigned seed is the number of nodes before the operator; folding may have changed this number slightly since.
        """
        seed = op.__dict__.get("seed")
        if not isinstance(seed, float) or op.__dict__.get("op_seed") or abs(seed - position) > NEAR + position // 10:
            return op
        self.drawn_seeds.append(f"seed {seed:g} of {node.label}")
        return op.with_(seed=0.0)

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
        kind = op_key(op)[:3] if isinstance(op, Foreign) else type(op).__name__
        sizes = tuple(sorted(tuple(sorted(self.constants[ref.number].data.shape)) for ref in refs if ref.kind == "constant"))
        self.shapes.append(intern(("shapes", kind, sizes)))
        self.kinds.append(intern(("kind", kind)))

    def whole_number(self, index: int) -> int:
        """Return the number of a constant's key with all elements; the key of ``constant_number`` may have only samples."""
        weight = self.constants[index]
        number = self.constant_number(index)
        return number if is_whole(weight.data) else self.interner.number(("whole constant", number, digest(weight.data)))

    def weight_range(self, number: int) -> Hashable:
        """Return the range of a node's largest float constant; None if there is no such constant.

        The range is the size, minimum and maximum, which a transposition keeps.
        """
        candidates = [self.constants[ref.number] for ref in self.refs[number] if ref.kind == "constant"]
        weight = max(candidates, key=lambda each: each.data.size, default=None)
        if weight is None or not MIN_WEIGHT <= weight.data.size <= MAX_WEIGHT or weight.data.dtype.kind != "f":
            return None
        known = self._ranges.get(id(weight))
        if known is None:
            # Rounded to f16, so that a weight that one side stores in f16 has the same range.
            low, high = (float(np.float16(bound)) for bound in (weight.data.min(), weight.data.max()))
            known = self._ranges[id(weight)] = (weight.data.size, low, high)
        return self.kinds[number], *known

    def constant_number(self, index: int, is_host: bool = False) -> int:
        """Return the number that the Interner assigns to the key of a constant."""
        known = self._constant_numbers.get((index, is_host))
        if known is None:
            known = self.interner.number(("constant", constant_key(self.constants[index], is_host)))
            self._constant_numbers[index, is_host] = known
        return known


def graph_key(graph: Graph, interner: Interner) -> int:
    """Return the number of a subgraph's key; subgraphs that compute the same from inputs by position have equal numbers."""
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
