"""Data-dependent sizes: the parts of a graph before and after them become subgraphs, planned once their sizes are known.

The number of boxes that a detector finds or the durations that a speech model predicts become known in the middle of a run. A
plan of the whole graph would have no shapes after that point, so that those steps would run in Python. Each subgraph is
therefore a separate program, whose inputs determine its sizes. Like any program it serves sizes that change from call to call.
The remaining graph holds the operators that decide the sizes, and the subgraphs between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set as AbstractSet
from typing import Any, NamedTuple

from dovetail.engine.parametric_sizes import input_symbols_of
from dovetail.ir import symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.edit import connect, copy_node, copy_value, disconnect
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import has
from dovetail.ir.types import Size as Dim, Tensor, Type, View
from dovetail.ops.constant import Constant
from dovetail.ops.control_flow.if_op import SubgraphOp
from dovetail.ops.recurrent.layers import RecurrentLayer
from dovetail.ops.tensor.shape import Range, Shape, Size


class Partition(SubgraphOp, sig="*captures: any -> *outputs: any", is_registered=False):
    """Partition runs ``body``, whose inputs are ``captures``, and returns its outputs. Only the engine uses this operator.

    ``program``: the body as a program, which the engine sets.
    """

    body: Graph
    outputs: int = 1
    program: Any = None
    interpreter_reason = "its sizes depend on data, so it is a separate program"

    def types(self, *captures: View) -> list[Type]:
        """Return the types of the outputs without sizes, since only the arrays that the program returns determine the sizes."""
        return [_without_sizes(value.type) for value in self.body.outputs]

    def evaluate(self, xp: Namespace, *captures: Array) -> Array:
        """Compute the outputs by a run of ``program``, the compiled body."""
        return tuple(self.program(captures))


def partition_at_data_sizes(graph: Graph) -> bool:
    """Move the nodes before, between and after operators that decide sizes into Partitions; return whether any were moved.

    Nodes are moved only if matrix products, convolutions or recurrent layers follow an operator that decides sizes.
    """
    known = input_symbols_of(graph)
    stages = _stages_of(graph, known)
    if stages is None or not any(map(_takes_long, (node for stage in stages[1:] for node in stage.nodes))):
        return False
    nodes = [node for node in graph.nodes if isinstance(node.op, Constant)]
    for stage in stages:
        is_program = len(stage.nodes) > 1 or any(map(_takes_long, stage.nodes))
        nodes += [_outline(graph, stage.nodes, known)] if is_program else stage.nodes
        nodes += stage.deciding
    graph.nodes = nodes
    for node in graph.nodes:
        if isinstance(node.op, Partition):
            for value in node.outputs:
                value.type, value.value = _without_sizes(value.type), None
    return True


def _takes_long(node: Node) -> bool:
    """Return whether running a node in Python takes longer than planning for new sizes."""
    return has(node.op, "multiply_adds") or isinstance(node.op, RecurrentLayer)


def _outline(graph: Graph, nodes: Sequence[Node], names: frozenset[str]) -> Node:
    """Return a Partition that replaces ``nodes``: it reads the inputs of ``nodes`` and computes their outputs."""
    inside = {id(y) for node in nodes for y in node.outputs}
    numbers = {id(node) for node in nodes}
    captures = list({id(x): x for node in nodes for x in node.inputs if x is not None and id(x) not in inside}.values())
    read = {id(value) for value in graph.outputs}
    outputs = [y for node in nodes for y in node.outputs if id(y) in read or any(id(user) not in numbers for user, _ in y.uses)]
    body = Graph(graph.name)
    copies: dict[int, Value] = {}
    body.inputs = [copy_value(value, copies) for value in captures]
    symbols: dict[str, Dim] = {}
    for value in body.inputs:
        value.type = _with_symbols(value, names, symbols)
    body.nodes = [copy_node(node, copies) for node in nodes]
    body.outputs = [copies[id(value)] for value in outputs]
    for value in body.values():
        body.claim(value.name)
    for node in nodes:
        disconnect(node)
    return connect(Node(Partition(body=body, outputs=len(outputs)), list(captures), outputs, f"{len(nodes)} nodes"))


class _Stage(NamedTuple):
    """_Stage holds nodes whose sizes are known when the stage begins, and the nodes that decide sizes of the next stage."""

    nodes: list[Node]
    deciding: list[Node]


def _stages_of(graph: Graph, names: frozenset[str]) -> list[_Stage] | None:
    """Return the stages of a graph; None if a shape is unknown for another reason than its dependence on data.

    ``names``: the symbols of the inputs.
    """
    first_known = dict.fromkeys(names, 0)
    data = {id(value) for value in graph.inputs}
    first_stage: dict[int, int] = {}
    stages: list[_Stage] = [_Stage([], [])]
    for node in graph.nodes:
        xs = [x for x in node.inputs if x is not None]
        if isinstance(node.op, Constant):
            continue
        if any(not isinstance(value.type, Tensor) or value.type.shape is None for value in (*xs, *node.outputs)):
            return None
        if not isinstance(node.op, Shape | Size) and any(id(x) in data for x in xs):
            data.update(id(y) for y in node.outputs)
        stage = max((first_stage.get(id(x), 0) for x in xs), default=0)
        symbols = [str(symbol) for y in node.outputs for symbol in _symbols_in(y.type)]
        if all(first_known.get(symbol, stage + 1) <= stage for symbol in symbols):
            stages[stage].nodes.append(node)
        else:
            deciding = node.inputs if node.op.sizes_depend_on_data or isinstance(node.op, Range) else node.inputs[1:]
            if node.op.holds_graphs or not any(x is not None and id(x) in data for x in deciding):
                return None
            stages[stage].deciding.append(node)
            stage += 1
            for symbol in symbols:
                first_known.setdefault(symbol, stage)
            if stage == len(stages):
                stages.append(_Stage([], []))
        first_stage.update((id(y), stage) for y in node.outputs)
    return stages


def _symbols_in(type: Type) -> Iterator[Dim]:
    assert isinstance(type, Tensor) and type.shape is not None
    return (symbol for size in type.shape for symbol in symbolic.symbols(size))


def _is_determined(type: Type, names: AbstractSet[str]) -> bool:
    """Return whether each size of a tensor is either known or an expression in the symbols ``names``."""
    return all(str(symbol) in names for symbol in _symbols_in(type))


def _with_symbols(value: Value, names: frozenset[str], symbols: dict[str, Dim]) -> Type:
    """Return a value's type, with a new symbol for each size that ``names`` do not determine; equal sizes share a symbol."""
    assert isinstance(value.type, Tensor) and value.type.shape is not None
    sizes = list(value.type.shape)
    for axis, size in enumerate(sizes):
        if not _is_determined(Tensor(value.type.dtype, (size,)), names):
            sizes[axis] = symbols.setdefault(str(size), symbolic.symbol(f"{value.name}.{axis}"))
    return Tensor(value.type.dtype, tuple(sizes))


def _without_sizes(type: Type) -> Type:
    assert isinstance(type, Tensor)
    return Tensor(type.dtype, None)
