"""Quantized weights and activations of a graph in another encoding, with the same elements.

A quantized weight is ``(code - zero_point) * scale``: DequantizeLinear, FakeQuantize of the codes, an operand of MatMulNBits, or,
as OpenVINO keeps compressed weights, Convert, Subtract, Multiply and Reshape.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np

from dovetail.engine.rewrite.scaled_codes import ScaledCodes, weights_of
from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.op import Op, bodies
from dovetail.ir.rewrite import rewrite
from dovetail.ops.casts import as_type
from dovetail.ops.elementwise.binary import Multiply, Subtract
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.quantization.matmul_nbits import MatMulNBits, unpack_codes
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, FakeQuantize
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.passes.exact_activations import FAKE_QUANTIZE, QDQ, EncodingFault, change_activation
from dovetail.passes.quantization.encodings import pack_bits

Array: TypeAlias = np.ndarray[Any, Any]
MATMULNBITS, COMPRESSED = "matmulnbits", "compressed"
_SIGNED = {"i2": 2, "i4": 8, "i8": 128}
_MAX_BLOCK = 128
"""The block of MatMulNBits for weights with one scale for each column."""


def encode_graph(graph: Graph, encoding: str, file: str | None) -> list[UnsupportedError]:
    """Change the encoding of a graph's quantized weights and activations; return an error for each node that cannot have it."""
    infer_graph(graph, file=file)
    faults: list[UnsupportedError] = []
    _change_graph(graph, encoding, faults, file)
    return faults


def _change_graph(graph: Graph, encoding: str, faults: list[UnsupportedError], file: str | None) -> None:
    operands: dict[tuple[int, bool], list[Value]] = {}

    def rule(b: Builder, node: Node) -> Value | None:
        try:
            return _change_node(b, node, encoding, operands)
        except EncodingFault as obstacle:
            message = f"{type(node.op).__name__} has no {encoding} encoding: {obstacle}"
            faults.append(UnsupportedError("op.unsayable", message, node=node.label, op=type(node.op).__name__, file=file))
            return None

    if rewrite(graph, rule):
        remove_dead(graph)
    for node in graph.nodes:
        for _, body in bodies(node.op):
            _change_graph(body, encoding, faults, file)


def _change_node(b: Builder, node: Node, encoding: str, operands: dict[tuple[int, bool], list[Value]]) -> Value | None:
    """Emit ``node`` in the encoding; products that read one weight share its packed constants, ``operands``."""
    op = node.op
    if isinstance(op, MatMulNBits):
        return None if encoding == MATMULNBITS else _change_matmul_nbits(b, op, node.inputs, encoding)
    if encoding == MATMULNBITS and isinstance(op, MatMul | Gemm):
        return _multiply(b, node, operands)
    if len(node.outputs) != 1 or not _is_part(op):
        return None
    if isinstance(op, DequantizeLinear | FakeQuantize) and not _is_constant(node.input(0)):
        return change_activation(b, node, encoding)
    y = node.outputs[0]
    found = _encoding_of(y)
    if found in (None, encoding) or any(_extends(user) for user, _ in y.uses):
        return None
    weights = _exact_weights(y)
    if encoding == MATMULNBITS:
        # The products that read the weight are changed.
        if not _is_output(b, y) and all(_is_product(user, y) for user, _ in y.uses):
            return None
        raise EncodingFault("other operators than products read the weight")
    emit = {QDQ: _dequantize, FAKE_QUANTIZE: _fake_quantize, COMPRESSED: _compress}[encoding]
    return as_type(b, emit(b, weights, y.name), y.dtype)


def _encoding_of(y: Value) -> str | None:
    """Return the encoding of the weight that ``y`` is; None if it is no quantized weight."""
    node = y.node
    while node is not None and isinstance(node.op, Reshape | Cast) and node.input(0).storage is None:
        node = node.input(0).node
    if node is None or not _is_constant(y):
        return None
    if isinstance(node.op, DequantizeLinear | FakeQuantize):
        return QDQ if isinstance(node.op, DequantizeLinear) else FAKE_QUANTIZE
    if not isinstance(node.op, Multiply):
        return None
    weights = weights_of(y)
    return COMPRESSED if weights is not None and weights.dtype.bits <= 8 else None


