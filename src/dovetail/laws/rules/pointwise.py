"""Exact rules that move Reshape, Transpose and Expand behind elementwise operators, and drop axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.ir import dtypes
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Tensor, Type, are_equal_shapes
from dovetail.laws.law import Result, permutation_of
from dovetail.laws.rules.arithmetic import is_all
from dovetail.laws.rules.movement import expand, is_one, regrouped_shape, reshape, transpose, without_ones
from dovetail.laws.terms.terms import Terms, known_elements, known_shape
from dovetail.ops.elementwise import binary, logical
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose, inverse_of


def without_axes(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return a shape without ``axes``, which are non-negative."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def move_behind_unary(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Move the Reshape, Transpose or Expand of an operand behind an operator whose other operands are scalars."""
    x, *rest = xs
    if x is None or x.node is None or not isinstance(types[0], Tensor) or types[0].shape is None or len(types) != 1:
        return None
    if not all(each is None or each.shape == () for each in rest):
        return None
    kind = x.node.op
    if not isinstance(kind, Reshape | Transpose | Expand):
        return None
    inner = b.add(op, x.node.input(0), *rest)[0]
    if isinstance(kind, Reshape):
        return reshape(b, inner, types[0].shape)
    if isinstance(kind, Expand):
        return expand(b, inner, types[0].shape)
    order = permutation_of(x.node.inputs)
    return None if order is None else transpose(b, inner, order)


