"""Q/DQ fusion: layers between DequantizeLinear and QuantizeLinear run in integer arithmetic, with one rounding at the end.

The model describes float arithmetic between two roundings. The sums of a convolution of 8-bit codes are integers, which floats
would only approximate. The sums are computed exactly, and rescaled to the next quantization by one factor, rounded half to even.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.pool import MaxPool
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, QuantizeLinear
from dovetail.ops.tensor.reshape import Flatten, Reshape
from dovetail.ops.tensor.transpose_expand_tile import Transpose

BYTE_TYPES = ("u8", "i8")
Result = Value | Sequence[Value] | None


class Quantization(NamedTuple):
    """Quantization holds per-tensor parameters: scale, zero point and element type of the codes."""

    scale: float
    zero: int
    dtype: DType


class QuantizedTensor(NamedTuple):
    """QuantizedTensor holds the codes of a tensor, and their quantization."""

    codes: Value
    quantization: Quantization


class QuantizedConv(Op, sig="x: R, w: R2, bias: i32, factor: f32, other?: R3, w_zero?: i32 -> y: R4", is_registered=False):
    """QuantizedConv computes ``q = round(sum * factor) + zero``, clipped to [``low``, ``high``]. Only the engine uses it.

    ``sum`` is the result of ``conv`` over ``(x - x_zero) * (w - w_zero)``, plus ``bias``; q has the type ``dtype``. With
    ``other``, a residual, the result is ``round((q - zero) * own + (other - other_zero) * beside) + last_zero``. That result is
    clipped to [``last_low``, ``last_high``] and has the type ``last_dtype``.
    """

    conv: Conv
    x_zero: int
    zero: int
    dtype: DType
    low: int
    high: int
    own: float = 1.0
    beside: float = 0.0
    other_zero: int = 0
    last_zero: int = 0
    last_dtype: DType | None = None
    last_low: int = 0
    last_high: int = 0

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return self.conv.multiply_adds(inputs, output)

    def types(self, x: View, w: View, *rest: View | None) -> list[Type]:
        return [Tensor(self.last_dtype or self.dtype, self._shape(x, w))]

    def _shape(self, x: View, w: View) -> Any:
        """Return the shape of ``conv``'s result; a matrix product (1 x 1 kernel), unlike a convolution, may have no rows."""
        if x.shape is not None and self.conv == Conv() and tuple(w.dims[2:]) == (1, 1):
            return (x.shape[0], w.dims[0], *x.shape[2:])
        return self.conv.shape(x, w)

    def evaluate(
        self, xp: Namespace, x: Array, w: Array, bias: Array, factor: Array, other: Array = None, w_zero: Array = None
    ) -> Array:
        per_channel = (1, len(bias), *(1,) * (x.ndim - 2))
        if 0 in x.shape[2:]:
            return np.empty((len(x), len(w), *x.shape[2:]), (self.last_dtype or self.dtype).numpy)
        # f64 represents the integer sums of products of 8-bit codes exactly.
        weights = w.astype(np.float64) - (0 if w_zero is None else w_zero.reshape(-1, *(1,) * (w.ndim - 1)))
        products = self.conv.evaluate(np, x.astype(np.float64) - self.x_zero, weights)
        sums = products + bias.reshape(per_channel)
        rounded = np.round(sums.astype(np.float32) * factor.reshape(per_channel))
        rounded = np.clip(rounded, self.low - self.zero, self.high - self.zero)
        if other is None or self.last_dtype is None:
            return (rounded + self.zero).astype(self.dtype.numpy)
        own = (rounded * np.float32(self.own)).astype(np.float64)
        both = own + (other.astype(np.float64) - self.other_zero) * float(np.float32(self.beside))
        result = np.round(both.astype(np.float32)) + self.last_zero
        return np.clip(result, self.last_low, self.last_high).astype(self.last_dtype.numpy)


def fuse_qdq(b: Builder, node: Node) -> Result:
    """Fuse a QuantizeLinear with the preceding layer and DequantizeLinear; None where these nodes do not fuse."""
    if not isinstance(node.op, QuantizeLinear) or node.op.precision is not None:
        return None
    output = _quantization_of(node)
    if output is None:
        return None
    x, quantization = output
    source = x.node
    low, high = quantization.dtype.range()
    has_relu = False
    if source is not None and isinstance(source.op, Relu):
        has_relu = True
        low = max(low, quantization.zero)
        source = source.input(0).node
    if source is None:
        return None
    match source.op:
        case Conv() if source.op.group == 1:
            return _fuse_conv(b, source.op, source.inputs, quantization, int(low), int(high))
        case Gemm():
            return _fuse_gemm(b, source.op, source.inputs, quantization, int(low), int(high))
        case MatMul():
            return _fuse_matmul(b, source.op, source.inputs, quantization, int(low), int(high))
        case Add() if source.op.broadcast:
            return _fuse_residual(b, source.inputs, quantization, int(low), int(high))
        case MaxPool() | Flatten() | Reshape() | Transpose() if not has_relu and len(source.outputs) == 1:
            return _apply_to_codes(b, source, quantization)
    return None


