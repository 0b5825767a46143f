"""Where along an axis the greatest or least element is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import RuleError
from dovetail.interpreter.evaluate import FOLD_LIMIT
from dovetail.ir.op import Op
from dovetail.ir.types import axis_in
from dovetail.ops.elementwise.broadcast import Elementwise


class _Place(Elementwise, sig="x: R -> y: i64"):
    """Where along ``axis`` the extreme element is: the first of several, or with ``last`` the last.

    The axis is kept with size 1, or taken out.
    """

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False
    reduction: ClassVar[str]

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        axis = axis_in(self.axis, len(x.shape))
        if isinstance(x.shape[axis], int) and x.shape[axis] == 0:
            raise RuleError("argument.empty", f"axis {axis} of size 0 has no extreme element")
        return x.shape[:axis] + ((1,) if self.keepdims else ()) + x.shape[axis + 1 :]

    def canonical(self, x: Any) -> Op:
        return self if x.shape is None else self.with_(axis=axis_in(self.axis, len(x.shape)))

    def place(self, xp: Any) -> Callable[..., Any]:
        raise NotImplementedError

    def evaluate(self, xp: Any, x: Any) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("the place of an extreme")
        axis = axis_in(self.axis, x.ndim)
        kind = arrays.element(x)
        wide = arrays.cast(xp, x, dtypes.dtype(f"{kind.kind}8")) if kind.is_integer and kind.bits < 8 else arrays.widened(xp, x)
        if self.select_last_index:
            found = x.shape[axis] - 1 - self.place(xp)(xp.flip(wide, axis=axis), axis=axis)
        else:
            found = self.place(xp)(wide, axis=axis)
        places = arrays.cast(xp, xp.asarray(found), dtypes.i64)
        return xp.expand_dims(places, axis=axis) if self.keepdims else places

    def composed(self, b: Any, x: Any) -> Any:
        """The least (or greatest) of the places that hold the extreme element."""
        if x.shape is None:
            return None
        axis = axis_in(self.axis, len(x.shape))
        hit = b.Equal(x, b.apply(self.reduction, x, [axis]))
        places = _places(b, x, axis)
        found = b.Where(hit, places, b.constant(-1, dtypes.i64) if self.select_last_index else _size(b, x, axis))
        return b.apply("ReduceMax" if self.select_last_index else "ReduceMin", found, [axis], keepdims=self.keepdims)

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        return [None]


def _size(b: Any, x: Any, axis: int) -> Any:
    """The size of an axis, which is beyond every place on it, as a vector of one element."""
    from dovetail.ir.builder import shape_value

    return shape_value(b, x, [axis])


def _places(b: Any, x: Any, axis: int) -> Any:
    """0, 1, ... along ``axis``, in a shape that broadcasts to that of ``x``."""
    size = x.shape[axis]
    behind = list(range(1, len(x.shape) - axis))
    if isinstance(size, int) and 8 * size <= FOLD_LIMIT:
        return b.constant(np.arange(size).reshape(-1, *(1,) * len(behind)))
    ones = b.Expand(b.constant(1, dtypes.i64), _size(b, x, axis))
    counted = b.Subtract(b.CumSum(ones, b.constant(0, dtypes.i64)), 1)
    return b.Unsqueeze(counted, behind) if behind else counted


def _place_lines(kind: str) -> tuple[str, ...]:
    return (
        f"{kind}-1(x; axis~front=0, keepdims=1 | select_last_index=false)",
        f"{kind}-11(x; axis=0, keepdims=1 | select_last_index=false)",
        f"{kind}-12,13(x; axis=0, keepdims=1, select_last_index=0)",
    )


class ArgMax(_Place, onnx=_place_lines("ArgMax")):
    """The place of the greatest element. Source: ONNX ArgMax 1 to 13 (before 12 any of several; here the first)."""

    reduction: ClassVar[str] = "ReduceMax"

    def place(self, xp: Any) -> Callable[..., Any]:
        return xp.argmax  # type: ignore[no-any-return]


class ArgMin(_Place, onnx=_place_lines("ArgMin")):
    """The place of the least element. Source: ONNX ArgMin 1 to 13 (before 12 any of several; here the first)."""

    reduction: ClassVar[str] = "ReduceMin"

    def place(self, xp: Any) -> Callable[..., Any]:
        return xp.argmin  # type: ignore[no-any-return]
