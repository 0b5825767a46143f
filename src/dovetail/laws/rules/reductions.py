"""Exact rules of reductions: axes are non-negative and sorted, and ``keepdims`` is true."""

from __future__ import annotations

from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type, axes_in
from dovetail.laws.law import Result, permutation_of
from dovetail.laws.rules.movement import reshape, sizes_term, transpose
from dovetail.laws.terms.terms import Terms, known_elements
from dovetail.ops.tensor.transpose_expand_tile import Transpose


def write_reduction(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x, axes = xs[0], xs[1] if len(xs) > 1 else None
    if x is None or x.shape is None or not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    listed = () if axes is None else known_elements(axes)
    if listed is None or not all(isinstance(axis, int) for axis in listed):
        return None
    rank = len(x.shape)
    reduced = sorted(axes_in([int(axis) for axis in listed], rank)) if listed else None
    if reduced is None:
        if op.noop_with_empty_axes:  # type: ignore[attr-defined]
            return None
        reduced = list(range(rank))
    if not reduced:
        return None
    shape = types[0].shape
    kept_ones = [axis for axis, size in enumerate(x.shape) if isinstance(size, int) and size == 1 and axis not in reduced]
    if kept_ones:
        x = reshape(b, x, tuple(size for axis, size in enumerate(x.shape) if axis not in kept_ones))
        reduced = [axis - sum(one < axis for one in kept_ones) for axis in reduced]
        # The operand may be a Transpose now.
        y = b.add(op.with_(keepdims=True, noop_with_empty_axes=False), x, sizes_term(b, reduced))[0]
        return reshape(b, y, shape)
    kept = tuple(1 if axis in reduced else size for axis, size in enumerate(x.dims))
    plain = op.with_(keepdims=True, noop_with_empty_axes=False)
    y = b.intern(plain, [x, sizes_term(b, reduced)], [Tensor(types[0].dtype, kept)])[0]
    return reshape(b, y, shape)


def keep_axes(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x = xs[0]
    if x is None or x.shape is None or not isinstance(types[0], Tensor) or types[0].shape is None or op.keepdims:  # type: ignore[attr-defined]
        return None
    return reshape(b, b.add(op.with_(keepdims=True), x)[0], types[0].shape)


def move_transpose(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite a reduction of a Transpose as the Transpose of a reduction."""
    x, axes = xs[0], xs[1] if len(xs) > 1 else None
    if x is None or x.node is None or not isinstance(x.node.op, Transpose) or axes is None or not isinstance(types[0], Tensor):
        return None
    order, listed = permutation_of(x.node.inputs), known_elements(axes)
    if order is None or not listed or not all(isinstance(axis, int) for axis in listed) or types[0].shape is None:
        return None
    moved = sorted(order[axis] for axis in axes_in([int(axis) for axis in listed], len(order)))
    y = b.add(op.with_(keepdims=True), x.node.input(0), sizes_term(b, moved))[0]
    return reshape(b, transpose(b, y, order), types[0].shape)
