"""Pass ``algebra``: arithmetic with neutral elements and pairs of inverse operators, where all bits stay."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ops.elementwise.activation import Relu
from dovetail.ops.elementwise.binary import Add, Divide, Multiply, Power, Subtract
from dovetail.ops.elementwise.broadcast import BroadcastingOp, Elementwise
from dovetail.ops.elementwise.logical import And, Not, Or, Where, Xor
from dovetail.ops.elementwise.unary import Abs, Negative
from dovetail.passes.simplification.rules import Result, Rule, Rules, Target, apply_rules, are_equal_shapes, producer


def simplify_algebra(graph: Graph, target: Target) -> int:
    """Remove neutral operands (x + 0 of integers, x * 1, x / 1, x ** 1, x and True) and inverse pairs (not not x, -(-x)).

    Returns the number of removed nodes. The bits stay for NaN, infinities and zeros of either sign: the class of an operator has
    its laws, with the types for which they hold.
    """
    return apply_rules(graph, RULES, target)


def _operand_beside_neutral(node: Node) -> Value | None:
    """Return the operand beside a neutral constant."""
    assert isinstance(node.op, BroadcastingOp)
    for law in node.op.neutral:
        other, constant = node.input(1 - law.index), node.input(law.index)
        if law.holds(other.dtype, constant.constant, constant.dtype):
            return other
    return None


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
    assert isinstance(node.op, Elementwise)
    return None if inner is None or inner.input(0).dtype.name not in node.op.involution else inner.input(0)


def _result_of_same(node: Node) -> Value | None:
    """Return the result of the same operator, which is idempotent."""
    x = node.input(0)
    assert isinstance(node.op, Elementwise)
    return x if producer(x, type(node.op)) is not None and x.dtype.name in node.op.idempotent else None


def _operand_of_condition(node: Node) -> Value | None:
    """Return the operand that a constant condition selects everywhere."""
    condition = node.input(0).constant
    if condition is None or not condition.size or not (condition.all() or not condition.any()):
        return None
    return node.input(1) if condition.all() else node.input(2)


def _operand_of_equal(node: Node) -> Value | None:
    return node.input(1) if node.input(1) is node.input(2) else None


_NEUTRAL = _rule(_operand_beside_neutral)
RULES: Rules = {
    **dict.fromkeys((Add, And, Divide, Multiply, Or, Power, Subtract, Xor), _NEUTRAL),
    Abs: _rule(_result_of_same),
    Negative: _rule(_operand_of_inverse),
    Not: _rule(_operand_of_inverse),
    Relu: _rule(_result_of_same),
    Where: _rule(_operand_of_condition, _operand_of_equal),
}
