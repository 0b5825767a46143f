"""IntegerConv, the engine's product of 8-bit integers; fusion of MatMulInteger and ConvInteger with the rescaling after them.

Quantizers emit a dynamically quantized layer as DynamicQuantizeLinear, MatMulInteger or ConvInteger, Cast, a Multiply by the
product of the scales, and an Add of the bias. One kernel computes all operators after DynamicQuantizeLinear, and rounds as
these operators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.nn.conv import Conv, concat_vectors
from dovetail.ops.quantization.integer_matmul_conv import INTEGER_TYPES, ConvInteger, MatMulInteger


class IntegerConv(
    Op,
    sig="x: R, w: R2, x_zero?: R, w_zero?: i32, x_scale?: f32, w_scale?: f32, bias?: f32 -> y: R3",
    is_registered=False,
):
    """IntegerConv computes the wrapping i32 sum of ``conv`` over ``(x - x_zero) * (w - w_zero)``. Only the engine uses it.

    With scales, the result is f32: ``sum * (x_scale * w_scale) + bias``, with each operation rounded. ``w_zero``, ``w_scale`` and
    ``bias`` have one element for each output channel.
    """

    conv: Conv

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return self.conv.multiply_adds(inputs, output)

    def types(self, x: View, w: View, x_zero: View | None = None, w_zero: View | None = None, *rest: View | None) -> list[Type]:
        dtype = dtypes.f32 if rest and rest[0] is not None else dtypes.i32
        return [Tensor(dtype, self.conv.shape(x, w))]

    def evaluate(
        self,
        xp: Namespace,
        x: Array,
        w: Array,
        x_zero: Array = None,
        w_zero: Array = None,
        x_scale: Array = None,
        w_scale: Array = None,
        bias: Array = None,
    ) -> Array:
        per_channel = (-1, *(1,) * (x.ndim - 2))
        codes = x.astype(np.float64) - (0 if x_zero is None else float(x_zero.reshape(())))
        weights = w.astype(np.float64) - (0 if w_zero is None else w_zero.reshape(-1, 1, 1, 1))
        # f64 represents the integer sums of products of 8-bit codes exactly.
        sums = self.conv.evaluate(np, codes, weights).astype(np.int64).astype(np.int32)
        if x_scale is None or w_scale is None:
            return sums
        y = sums.astype(np.float32) * (x_scale.reshape(()) * w_scale).reshape(per_channel)
        return y if bias is None else y + bias.reshape(per_channel)


class Rescaling(NamedTuple):
    """Rescaling holds a scale of integer sums with one element, constant scales per channel, and a constant bias per channel."""

    x_scale: Value
    w_scale: Array
    bias: Array | None = None


def integer_conv(
    b: Builder, conv: Conv, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, rescaling: Rescaling | None = None
) -> Value | None:
    """Return a rescaled ConvInteger as an IntegerConv; None if the kernel of IntegerConv does not support the convolution."""
    if not _is_served(x, w, x_zero, w_zero) or conv.group != 1 or len(w.dims) != 4:
        return None
    weights: Array = w.constant
    zeros = _per_channel(None if w_zero is None else w_zero.constant, len(weights))
    return None if zeros is None else _add(b, conv, x, b.constant(weights), x_zero, zeros, rescaling, len(weights))


def integer_product(
    b: Builder, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, rescaling: Rescaling | None = None
) -> Value | None:
    """Return a rescaled MatMulInteger as an IntegerConv with a 1 x 1 kernel, over one image of one pixel for each row."""
    if not _is_served(x, w, x_zero, w_zero) or len(w.dims) != 2 or len(x.dims) < 2:
        return None
    weights: Array = w.constant
    depth, columns = weights.shape
    zeros = _per_channel(None if w_zero is None else w_zero.constant, columns)
    if zeros is None or depth == 0 or columns == 0:
        return None
    transposed = np.ascontiguousarray(weights.T).reshape(columns, depth, 1, 1)
    # A constant of an array that cannot be written needs no copy.
    transposed.flags.writeable = False
    kernel = b.constant(transposed)
    images = b.Reshape(x, [-1, depth, 1, 1], special_zero=False)
    pixels = _add(b, Conv(), images, kernel, x_zero, zeros, rescaling, columns)
    rows = shape_value(b, x, range(len(x.dims) - 1))
    shape = [*rows, columns] if isinstance(rows, list) else concat_vectors(b, rows, [columns])
    result: Value = b.Reshape(pixels, shape, special_zero=False)
    return result


def _is_served(x: Value, w: Value, x_zero: Value | None, w_zero: Value | None) -> bool:
    if x.shape is None or w.constant is None or (w_zero is not None and w_zero.constant is None):
        return False
    if any(value.dtype is None or value.dtype.name not in INTEGER_TYPES for value in (x, w)):
        return False
    return x_zero is None or has_single_element(x_zero)


def has_single_element(value: Value) -> bool:
    """Return whether a value is known to have exactly one element."""
    return value.shape is not None and all(size == 1 for size in value.shape)


def _per_channel(values: Array | None, count: int) -> Array | None:
    """Return a constant of 1 or ``count`` elements broadcast to [count], or zeros for None; None for any other constant."""
    if values is None:
        return np.zeros(count, np.int32)
    return np.broadcast_to(values.reshape(-1), (count,)) if values.size in (1, count) else None


def _add(
    b: Builder,
    conv: Conv,
    x: Value,
    w: Value,
    x_zero: Value | None,
    w_zero: Array,
    rescaling: Rescaling | None,
    count: int,
) -> Value:
    zeros = b.constant(w_zero.astype(np.int32)) if w_zero.any() else None
    scales: list[Value | None] = []
    if rescaling is not None:
        bias = None if rescaling.bias is None else b.constant(np.ascontiguousarray(rescaling.bias))
        scales = [rescaling.x_scale, b.constant(np.array(np.broadcast_to(rescaling.w_scale, (count,)))), bias]
    return b.add(IntegerConv(conv), x, w, x_zero, zeros, *scales)[0]


# Fusion


def fuse_integer_product(b: Builder, node: Node) -> Value | None:
    """Fuse a MatMulInteger or ConvInteger with the Cast, Multiply and Add after it; None where these nodes do not fuse."""
    match node.op:
        case Multiply():
            product = _rescaled_product_of(b, node)
            # An Add of a bias that follows fuses the product instead.
            if product is None or _bias_reader_of(b, node, product) is not None:
                return None
            return _write(b, product, None)
        case Add():
            for x, other in (node.inputs, node.inputs[::-1]):
                assert x is not None and other is not None
                if x.node is None or not isinstance(x.node.op, Multiply) or not _is_private(b, x):
                    continue
                product = _rescaled_product_of(b, x.node)
                bias = None if product is None else _channel_constant_of(other, product.node, x)
                if product is not None and bias is not None:
                    return _write(b, product, bias)
    return None


class _RescaledProduct(NamedTuple):
    """_RescaledProduct holds a MatMulInteger or ConvInteger, and the scales of its result."""

    node: Node
    rescaling: Rescaling


def _write(b: Builder, product: _RescaledProduct, bias: Array | None) -> Value | None:
    op, (x, w, x_zero, w_zero) = product.node.op, (*product.node.inputs, None, None)[:4]
    assert x is not None and w is not None
    rescaling = product.rescaling._replace(bias=bias)
    if isinstance(op, ConvInteger):
        return integer_conv(b, op.conv(), x, w, x_zero, w_zero, rescaling)
    return integer_product(b, x, w, x_zero, w_zero, rescaling)


def _rescaled_product_of(b: Builder, node: Node) -> _RescaledProduct | None:
    """Return the integer product whose sums a Multiply rescales: Multiply(Cast(product), scale); None for any other Multiply."""
    for sums, scale in (node.inputs, node.inputs[::-1]):
        assert sums is not None and scale is not None
        cast = sums.node
        if cast is None or not isinstance(cast.op, Cast) or sums.dtype is not dtypes.f32 or not _is_private(b, sums):
            continue
        (integers,) = cast.inputs
        product = None if integers is None else integers.node
        if product is None or not isinstance(product.op, MatMulInteger | ConvInteger) or not _is_private(b, integers):
            continue
        if product.outputs[0].shape is None or product.outputs[0].shape != node.outputs[0].shape:
            continue
        rescaling = _rescaling_of(b, scale, product)
        if rescaling is not None:
            return _RescaledProduct(product, rescaling)
    return None


def _rescaling_of(b: Builder, scale: Value, product: Node) -> Rescaling | None:
    """Return a scale as the product of a one-element value and constants per channel; None for any other scale."""
    if scale.dtype is not dtypes.f32 or scale.shape is None:
        return None
    factors: list[tuple[Value | None, Value]] = [(None, scale)]
    if scale.node is not None and isinstance(scale.node.op, Multiply):
        x, y = scale.node.inputs
        assert x is not None and y is not None
        factors += [(x, y), (y, x)]
    for single, channels in factors:
        constants = _channel_constant_of(channels, product, product.outputs[0])
        if constants is not None and (single is None or has_single_element(single)):
            # Multiplication by 1 is exact.
            return Rescaling(b.constant(np.float32(1)) if single is None else single, constants)
    return None


def _channel_constant_of(value: Value, product: Node, result: Value) -> Array | None:
    """Return an f32 constant that broadcasts to ``result`` along channels, as one number per channel; None for any other."""
    constant, rank = value.constant, len(result.dims)
    if constant is None or value.dtype is not dtypes.f32 or constant.ndim > rank or len(product.input(1).dims) < 2:
        return None
    is_conv = isinstance(product.op, ConvInteger)
    count = product.input(1).dims[0 if is_conv else -1]
    sizes = (1,) * (rank - constant.ndim) + constant.shape
    if not isinstance(count, int) or any(size != 1 for axis, size in enumerate(sizes) if axis != (1 if is_conv else rank - 1)):
        return None
    return np.broadcast_to(constant.reshape(-1), (count,)) if constant.size in (1, count) else None


def _bias_reader_of(b: Builder, node: Node, product: _RescaledProduct) -> Node | None:
    """Return the Add of a constant bias that is the only reader of a rescaled product; None without one."""
    (y,) = node.outputs
    if not _is_private(b, y):
        return None
    (reader, _), *_ = y.uses
    if not isinstance(reader.op, Add):
        return None
    other = reader.inputs[1] if reader.inputs[0] is y else reader.inputs[0]
    return None if other is None or _channel_constant_of(other, product.node, y) is None else reader


def _is_private(b: Builder, value: Value | None) -> bool:
    """Return whether a value has exactly one reader and is no output of the graph."""
    return value is not None and len(value.uses) == 1 and not any(value is output for output in b.graph.outputs)
