"""Weights of a graph that can be stored in fewer bits, as matrices with one row for each output channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op, bodies
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Constant
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Convolution, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv, GroupConvTranspose
from dovetail.ops.quantization.matmul_nbits import MatMulNBits
from dovetail.ops.quantization.quantize_linear import DequantizeLinear
from dovetail.ops.recurrent.cells import RecurrentCell
from dovetail.ops.recurrent.layers import RecurrentLayer
from dovetail.ops.tensor.concat_split import Concat
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.passes.quantization.activations import Activation
from dovetail.passes.quantization.codes import Array, Codes, Grid

NEAREST, GPTQ = "nearest", "gptq"
FLOATS = ("f32", "f16", "bf16")
PRODUCT, CONVOLUTION, LOOKUP, CONSTANT = "product", "convolution", "lookup", "constant"
RECURRENT = "recurrent"
MIN_ELEMENTS = 256
"""Constants with fewer elements keep their type when weights are stored in 16 bits: a Cast takes as many bytes as it saves."""


@dataclass(eq=False)
class ModelWeight:
    """ModelWeight is a constant float ``value`` with the nodes that read it in one way.

    ``kind`` is PRODUCT (the second operand of MatMul or Gemm), CONVOLUTION, LOOKUP (the table of a Gather), RECURRENT (of a
    recurrent layer or cell) or CONSTANT (any constant). ``channels`` are the axes of ``value`` with one index for each output
    channel. ``readers`` are pairs of a node and an input index. ``kept`` is the reason why the weight keeps its type; "" where it
    does not. Until a weight is rounded, ``rounded`` is None. ``activation`` is the grid of the first input of the readers; None
    if that stays a float. ``shifts`` has for each reader what is added to its constant bias [channels]; None where it has none,
    and [] where biases are not corrected.

    A weight with a ``path`` is in a subgraph: the pairs of a node with subgraphs and its subgraph that contain ``value``, the
    outermost first. ``is_captured``: the readers are If and Loop, whose subgraphs read the weight.
    """

    value: Value
    kind: str
    channels: tuple[int, ...]
    readers: list[tuple[Node, int]] = field(default_factory=list)
    kept: str = ""
    rounded: Rounded | None = None
    activation: Activation | None = None
    shifts: list[Array | None] = field(default_factory=list)
    path: tuple[tuple[Node, Graph], ...] = ()
    is_captured: bool = False

    def owner(self, graph: Graph) -> Graph:
        """Return the graph that contains the weight, which is a weight of ``graph``."""
        return self.path[-1][1] if self.path else graph

    @property
    def is_linear(self) -> bool:
        """True if the results of the readers are linear in the weight, and their graph is that of the model."""
        return self.kind in (PRODUCT, CONVOLUTION, LOOKUP) and not self.path and not self.is_captured

    @property
    def node(self) -> Node:
        """The first node that reads the weight."""
        return self.readers[0][0]

    @property
    def data(self) -> Array:
        """The elements in f32."""
        data = constant_data(self.value)
        assert data is not None
        return data

    @property
    def source(self) -> Value:
        """The constant in the file, in front of a Cast or a Transpose."""
        value = self.value
        while value.node is not None and not isinstance(value.node.op, Constant):
            value = value.node.input(0)
        return value

    @property
    def bits(self) -> int:
        return self.source.dtype.bits

    @property
    def bytes(self) -> int:
        """The bytes of the constant in the file."""
        return prod(self.value.dims) * self.bits // 8

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """The numbers of channels and of elements of a channel."""
        shape: tuple[Any, ...] = self.value.dims
        rows = prod(shape[axis] for axis in self.channels)
        return rows, prod(shape) // max(rows, 1)

    def matrix(self) -> Array:
        """Return the elements as a matrix [channels, elements of a channel]."""
        return self.to_matrix(self.data)

    def to_matrix(self, data: Array) -> Array:
        moved = np.moveaxis(data, self.channels, range(len(self.channels)))
        return np.ascontiguousarray(moved.reshape(self.matrix_shape), np.float32)

    def from_matrix(self, matrix: Array) -> Array:
        """Return a matrix of :meth:`to_matrix` in the layout of the weight."""
        shape: tuple[Any, ...] = self.value.dims
        rest = [size for axis, size in enumerate(shape) if axis not in self.channels]
        moved = matrix.reshape([*(shape[axis] for axis in self.channels), *rest])
        return np.ascontiguousarray(np.moveaxis(moved, range(len(self.channels)), self.channels))

    @property
    def saving(self) -> int:
        return 0 if self.rounded is None else self.bytes - self.rounded.bytes(self)


@dataclass(frozen=True)
class Rounded:
    """Rounded is a weight with fewer bits: ``codes`` on a grid, or else a 16-bit float ``dtype``.

    ``rounding`` is NEAREST, or GPTQ for codes whose errors compensate each other.
    """

    codes: Codes | None = None
    dtype: DType = dtypes.f32
    rounding: str = NEAREST

    @property
    def bits(self) -> int:
        return self.dtype.bits if self.codes is None else self.codes.grid.bits

    @property
    def block(self) -> int:
        """The number of codes with one scale; 0 for one scale per channel or no scale."""
        return 0 if self.codes is None else self.codes.grid.block

    def bytes(self, weight: ModelWeight) -> int:
        rows, depth = weight.matrix_shape
        return rows * depth * self.bits // 8 if self.codes is None else self.codes.grid.bytes(rows, depth)

    def data(self, weight: ModelWeight) -> Array:
        """Return the rounded elements in f32, in the layout of the weight."""
        if self.codes is not None:
            return weight.from_matrix(self.codes.matrix())
        return weight.data.astype(self.dtype.numpy).astype(np.float32)


def constant_data(value: Value) -> Array | None:
    """Return the f32 elements of a constant, also behind Cast, Transpose and Concat; None for other values and types."""
    if value.constant is not None:
        elements = value.constant
        return elements.astype(np.float32, copy=False) if value.dtype.is_float and value.dtype.bits in (16, 32) else None
    node = value.node
    if node is None or not isinstance(node.op, Cast | Transpose | Concat) or value.dtype not in FLOATS:
        return None
    if isinstance(node.op, Concat):
        parts = [constant_data(x) for x in node.inputs if x is not None]
        return None if any(part is None for part in parts) else np.concatenate(parts, axis=node.op.axis)  # type: ignore[arg-type]
    data = constant_data(node.input(0))
    if data is None:
        return None
    if isinstance(node.op, Cast):
        return data if value.dtype == "f32" else data.astype(value.dtype.numpy).astype(np.float32)
    return np.transpose(data, _order_of(node))


def _order_of(node: Node) -> tuple[int, ...] | None:
    """Return the axes of a Transpose with a constant order; None for the reverse order."""
    perm = node.inputs[1] if len(node.inputs) > 1 else None
    order = None if perm is None else perm.constant
    return None if order is None or not order.size else tuple(int(axis) for axis in order.ravel())


def find_weights(graph: Graph) -> list[ModelWeight]:
    """Return the weights of products, convolutions, lookups and recurrent layers among the nodes of ``graph``, in order.

    Those of its subgraphs follow. The readers of one value with the same channels share a ModelWeight.
    """
    weights: dict[tuple[Any, ...], ModelWeight] = {}
    for owner, path in _graphs_with_paths(graph, ()):
        outputs = {id(value) for value in owner.outputs}
        for node in owner.nodes:
            is_captured = isinstance(node.op, If | Loop)
            for index, kind, channels in _captured_inputs(node) if is_captured else _weight_inputs(node):
                value = node.inputs[index]
                if value is None or id(value) in outputs or value.dtype not in FLOATS or not _is_constant(value):
                    continue
                key = id(value), kind, channels, is_captured
                weight = weights.setdefault(key, ModelWeight(value, kind, channels, path=path, is_captured=is_captured))
                weight.readers.append((node, index))
    return list(weights.values())


def _graphs_with_paths(
    graph: Graph, path: tuple[tuple[Node, Graph], ...]
) -> Iterator[tuple[Graph, tuple[tuple[Node, Graph], ...]]]:
    """Yield a graph and its subgraphs, each with the nodes and subgraphs that contain it."""
    yield graph, path
    for node in graph.nodes:
        for _, body in bodies(node.op):
            yield from _graphs_with_paths(body, (*path, (node, body)))


def find_constants(graph: Graph) -> list[ModelWeight]:
    """Return the f32 constants of at least MIN_ELEMENTS elements, in order, those of subgraphs last.

    Those that only products, convolutions and lookups read as weights are of the kind of the first reader, others are CONSTANT.
    """
    return [weight for owner, path in _graphs_with_paths(graph, ()) for weight in _constants_of(owner, path)]


def _constants_of(graph: Graph, path: tuple[tuple[Node, Graph], ...]) -> Iterator[ModelWeight]:
    outputs = {id(value) for value in graph.outputs}
    for node in graph.nodes:
        value = node.outputs[0] if isinstance(node.op, Constant) else None
        if (
            value is None
            or value.dtype != "f32"
            or not value.uses
            or value.constant is None
            or value.constant.size < MIN_ELEMENTS
        ):
            continue
        # Scales determine the codes of activations.
        if any(isinstance(reader.op, DequantizeLinear | MatMulNBits) or is_quantizer(reader.op) for reader, _ in value.uses):
            continue
        kinds = [kind for reader, index in value.uses for place, kind, _ in _weight_inputs(reader) if place == index]
        is_weight = len(kinds) == len(value.uses) and id(value) not in outputs
        is_alike = is_weight and (RECURRENT not in kinds or set(kinds) == {RECURRENT})
        kind = kinds[0] if is_alike else CONSTANT
        yield ModelWeight(value, kind, (), list(value.uses), path=path)


def is_quantizer(op: Op) -> bool:
    return bool(getattr(op, "quantizes", False))


def _is_constant(value: Value) -> bool:
    """Return whether :func:`constant_data` has the elements of ``value``, which all are of a static type."""
    node = value.node
    if node is None or value.dtype not in FLOATS or not isinstance(value.type, Tensor) or value.type.shape is None:
        return False
    if isinstance(node.op, Concat):
        return all(x is not None and _is_constant(x) for x in node.inputs)
    if isinstance(node.op, Cast | Transpose):
        return all(x is None or x.constant is not None for x in node.inputs[1:]) and _is_constant(node.input(0))
    return isinstance(node.op, Constant)


def _weight_inputs(node: Node) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return the index of each input with weights, the kind of weights and the axes of channels."""
    op: Op = node.op
    if isinstance(op, MatMul | Gemm):
        weights = node.input(1)
        is_matrix = weights.shape is not None and len(weights.shape) == 2
        return [(1, PRODUCT, (0 if op.transpose_b else 1,))] if is_matrix else []
    if isinstance(op, Convolution):
        axes: tuple[int, ...] = (0,)
        if isinstance(op, GroupConv):
            axes = (0, 1)
        elif isinstance(op, GroupConvTranspose):
            axes = (0, 2)
        elif isinstance(op, ConvTranspose):
            axes = (1,)
        return [(1, CONVOLUTION, axes)]
    if isinstance(op, Gather) and op.axis in (0, -2) and not op.batch_dims and not op.fills_with_zeros:
        table = node.input(0)
        return [(0, LOOKUP, (0,))] if table.shape is not None and len(table.shape) == 2 else []
    if isinstance(op, RecurrentLayer | RecurrentCell):
        indices = [index for index, port in enumerate(op.signature.inputs) if port.name in ("w", "r")]
        # DequantizeLinear has one axis; that of directions has one index in most layers.
        rows: tuple[int, ...] = (0,)
        if isinstance(op, RecurrentLayer):
            rows = (0, 1) if op.directions == 2 else (1,)
        return [(index, RECURRENT, rows) for index in indices]
    return []


