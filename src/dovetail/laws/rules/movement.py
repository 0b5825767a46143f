"""Exact rules of operators that move elements: successive Reshape, Transpose, Expand or Concat are merged; Pad gets one form."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dovetail.ir import dtypes, symbolic
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Size, Tensor, Type, are_equal_shapes
from dovetail.laws.law import Result, permutation_of
from dovetail.laws.terms.opaque import KnownIntegers
from dovetail.laws.terms.terms import Terms, known_elements, known_shape
from dovetail.ops.tensor.concat_split import Concat
from dovetail.ops.tensor.pad import Pad
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose

MAX_CONCATENATED = 1 << 10
"""Maximum number of operands of a flattened Concat. Nested Concat that read a value twice have exponentially many operands."""
MAX_UNIFORM = 1 << 22
"""Maximum number of elements of a constant that is tested for equal elements."""


def is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1


def sizes_term(b: Terms, sizes: Sequence[Size]) -> Value:
    """Return the term of the i64 vector whose elements are ``sizes``."""
    if all(isinstance(size, int) for size in sizes):
        return b.constant(np.array(sizes, np.int64), dtypes.i64)
    return b.integers(tuple(sizes), dtypes.i64, (len(sizes),))


def reshape(b: Terms, x: Value, shape: Shape) -> Value:
    """Return ``x`` with the shape ``shape``, by one Reshape or none.

    A Reshape that produces ``x`` stays if the input of that Reshape may have another number of elements, because that Reshape
    then rejects the input.
    """
    while x.node is not None and isinstance(x.node.op, Reshape) and _has_same_size(x, x.node.input(0)):
        x = x.node.input(0)
    if are_equal_shapes(x.shape, shape):
        return x
    if x.node is not None and isinstance(x.node.op, Expand) and x.node.input(0).shape == ():
        return expand(b, x.node.input(0), shape)
    if x.node is not None and isinstance(x.node.op, KnownIntegers) and all(isinstance(size, int) for size in shape):
        return b.integers(x.node.op.elements, x.node.op.dtype, tuple(map(int, shape)))
    op, operands = Reshape(special_zero=False), (x, sizes_term(b, shape))
    if x.constant is not None and all(isinstance(size, int) for size in shape):
        return b.move_constant(op, operands, lambda array: array.reshape(tuple(map(int, shape))))
    return b.intern(op, [*operands], [Tensor(x.dtype, shape)])[0]


def without_ones(b: Terms, x: Value) -> Value:
    """Return a term without its axes of size 1."""
    return x if x.shape is None else reshape(b, x, tuple(size for size in x.shape if not is_one(size)))


def _has_same_size(x: Value, y: Value) -> bool:
    """Return whether two tensors have the same number of elements for all values of their symbols."""
    return symbolic.equal(symbolic.product(x.dims), symbolic.product(y.dims)) is True


def regrouped_shape(x: Value) -> tuple[Shape, int] | None:
    """Return the shape of ``x`` with the leading axes of its source if a Reshape regroups them, and the number of other axes.

    Leading axes of size 1 are left out. Returns None for a term that no Reshape produces, and if no axis has the elements of
    trailing axes of the source.
    """
    if x.node is None or not isinstance(x.node.op, Reshape) or x.node.input(0).shape is None:
        return None
    source, shape = x.node.input(0).dims, x.dims
    for start in range(1, len(shape)):
        for boundary in range(1, len(source)):
            if are_equal_products(source[:boundary], shape[:start]) and are_equal_products(source[boundary:], shape[start:]):
                leading = tuple(size for size in source[:boundary] if not is_one(size))
                is_regrouped = not are_equal_shapes(leading, shape[:start])
                return ((*leading, *shape[start:]), len(shape) - start) if is_regrouped else None
    return None


def are_equal_products(first: Shape, second: Shape) -> bool:
    return symbolic.equal(symbolic.product(first), symbolic.product(second)) is True


def write_reshape(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite Reshape, Flatten, Squeeze and Unsqueeze as one Reshape to the inferred shape."""
    x, shape = xs[0], types[0].shape if isinstance(types[0], Tensor) else None
    return None if x is None or shape is None else reshape(b, x, shape)


