"""Costs of a plan's steps: bytes read and written, arithmetic operations, and the graph's operator and node behind each step."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from dovetail.engine.memory.tensor import TensorMap
from dovetail.engine.plan import Operand, Step
from dovetail.engine.rewrite.fold_batchnorm import ScaledConv
from dovetail.engine.rewrite.integer_conv import IntegerConv
from dovetail.engine.rewrite.qdq_fusion import QuantizedConv
from dovetail.ir.graph import Graph, Node
from dovetail.ops.linalg.matmul import Gemm
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.pool import MaxPool
from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND

FUNCTIONS = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Divide Elu Erf ErfInv Exp Gelu Log Mish Mod Power QuantizeLinear Reciprocal "
    "Selu Sigmoid Sin Sinh Softplus Softsign Swish Tan Tanh".split()
)
"""Operators of which a kernel computes an element by a polynomial, a division or a rounding to codes."""

CACHE_LINE = 64
"""Bytes of a cache line."""


class StepCost(NamedTuple):
    """StepCost holds the bytes that a step reads and writes, each element counted once, and its arithmetic operations.

    ``arithmetic``: the operands of products, "f32", "bf16" or "int8". Dynamic tensors contribute 0 bytes. ``functions``: those of
    the operations that FUNCTIONS compute. ``touched``: the bytes of the cache lines that hold the elements, which exceed
    ``read + written`` where no axis of an operand is contiguous. ``constant``: the bytes of constants among ``read``.
    """

    read: int
    written: int
    operations: int
    arithmetic: str
    functions: int = 0
    touched: int = 0
    constant: int = 0


def cost_of(step: Step, tensor_map: TensorMap, multiply_adds: int | None = None, kernel: str = "") -> StepCost:
    """Return the cost of a step, which ``kernel`` runs.

    A contraction counts two operations per multiply-add. ``multiply_adds`` is the number that the kernel performs where it
    differs from the operator's definition (Winograd's algorithm). Pooling counts one operation per element of each window, other
    arithmetic one per element of the largest operand, data movement and casts none. A Gather reads as many bytes of its table as
    it writes.
    """
    nodes = step.call.nodes if step.call is not None else ()
    written = sum(map(bytes_of, step.writes))
    reads = [0 if operand is None else bytes_of(operand) for operand in step.reads]
    if reads and is_gather(step):
        reads[0] = min(reads[0], written)
    operands = [*zip(step.reads, reads, strict=True), *((operand, bytes_of(operand)) for operand in step.writes)]
    touched = sum(nbytes * _spread(operand) for operand, nbytes in operands)
    constant = sum(nbytes for operand, nbytes in operands if operand is not None and operand.data is not None)
    operations = sum(
        2 * multiply_adds if multiply_adds is not None and isinstance(node.op, Conv) else operations_of(node, tensor_map)
        for node in nodes
    )
    # The names of kernels that round their operands have the type as a word.
    words = set(kernel.split())
    is_integer = bool(words & {"int8", "i8"}) or any(isinstance(node.op, IntegerConv | QuantizedConv) for node in nodes)
    arithmetic = "int8" if is_integer else "bf16" if "bf16" in words else "f32"
    functions = sum(operations_of(node, tensor_map) for node in nodes if node.op.title in FUNCTIONS)
    return StepCost(sum(reads), written, operations, arithmetic, functions, touched, constant)


def _spread(operand: Operand | None) -> int:
    """Return the bytes of cache lines that hold an element of an operand, divided by its size."""
    if operand is None or operand.tensor.is_dynamic:
        return 1
    size = operand.tensor.itemsize
    strides = [abs(stride) for stride, extent in zip(operand.strides, operand.sizes, strict=True) if stride and extent > 1]
    return max(1, min(min(strides, default=size), CACHE_LINE) // size)


def is_gather(step: Step) -> bool:
    """Return whether a step reads only some elements of its first operand, a table."""
    nodes = step.call.nodes if step.call is not None else ()
    return any(isinstance(node.op, Gather | GatherElements | GatherND) for node in nodes)


def bytes_of(operand: Operand) -> int:
    """Return the bytes of an operand's distinct elements: a broadcast axis has one element, a dynamic tensor 0 bytes."""
    if operand.tensor.is_dynamic:
        return 0
    axes = zip(operand.sizes, operand.strides, strict=True)
    if 0 in operand.sizes:
        return 0
    return prod(size for size, stride in axes if stride or size == 1) * operand.tensor.itemsize


