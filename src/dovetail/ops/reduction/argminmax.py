"""ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.evaluate import FOLD_LIMIT
from dovetail.ir.op import Op
from dovetail.ir.types import View, axis_in
from dovetail.ops.elementwise.broadcast import Elementwise

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _ArgExtremum(Elementwise, sig="x: R -> y: i64"):
    """_ArgExtremum is the base of ArgMax and ArgMin, which return the index of the extremum along ``axis``.

    Of several equal extrema the first is selected, or with ``select_last_index`` the last. ``keepdims`` keeps the axis with
    size 1.
    """

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False
    reduction: ClassVar[str]

    def shape(self, x: View) -> Any:
        if x.shape is None:
            return None
        axis = axis_in(self.axis, len(x.shape))
        if isinstance(x.shape[axis], int) and x.shape[axis] == 0:
            raise RuleError("shape.empty", f"axis {axis} must have at least 1 element, got 0")
        return x.shape[:axis] + ((1,) if self.keepdims else ()) + x.shape[axis + 1 :]

    def canonical(self, x: View) -> Op:
        return self if x.shape is None else self.with_(axis=axis_in(self.axis, len(x.shape)))

    def argument(self, xp: Namespace) -> Callable[..., Any]:
        raise NotImplementedError

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("the index of an extremum")
        axis = axis_in(self.axis, x.ndim)
        kind = arrays.element(x)
        wide = arrays.cast(xp, x, dtypes.dtype(f"{kind.kind}8")) if kind.is_integer and kind.bits < 8 else arrays.widen(xp, x)
        if self.select_last_index:
            extremum = x.shape[axis] - 1 - self.argument(xp)(xp.flip(wide, axis=axis), axis=axis)
        else:
            extremum = self.argument(xp)(wide, axis=axis)
        indices = arrays.cast(xp, xp.asarray(extremum), dtypes.i64)
        return xp.expand_dims(indices, axis=axis) if self.keepdims else indices

    def lower(self, b: Builder, x: Value) -> Any:
        """Reduce the indices of the elements that equal the extremum to the smallest or greatest index.

        The indices of NaN elements are shifted by the size of the axis, before or behind all other indices. NaN is thereby
        selected before any number, however the target's reductions and comparisons treat NaN. In a row of infinities no element
        may equal the extremum, because OpenVINO starts the reduction from a finite number; the reduced index is then ``size`` or
        -1. In all cases the remainder modulo the size is the result.
        """
        if x.shape is None:
            return None
        axis = axis_in(self.axis, len(x.shape))
        hit = b.Equal(x, b.apply(self.reduction, x, [axis]))
        indices, size = axis_indices(b, x, axis), _axis_size(b, x, axis)
        candidates = b.Where(hit, indices, b.constant(-1, dtypes.i64) if self.select_last_index else size)
        reduce = "ReduceMax" if self.select_last_index else "ReduceMin"
        if not x.dtype.is_float:
            return b.apply(reduce, candidates, [axis], keepdims=self.keepdims)
        moved = b.Add(indices, size) if self.select_last_index else b.Subtract(indices, size)
        index = b.Mod(b.apply(reduce, b.Where(b.IsNaN(x), moved, candidates), [axis], keepdims=True), size)
        return index if self.keepdims else b.Squeeze(index, [axis])

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]


def _axis_size(b: Builder, x: Value, axis: int) -> Any:
    """Return the size of an axis, which is also the index behind its last element, as a vector of one element."""
    return shape_value(b, x, [axis])


def axis_indices(b: Builder, x: Value, axis: int) -> Any:
    """Emit the indices 0, 1, ... along ``axis`` as i64, in a shape that broadcasts to the shape of ``x``."""
    size = x.dims[axis]
    behind = list(range(1, len(x.dims) - axis))
    if isinstance(size, int) and 8 * size <= FOLD_LIMIT:
        return b.constant(np.arange(size).reshape(-1, *(1,) * len(behind)))
    ones = b.Expand(b.constant(1, dtypes.i64), _axis_size(b, x, axis))
    counted = b.Subtract(b.CumSum(ones, b.constant(0, dtypes.i64)), 1)
    return b.Unsqueeze(counted, behind) if behind else counted


def _op_mappings(kind: str) -> tuple[str, ...]:
    return (
        f"{kind}-1(x; axis~front=0, keepdims=1 | select_last_index=false)",
        f"{kind}-11(x; axis=0, keepdims=1 | select_last_index=false)",
        f"{kind}-12,13(x; axis=0, keepdims=1, select_last_index=0)",
    )


class ArgMax(_ArgExtremum, onnx=_op_mappings("ArgMax")):
    """Compute the index of the maximum along ``axis``.

    Source: ONNX ArgMax 1 to 13 (before 12 ONNX allows the index of any of equal elements; dovetail returns the first).
    """

    reduction: ClassVar[str] = "ReduceMax"

    def argument(self, xp: Namespace) -> Callable[..., Any]:
        return xp.argmax  # type: ignore[no-any-return]


class ArgMin(_ArgExtremum, onnx=_op_mappings("ArgMin")):
    """Compute the index of the minimum along ``axis``.

    Source: ONNX ArgMin 1 to 13 (before 12 ONNX allows the index of any of equal elements; dovetail returns the first).
    """

    reduction: ClassVar[str] = "ReduceMin"

    def argument(self, xp: Namespace) -> Callable[..., Any]:
        return xp.argmin  # type: ignore[no-any-return]
