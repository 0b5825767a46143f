"""Rewrites: OneHot and Hardmax to comparisons with positions; Softmax over several axes; Range of floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.engine.select.indexing import SORTABLE
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.reduction.softmax import Hardmax, LogSoftmax, Softmax
from dovetail.ops.tensor.onehot_trilu_eye import OneHot
from dovetail.ops.tensor.shape import Range

MAX_POSITIONS = 1 << 20
"""The maximum length of the axis that is compared with positions; the interpreter runs operators with a longer axis."""
Result = Value | Sequence[Value] | None


def rewrite_one_hot(b: Builder, node: Node) -> Result:
    op, (indices, depth, on_value, off_value) = node.op, node.inputs
    assert isinstance(op, OneHot) and indices is not None and depth is not None
    if indices.shape is None or depth.constant is None or on_value is None or off_value is None:
        return None
    axis, count = axis_in(op.axis, len(indices.shape) + 1), int(depth.constant.reshape(()).item())
    if not 0 <= count <= MAX_POSITIONS:
        return None
    wide = indices if indices.dtype.name == "i64" else b.Cast(indices, to=dtypes.i64)
    if op.negative_indices:
        wide = b.Where(b.Less(wide, b.constant(0)), b.Add(wide, b.constant(count)), wide)
    is_hot = _equals_position(b, b.Unsqueeze(wide, [axis]), count, len(indices.shape) - axis)
    return b.Where(is_hot, b.Reshape(on_value, []), b.Reshape(off_value, []))


def rewrite_hardmax(b: Builder, node: Node) -> Result:
    op, x = node.op, node.input(0)
    assert isinstance(op, Hardmax)
    if x.shape is None or x.dtype.name not in SORTABLE:
        return None
    axis = axis_in(op.axis, len(x.shape))
    if op.coerce_to_2d and axis != len(x.shape) - 1:
        flat: Value = op.decompose(b, x)
        return flat
    count = x.shape[axis]
    if not isinstance(count, int) or not 1 <= count <= MAX_POSITIONS:
        return None
    is_first = _equals_position(b, b.ArgMax(x, axis=axis, keepdims=True), count, len(x.shape) - 1 - axis)
    return b.Cast(is_first, to=x.dtype)


def _equals_position(b: Builder, indices: Value, count: int, trailing: int) -> Value:
    """Compare ``indices``, whose axis before the last ``trailing`` axes has size 1, with the positions along that axis."""
    result: Value = b.Equal(indices, b.constant(np.arange(count).reshape((count,) + (1,) * trailing)))
    return result


def rewrite_softmax(b: Builder, node: Node) -> Result:
    """Rewrite a softmax over several axes to a softmax over the last axis."""
    op, x = node.op, node.input(0)
    assert isinstance(op, Softmax | LogSoftmax)
    is_single = not op.coerce_to_2d or x.shape is None or axis_in(op.axis, len(x.shape)) == len(x.shape) - 1
    result: Value | None = None if is_single else op.decompose(b, x)
    return result


def rewrite_range(b: Builder, node: Node) -> Result:
    """Rewrite a float Range whose limits are integers cast to floats to a Range of these integers, whose size is known."""
    op, limits = node.op, [node.input(index) for index in range(3)]
    assert isinstance(op, Range)
    kind = op.output_type or limits[0].dtype
    if kind not in (dtypes.f32, dtypes.f64) or any(x.dtype.is_integer for x in limits):
        return None
    integers = [integer for x in limits if (integer := _integer_behind(b, x)) is not None]
    if len(integers) < len(limits):
        return None
    result: Value = b.Range(*integers, output_type=kind, wide=op.wide)
    return result


def _integer_behind(b: Builder, x: Value) -> Value | None:
    """Return the i64 integer from which a float scalar is cast, or that a constant equals; None for any other float."""
    if x.constant is not None:
        number = float(x.constant.reshape(()))
        return b.constant(np.int64(number)) if number.is_integer() and abs(number) < 2**24 else None
    source = x.node.input(0) if x.node is not None and isinstance(x.node.op, Cast) else None
    if source is None or not source.dtype.is_integer:
        return None
    result: Value = source if source.dtype is dtypes.i64 else b.Cast(source, to=dtypes.i64)
    return result
