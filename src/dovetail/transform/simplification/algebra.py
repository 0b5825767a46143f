"""Pass ``algebra``: arithmetic with neutral elements and pairs of inverse operators, where all bits stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.binary import Add, Divide, Multiply, Power, Subtract
from dovetail.ops.elementwise.logical import And, Not, Or, Where, Xor
from dovetail.ops.elementwise.unary import Abs, Negative
from dovetail.transform.simplification.rules import Result, Rule, Rules, Target, apply_rules, are_equal_shapes, producer


def simplify_algebra(graph: Graph, target: Target) -> int:
    """Remove neutral operands (x + 0 of integers, x * 1, x / 1, x ** 1, x and True) and inverse pairs (not not x, -(-x)).

    Returns the number of removed nodes. The bits stay for NaN, infinities and zeros of either sign: -0.0 + 0.0 is 0.0, so that
    only -0.0 is neutral in a sum of floats.
    """
    return apply_rules(graph, RULES, target)


def _is_all(value: Value, number: float, negative_zero: bool | None = None) -> bool:
    """Return whether all elements of a constant equal ``number``; ``negative_zero`` also requires the sign of zeros."""
    data = value.constant
    if data is None or not data.size or data.dtype.hasobject or data.size > 1 << 16:
        return False
    wide = np.asarray(data, dtype=np.float64) if data.dtype.kind not in "iub" else data
    if not bool(np.all(wide == number)):
        return False
    return negative_zero is None or data.dtype.kind in "iub" or bool(np.all(np.signbit(wide) == negative_zero))


def _operand_beside(index: int, number: float, negative_zero: bool | None = None) -> Callable[[Node], Value | None]:
    def operand(node: Node) -> Value | None:
        return node.input(1 - index) if _is_all(node.input(index), number, negative_zero) else None

    return operand


def _rule(*operands: Callable[[Node], Value | None]) -> Rule:
    """Return the rule that replaces a node by the first operand found, where type and shape stay."""

    def rule(b: Builder, node: Node) -> Result:
        y = node.outputs[0]
        for operand in operands:
            x = operand(node)
            if x is not None and x.dtype is y.dtype and are_equal_shapes(x.shape, y.shape):
                return x
        return None

    return rule


def _operand_of_inverse(node: Node) -> Value | None:
    """Return the operand of two equal operators in a row that cancel."""
    inner = producer(node.input(0), type(node.op))
    return None if inner is None else inner.input(0)


def _result_of_same(node: Node) -> Value | None:
    """Return the result of the same operator, which is idempotent."""
    return node.input(0) if producer(node.input(0), type(node.op)) is not None else None


def _operand_of_condition(node: Node) -> Value | None:
    """Return the operand that a constant condition selects everywhere."""
    condition = node.input(0).constant
    if condition is None or not condition.size or not (condition.all() or not condition.any()):
        return None
    return node.input(1) if condition.all() else node.input(2)


def _operand_of_equal(node: Node) -> Value | None:
    return node.input(1) if node.input(1) is node.input(2) else None


RULES: Rules = {
    Abs: _rule(_result_of_same),
    Add: _rule(_operand_beside(0, 0, True), _operand_beside(1, 0, True)),
    And: _rule(_operand_beside(0, 1), _operand_beside(1, 1)),
    Divide: _rule(_operand_beside(1, 1)),
    Multiply: _rule(_operand_beside(0, 1), _operand_beside(1, 1)),
    Negative: _rule(_operand_of_inverse),
    Not: _rule(_operand_of_inverse),
    Or: _rule(_operand_beside(0, 0), _operand_beside(1, 0)),
    Power: _rule(_operand_beside(1, 1)),
    Relu: _rule(_result_of_same),
    Subtract: _rule(_operand_beside(1, 0, False)),
    Where: _rule(_operand_of_condition, _operand_of_equal),
    Xor: _rule(_operand_beside(0, 0), _operand_beside(1, 0)),
}
