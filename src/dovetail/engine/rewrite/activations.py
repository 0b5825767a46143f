"""Rewrite of activations that a model computes in several operators: Swish, HardSwish and Gelu, which fuse into kernels."""

from __future__ import annotations

from math import isclose, pi, sqrt

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.elementwise.activation import Sigmoid
from dovetail.ops.elementwise.binary import Add, Divide, Multiply, Power
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Erf, Tanh

MAX_FACTORS = 4
"""Factors of a product that is searched for a Gelu."""


def rewrite_multiply(b: Builder, node: Node) -> Value | None:
    """Rewrite a product to the activation that it computes.

    x * sigmoid(x) becomes Swish, x * clip(x + 3, 0, 6) 6 * HardSwish, and the product of x, 1/2 and 1 + erf(x / sqrt(2)) or
    1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)), in any order, Gelu.
    """
    assert isinstance(node.op, Multiply)
    if not node.op.broadcast or node.outputs[0].dtype.name != "f32":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        assert x is not None and gate is not None
        if gate.node is not None and isinstance(gate.node.op, Sigmoid) and gate.node.inputs[0] is x:
            return b.Swish(x)
        if _is_hard_gate(gate, x):
            return b.Multiply(b.HardSwish(x), b.constant(np.float32(6), x.dtype))
    return _gelu_of(b, node)


def _is_hard_gate(gate: Value, x: Value) -> bool:
    """Return whether ``gate`` is clip(x + 3, 0, 6)."""
    if gate.node is None or not isinstance(gate.node.op, Clip) or len(gate.node.inputs) != 3:
        return False
    raised, low, high = gate.node.inputs
    if _number_of(low) != 0 or _number_of(high) != 6 or raised is None or raised.shape != x.shape:
        return False
    other = _other_operand(raised, Add, x)
    return other is not None and _number_of(other) == 3


def _gelu_of(b: Builder, node: Node) -> Value | None:
    """Return the Gelu that a product computes, or None."""
    factors = _factors_of(node.outputs[0])
    numbers = [number for number in map(_number_of, factors) if number is not None]
    others = [factor for factor in factors if _number_of(factor) is None]
    if len(others) != 2 or not _is_close(float(np.prod(numbers)), 0.5):
        return None
    for x, gate in (others, others[::-1]):
        if x.shape is None or x.shape != node.outputs[0].shape or gate.node is None or not isinstance(gate.node.op, Add):
            continue
        for one, term in (gate.node.inputs, gate.node.inputs[::-1]):
            if _number_of(one) != 1 or term is None or term.node is None:
                continue
            if isinstance(term.node.op, Erf) and _is_multiple(term.node.input(0), x, sqrt(0.5)):
                return b.Gelu(x)
            if isinstance(term.node.op, Tanh) and _is_cubic(term.node.input(0), x):
                return b.Gelu(x, approximate="tanh")
    return None


def _factors_of(value: Value, depth: int = 2) -> list[Value]:
    """Return the factors of a product of products, at most MAX_FACTORS of them; of any other value itself."""
    if depth < 0 or value.node is None or not isinstance(value.node.op, Multiply) or not value.node.op.broadcast:
        return [value]
    factors = [factor for x in value.node.inputs if x is not None for factor in _factors_of(x, depth - 1)]
    return factors if len(factors) <= MAX_FACTORS else [value]


def _is_multiple(value: Value, x: Value, factor: float) -> bool:
    """Return whether ``value`` is x * ``factor``, as a product or a quotient."""
    if value.node is not None and isinstance(value.node.op, Divide) and value.node.inputs[0] is x:
        divisor = _number_of(value.node.inputs[1])
        return divisor is not None and divisor != 0 and _is_close(1 / divisor, factor)
    other = _other_operand(value, Multiply, x)
    number = _number_of(other)
    return number is not None and _is_close(number, factor)


def _is_cubic(value: Value, x: Value) -> bool:
    """Return whether ``value`` is sqrt(2 / pi) * (x + 0.044715 * x^3)."""
    if value.node is None or not isinstance(value.node.op, Multiply):
        return False
    for number, total in (value.node.inputs, value.node.inputs[::-1]):
        factor = _number_of(number)
        if factor is None or total is None or not _is_close(factor, sqrt(2 / pi)):
            continue
        term = _other_operand(total, Add, x)
        return term is not None and _is_cube(term, x)
    return False


def _is_cube(value: Value, x: Value) -> bool:
    """Return whether ``value`` is 0.044715 * x^3."""
    factors = _factors_of(value)
    numbers = [number for number in map(_number_of, factors) if number is not None]
    others = [factor for factor in factors if _number_of(factor) is None]
    if not numbers or not _is_close(float(np.prod(numbers)), 0.044715):
        return False
    if len(others) == 1 and others[0].node is not None and isinstance(others[0].node.op, Power):
        base, exponent = others[0].node.inputs
        return base is x and _number_of(exponent) == 3
    return len(others) == 3 and all(other is x for other in others)


def _other_operand(value: Value, kind: type[Add | Multiply], x: Value) -> Value | None:
    """Return the operand that ``value``, a sum or product (``kind``) with x, has beside x; None for any other value."""
    if value.node is None or not isinstance(value.node.op, kind) or not value.node.op.broadcast:
        return None
    one, other = value.node.inputs
    return other if one is x else one if other is x else None


def _number_of(x: Value | None) -> float | None:
    """Return the only element of a constant number; None for any other value."""
    if x is None or x.constant is None or x.constant.size != 1 or x.dtype is None or not (x.dtype.is_float or x.dtype.is_integer):
        return None
    return float(np.asarray(x.constant).reshape(()))


def _is_close(number: float, wanted: float) -> bool:
    """Return whether a number is ``wanted`` but for roundings to f32."""
    return isclose(number, wanted, rel_tol=3e-7)