def transpose(b: Terms, x: Value, order: Sequence[int]) -> Value:
    """Return ``x`` with permuted axes. A Reshape drops axes of size 1, and successive Transpose are merged."""
    shape = x.dims
    result = tuple(shape[axis] for axis in order)
    kept = [axis for axis, size in enumerate(shape) if not (isinstance(size, int) and size == 1)]
    if len(kept) < len(shape):
        inner = reshape(b, x, tuple(shape[axis] for axis in kept))
        position = {axis: index for index, axis in enumerate(kept)}
        return reshape(b, transpose(b, inner, [position[axis] for axis in order if axis in position]), result)
    if x.node is not None and isinstance(x.node.op, Transpose):
        before = permutation_of(x.node.inputs)
        if before is not None:
            return transpose(b, x.node.input(0), [before[axis] for axis in order])
    if list(order) == list(range(len(shape))):
        return x
    if (moved := _transpose_before_reshape(b, x, order)) is not None:
        return reshape(b, moved, result)
    operands = (x, sizes_term(b, list(order)))
    if x.constant is not None:
        return b.move_constant(Transpose(), operands, lambda array: array.transpose(tuple(order)))
    return b.intern(Transpose(), [*operands], [Tensor(x.dtype, result)])[0]


def _transpose_before_reshape(b: Terms, x: Value, order: Sequence[int]) -> Value | None:
    """Return the Transpose of the input of the Reshape that produces ``x``, with the elements of the Transpose of ``x``.

    Each group of axes that the Reshape splits must stay one group of adjacent axes. Returns None for another order or term.
    """
    if x.node is None or not isinstance(x.node.op, Reshape) or x.node.input(0).shape is None:
        return None
    source = without_ones(b, x.node.input(0))
    if are_equal_shapes(source.shape, x.shape) or (groups := _groups_of_reshape(source.dims, x.dims)) is None:
        return None
    by_axis = {targets[0]: (sources, targets) for sources, targets in groups}
    axes: list[int] = []
    rest = list(order)
    while rest:
        if rest[0] not in by_axis:
            return None
        sources, targets = by_axis[rest[0]]
        if rest[: len(targets)] != list(targets):
            return None
        axes += sources
        rest = rest[len(targets) :]
    return transpose(b, source, axes)


def _groups_of_reshape(source: Shape, target: Shape) -> list[tuple[range, range]] | None:
    """Return the smallest groups of adjacent axes of two shapes that have the same elements; None for a single group or none."""
    groups = []
    i = j = 0
    while i < len(source) or j < len(target):
        ends = (
            (end_i, end_j)
            for end_i, end_j in itertools.product(range(i + 1, len(source) + 1), range(j + 1, len(target) + 1))
            if are_equal_products(source[i:end_i], target[j:end_j])
        )
        end_i, end_j = min(ends, key=sum, default=(i, j))
        if end_i == i:
            return None
        groups.append((range(i, end_i), range(j, end_j)))
        i, j = end_i, end_j
    return groups if len(groups) > 1 else None


