"""Quantized activations in another encoding, with the same result for every number: QuantizeLinear, and FakeQuantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.quantization.quantize_linear import DequantizeLinear, FakeQuantize, QuantizeLinear

Array: TypeAlias = np.ndarray[Any, Any]
QDQ, FAKE_QUANTIZE = "qdq", "fakequantize"
"""The encodings of activations."""


class EncodingFault(Exception):
    """EncodingFault is what stands in the way of an encoding."""


def change_activation(b: Builder, node: Node, encoding: str) -> Value | None:
    """Emit FakeQuantize for QuantizeLinear and DequantizeLinear, or these for FakeQuantize."""
    source = node.input(0).node
    if (
        isinstance(node.op, DequantizeLinear)
        and encoding != QDQ
        and (source is None or not isinstance(source.op, QuantizeLinear))
    ):
        raise EncodingFault(f"its codes are {'an input' if source is None else f'computed by {type(source.op).__name__}'}")
    if isinstance(node.op, DequantizeLinear) and encoding == FAKE_QUANTIZE:
        assert source is not None
        x, limits, levels = source.input(0), *_limits_of(source, node)
        found = _first_difference(_quantizer_of(source, node), _fake(limits, levels), limits, levels)
        if found is not None:
            raise EncodingFault(found)
        y: Value = b.FakeQuantize(x, *limits, levels=levels)
        return y
    if isinstance(node.op, FakeQuantize) and encoding == QDQ:
        return _quantize(b, node)
    return None


def _limits_of(quantize: Node, dequantize: Node) -> tuple[list[Array], int]:
    parts = [(*item.inputs[1:], None)[:2] for item in (quantize, dequantize)]
    scale, point = parts[0]
    for pair in zip(*parts, strict=True):
        constants = [None if value is None else value.constant for value in pair]
        if any(value is not None and constant is None for value, constant in zip(pair, constants, strict=True)):
            raise EncodingFault("its scale and zero point must be constants")
        first, second = (
            np.zeros((), np.float32) if array is None else np.asarray(array).astype(np.float32) for array in constants
        )
        if not np.array_equal(first, second):
            raise EncodingFault("QuantizeLinear and DequantizeLinear must have the same scale and zero point")
    assert scale is not None and scale.constant is not None
    dtype = quantize.outputs[0].dtype
    if (
        scale.constant.size != 1
        or scale.dtype != "f32"
        or not dtype.is_integer
        or dtype.bits > 8
        or quantize.input(0).dtype != "f32"
    ):
        raise EncodingFault(f"an activation must be f32 with one scale and at most 8 bits, got {dtype} and scale {scale.type}")
    low, high = dtype.range()
    factor = np.asarray(scale.constant).reshape(())
    offset = np.float32(0 if point is None else np.asarray(point.constant).astype(np.float32).reshape(()))
    ends = [np.asarray((np.float32(end) - offset) * factor, np.float32) for end in (low, high)]
    return [*ends, *ends], high - low + 1


def _quantizer_of(quantize: Node, dequantize: Node) -> Callable[[Array], Array]:
    parts = [
        [None if value is None else np.asarray(value.constant) for value in item.inputs[1:]] for item in (quantize, dequantize)
    ]

    def apply(x: Array) -> Array:
        y: Array = dequantize.op.evaluate(np, quantize.op.evaluate(np, x, *parts[0]), *parts[1])
        return y

    return apply


def _fake(limits: list[Array], levels: int) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        y: Array = FakeQuantize(levels).evaluate(np, x, *limits)
        return y

    return apply


def _quantize(b: Builder, node: Node) -> Value:
    """Emit QuantizeLinear and DequantizeLinear for FakeQuantize of an activation."""
    op, x = node.op, node.input(0)
    assert isinstance(op, FakeQuantize)
    limits = [
        None if value.constant is None else np.asarray(value.constant, np.float32) for value in map(node.input, range(1, 5))
    ]
    if any(limit is None or limit.size != 1 for limit in limits) or x.dtype != "f32":
        raise EncodingFault("an activation must be f32 with constant limits of one element")
    low, high, output_low, output_high = (np.asarray(limit).reshape(()) for limit in limits)
    if low != output_low or high != output_high or not low < high:
        raise EncodingFault("the input range must be ascending and the output range the same")
    if op.levels > 256:
        raise EncodingFault(f"it must have at most 256 levels, got {op.levels}")
    bits = next(bits for bits in (2, 4, 8) if op.levels <= 2**bits)
    if op.levels != 2**bits:
        raise EncodingFault(f"QuantizeLinear saturates at 4, 16 or 256 levels, got {op.levels}")
    scale = np.float32((np.float64(high) - np.float64(low)) / (op.levels - 1))
    offset = float(np.rint(-np.float64(low) / scale))
    if not 0 <= offset < op.levels:
        raise EncodingFault(f"the zero point must be in [0, {op.levels - 1}], got {offset:g}: the range must contain 0")
    kind = dtypes.dtype(f"u{bits}")
    point = np.array(offset).astype(kind.numpy)

    def apply(values: Array) -> Array:
        codes = QuantizeLinear().evaluate(np, values, scale, point)
        y: Array = DequantizeLinear().evaluate(np, codes, scale, point)
        return y

    found = _first_difference(_fake([low, high, low, high], op.levels), apply, [low, high], op.levels)
    if found is not None:
        raise EncodingFault(found)
    parts = b.constant(scale), b.constant(point, kind)
    y: Value = b.DequantizeLinear(b.QuantizeLinear(x, *parts), *parts)
    return y


def _first_difference(
    first: Callable[[Array], Array], second: Callable[[Array], Array], limits: list[Array], levels: int
) -> str | None:
    """Return the first number that two quantizers round to different elements, as a text; None if they are the same function.

    Both ascend, so that they are the same if they agree at both sides of each step of the first, and at the limits.
    """
    with np.errstate(all="ignore"):
        ends = np.array([-np.finfo(np.float32).max, np.finfo(np.float32).max], np.float32)
        levels_of = np.unique(first(np.linspace(float(limits[0]), float(limits[1]), 64 * levels).astype(np.float32)))
        low, high = (np.full(max(len(levels_of) - 1, 0), end, np.float32) for end in ends)
        low, high = _ordinal(low), _ordinal(high)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            is_above = first(_float_of(middle)) >= levels_of[1:]
            low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        points = np.concatenate([_float_of(low), _float_of(high), ends, np.array([0, -0.0, np.inf, -np.inf], np.float32)])
        own, other = first(points), second(points)
    is_wrong = own != other
    if not is_wrong.any():
        return None
    index = int(np.argmax(is_wrong))
    count = int(np.count_nonzero(is_wrong[: 2 * len(low)].reshape(2, -1).any(0)))
    return f"{count} of {len(low)} steps are at other numbers: {points[index]!s} becomes {own[index]!s} and {other[index]!s}"


def _ordinal(x: Array) -> Array:
    """Return the position of f32 numbers in their order."""
    bits = x.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _float_of(ordinal: Array) -> Array:
    bits = np.where(ordinal < 0, (-ordinal) | 0x80000000, ordinal).astype(np.uint32)
    return bits.view(np.float32)
