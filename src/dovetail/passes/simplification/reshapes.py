"""Pass ``reshapes``: chains of Reshape, Flatten, Squeeze and Unsqueeze become one operator, and cancel around unary operators."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node
from dovetail.ir.types import Shape, axes_in
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.unary import UnaryOp
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.passes.simplification.identities import permutation_of
from dovetail.passes.simplification.rules import Result, Rules, Target, apply_rules, are_equal_shapes, is_read_once, producer
from dovetail.passes.simplification.shapes import constant_target, refused_sizes

KINDS = (Flatten, Reshape, Squeeze, Unsqueeze)


def merge_reshapes(graph: Graph, target: Target) -> int:
    """Merge operators that keep the elements in row-major order. Returns the number of replaced nodes."""
    return apply_rules(graph, RULES, target)


def _merge(b: Builder, node: Node) -> Result:
    """Return the source of a chain in the shape of its end, by one operator, or by none where the shape is the same."""
    y, x = node.outputs[0], node.input(0)
    inner = producer(x, (*KINDS, Transpose))
    if inner is None:
        return _cancel_around_unary(b, node)
    if y.shape is None or x.shape is None:
        return _merge_axes(b, node)
    source = inner.input(0)
    if isinstance(inner.op, Transpose) and not _keeps_order(inner, source.shape):
        return None
    if source.shape is None:
        return _merge_axes(b, node)
    if are_equal_shapes(source.shape, y.shape):
        return source
    sizes = constant_target(source.shape, y.shape, [*refused_sizes(node), *refused_sizes(inner)])
    if sizes is not None:
        return b.Reshape(source, sizes)
    return None if isinstance(inner.op, Transpose) else _merge_axes(b, node)


def _cancel_around_unary(b: Builder, node: Node) -> Result:
    """Return unary operators without the reshapes before and after them, where these give the first shape again."""
    value, operators = node.input(0), []
    while (unary := producer(value, (UnaryOp, Cast))) is not None and is_read_once(b.graph, value):
        operators.append(unary.op)
        value = unary.input(0)
    inner = producer(value, KINDS) if operators else None
    if inner is None or not are_equal_shapes(inner.input(0).shape, node.outputs[0].shape):
        return None
    result = inner.input(0)
    for op in reversed(operators):
        result = b.add(op, result)[0]
    return result


def _keeps_order(node: Node, shape: Shape | None) -> bool:
    """Return whether a Transpose moves axes of size 1 alone, so that the elements stay in order."""
    order = permutation_of(node)
    if order is None or shape is None:
        return False
    kept = [axis for axis in order if symbolic.equal(shape[axis], 1) is not True]
    return kept == sorted(kept)


def _merge_axes(b: Builder, node: Node) -> Result:
    """Merge two Squeeze or two Unsqueeze into one with the axes of both."""
    op, inner = node.op, producer(node.input(0), type(node.op))
    if inner is None or not isinstance(op, Squeeze | Unsqueeze):
        return None
    later, earlier = (integers_of(each.inputs[1]) if len(each.inputs) > 1 else None for each in (node, inner))
    source = inner.input(0)
    if later is None or earlier is None or source.shape is None:
        return None
    rank = len(source.shape)
    if isinstance(op, Unsqueeze):
        later_axes = axes_in(later, rank + len(earlier) + len(later))
        between = [axis for axis in range(rank + len(earlier) + len(later)) if axis not in later_axes]
        axes = [*later_axes, *(between[axis] for axis in axes_in(earlier, rank + len(earlier)))]
        return b.Unsqueeze(source, sorted(axes))
    if op.skip or (isinstance(inner.op, Squeeze) and inner.op.skip):
        return None
    earlier_axes = axes_in(earlier, rank)
    left = [axis for axis in range(rank) if axis not in earlier_axes]
    return b.Squeeze(source, sorted([*earlier_axes, *(left[axis] for axis in axes_in(later, len(left)))]))


_RULE: Callable[[Builder, Node], Result] = _merge
RULES: Rules = dict.fromkeys(KINDS, _RULE)
