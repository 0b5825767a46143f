"""Sums and products of everything up to each place."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from dovetail import arrays, symbolic
from dovetail.errors import RuleError
from dovetail.ir.types import axis_in
from dovetail.ops.elementwise.broadcast import Elementwise, is_float


class _Running(Elementwise, sig="x: R, axis!: I -> y: R"):
    """At each place all elements before it along ``axis``, a scalar, taken together: with itself, or without where ``exclusive``;
    those after it where ``reverse``."""

    exclusive: bool = False
    reverse: bool = False

    def shape(self, x: Any, axis: Any) -> Any:
        if axis.shape is not None and len(axis.shape):
            raise RuleError("running.axis", f"the axis should be a scalar, not of shape {list(axis.shape)}")
        if x.shape is not None and axis.value is not None:
            place = np.asarray(axis.value).reshape(-1).tolist()[0]
            if isinstance(place, int):
                axis_in(place, len(x.shape))
        return x.shape

    def running(self, xp: Any, x: Any, axis: int) -> Any:
        raise NotImplementedError

    def first(self, xp: Any, x: Any) -> Any:
        """What stands before the first element, in the shape of ``x``."""
        raise NotImplementedError

    def evaluate(self, xp: Any, x: Any, axis: Any) -> Any:
        place = axis_in(int(np.asarray(axis).reshape(-1).tolist()[0]), x.ndim)
        wide = x if xp is symbolic.xp else arrays.widened(xp, x)
        wide = xp.flip(wide, axis=place) if self.reverse else wide
        if self.exclusive and x.shape[place]:
            front = (slice(None),) * place
            wide = xp.concat([self.first(xp, wide[(*front, slice(0, 1))]), wide[(*front, slice(0, -1))]], axis=place)
        with np.errstate(all="ignore"):
            y = self.running(xp, wide, place)
        y = xp.flip(y, axis=place) if self.reverse else y
        return y if xp is symbolic.xp else arrays.cast(xp, y, arrays.element(x), saturate=False)


class CumSum(
    _Running,
    onnx="CumSum-11,14(x, axis; exclusive=0, reverse=0)",
    openvino="CumSum-3(x, axis=0; exclusive=false, reverse=false)",
):
    """The running sum. Sources: ONNX CumSum 11 and 14, OpenVINO CumSum-3."""

    def running(self, xp: Any, x: Any, axis: int) -> Any:
        return xp.cumulative_sum(x, axis=axis) if xp is symbolic.xp else xp.cumulative_sum(x, axis=axis, dtype=x.dtype)

    def first(self, xp: Any, x: Any) -> Any:
        return xp.zeros_like(x)

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axis: Any) -> Any:
        back = b.CumSum(g, axis, exclusive=self.exclusive, reverse=not self.reverse) if is_float(x) else None
        return [back, None]


class CumProd(_Running, onnx="CumProd-26(x, axis; exclusive=0, reverse=0)"):
    """The running product. Source: ONNX CumProd 26."""

    def running(self, xp: Any, x: Any, axis: int) -> Any:
        if hasattr(xp, "cumulative_prod"):
            return xp.cumulative_prod(x, axis=axis, dtype=x.dtype)
        rows = [x[(*(slice(None),) * axis, slice(place, place + 1))] for place in range(x.shape[axis])]
        products = [reduce(xp.multiply, rows[: place + 1]) for place in range(len(rows))]
        return xp.concat(products, axis=axis) if products else x

    def first(self, xp: Any, x: Any) -> Any:
        return xp.ones_like(x)

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axis: Any) -> Any:
        """For factors other than 0, by which the products that hold them are divided."""
        if not is_float(x):
            return [None, None]
        sums = b.CumSum(b.Multiply(g, y), axis, exclusive=self.exclusive, reverse=not self.reverse)
        return [b.Divide(sums, x), None]
