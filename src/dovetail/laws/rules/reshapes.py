"""Laws of graph operators that keep elements in row-major order: a chain becomes one operator, or none."""

from __future__ import annotations

from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Tensor, are_equal_shapes, axes_in
from dovetail.laws.law import Inputs, Result, Types, is_read_once, permutation_of, producer
from dovetail.laws.rules.constant_shapes import constant_target, refused_sizes
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.unary import UnaryOp
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.reshape import RowMajorOp, Squeeze, Unsqueeze
from dovetail.ops.tensor.transpose_expand_tile import Transpose


def merge_reshapes(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Replace a chain of operators that keep row-major order by one operator, or by its source if the shape does not change."""
    x, shape = xs[0], types[0].shape if isinstance(types[0], Tensor) else None
    inner = producer(x, (RowMajorOp, Transpose))
    if x is None or inner is None:
        return _cancel_around_unary(b, x, shape)
    if shape is None or x.shape is None:
        return _merge_axes(b, op, xs)
    source = inner.input(0)
    if isinstance(inner.op, Transpose) and not _keeps_order(inner, source.shape):
        return None
    if source.shape is None:
        return _merge_axes(b, op, xs)
    if are_equal_shapes(source.shape, shape):
        return source
    sizes = constant_target(source.shape, shape, [*refused_sizes(op, xs), *refused_sizes(inner.op, inner.inputs)])
    if sizes is not None:
        return b.Reshape(source, sizes)
    return None if isinstance(inner.op, Transpose) else _merge_axes(b, op, xs)


def _cancel_around_unary(b: Builder, x: Value | None, shape: Shape | None) -> Result:
    """Remove the reshapes before and after a chain of unary operators if the last shape equals the first."""
    value, operators = x, []
    while value is not None and (unary := producer(value, (UnaryOp, Cast))) is not None and is_read_once(b.graph, value):
        operators.append(unary.op)
        value = unary.input(0)
    inner = producer(value, RowMajorOp) if operators else None
    if inner is None or not are_equal_shapes(inner.input(0).shape, shape):
        return None
    result = inner.input(0)
    for op in reversed(operators):
        result = b.add(op, result)[0]
    return result


def _keeps_order(node: Node, shape: Shape | None) -> bool:
    """Return whether a Transpose moves only axes of size 1, so that elements stay in row-major order."""
    order = permutation_of(node.inputs)
    if order is None or shape is None:
        return False
    kept = [axis for axis in order if symbolic.equal(shape[axis], 1) is not True]
    return kept == sorted(kept)


def _merge_axes(b: Builder, op: Op, xs: Inputs) -> Result:
    """Merge two successive Squeeze, or two successive Unsqueeze, into one with the axes of both."""
    inner = producer(xs[0], type(op))
    if inner is None or not isinstance(op, Squeeze | Unsqueeze):
        return None
    later, earlier = (integers_of(each[1]) if len(each) > 1 else None for each in (xs, inner.inputs))
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
