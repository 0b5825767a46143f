"""Fusions on request: decompositions by exporters become one operator, Gelu or LayerNormalization, of the model's opset.

A fused operator equals its decomposition over the real numbers, and differs by rounding.
"""

from __future__ import annotations

from math import isclose, pi, sqrt
from typing import NamedTuple

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import are_equal_shapes
from dovetail.laws.law import Result, is_read_once, producer
from dovetail.ops.elementwise.binary import Add, Divide, Multiply, Power, Subtract
from dovetail.ops.elementwise.unary import Erf, Reciprocal, Sqrt, Tanh
from dovetail.ops.reduction.reduce import ReduceMean
from dovetail.passes.simplification.rules import Target, apply_rules

CUBIC = 0.044715
"""The coefficient of the cube in the tanh form of Gelu (Hendrycks and Gimpel, 2016)."""


def fuse_gelu(graph: Graph, target: Target) -> int:
    """Fuse ``0.5 x (1 + erf(x / sqrt(2)))`` and its tanh form into Gelu. Returns the number of fused nodes."""
    return apply_rules(graph, {Multiply: _gelu}, target)


def fuse_layer_normalization(graph: Graph, target: Target) -> int:
    """Fuse mean, variance, scale and bias over the last axis into LayerNormalization. Returns the number of fused nodes."""
    return apply_rules(graph, {Add: _layer_normalization}, target)


class _Product(NamedTuple):
    """_Product is a product with separate factors: the product of its scalar constants, and its other factors."""

    scalar: float
    factors: list[Value]


def _scalar(value: Value) -> float | None:
    """Return the element of a constant that has one element and rank 0 or 1; None for other values."""
    data = value.constant
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 and data.ndim <= 1 else None


def _is_near(number: float | None, expected: float, value: Value) -> bool:
    tolerance = 1e-6 if value.dtype.bits >= 32 else 1e-2
    return number is not None and isclose(number, expected, rel_tol=tolerance)


def _factors(b: Builder, value: Value, is_root: bool = True) -> _Product:
    """Split a value into factors, through products, quotients by constants and powers whose results have no other reader."""
    node = value.node
    if (number := _scalar(value)) is not None:
        return _Product(number, [])
    if node is None or not (is_root or is_read_once(b.graph, value)):
        return _Product(1.0, [value])
    if isinstance(node.op, Multiply) and node.op.broadcast:
        first, second = (_factors(b, node.input(index), False) for index in (0, 1))
        return _Product(first.scalar * second.scalar, first.factors + second.factors)
    if isinstance(node.op, Divide) and (divisor := _scalar(node.input(1))):
        inner = _factors(b, node.input(0), False)
        return _Product(inner.scalar / divisor, inner.factors)
    if isinstance(node.op, Power) and (exponent := _scalar(node.input(1))) in (2.0, 3.0):
        return _Product(1.0, [node.input(0)] * int(exponent or 0))
    return _Product(1.0, [value])


def _sum_with_scalar(b: Builder, value: Value) -> tuple[Value, float] | None:
    """Return x and c if ``value`` is the sum of x and a scalar constant c, and has only one reader; else None."""
    node = producer(value, Add)
    if node is None or not is_read_once(b.graph, value):
        return None
    for index in (0, 1):
        number = _scalar(node.input(index))
        if number is not None:
            return node.input(1 - index), number
    return None


def _gelu(b: Builder, node: Node) -> Result:
    y = node.outputs[0]
    product = _factors(b, y)
    if y.type is None or not y.dtype.is_float or len(product.factors) != 2 or not _is_near(product.scalar, 0.5, y):
        return None
    for index in (0, 1):
        x, cdf = product.factors[index], product.factors[1 - index]
        parts = _sum_with_scalar(b, cdf)
        if parts is None or parts[1] != 1.0 or not are_equal_shapes(x.shape, y.shape):
            continue
        form = _gelu_form(b, parts[0], x)
        if form is not None:
            return b.Gelu(x, approximate=form)
    return None