def operations_of(node: Node, tensor_map: TensorMap) -> int:
    """Return the arithmetic operations of a node; 0 where a shape is unknown before the run."""
    tensors = [None if value is None else tensor_map.of(value) for value in (*node.inputs, *node.outputs)]
    if any(tensor is not None and tensor.shape is None for tensor in tensors) or not node.outputs:
        return 0
    shapes = [None if tensor is None else tensor.sizes for tensor in tensors]
    count = len(node.inputs)
    return node.op.operations(shapes[:count], [shape for shape in shapes[count:] if shape is not None])


class Origins:
    """Origins maps each tensor of a plan to a node of the model.

    This node produces the tensor's value or, if the model lacks that value, the first value of the model that is computed from
    it. The engine rewrites the graph; a value that a rewrite adds belongs to the node that the rewrite replaces.
    """

    def __init__(self, graph: Graph, rewritten: Graph) -> None:
        self._nodes = {y.name: node for node in graph.nodes for y in node.outputs}
        for node in reversed(rewritten.nodes):
            origin = next((self._nodes[y.name] for y in node.outputs if y.name in self._nodes), None)
            if origin is None:
                readers = (reader for y in node.outputs for reader, _ in y.uses)
                origin = next((found for reader in readers if (found := self._of_node(reader)) is not None), None)
            if origin is not None:
                for y in node.outputs:
                    self._nodes.setdefault(y.name, origin)

    def _of_node(self, node: Node) -> Node | None:
        return next((self._nodes[y.name] for y in node.outputs if y.name in self._nodes), None)

    def of(self, step: Step) -> list[Node]:
        """Return the nodes of the model that a step computes; the node whose output has the name of the step's result is last."""
        nodes = step.call.nodes if step.call is not None else ()
        found = [origin for node in nodes if (origin := self._of_node(node)) is not None]
        if not found:
            names = [operand.tensor.name for operand in step.writes]
            names += [name.rpartition(" (")[0] for name in names]
            found = [self._nodes[name] for name in names if name in self._nodes][:1]
        return list(dict.fromkeys(found))


def operator_of(step: Step, origins: list[Node], tensor_map: TensorMap) -> str:
    """Return the operator to which a step's time is attributed: of the step's operators, the one with the most operations.

    An operator that only the engine uses has the name of the operator from which it was rewritten.
    """
    nodes = step.call.nodes if step.call is not None else ()
    if not nodes:
        return origins[-1].op.title if origins else "Copy"
    main = max(nodes, key=lambda node: operations_of(node, tensor_map))
    if isinstance(main.op, QuantizedConv | ScaledConv):
        return next((layer.op.title for origin in origins if (layer := _layer_before(origin)) is not None), "Conv")
    kinds = [node.op.title for node in origins]
    own = main.op.title
    # Q/DQ fusion emits a MaxPool on 8-bit codes in place of the QuantizeLinear that follows the MaxPool.
    return own if own in kinds or not kinds or isinstance(main.op, MaxPool) else kinds[0]


def _layer_before(node: Node) -> Node | None:
    """Return the convolution or product whose result ``node`` quantizes or scales."""
    found: Node | None = node
    for _ in range(MAX_FUSED_NODES):
        if found is None or isinstance(found.op, Conv | Gemm):
            return found
        found = next((x.node for x in found.inputs if x is not None and x.node is not None and x.constant is None), None)
    return None


MAX_FUSED_NODES = 5
"""The maximum number of nodes that a kernel adds to a convolution: dequantization, bias, residual, activation, quantization."""
