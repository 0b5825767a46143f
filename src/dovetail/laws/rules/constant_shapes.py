"""Laws that replace computed shapes and bounds in a graph by constants, where inference knows enough of their elements."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import INT64_MAX, Shape, Size, Tensor, are_equal_shapes
from dovetail.laws.law import Inputs, Result, Types
from dovetail.ops.shape_values import elements_of, integers_of
from dovetail.ops.tensor.reshape import Flatten, Reshape
from dovetail.ops.tensor.transpose_expand_tile import Expand


def _shape_of(types: Types) -> Shape | None:
    return types[0].shape if isinstance(types[0], Tensor) else None


def constant_target(source: Shape, result: Shape, refused: Sequence[Size] = ()) -> list[int] | None:
    """Return a constant target with which Reshape gives ``result`` from ``source``: 0 copies a size, -1 is computed.

    Returns None if there is no such target. With -1 in the target, Reshape rejects copied sizes that are 0. Such a target is used
    only if the copied sizes cannot be 0, or are in ``refused``: the sizes that the replaced operators reject if they are 0.
    """
    sizes: list[int] = []
    copied: list[Size] = []
    for axis, size in enumerate(result):
        if isinstance(size, int):
            if size == 0:
                return None
            sizes.append(size)
        elif axis < len(source) and symbolic.equal(size, source[axis]) is True:
            sizes.append(0)
            copied.append(size)
        else:
            sizes.append(-1)
    if sizes.count(-1) > 1:
        return None
    if -1 in sizes and any(symbolic.less_equal(1, size) is not True and size not in refused for size in copied):
        return None
    return sizes


def refused_sizes(op: Op, xs: Inputs) -> list[Size]:
    """Return the sizes that a Reshape with -1 rejects if they are 0; an empty list for other operators."""
    if not isinstance(op, Reshape) or xs[0] is None:
        return []
    wanted, shape = elements_of(xs[1]), xs[0].shape
    if wanted is None or shape is None or -1 not in wanted or op.empty != "refuse":
        return []
    copies = op.special_zero
    return [shape[axis] if size == 0 and copies and axis < len(shape) else size for axis, size in enumerate(wanted) if size != -1]


def write_constant_reshape(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Replace the computed target of a Reshape by a constant."""
    x, shape, result = xs[0], xs[1], _shape_of(types)
    if x is None or shape is None or shape.constant is not None or x.shape is None or result is None:
        return None
    sizes = constant_target(x.shape, result, refused_sizes(op, xs))
    return _flatten(b, x, result) if sizes is None else b.Reshape(x, sizes)


def _flatten(b: Builder, x: Value, shape: Shape) -> Result:
    """Emit Flatten with axis 1, which accepts sizes of 0; None if Flatten gives another shape."""
    if len(shape) != 2 or len(x.dims) < 2:
        return None
    return b.Flatten(x, axis=1) if are_equal_shapes(tuple(Flatten(1).shape(x)), shape) else None


def write_constant_expand(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Replace the computed shape of an Expand by a constant, in which 1 keeps a size of the input."""
    x, shape, result = xs[0], xs[1], _shape_of(types)
    assert isinstance(op, Expand)
    if x is None or shape is None or shape.constant is not None or x.shape is None or result is None or not op.bidirectional:
        return None
    before = (1,) * (len(result) - len(x.shape)) + x.shape
    sizes: list[int] = []
    for size, old in zip(result, before, strict=True):
        if isinstance(size, int):
            sizes.append(size)
        elif symbolic.equal(size, old) is True:
            sizes.append(1)
        else:
            return None
    return b.Expand(x, sizes)


def write_constant_slice(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Replace computed bounds of a Slice by constants: an end that is never before the end of its axis becomes INT64_MAX."""
    x, starts, ends, axes, steps = (*xs, None, None)[:5]
    if x is None or starts is None or ends is None:
        return None
    if starts.constant is not None and ends.constant is not None:
        return None
    if x.shape is None or (starts.dtype != "i64" and starts.dtype != "i32"):
        return None
    first, last = elements_of(starts), elements_of(ends)
    indices = list(range(len(last or []))) if axes is None else integers_of(axes)
    step = [1] * len(last or []) if steps is None else integers_of(steps)
    if first is None or last is None or indices is None or step is None or any(item != 1 for item in step):
        return None
    bounds: list[tuple[int, int]] = []
    for begin, end, axis in zip(first, last, indices, strict=True):
        if not isinstance(begin, int):
            return None
        if not isinstance(end, int):
            if symbolic.less_equal(x.shape[axis], end) is not True:
                return None
            end = INT64_MAX
        bounds.append((begin, end))
    new_starts, new_ends = (b.constant([pair[index] for pair in bounds], dtypes.i64) for index in (0, 1))
    return b.Slice(x, new_starts, new_ends, indices)
