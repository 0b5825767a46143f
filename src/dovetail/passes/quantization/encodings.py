"""Encodings of rounded weights in a graph: MatMulNBits, DequantizeLinear, Multiply of a Cast, and Cast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from dovetail.formats.openvino.constants import pack
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead, set_input, take_name
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.rewrite import rewrite
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv
from dovetail.passes.quantization.activations import Activation
from dovetail.passes.quantization.biases import shift_biases
from dovetail.passes.quantization.codes import Array, Codes
from dovetail.passes.quantization.weights import CONSTANT, LOOKUP, ModelWeight, Rounded

MATMULNBITS, QDQ, IR = "matmulnbits", "qdq", "ir"
"""Encodings of weights in blocks: the operator MatMulNBits, DequantizeLinear, and DequantizeLinear as OpenVINO recognizes it."""


def encode_weights(graph: Graph, weights: Iterable[ModelWeight], encoding: str) -> None:
    """Replace weights by their rounded forms. The weights must be values of ``graph`` or of its subgraphs."""
    owners: dict[int, tuple[Graph, list[ModelWeight]]] = {}
    for weight in weights:
        owner = weight.owner(graph)
        owners.setdefault(id(owner), (owner, []))[1].append(weight)
    for owner, parts in owners.values():
        _encode_weights(owner, parts, encoding)


def _encode_weights(graph: Graph, weights: Iterable[ModelWeight], encoding: str) -> None:
    packed: dict[int, ModelWeight] = {}
    quantized: dict[int, ModelWeight] = {}
    for weight in weights:
        rounded = weight.rounded
        assert rounded is not None
        shift_biases(graph, weight)
        if rounded.codes is None:
            _replace(graph, weight, partial(_cast, weight=weight, rounded=rounded))
        elif (weight.kind == LOOKUP and not weight.is_captured) or _is_packable(weight, encoding):
            packed.update({id(node): weight for node, _ in weight.readers})
        else:
            if len(weight.channels) > 1 and rounded.codes.grid.symmetric:
                _replace(graph, weight, partial(_scaled_groups, weight=weight, codes=rounded.codes))
            else:
                _dequantize(graph, weight, rounded.codes, is_transposed=encoding == IR and bool(rounded.block))
            if weight.activation is not None:
                quantized.update({id(node): weight for node, _ in weight.readers})
    if packed or quantized:
        activations: dict[tuple[int, Activation], Value] = {}
        operands: dict[int, list[Value]] = {}

        def rule(b: Builder, node: Node) -> Value | None:
            if id(node) in quantized:
                return _quantize_input(b, node, quantized[id(node)], activations, is_ir=encoding == IR)
            weight = packed.get(id(node))
            if weight is None:
                return None
            y: Value = (_look_up if weight.kind == LOOKUP else _multiply)(b, node, weight, operands)
            return y

        rewrite(graph, rule)
    remove_dead(graph)


def _quantize_input(
    b: Builder, node: Node, weight: ModelWeight, activations: dict[tuple[int, Activation], Value], *, is_ir: bool
) -> Value:
    """Emit the node with a quantized first input; nodes that read one value share its quantization.

    In ONNX a constant bias gets 32 bits with the scale of the products, so that a runtime can add it to their integer sums.
    """
    grid = weight.activation
    assert grid is not None
    x = node.input(0)
    if (id(x), grid) not in activations:
        activations[id(x), grid] = (grid.fake_quantize if is_ir else grid.apply)(b, x)
    inputs = [activations[id(x), grid], *node.inputs[1:]]
    bias = inputs[2] if len(inputs) > 2 else None
    if not is_ir and bias is not None and bias.constant is not None and _has_integer_bias(node, bias):
        scales = _codes(weight).scales[:, 0].astype(np.float64) * grid.scales[0]
        codes = np.rint(bias.constant.astype(np.float64) / scales)
        if np.all(np.abs(codes) < 2**31) and np.all(scales > np.finfo(np.float32).tiny):
            name = f"{bias.name}_quantized"
            parts = b.constant(codes.astype(np.int32), dtypes.i32, name), b.constant(scales.astype(np.float32), dtypes.f32)
            inputs[2] = b.DequantizeLinear(*parts, np.zeros(len(scales), np.int32), axis=0)
    y = b.add(node.op, *inputs, name=node.name)[0]
    b.graph.nodes[-1].location = node.location
    return y


def _has_integer_bias(node: Node, bias: Value) -> bool:
    """Return whether the bias is a vector with one element for each output channel, added without a factor."""
    op = node.op
    is_plain = isinstance(op, Conv) or (isinstance(op, Gemm) and op.alpha == op.beta == 1)
    return is_plain and bias.shape is not None and len(bias.shape) == 1


def _is_packable(weight: ModelWeight, encoding: str) -> bool:
    """Return whether all readers of a weight become MatMulNBits."""
    if encoding != MATMULNBITS or weight.rounded is None or not weight.rounded.block:
        return False
    return all(isinstance(node.op, MatMul | Gemm) and not node.op.transpose_a for node, _ in weight.readers)


def _multiply(b: Builder, node: Node, weight: ModelWeight, operands: dict[int, list[Value]]) -> Any:
    """Emit MatMulNBits for a MatMul or Gemm; products with one weight share ``operands``."""
    codes = _codes(weight)
    rows, depth = codes.codes.shape
    if id(weight) not in operands:
        operands[id(weight)] = _pack(b, weight, codes)
    y = b.MatMulNBits(
        node.input(0), *operands[id(weight)], k=depth, n=rows, bits=codes.grid.bits, block_size=codes.grid.block
    )  # fmt: skip
    op = node.op
    if isinstance(op, Gemm):
        if op.alpha != 1:
            y = b.Multiply(y, op.alpha)
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = node.input(2)
            y = b.Add(y, bias if op.beta == 1 else b.Multiply(bias, op.beta))
    b.graph.nodes[-1].name = node.name
    b.graph.nodes[-1].location = node.location
    return y


def _pack(b: Builder, weight: ModelWeight, codes: Codes) -> list[Value]:
    """Return the constants ``weights``, ``scales`` and ``zero_points`` of MatMulNBits.

    Codes without zero points are stored with an offset of ``2 ** (bits - 1)``, the default zero point.
    """
    grid, name = codes.grid, weight.source.name
    rows, depth = codes.codes.shape
    count = grid.blocks(depth)
    middle = 2 ** (grid.bits - 1) if grid.symmetric else 0
    padded = np.zeros((rows, count * grid.block), np.uint8)
    padded[:, :depth] = codes.codes + middle
    if count * grid.block != depth:
        # The elements behind the last column are 0.
        padded[:, depth:] = codes.zero_points[:, -1:] + middle
    weights = pack_bits(padded, grid.bits).reshape(rows, count, grid.block * grid.bits // 8)
    parts = [b.constant(weights, dtypes.u8, f"{name}_quantized"), b.constant(codes.scales, weight.value.dtype, f"{name}_scales")]
    if grid.symmetric:
        return parts
    points = pack_bits(codes.zero_points.astype(np.uint8), grid.bits)
    return [*parts, b.constant(points, dtypes.u8, f"{name}_zero_points")]


def pack_bits(codes: Array, bits: int) -> Array:
    """Pack codes u8 [rows, n] into bytes [rows, ceil(n * bits / 8)]; the first code of a byte is in its lowest bits."""
    kind = dtypes.dtype(f"u{bits}")
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % (8 // bits))))
    return np.frombuffer(pack(padded.view(kind.numpy), kind), np.uint8).reshape(len(codes), -1)


def _look_up(b: Builder, node: Node, weight: ModelWeight, operands: dict[int, list[Value]]) -> Any:
    """Emit a Gather of codes and a Gather of scales for a Gather of rows, so that only the rows that are read are multiplied."""
    if id(weight) not in operands:
        codes, name = _codes(weight), weight.source.name
        operands[id(weight)] = [
            b.constant(codes.codes.astype(codes.grid.code_type.numpy), codes.grid.code_type, f"{name}_quantized"),
            b.constant(codes.scales, weight.value.dtype, f"{name}_scales"),
        ]
    codes_value, scales = operands[id(weight)]
    rows = b.Cast(b.add(node.op, codes_value, *node.inputs[1:])[0], to=weight.value.dtype)
    return b.Multiply(rows, b.add(node.op, scales, *node.inputs[1:])[0])


def _dequantize(graph: Graph, weight: ModelWeight, codes: Codes, *, is_transposed: bool) -> None:
    """Replace a weight by DequantizeLinear of its codes.

    ``is_transposed``: the codes of a product have the channels first, and the product reads them transposed.
    """
    is_swapped = is_transposed and weight.channels == (1,)

    def write(b: Builder) -> Value:
        kind = codes.grid.code_type
        elements, scales, points = codes.codes, codes.scales, codes.zero_points
        channel = weight.channels[0]
        rank = len(weight.value.dims)
        axis = channel
        if codes.grid.block:
            # Products alone have blocks.
            axis = 1 if is_swapped else 1 - channel
            if channel == 1 and not is_swapped:
                elements, scales, points = elements.T, scales.T, points.T
        elif is_swapped:
            axis, scales, points = 0, scales[:, 0], points[:, 0]
        else:
            elements, scales, points = weight.from_matrix(elements), scales[:, 0], points[:, 0]
        name = weight.source.name
        parts = [
            b.constant(np.ascontiguousarray(elements).astype(kind.numpy), kind, f"{name}_quantized"),
            b.constant(np.ascontiguousarray(scales), weight.value.dtype, f"{name}_scales"),
        ]
        # onnxruntime needs zero points per axis, even zeros, where it converts signed weights to unsigned ones.
        if codes.grid.dtype is None and not (codes.grid.symmetric and codes.grid.block):
            parts.append(b.constant(np.ascontiguousarray(points).astype(kind.numpy), kind, f"{name}_zero_points"))
        assert 0 <= axis < rank
        y: Value = b.DequantizeLinear(*parts, axis=axis, block_size=codes.grid.block)
        return y

    readers = weight.readers
    _replace(graph, weight, write)
    if is_swapped:
        for node, _ in readers:
            node.op = node.op.with_(transpose_b=True)


def _scaled_groups(b: Builder, weight: ModelWeight, codes: Codes) -> Value:
    """Emit ``Cast(codes) * scales`` for weights with several axes of channels, which DequantizeLinear does not have."""
    name, rank = weight.source.name, len(weight.value.dims)
    shape: list[Any] = [weight.value.dims[axis] if axis in weight.channels else 1 for axis in range(rank)]
    kind = codes.grid.code_type
    elements = b.constant(weight.from_matrix(codes.codes).astype(kind.numpy), kind, f"{name}_quantized")
    scales = b.constant(codes.scales.reshape(shape), weight.value.dtype, f"{name}_scales")
    y: Value = b.Multiply(b.Cast(elements, to=weight.value.dtype), scales)
    return y


def _cast(b: Builder, weight: ModelWeight, rounded: Rounded) -> Value:
    name = f"{weight.source.name}_{rounded.dtype}"
    y: Value = b.Cast(b.constant(weight.data.astype(rounded.dtype.numpy), rounded.dtype, name), to=dtypes.f32)
    return y


def _replace(graph: Graph, weight: ModelWeight, write: Callable[[Builder], Value]) -> None:
    """Let the readers of a weight read the value that ``write`` emits; new nodes come first, since they read constants only."""
    mark = len(graph.nodes)
    value = write(Builder(graph=graph))
    graph.nodes = graph.nodes[mark:] + graph.nodes[:mark]
    for node, index in weight.readers:
        set_input(node, index, value)
    if weight.kind == CONSTANT and any(output is weight.value for output in graph.outputs):
        graph.outputs = [value if output is weight.value else output for output in graph.outputs]
        take_name(graph, weight.value, value)


def _codes(weight: ModelWeight) -> Codes:
    assert weight.rounded is not None and weight.rounded.codes is not None
    return weight.rounded.codes