def _is_constant(value: Value) -> bool:
    """Return whether ``value`` is computed from constants alone, by operators that compute weights."""
    if value.storage is not None:
        return True
    node = value.node
    return node is not None and _is_part(node.op) and all(x is None or _is_constant(x) for x in node.inputs)


def _is_part(op: Op) -> bool:
    return isinstance(op, DequantizeLinear | FakeQuantize) or _is_arithmetic(op)


def _is_arithmetic(op: Op) -> bool:
    return isinstance(op, Cast | Subtract | Multiply | Reshape)


def _extends(user: Node) -> bool:
    """Return whether ``user`` is a part of a quantized weight too."""
    return _is_arithmetic(user.op) and _encoding_of(user.outputs[0]) is not None


def _is_output(b: Builder, y: Value) -> bool:
    return any(y is output for output in b.graph.outputs)


def _is_product(user: Node, y: Value) -> bool:
    if isinstance(user.op, Transpose):
        return all(_is_product(reader, user.outputs[0]) for reader, _ in user.outputs[0].uses)
    return isinstance(user.op, MatMul | Gemm) and user.input(1) is y and user.input(0) is not y


def _exact_weights(y: Value) -> ScaledCodes:
    weights = weights_of(y, reads_fake_quantize=True)
    if weights is None:
        node = y.node
        if node is not None and isinstance(node.op, FakeQuantize):
            raise EncodingFault(
                "its elements are not exactly (code - zero point) * scale in f32, with integers of at most 8 bits"
            )
        if node is not None and isinstance(node.op, DequantizeLinear) and node.input(0).dtype.bits > 8:
            raise EncodingFault(f"codes must have at most 8 bits, got {node.input(0).dtype}")
        if y.shape == ():
            raise EncodingFault("codes must have at least 1 axis, got a scalar")
        raise EncodingFault("its scales and zero points are no constants that broadcast to the codes")
    if weights.rounding is None:
        raise EncodingFault("its operators round more than once")
    return weights._replace(storage=weights.codes)


# Weights


