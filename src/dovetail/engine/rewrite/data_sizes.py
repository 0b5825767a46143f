"""Sizes that data decides: the parts of a graph before and behind them become subgraphs, planned once their sizes are known.

The boxes that a detector finds and the durations that a speech model predicts are known in the middle of a run. A plan of the
whole graph has no shapes behind them, so that its steps would run in Python. Each subgraph is a program of its own, whose inputs
have the sizes: as any program it serves sizes that change from call to call. What is left of the graph are the operators that
decide the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import symbolic
from dovetail.arrays import Array, Namespace
from dovetail.engine.affine_sizes import input_symbols_of
from dovetail.ir.edit import connect, copy_node, copy_value, disconnect
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import Size as Dim, Tensor, Type, View
from dovetail.ops.constant import Constant
from dovetail.ops.control_flow.if_op import SubgraphOp
from dovetail.ops.detection.nms import NonMaxSuppression
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN
from dovetail.ops.tensor.nonzero_compress import Compress, NonZero
from dovetail.ops.tensor.shape import Range, Shape, Size
from dovetail.ops.tensor.unique_searchsorted import Unique

COUNTING = (NonZero, Compress, Unique, NonMaxSuppression, Range)
"""Operators all of whose inputs decide the sizes of their results."""
PRODUCTS = (Conv, ConvTranspose, GroupConv, MatMul, Gemm, LSTM, GRU, RNN)
"""Operators of so many operations that a plan for new sizes takes less time than running them in Python."""


class Partition(SubgraphOp, sig="*captures: any -> *outputs: any", is_registered=False):
    """Run ``body``, whose inputs are ``captures``, and return its outputs. An operator of the engine alone.

    ``program``: the body as a program, which the engine sets.
    """

    body: Graph
    outputs: int = 1
    program: Any = None
    interpreter_reason = "its sizes follow from data: it is a program of its own"

    def types(self, *captures: View) -> list[Type]:
        """Return the types of the outputs without sizes: the program's own arrays are the results."""
        return [_without_sizes(value.type) for value in self.body.outputs]

    def evaluate(self, xp: Namespace, *captures: Array) -> Array:
        """Run the program of the body."""
        return tuple(self.program(captures))


def partition_at_data_sizes(graph: Graph) -> bool:
    """Move the nodes before and behind sizes that data decides into Partitions, where there are products behind them.

    Returns whether there are.
    """
    names = input_symbols_of(graph)
    parts = _parts_of(graph, names)
    if parts is None or not any(isinstance(node.op, PRODUCTS) for node in parts[1]):
        return False
    early, late = parts
    before = [_outline(graph, early, names)] if len(early) > 1 else early
    behind = _outline(graph, late, names)
    outlined = {id(node) for node in (*early, *late)}
    graph.nodes = [
        *(node for node in graph.nodes if isinstance(node.op, Constant)),
        *before,
        *(node for node in graph.nodes if not isinstance(node.op, Constant) and id(node) not in outlined),
        behind,
    ]
    for node in graph.nodes:
        if isinstance(node.op, Partition):
            for value in node.outputs:
                value.type, value.value = _without_sizes(value.type), None
    return True


def _outline(graph: Graph, nodes: Sequence[Node], names: frozenset[str]) -> Node:
    """Return the Partition of some nodes, which has their place as producer and reader of values."""
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


def _parts_of(graph: Graph, names: frozenset[str]) -> tuple[list[Node], list[Node]] | None:
    """Return the nodes before sizes that data decides, and those behind them; those that decide them are in neither.

    None where there are no such sizes, and where a shape is unknown although no data decides it.
    """
    data = {id(value) for value in graph.inputs}
    decided: set[int] = set()
    early, late = [], []
    for node in graph.nodes:
        xs = [x for x in node.inputs if x is not None]
        if isinstance(node.op, Constant):
            continue
        if not isinstance(node.op, Shape | Size) and any(id(x) in data for x in xs):
            data.update(id(y) for y in node.outputs)
        if any(id(x) in decided for x in xs):
            late.append(node)
            decided.update(id(y) for y in node.outputs)
        elif all(_is_determined(y.type, names) for y in node.outputs):
            early.append(node)
        else:
            deciding = node.inputs if isinstance(node.op, COUNTING) else node.inputs[1:]
            if node.op.holds_graphs or not any(x is not None and id(x) in data for x in deciding):
                return None
            decided.update(id(y) for y in node.outputs)
    values = (value for node in (*early, *late) for value in (*node.inputs, *node.outputs) if value is not None)
    if any(not isinstance(value.type, Tensor) or value.type.shape is None for value in values):
        return None
    return (early, late) if late else None


def _is_determined(type: Type, names: frozenset[str]) -> bool:
    """Return whether a type is a tensor whose sizes are known or expressions in ``names``."""
    if not isinstance(type, Tensor) or type.shape is None:
        return False
    return all(str(symbol) in names for size in type.shape for symbol in symbolic.symbols(size))


def _with_symbols(value: Value, names: frozenset[str], symbols: dict[str, Dim]) -> Type:
    """Return the type of a value with a symbol for each size that ``names`` do not determine: one for equal expressions."""
    assert isinstance(value.type, Tensor) and value.type.shape is not None
    sizes = list(value.type.shape)
    for axis, size in enumerate(sizes):
        if not _is_determined(Tensor(value.type.dtype, (size,)), names):
            sizes[axis] = symbols.setdefault(str(size), symbolic.symbol(f"{value.name}.{axis}"))
    return Tensor(value.type.dtype, tuple(sizes))


def _without_sizes(type: Type) -> Type:
    assert isinstance(type, Tensor)
    return Tensor(type.dtype, None)