def drop_axes_of_one(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop from all operands the axes that have size 1 in the result, and reshape the result back."""
    if not isinstance(types[0], Tensor) or types[0].shape is None or len(types) != 1:
        return None
    shape = types[0].shape
    rank = len(shape)
    ones = [axis for axis, size in enumerate(shape) if is_one(size)]
    if not ones:
        return None
    operands: list[Value | None] = []
    for x in xs:
        if x is None or x.shape is None:
            return None
        offset = rank - len(x.shape)
        operands.append(reshape(b, x, without_axes(x.shape, [axis - offset for axis in ones if axis >= offset])))
    return reshape(b, b.term(_broadcasting(op), operands)[0], shape)


def _broadcasting(op: Op) -> Op:
    return op.with_(broadcast=True) if getattr(op, "broadcast", True) is False else op


def move_behind_operands(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Move the Reshape or Transpose that operands share behind an operator.

    A Reshape is moved if all operands but scalars have it, a Transpose also if it is a Reshape of the other operands.
    """
    if not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    moved = [x for x in xs if x is not None and x.shape != ()]
    kinds = {None if x.node is None else type(x.node.op) for x in moved if x.constant is None}
    if kinds == {Reshape} and all(x.constant is None and are_equal_shapes(x.shape, types[0].shape) for x in moved):
        inner = [without_ones(b, x.node.input(0)) for x in moved if x.node is not None]
        shape = known_shape(inner[0])
        if shape is None or are_equal_shapes(shape, types[0].shape):
            return None
        if not all(are_equal_shapes(known_shape(x), shape) for x in inner):
            return None
        replaced = iter(inner)
        operands = [x if x is None or x.shape == () else next(replaced) for x in xs]
        return reshape(b, b.term(_broadcasting(op), operands)[0], types[0].shape)
    if Transpose in kinds:
        return _same_transpose(b, op, xs, types[0].shape)
    return None


def _same_transpose(b: Terms, op: Op, xs: list[Value | None], shape: Shape) -> Result:
    orders = {
        tuple(permutation_of(x.node.inputs) or ())
        for x in xs
        if x is not None and x.node is not None and x.constant is None and isinstance(x.node.op, Transpose)
    }
    if len(orders) != 1:
        return None
    order = list(orders.pop())
    rank = len(shape)
    if len(order) != rank:
        return None
    operands: list[Value | None] = []
    for x in xs:
        if x is None or x.shape is None:
            return None
        if x.shape == ():
            operands.append(x)
        elif x.constant is not None:
            full = reshape(b, x, (1,) * (rank - len(x.shape)) + x.shape)
            operands.append(transpose(b, full, inverse_of(order)))
        elif len(x.shape) == rank and x.node is not None and isinstance(x.node.op, Transpose):
            operands.append(x.node.input(0))
        elif _is_in_order(sizes := (1,) * (rank - len(x.shape)) + x.shape, back := inverse_of(order)):
            operands.append(reshape(b, x, tuple(sizes[axis] for axis in back)))
        else:
            return None
    return transpose(b, b.term(_broadcasting(op), operands)[0], order)


def _is_in_order(shape: Shape, order: Sequence[int]) -> bool:
    """Return whether a Transpose moves axes of size 1 alone, so that it is a Reshape."""
    kept = [axis for axis in order if not is_one(shape[axis])]
    return kept == sorted(kept)


def move_behind_trailing(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Move a Reshape of leading axes behind an operator whose other operands have only axes that the Reshape keeps."""
    if len(types) != 1 or not isinstance(types[0], Tensor) or types[0].shape is None or any(map(is_one, types[0].shape)):
        return None
    moved = [x for x in xs if x is not None and x.constant is None and are_equal_shapes(known_shape(x), types[0].shape)]
    found = [regrouped_shape(x) for x in moved]
    if not found or found[0] is None or len(moved) == len(xs):
        return None
    shape, kept = found[0]
    if not all(each is not None and are_equal_shapes(each[0], shape) for each in found):
        return None
    operands: list[Value | None] = []
    for x in xs:
        if x is None or x.shape is None:
            return None
        is_moved = any(x is each for each in moved)
        if not is_moved and len(x.shape) > kept:
            return None
        operands.append(reshape(b, x, shape) if is_moved else x)
    return reshape(b, b.term(_broadcasting(op), operands)[0], types[0].shape)


def drop_batch_axes(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop the batch axes of size 1 of a MatMul."""
    x, y = xs
    if x is None or y is None or x.shape is None or y.shape is None or not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    if len(x.shape) < 2 or len(y.shape) < 2:
        return None
    shape = types[0].shape
    ones = [axis for axis, size in enumerate(shape[:-2]) if is_one(size)]
    if not ones:
        return None
    operands = [
        reshape(b, each, without_axes(each.dims, [axis - len(shape) + len(each.dims) for axis in ones])) for each in (x, y)
    ]
    return reshape(b, b.add(op, *operands)[0], shape)


def drop_axes_of_gather(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop the axes of size 1 of the indices of a Gather, and of its data except the axis of the Gather."""
    assert isinstance(op, Gather)
    x, indices = xs
    if x is None or indices is None or indices.shape is None or op.batch_dims or not isinstance(types[0], Tensor):
        return None
    short = tuple(size for size in indices.shape if not is_one(size))
    axis = None if x.shape is None else op.axis % len(x.shape)
    ones = [] if x.shape is None else [index for index, size in enumerate(x.shape) if is_one(size) and index != axis]
    if types[0].shape is None or (len(short) == len(indices.shape) and not ones):
        return None
    if ones and axis is not None:
        op, x = op.with_(axis=axis - sum(index < axis for index in ones)), reshape(b, x, without_axes(x.dims, ones))
    return reshape(b, b.add(op, x, reshape(b, indices, short))[0], types[0].shape)


def drop_counting(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop the addition of the axis size to negative indices, where Gather rejects indices that are negative afterwards."""
    assert isinstance(op, Gather)
    x, indices = xs
    node = None if indices is None else indices.node
    if op.bounds != "natural" or x is None or x.shape is None or node is None or not isinstance(node.op, logical.Where):
        return None
    condition, counted, plain = (node.input(index) for index in range(3))
    test, addition = condition.node, counted.node
    if test is None or addition is None or not isinstance(test.op, logical.Less) or not isinstance(addition.op, binary.Add):
        return None
    size = next((known_elements(each) for each in addition.inputs if each is not None and each is not plain), None)
    is_sum = plain in addition.inputs and size == (x.shape[op.axis],)
    if not is_sum or test.input(0) is not plain or not is_all(test.input(1), 0):
        return None
    return b.add(op.with_(bounds="error"), x, plain)


def drop_wider_indices(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop a Cast of the indices of a Gather from i32 to i64, which has all values of i32."""
    assert isinstance(op, Gather)
    x, indices = xs
    node = None if indices is None else indices.node
    source = node.input(0) if node is not None and isinstance(node.op, Cast) else None
    if x is None or indices is None or source is None or indices.dtype is not dtypes.i64 or source.dtype is not dtypes.i32:
        return None
    return b.add(op, x, source)


def write_any_bounds(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a Gather that rejects indices out of bounds as one that gives zeros for them, equal where the first is defined."""
    assert isinstance(op, Gather)
    return b.intern(op.with_(bounds="zero"), xs, types)


def drop_axes_beside_axis(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Drop the axes of size 1 of Softmax, LogSoftmax and Concat, except the axis of the operator."""
    if not isinstance(types[0], Tensor) or types[0].shape is None or getattr(op, "coerce_to_2d", False):
        return None
    shape = types[0].shape
    axis = op.axis % len(shape)  # type: ignore[attr-defined]
    ones = [index for index, size in enumerate(shape) if is_one(size) and index != axis]
    if not ones or any(x is None or x.shape is None for x in xs):
        return None
    operands = [reshape(b, x, without_axes(x.dims, ones)) for x in xs if x is not None]
    new = op.with_(axis=axis - sum(index < axis for index in ones))
    return reshape(b, b.add(new, *operands)[0], shape)