def write_transpose(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x = xs[0]
    if x is None or x.shape is None:
        return None
    order = permutation_of(xs)
    return None if order is None or sorted(order) != list(range(len(x.shape))) else transpose(b, x, order)


def without_leading_ones(b: Terms, x: Value) -> Value:
    """Return ``x`` without its leading axes of size 1."""
    shape = x.shape
    if shape is None:
        return x
    count = 0
    while count < len(shape) and isinstance(shape[count], int) and shape[count] == 1:
        count += 1
    return reshape(b, x, shape[count:]) if count else x


def uniform_scalar(b: Terms, x: Value) -> Value:
    """Return the scalar of a constant whose elements all have the same bits; ``x`` for any other term."""
    data = x.constant
    if data is None or data.dtype.hasobject or not data.size or data.ndim == 0 or data.size > MAX_UNIFORM:
        return x
    flat = data.reshape(-1)
    if flat[:1].tobytes() != flat[-1:].tobytes():
        return x
    rows = flat.view(np.uint8).reshape(data.size, -1)
    return b.move_constant(None, [x], lambda array: array.reshape(-1)[0].reshape(())) if bool((rows == rows[0]).all()) else x


def expand(b: Terms, x: Value, shape: Shape) -> Value:
    """Return ``x`` broadcast to ``shape``."""
    while x.node is not None and isinstance(x.node.op, Expand):
        x = x.node.input(0)
    if are_equal_shapes(x.shape, shape):
        return x
    x = without_leading_ones(b, uniform_scalar(b, x))
    while x.node is not None and isinstance(x.node.op, Expand):
        x = x.node.input(0)
    return b.intern(Expand(), [x, sizes_term(b, shape)], [Tensor(x.dtype, shape)])[0]


def without_expand(x: Value) -> tuple[Value, Shape] | None:
    """Return the input of an Expand whose result has the elements of ``x``, and its shape with one axis for each of ``x``.

    Returns None for other terms. A Reshape may drop axes of size 1 of the Expand.
    """
    node = x.node
    if node is not None and isinstance(node.op, Reshape):
        node = node.input(0).node
    if node is None or not isinstance(node.op, Expand) or x.shape is None or node.input(0).shape is None:
        return None
    inner, whole = node.input(0), node.outputs[0].shape
    if whole is None:
        return None
    sizes = (1,) * (len(whole) - len(inner.dims)) + inner.dims
    kept = range(len(whole)) if len(x.shape) == len(whole) else [axis for axis, size in enumerate(whole) if not is_one(size)]
    if not are_equal_shapes(tuple(whole[axis] for axis in kept), x.shape):
        return None
    return inner, tuple(sizes[axis] for axis in kept)


def write_expand(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x, shape = xs[0], types[0].shape if isinstance(types[0], Tensor) else None
    return None if x is None or shape is None or x.shape is None else expand(b, x, shape)


def expand_constant(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    value, shape = xs[1] if len(xs) > 1 else None, types[0].shape if isinstance(types[0], Tensor) else None
    if value is None or shape is None or value.shape is None or any(size != 1 for size in value.shape):
        return None
    return expand(b, reshape(b, value, ()), shape)


def write_tile_as_expand(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a Tile that repeats only axes of size 1 as Expand."""
    x, repeats = xs[0], xs[1]
    if x is None or repeats is None or x.shape is None or not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    counts = known_elements(repeats)
    if counts is None:
        return None
    rank = max(len(counts), len(x.shape))
    sizes = (1,) * (rank - len(x.shape)) + x.shape
    times = (1,) * (rank - len(counts)) + counts
    if all(symbolic.equal(size, 1) is True or symbolic.equal(count, 1) is True for size, count in zip(sizes, times, strict=True)):
        return expand(b, x, types[0].shape)
    return None


def write_pad(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite Pad in one form: with pads of all axes and an explicit scalar constant."""
    x, pads, fill, axes = (*xs, None, None)[:4]
    if not isinstance(op, Pad) or x is None or pads is None or x.shape is None:
        return None
    rank, amounts = len(x.shape), known_elements(pads)
    listed = tuple(range(rank)) if axes is None else known_elements(axes)
    if amounts is None or listed is None or len(amounts) != 2 * len(listed):
        return None
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for index, axis in enumerate(listed):
        if not isinstance(axis, int):
            return None
        before[axis], after[axis] = amounts[index], amounts[len(listed) + index]
    if op.mode == "constant" and x.dtype.name == "string" and fill is None:
        return None
    if op.mode == "constant":
        fill = b.constant(np.zeros((), x.dtype.numpy), x.dtype) if fill is None else reshape(b, fill, ())
    else:
        fill = None
    inputs = [x, sizes_term(b, [*before, *after]), fill]
    return b.intern(op, inputs if fill is not None else inputs[:2], types)


def merge_concats(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Flatten nested concatenations along one axis, and drop empty operands."""
    assert isinstance(op, Concat)
    parts: list[Value] = []
    for x in xs:
        if x is None or x.shape is None:
            return None
        if x.node is not None and x.node.op == op:
            parts.extend(inner for inner in x.node.inputs if inner is not None)
        elif not (isinstance(size := x.shape[op.axis], int) and size == 0):
            parts.append(x)
        if len(parts) > max(MAX_CONCATENATED, len(xs)):
            return None
    if len(parts) == 1 and are_equal_shapes(known_shape(parts[0]), types[0].shape):
        return parts[0]
    return b.intern(op, list(parts), types) if parts and len(parts) != len(xs) else None
