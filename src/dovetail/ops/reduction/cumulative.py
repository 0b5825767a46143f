"""Cumulative sums and products: CumSum, CumProd."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, symbolic
from dovetail.ir.types import View, axis_in
from dovetail.ops.elementwise.broadcast import Elementwise, is_float

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _CumulativeOp(Elementwise, sig="x: R, axis!: I -> y: R"):
    """_CumulativeOp is the base of cumulative operators along ``axis``, a scalar input.

    Output element i combines the input elements 0 to i, or with ``reverse`` the input elements from i to the last. With
    ``exclusive`` input element i itself is left out.
    """

    exclusive: bool = False
    reverse: bool = False

    def shape(self, x: View, axis: View) -> Any:
        if axis.shape is not None and len(axis.shape):
            raise RuleError("shape.single", f"axis must be a scalar, got shape {list(axis.shape)}")
        if x.shape is not None and axis.value is not None:
            known_axis = np.asarray(axis.value).reshape(-1).tolist()[0]
            if isinstance(known_axis, int):
                axis_in(known_axis, len(x.shape))
        return x.shape

    def accumulate(self, xp: Namespace, x: Array, axis: int) -> Any:
        raise NotImplementedError

    def identity(self, xp: Namespace, x: Array) -> Any:
        """Return the identity element that an exclusive reduction starts with, in the shape of ``x``."""
        raise NotImplementedError

    def evaluate(self, xp: Namespace, x: Array, axis: Array) -> Any:
        index = axis_in(int(np.asarray(axis).reshape(-1).tolist()[0]), x.ndim)
        wide = x if xp is symbolic.xp else arrays.widen(xp, x)
        wide = xp.flip(wide, axis=index) if self.reverse else wide
        if self.exclusive and x.shape[index]:
            front = (slice(None),) * index
            wide = xp.concat([self.identity(xp, wide[(*front, slice(0, 1))]), wide[(*front, slice(0, -1))]], axis=index)
        with np.errstate(all="ignore"):
            y = self.accumulate(xp, wide, index)
        y = xp.flip(y, axis=index) if self.reverse else y
        return y if xp is symbolic.xp else arrays.cast(xp, y, arrays.element(x), saturate=False)


class CumSum(
    _CumulativeOp,
    onnx="CumSum-11,14(x, axis; exclusive=0, reverse=0)",
    openvino="CumSum-3(x, axis=0; exclusive=false, reverse=false)",
):
    """Compute the cumulative sum along an axis. Sources: ONNX CumSum 11 and 14, OpenVINO CumSum-3."""

    def accumulate(self, xp: Namespace, x: Array, axis: int) -> Any:
        return xp.cumulative_sum(x, axis=axis) if xp is symbolic.xp else xp.cumulative_sum(x, axis=axis, dtype=x.dtype)

    def identity(self, xp: Namespace, x: Array) -> Any:
        return xp.zeros_like(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axis: Value) -> Any:
        back = b.CumSum(g, axis, exclusive=self.exclusive, reverse=not self.reverse) if is_float(x) else None
        return [back, None]


class CumProd(_CumulativeOp, onnx="CumProd-26(x, axis; exclusive=0, reverse=0)"):
    """Compute the cumulative product along an axis. Source: ONNX CumProd 26."""

    def accumulate(self, xp: Namespace, x: Array, axis: int) -> Any:
        if hasattr(xp, "cumulative_prod"):
            return xp.cumulative_prod(x, axis=axis, dtype=x.dtype)
        rows = [x[(*(slice(None),) * axis, slice(index, index + 1))] for index in range(x.shape[axis])]
        products = [reduce(xp.multiply, rows[: index + 1]) for index in range(len(rows))]
        return xp.concat(products, axis=axis) if products else x

    def identity(self, xp: Namespace, x: Array) -> Any:
        return xp.ones_like(x)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axis: Value) -> Any:
        """Divide the CumSum of ``g * y`` in the other direction by ``x``, whose elements must not be 0."""
        if not is_float(x):
            return [None, None]
        sums = b.CumSum(b.Multiply(g, y), axis, exclusive=self.exclusive, reverse=not self.reverse)
        return [b.Divide(sums, x), None]