def _dequantize(b: Builder, weights: ScaledCodes, name: str) -> Value:
    """Emit DequantizeLinear."""
    if weights.dtype == "nf4" or (weights.dtype.is_float and weights.dtype.bits > 8):
        raise EncodingFault(f"ONNX does not dequantize {weights.dtype}")
    points, scale, rounding = _integer_points(weights), weights.scales, _rounding(weights)
    attributes: dict[str, Any] = {}
    if weights.block:
        axis, block = weights.block_axis, weights.block
        shape = list(weights.codes.shape)
        shape[axis] = -(-shape[axis] // block)
        attributes = {"axis": axis, "block_size": block}
        scale = np.broadcast_to(scale, shape)
        points = None if points is None else np.broadcast_to(points, shape)
    else:
        parameters = [scale, *([] if points is None else [points])]
        varying = sorted({axis for array in parameters for axis, size in enumerate(array.shape) if size != 1})
        if len(varying) > 1:
            raise EncodingFault(f"its scales or zero points vary along several axes, {varying}")
        axis = varying[0] if varying else 0
        shape = [weights.codes.shape[axis]] if varying else []
        scale, points = (None if x is None else _along(x, axis, shape) for x in (scale, points))
        attributes = {"axis": axis} if varying else {}
        if points is None and weights.dtype.is_integer:
            # onnxruntime needs zero points per axis, even zeros, where it converts signed weights to unsigned ones.
            points = np.zeros(shape, np.float32)
    parts = [_constant(b, weights.codes, weights.dtype, f"{name}_quantized"), _constant(b, scale, rounding, f"{name}_scales")]
    if points is not None:
        parts.append(_constant(b, points, weights.dtype, f"{name}_zero_points"))
    y: Value = b.DequantizeLinear(*parts, **attributes)
    return y


def _along(array: Array, axis: int, shape: list[int]) -> Array:
    """Return a parameter that varies along ``axis`` alone as a vector, or as a scalar if ``shape`` is []."""
    return np.broadcast_to(array.reshape(-1), shape) if shape else array.reshape(())


def _compress(b: Builder, weights: ScaledCodes, name: str) -> Value:
    """Emit Cast, Subtract, Multiply and, for blocks, Reshape."""
    rounding = _rounding(weights)
    codes, dtype, points, shape = weights.codes, weights.dtype, weights.points, weights.codes.shape
    if dtype == "i2":
        # OpenVINO has no i2.
        codes, dtype = _numbers(weights) + 2, dtypes.dtype("u2")
        points = (np.zeros_like(weights.scales) if points is None else points) + np.float32(2)
    parts, scales, points = _split_blocks(codes, weights, points)
    stored = _constant(b, parts, dtype, f"{name}_compressed")
    w = b.Cast(stored, to=rounding, source=dtype) if dtype == "nf4" else b.Cast(stored, to=rounding)
    if points is not None and points.any():
        if dtype.is_integer and _are_codes(points, dtype):
            offsets: Value = b.Cast(_constant(b, points, dtype, f"{name}_zero_points"), to=rounding)
        elif rounding == "f32":
            offsets = b.constant(points)
        else:
            raise EncodingFault(f"its zero points are no {dtype}, and differences in {rounding} would round")
        w = b.Subtract(w, offsets)
    w = b.Multiply(w, _constant(b, scales, rounding, f"{name}_scales"))
    return b.Reshape(w, list(shape), special_zero=False) if weights.block else w


def _split_blocks(codes: Array, weights: ScaledCodes, points: Array | None) -> tuple[Array, Array, Array | None]:
    """Return codes, scales and zero points with an axis of blocks and an axis within a block."""
    if not weights.block:
        return codes, weights.scales, points
    axis, block = weights.block_axis, weights.block
    size = codes.shape[axis]
    if size % block:
        raise EncodingFault(f"the size {size} is no multiple of the block {block}")
    codes = codes.reshape(*codes.shape[:axis], size // block, block, *codes.shape[axis + 1 :])
    return codes, np.expand_dims(weights.scales, axis + 1), None if points is None else np.expand_dims(points, axis + 1)


def _fake_quantize(b: Builder, weights: ScaledCodes, name: str) -> Value:
    """Emit FakeQuantize of the codes, with the limits of which the elements are the same as those of the weight."""
    dtype = weights.dtype
    if not dtype.is_integer or _rounding(weights) != "f32":
        raise EncodingFault(f"FakeQuantize has integer codes in f32, got {dtype} rounded to {weights.rounding}")
    numbers, scales, points = _split_blocks(_numbers(weights), weights, weights.points)
    offsets = np.zeros_like(scales) if points is None else points
    numbers = numbers.astype(np.float32)
    elements = (numbers - offsets) * scales
    low, high = dtype.range()
    candidates = [(low, high), *([(low + 1, high)] if numbers.size and numbers.min() > low else [])]
    for first, last in candidates:
        levels = last - first + 1
        limits = [np.array(end, np.float32) for end in (first, last)]
        limits += [(np.float32(end) - offsets) * scales for end in (first, last)]
        found = FakeQuantize(levels).evaluate(np, numbers, *limits)
        if np.array_equal(found, elements):
            break
    else:
        count, at = np.count_nonzero(found != elements), np.unravel_index(np.argmax(found != elements), elements.shape)
        raise EncodingFault(
            f"FakeQuantize divides by {levels - 1} steps and rounds: {count} of {elements.size} elements would differ, "
            f"such as {elements[at]!s} ({found[at]!s})"
        )
    data = b.Cast(_constant(b, _split_blocks(weights.codes, weights, None)[0], dtype, f"{name}_quantized"), to=dtypes.f32)
    y: Value = b.FakeQuantize(data, *limits, levels=levels)
    return b.Reshape(y, list(weights.codes.shape), special_zero=False) if weights.block else y


def _rounding(weights: ScaledCodes) -> DType:
    assert weights.rounding is not None
    return weights.rounding


def _numbers(weights: ScaledCodes) -> Array:
    numbers: Array = weights.codes.astype(np.int16)
    return numbers


def _integer_points(weights: ScaledCodes) -> Array | None:
    points = weights.points
    if points is not None and not _are_codes(points, weights.dtype):
        raise EncodingFault(f"its zero points must be {weights.dtype}, got {points.min():g} to {points.max():g}")
    return points if points is not None and weights.dtype.is_integer else None


def _are_codes(points: Array, dtype: DType) -> bool:
    if not dtype.is_integer:
        return not points.any()
    low, high = dtype.range()
    return bool(np.all((points >= low) & (points <= high) & (points == np.rint(points))))


def _constant(b: Builder, data: Array, dtype: DType, name: str) -> Value:
    array = np.array(data, order="C") if np.asarray(data).dtype == dtype.numpy else np.ascontiguousarray(data).astype(dtype.numpy)
    return b.constant(array.reshape(np.shape(data)), dtype, name)


# Products


def _change_matmul_nbits(b: Builder, op: MatMulNBits, inputs: list[Value | None], encoding: str) -> Value:
    """Emit a MatMul of the weights in ``encoding`` for MatMulNBits."""
    x, packed, scales, zero_points, g_idx, bias = (*inputs, None, None, None)[:6]
    assert x is not None and packed is not None and scales is not None
    if any(value is not None and value.constant is None for value in (packed, scales, zero_points, g_idx)):
        raise EncodingFault("its weights must be constants")
    if g_idx is not None and not np.array_equal(np.asarray(g_idx.constant)[: op.k], np.arange(op.k) // op.block_size):
        raise EncodingFault("g_idx assigns positions to blocks in another order")
    if x.dtype == "f64":
        raise EncodingFault("it multiplies in f64")
    kind = dtypes.dtype(f"u{op.bits}")
    codes = unpack_codes(np, np.asarray(packed.constant), op.bits).reshape(op.n, -1)[:, : op.k].astype(kind.numpy)
    points = np.full((op.n, op.blocks), 2.0 ** (op.bits - 1), np.float32)
    if zero_points is not None:
        given = np.asarray(zero_points.constant)
        if zero_points.dtype == "u8":
            given = unpack_codes(np, given, op.bits).reshape(op.n, -1)[:, : op.blocks]
        points = given.reshape(op.n, op.blocks).astype(np.float32)
    factors = np.asarray(scales.constant).reshape(op.n, op.blocks).astype(np.float32)
    weights = ScaledCodes(codes, kind, factors, points)
    if op.blocks > 1:
        weights = weights._replace(block_axis=1, block=op.block_size)
    if encoding == QDQ and op.bits == 8 and np.all(points == 128):
        # Runtimes prefer signed codes without zero points.
        weights = weights._replace(storage=(_numbers(weights) - 128).astype(np.int8), dtype=dtypes.i8, points=None)
    emit = {QDQ: _dequantize, FAKE_QUANTIZE: _fake_quantize, COMPRESSED: _compress}[encoding]
    y = b.MatMul(as_type(b, x, dtypes.f32), emit(b, weights, packed.name), transpose_b=True)
    if bias is not None:
        y = b.Add(y, as_type(b, bias, dtypes.f32))
    return as_type(b, y, x.dtype)


def _multiply(b: Builder, node: Node, operands: dict[tuple[int, bool], list[Value]]) -> Value | None:
    """Emit MatMulNBits for a product with a quantized weight."""
    op, x, w = node.op, node.input(0), node.input(1)
    assert isinstance(op, MatMul | Gemm)
    is_transposed = op.transpose_b
    if w.node is not None and isinstance(w.node.op, Transpose) and len(w.dims) == 2:
        w, is_transposed = w.node.input(0), not is_transposed
    if (
        x.constant is not None
        or _encoding_of(w) is None
        or _is_output(b, w)
        or not all(_is_product(user, w) for user, _ in w.uses)
    ):
        return None
    weights = _exact_weights(w)
    _check_product(op, node, x, weights)
    key = id(w), is_transposed
    if key not in operands:
        operands[key] = _pack(b, weights, w.name, is_transposed)
    columns, _, size = operands[key][0].dims
    assert isinstance(columns, int) and isinstance(size, int)
    depth, bits = weights.codes.shape[1 if is_transposed else 0], weights.dtype.bits
    y = b.MatMulNBits(x, *operands[key], k=depth, n=columns, bits=bits, block_size=size * 8 // bits)
    has_bias = isinstance(op, Gemm) and len(node.inputs) > 2 and node.inputs[2] is not None
    return b.Add(y, node.input(2)) if has_bias else y


def _pack(b: Builder, weights: ScaledCodes, name: str, is_transposed: bool) -> list[Value]:
    """Return the constants of MatMulNBits: packed codes, scales, and zero points where they are not the default."""
    dtype, scales, points = weights.dtype, weights.scales, _integer_points(weights)
    offset = _SIGNED.get(dtype.name, 0)
    codes = (_numbers(weights) + offset).astype(np.uint8)
    points = (np.zeros_like(scales) if points is None else points) + np.float32(offset)
    axis, block = weights.block_axis, weights.block
    if not is_transposed:
        codes, scales, points, axis = codes.T, scales.T, points.T, 1 - axis
    columns, depth = codes.shape
    if block and axis == 0:
        # Blocks of columns have one scale in each column.
        scales, points = (np.repeat(array, block, 0)[:columns] if len(array) > 1 else array for array in (scales, points))
        block = 0
    size = block & -block if block else min(_MAX_BLOCK, max(16, 1 << (depth - 1).bit_length()))
    if size < 16:
        raise EncodingFault(f"blocks must be multiples of 16, got {block}")
    count, bits = -(-depth // size), dtype.bits
    source = np.arange(count) * size // block if block else np.zeros(count, np.int64)
    if not block and any(array.shape[1] > 1 for array in (scales, points)):
        raise EncodingFault("its scales or zero points vary along the depth without blocks")
    scales, points = (
        np.ascontiguousarray(np.broadcast_to(array, (columns, array.shape[1]))[:, source if array.shape[1] > 1 else source * 0])
        for array in (scales, points)
    )
    padded = np.zeros((columns, count * size), np.uint8)
    padded[:, :depth] = codes
    packed = pack_bits(padded, bits).reshape(columns, count, size * bits // 8)
    parts = [b.constant(packed, dtypes.u8, f"{name}_packed"), b.constant(scales, dtypes.f32, f"{name}_scales")]
    if not np.all(points == 2 ** (bits - 1)):
        parts.append(b.constant(pack_bits(points.astype(np.uint8), bits), dtypes.u8, f"{name}_zero_points"))
    return parts


def _check_product(op: MatMul | Gemm, node: Node, x: Value, weights: ScaledCodes) -> None:
    dtype = weights.dtype
    if not dtype.is_integer or dtype.bits not in (2, 4, 8):
        raise EncodingFault(f"its codes must be integers of 2, 4 or 8 bits, got {dtype}")
    if weights.codes.ndim != 2 or not prod(weights.codes.shape):
        raise EncodingFault(f"its weight must be a matrix, got the shape {list(weights.codes.shape)}")
    if weights.rounding != "f32" or x.dtype != "f32":
        raise EncodingFault(
            f"it must multiply in f32 by weights in f32, got {x.dtype} and elements rounded to {weights.rounding}"
        )
    if op.transpose_a or (isinstance(op, Gemm) and not op.alpha == op.beta == 1) or x.shape is None or not x.shape:
        raise EncodingFault("its first operand must not be transposed or scaled, and must have a rank of at least 1")
