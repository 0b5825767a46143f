"""Weights of a graph that can be stored in fewer bits, as matrices with one row for each output channel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Constant
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Convolution, ConvTranspose
from dovetail.ops.nn.group_conv import GroupConv, GroupConvTranspose
from dovetail.ops.quantization.matmul_nbits import MatMulNBits
from dovetail.ops.quantization.quantize_linear import DequantizeLinear
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.passes.quantization.activations import Activation
from dovetail.passes.quantization.codes import Array, Codes, Grid

NEAREST, GPTQ = "nearest", "gptq"
FLOATS = ("f32", "f16", "bf16")
PRODUCT, CONVOLUTION, LOOKUP, CONSTANT = "product", "convolution", "lookup", "constant"
MIN_ELEMENTS = 256
"""Constants with fewer elements keep their type when weights are stored in 16 bits: a Cast takes as many bytes as it saves."""


@dataclass(eq=False)
class ModelWeight:
    """ModelWeight is a constant float ``value`` with the nodes that read it in one way.

    ``kind`` is PRODUCT (the second operand of MatMul or Gemm), CONVOLUTION, LOOKUP (the table of a Gather) or CONSTANT (any
    constant). ``channels`` are the axes of ``value`` with one index for each output channel. ``readers`` are pairs of a node and
    an input index. ``kept`` is the reason why the weight keeps its type; "" where it does not. Until a weight is rounded,
    ``rounded`` is None. ``activation`` is the grid of the first input of the readers; None if that stays a float. ``shifts`` has
    for each reader what is added to its constant bias [channels]; None where it has none, and [] where biases are not corrected.
    """

    value: Value
    kind: str
    channels: tuple[int, ...]
    readers: list[tuple[Node, int]] = field(default_factory=list)
    kept: str = ""
    rounded: Rounded | None = None
    activation: Activation | None = None
    shifts: list[Array | None] = field(default_factory=list)

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
    """Return the f32 elements of a constant, also behind Cast and Transpose; None for other values and types."""
    if value.constant is not None:
        elements = value.constant
        return elements.astype(np.float32, copy=False) if value.dtype.is_float and value.dtype.bits in (16, 32) else None
    node = value.node
    if node is None or not isinstance(node.op, Cast | Transpose) or value.dtype not in FLOATS:
        return None
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
    """Return the weights of products, convolutions and lookups among the nodes of ``graph``, in order.

    The readers of one value with the same channels share a ModelWeight. Nodes of subgraphs are left out.
    """
    weights: dict[tuple[Any, ...], ModelWeight] = {}
    outputs = {id(value) for value in graph.outputs}
    for node in graph.nodes:
        found = _weight_input(node)
        if found is None:
            continue
        index, kind, channels = found
        value = node.inputs[index]
        if value is None or id(value) in outputs or value.dtype not in FLOATS or not _is_constant(value):
            continue
        weight = weights.setdefault((id(value), kind, channels), ModelWeight(value, kind, channels))
        weight.readers.append((node, index))
    return list(weights.values())


def find_constants(graph: Graph) -> list[ModelWeight]:
    """Return the f32 constants of at least MIN_ELEMENTS elements, in order.

    Those that only products, convolutions and lookups read as weights are of the kind of the first reader, others are CONSTANT.
    """
    weights = []
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
        inputs = [(index, _weight_input(reader)) for reader, index in value.uses]
        kinds = [found[1] for index, found in inputs if found is not None and found[0] == index]
        is_weight = len(kinds) == len(inputs) and id(value) not in outputs
        weights.append(ModelWeight(value, kinds[0] if is_weight else CONSTANT, (), list(value.uses)))
    return weights


def is_quantizer(op: Op) -> bool:
    return bool(getattr(op, "quantizes", False))


def _is_constant(value: Value) -> bool:
    """Return whether :func:`constant_data` has the elements of ``value``, which all are of a static type."""
    node = value.node
    while node is not None and isinstance(node.op, Cast | Transpose):
        if any(x is not None and x.constant is None for x in node.inputs[1:]):
            return False
        node = node.input(0).node
    is_constant = node is not None and isinstance(node.op, Constant) and node.outputs[0].dtype in FLOATS
    return is_constant and isinstance(value.type, Tensor) and value.type.shape is not None


def _weight_input(node: Node) -> tuple[int, str, tuple[int, ...]] | None:
    """Return the index of the input with weights, the kind of weights and the axes of channels; None for other nodes."""
    op: Op = node.op
    if isinstance(op, MatMul | Gemm):
        weights = node.input(1)
        is_matrix = weights.shape is not None and len(weights.shape) == 2
        return (1, PRODUCT, (0 if op.transpose_b else 1,)) if is_matrix else None
    if isinstance(op, Convolution):
        axes: tuple[int, ...] = (0,)
        if isinstance(op, GroupConv):
            axes = (0, 1)
        elif isinstance(op, GroupConvTranspose):
            axes = (0, 2)
        elif isinstance(op, ConvTranspose):
            axes = (1,)
        return 1, CONVOLUTION, axes
    if isinstance(op, Gather) and op.axis in (0, -2) and not op.batch_dims and not op.fills_with_zeros:
        table = node.input(0)
        return (0, LOOKUP, (0,)) if table.shape is not None and len(table.shape) == 2 else None
    return None


def grid_of(weight: ModelWeight, grid: Grid) -> Grid:
    """Return the grid of a weight: ``grid`` for products, and one symmetric scale per channel for other kinds.

    These have 8 bits; float codes where ``grid`` has them, but for tables: ONNX gathers no floats of 8 bits.
    """
    dtype = None if weight.kind == LOOKUP else grid.dtype
    return replace(grid if weight.kind == PRODUCT else Grid(8, dtype=dtype), scale=weight.value.dtype)