def _quantization_of(node: Node) -> QuantizedTensor | None:
    """Return the input of a QuantizeLinear or DequantizeLinear, and the quantization that the node defines.

    None unless the quantization is per-tensor and constant, between f32 and 8-bit codes.
    """
    x, scale, point = (*node.inputs, None)[:3]
    (y,) = node.outputs
    assert x is not None and scale is not None
    codes, numbers = (y, x) if isinstance(node.op, QuantizeLinear) else (x, y)
    step, zero = _single_element_of(scale), 0 if point is None else _single_element_of(point)
    if step is None or zero is None or not 0 < step < float("inf"):
        return None
    if codes.dtype.name not in BYTE_TYPES or numbers.dtype is not dtypes.f32 or scale.dtype is not dtypes.f32:
        return None
    return QuantizedTensor(x, Quantization(float(step), int(zero), codes.dtype))


def _single_element_of(value: Value) -> Array:
    """Return the element of a constant of one element; None for anything else."""
    return value.constant.reshape(()) if value.constant is not None and value.constant.size == 1 else None


def _dequantize_node_of(value: Value | None) -> Node | None:
    """Return the DequantizeLinear that computes a tensor; None for any other tensor."""
    assert value is not None
    return value.node if value.node is not None and isinstance(value.node.op, DequantizeLinear) else None


def _quantized_source_of(value: Value | None) -> QuantizedTensor | None:
    """Return the codes from which a tensor is dequantized, and their quantization; None for any other tensor."""
    node = _dequantize_node_of(value)
    return None if node is None else _quantization_of(node)


class QuantizedWeights(NamedTuple):
    """QuantizedWeights holds constant codes with zero point 0, and one scale per channel."""

    codes: Array
    scales: Array


def _quantized_weights_of(value: Value | None, dtype: str, axis: int, count: int) -> QuantizedWeights | None:
    """Return the constant codes from which a tensor is dequantized, and the ``count`` scales along ``axis``.

    None unless codes, of type ``dtype``, and scales are constant and the zero points are 0.
    """
    node = _dequantize_node_of(value)
    if node is None:
        return None
    codes, scale, point = (*node.inputs, None)[:3]
    assert codes is not None and scale is not None and isinstance(node.op, DequantizeLinear)
    if codes.constant is None or scale.constant is None or codes.dtype.name != dtype:
        return None
    if point is not None and (point.constant is None or point.constant.any()):
        return None
    if node.op.block_size or scale.dtype is not dtypes.f32:
        return None
    scales = scale.constant.ravel()
    if scales.size != 1 and (node.op.plain_axis(codes, scale) != axis or scales.size != count):
        return None
    if not np.all((scales > 0) & np.isfinite(scales)):
        return None
    return QuantizedWeights(codes.constant, np.broadcast_to(scales, (count,)))


def _fuse_conv(b: Builder, op: Conv, inputs: list[Value | None], output: Quantization, low: int, high: int) -> Result:
    x, w, bias = (*inputs, None)[:3]
    source = _quantized_source_of(x)
    assert w is not None
    if source is None or w.shape is None or len(w.shape) != 4:
        return None
    weights = _quantized_weights_of(w, "i8", 0, int(w.dims[0]))
    return None if weights is None else _quantized_conv(b, op, source, weights, bias, output, low, high)


def _quantized_conv(
    b: Builder,
    op: Conv,
    x: QuantizedTensor,
    weights: QuantizedWeights,
    bias: Value | None,
    output: Quantization,
    low: int,
    high: int,
) -> Sequence[Value] | None:
    codes, scales = weights
    steps = scales.astype(np.float64) * x.quantization.scale
    integer_bias = _integer_bias_of(bias, steps)
    if integer_bias is None or not fits_i32(codes, integer_bias):
        return None
    factor = (steps / output.scale).astype(np.float32)
    conv = QuantizedConv(op, x.quantization.zero, output.zero, output.dtype, low, high)
    return b.add(conv, x.codes, b.constant(codes), b.constant(integer_bias), b.constant(factor))


def fits_i32(codes: Array, bias: Array) -> bool:
    """Return whether i32 represents every sum of products of 8-bit codes and these weights, plus the bias."""
    sums = 255 * np.abs(codes.astype(np.int64)).sum(axis=tuple(range(1, codes.ndim)))
    return bool(np.all(sums + np.abs(bias.astype(np.int64)) < 2**31))