def _gelu_form(b: Builder, value: Value, x: Value) -> str | None:
    """Return "none" for ``erf(x / sqrt(2))``, "tanh" for ``tanh(sqrt(2 / pi) (x + 0.044715 x^3))``."""
    if not is_read_once(b.graph, value):
        return None
    erf, tanh = producer(value, Erf), producer(value, Tanh)
    if erf is not None:
        inner = _factors(b, erf.input(0), False)
        return "none" if inner.factors == [x] and _is_near(inner.scalar, sqrt(0.5), x) else None
    if tanh is None:
        return None
    inner = _factors(b, tanh.input(0), False)
    if not _is_near(inner.scalar, sqrt(2 / pi), x):
        return None
    if len(inner.factors) == 1:
        addends = producer(inner.factors[0], Add)
        for index in (0, 1) if addends is not None and is_read_once(b.graph, inner.factors[0]) else ():
            assert addends is not None
            cube = _factors(b, addends.input(1 - index), False)
            if addends.input(index) is x and cube.factors == [x, x, x] and _is_near(cube.scalar, CUBIC, x):
                return "tanh"
    if len(inner.factors) == 2 and x in inner.factors:
        # x (1 + 0.044715 x^2)
        other = inner.factors[1 - inner.factors.index(x)]
        parts = _sum_with_scalar(b, other)
        square = None if parts is None else _factors(b, parts[0], False)
        if parts is not None and square is not None and parts[1] == 1.0 and square.factors == [x, x]:
            return "tanh" if _is_near(square.scalar, CUBIC, x) else None
    return None


def _layer_normalization(b: Builder, node: Node) -> Result:
    y = node.outputs[0]
    for index in (0, 1):
        bias, scaled = node.input(index), producer(node.input(1 - index), Multiply)
        if scaled is None or not is_read_once(b.graph, node.input(1 - index)):
            continue
        for other in (0, 1):
            scale, normal = scaled.input(other), scaled.input(1 - other)
            found = _find_normalization(b, normal)
            if found is None:
                continue
            x, epsilon = found
            if are_equal_shapes(x.shape, y.shape) and all(_is_row(value, x) for value in (scale, bias)):
                return b.LayerNormalization(x, scale, bias, axis=-1, epsilon=epsilon)
    return None


def _is_row(value: Value, x: Value) -> bool:
    """Return whether ``value`` is a constant vector of the size and the element type of the last axis of ``x``."""
    data = value.constant
    return data is not None and data.ndim == 1 and x.shape is not None and data.shape == x.shape[-1:] and value.dtype is x.dtype


def _find_normalization(b: Builder, value: Value) -> tuple[Value, float] | None:
    """Return x and epsilon of ``(x - mean) / sqrt(mean((x - mean)^2) + epsilon)`` if nothing else reads the intermediates."""
    if not is_read_once(b.graph, value):
        return None
    node = producer(value, Divide)
    if node is not None:
        centered, root = node.input(0), node.input(1)
    else:
        node = producer(value, Multiply)
        inverse = None if node is None else producer(node.input(1), Reciprocal)
        if node is None or inverse is None or not is_read_once(b.graph, node.input(1)):
            return None
        centered, root = node.input(0), inverse.input(0)
    deviation = producer(root, Sqrt)
    if deviation is None or not is_read_once(b.graph, root):
        return None
    variance = _sum_with_scalar(b, deviation.input(0))
    x = _input_of_difference(b, centered)
    if variance is None or x is None:
        return None
    squares = _mean_of(b, variance[0])
    if squares is None or squares in b.graph.outputs:
        return None
    square = _factors(b, squares, False)
    if (
        square.scalar != 1.0
        or len(square.factors) != 2
        or any(_input_of_difference(b, factor) is not x for factor in square.factors)
    ):
        return None
    return x, variance[1]


def _input_of_difference(b: Builder, value: Value) -> Value | None:
    """Return x of ``x - mean(x)`` over the last axis."""
    node = producer(value, Subtract)
    if node is None or value in b.graph.outputs or any(not isinstance(reader.op, _INNER) for reader, _ in value.uses):
        return None
    return node.input(0) if _mean_of(b, node.input(1)) is node.input(0) else None


_INNER: tuple[type[Op], ...] = (Divide, Multiply, Power)


def _mean_of(b: Builder, value: Value) -> Value | None:
    """Return x if ``value`` is the mean of x over the last axis with ``keepdims``; else None."""
    node = producer(value, ReduceMean)
    if node is None or value in b.graph.outputs or any(not isinstance(reader.op, Subtract | Add) for reader, _ in value.uses):
        return None
    assert isinstance(node.op, ReduceMean)
    axes = node.inputs[1].constant if len(node.inputs) > 1 and node.inputs[1] is not None else None
    x = node.input(0)
    if not node.op.keepdims or axes is None or x.shape is None or axes.size != 1:
        return None
    return x if int(np.asarray(axes).reshape(-1)[0]) in (-1, len(x.shape) - 1) else None