def _captured_inputs(node: Node) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return the inputs of an If or Loop that its subgraphs read unchanged as weights, each with the first kind and channels."""
    op = node.op
    found = []
    # A body has the trip number and the inputs of the loop, but for the trip count and the condition of the first trip.
    for index in range(op.first_capture, len(node.inputs)):
        inner = [body.inputs[index - 1] for _, body in bodies(op)]
        uses = [use for value in inner for use in _uses_as_weight(value)]
        if uses:
            found.append((index, *uses[0]))
    return found


def _uses_as_weight(value: Value) -> list[tuple[str, tuple[int, ...]]]:
    """Return the kinds and channels with which nodes read an input of a subgraph, also behind Cast and in nested subgraphs."""
    found = []
    for reader, index in value.uses:
        if isinstance(reader.op, Cast) and reader.outputs[0].dtype in FLOATS:
            found += _uses_as_weight(reader.outputs[0])
        inputs = _captured_inputs(reader) if isinstance(reader.op, If | Loop) else _weight_inputs(reader)
        found += [(kind, channels) for place, kind, channels in inputs if place == index]
    return found


def grid_of(weight: ModelWeight, grid: Grid) -> Grid:
    """Return the grid of a weight: ``grid`` for products, and one symmetric scale per channel for other kinds and in subgraphs.

    These have 8 bits; float codes where ``grid`` has them, but for tables: ONNX gathers no floats of 8 bits.
    """
    dtype = None if weight.kind == LOOKUP else grid.dtype
    is_product = weight.kind == PRODUCT and weight.is_linear
    return replace(grid if is_product else Grid(8, dtype=dtype), scale=weight.value.dtype)