def _integer_bias_of(bias: Value | None, steps: Array) -> Array:
    """Return a bias in units of ``steps``: zeros for no bias, the codes of a bias with scales ``steps``, None for any other."""
    if bias is None:
        return np.zeros(len(steps), np.int32)
    quantized = _quantized_weights_of(bias, "i32", 0, len(steps))
    if quantized is None:
        return None
    codes, scales = quantized
    is_same = codes.shape == steps.shape and np.all(np.abs(scales / steps - 1) <= 2.0**-22)
    return codes if is_same else None


def _fuse_gemm(b: Builder, op: Gemm, inputs: list[Value | None], output: Quantization, low: int, high: int) -> Result:
    x, y, bias = (*inputs, None)[:3]
    if op.alpha != 1 or (bias is not None and op.beta != 1) or op.transpose_a:
        return None
    return _fuse_product(b, x, y, op.transpose_b, bias, output, low, high)


def _fuse_matmul(b: Builder, op: MatMul, inputs: list[Value | None], output: Quantization, low: int, high: int) -> Result:
    x, y = inputs
    return None if op.transpose_a else _fuse_product(b, x, y, op.transpose_b, None, output, low, high)


def _fuse_product(
    b: Builder,
    x: Value | None,
    y: Value | None,
    transposes_y: bool,
    bias: Value | None,
    output: Quantization,
    low: int,
    high: int,
) -> Result:
    """Rewrite a product of rows with a constant matrix to a convolution with a 1 x 1 kernel, over images of one pixel per row."""
    source = _quantized_source_of(x)
    assert y is not None
    if source is None or source.codes.shape is None or y.shape is None or len(y.shape) != 2:
        return None
    rank = len(source.codes.shape)
    columns = y.shape[0 if transposes_y else 1]
    if not 2 <= rank <= 4 or not isinstance(columns, int):
        return None
    weights = _quantized_weights_of(y, "i8", 0 if transposes_y else 1, columns)
    if weights is None:
        return None
    codes, scales = weights
    codes = codes if transposes_y else np.ascontiguousarray(codes.T)
    added = list(range(4 - rank))
    rows = b.Unsqueeze(source.codes, added) if added else source.codes
    image = QuantizedTensor(b.Transpose(rows, [0, 3, 1, 2]), source.quantization)
    kernel = QuantizedWeights(codes.reshape(*codes.shape, 1, 1), scales)
    conv = _quantized_conv(b, Conv(), image, kernel, bias, output, low, high)
    if conv is None:
        return None
    (pixels,) = conv
    result: Value = b.Transpose(pixels, [0, 2, 3, 1])
    return b.Squeeze(result, added) if added else result


def _fuse_residual(b: Builder, inputs: list[Value | None], output: Quantization, low: int, high: int) -> Result:
    """Fuse the sum of two tensors into the convolution that computes one of them, if only the sum reads its result."""
    for own, other in (inputs, reversed(inputs)):
        assert own is not None
        own_source, other_source = _quantized_source_of(own), _quantized_source_of(other)
        if own_source is None or other_source is None:
            continue
        (codes, quantization), (other_codes, other_quantization) = own_source, other_source
        conv = codes.node
        if conv is None or not isinstance(conv.op, QuantizedConv):
            continue
        if codes.shape != other_codes.shape or not _has_single_reader(codes, own, b):
            continue
        # The kernel subtracts the zero point that the convolution adds.
        if conv.op.last_dtype is not None or quantization.zero != conv.op.zero:
            continue
        changed = conv.op.with_(
            own=quantization.scale / output.scale,
            beside=other_quantization.scale / output.scale,
            other_zero=other_quantization.zero,
            last_zero=output.zero,
            last_dtype=output.dtype,
            last_low=low,
            last_high=high,
        )
        x, w, bias, factor, _, w_zero = (*conv.inputs, None, None)[:6]
        return b.add(changed, x, w, bias, factor, other_codes, w_zero)
    return None


def _has_single_reader(codes: Value, value: Value, b: Builder) -> bool:
    """Return whether ``codes`` and ``value`` each have exactly one reader and are no graph outputs."""
    is_output = any(x is output for x in (codes, value) for output in b.graph.outputs)
    return len(codes.uses) == 1 and len(value.uses) == 1 and not is_output


def _apply_to_codes(b: Builder, source: Node, output: Quantization) -> Result:
    """Apply MaxPool or data movement to the codes if input and output have the same quantization; else return None."""
    x, *others = source.inputs
    quantized = _quantized_source_of(x)
    if quantized is None:
        return None
    codes, quantization = quantized
    return b.add(source.op, codes, *others) if quantization == output else None
