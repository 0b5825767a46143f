"""Shares of a whole: exponentials over their sum, and what goes with them."""

from __future__ import annotations

from typing import Any

from dovetail import arrays
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import axis_in, total
from dovetail.ops.nn.normalization import NormalizationOp


class _Exponential(NormalizationOp, sig="x: F -> y: F"):
    """Over ``axis``; with ``coerce_to_2d`` over it and all after it together, as if those were one."""

    axis: int = -1
    coerce_to_2d: bool = False

    def shape(self, x: Any) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
        return x.shape

    def axes(self, rank: int) -> tuple[int, ...]:
        axis = axis_in(self.axis, rank)
        return tuple(range(axis, rank)) if self.coerce_to_2d else (axis,)

    def canonical(self, x: Any) -> Op:
        """Axes of size 1 after it change nothing."""
        if x.shape is None:
            return self
        axis = axis_in(self.axis, len(x.shape))
        alone = all(isinstance(size, int) and size == 1 for size in x.shape[axis + 1 :])
        return self.with_(axis=axis, coerce_to_2d=self.coerce_to_2d and not alone)

    def decompose(self, b: Any, x: Any) -> Any:
        """Over the last axis, into which the others are folded or which is swapped with the axis."""
        rank = len(x.dims)
        axis = axis_in(self.axis, rank)
        last: Any = type(self)
        if self.coerce_to_2d:
            rest = total(x.dims[axis:])
            # The copied sizes cancel, so that -1 is the product of the others also where one of them is 0.
            flat = b.Reshape(x, [*([0] * axis), rest if isinstance(rest, int) and rest else -1], empty="cancel")
            return b.Reshape(b.add(last(axis=-1), flat)[0], shape_value(b, x), special_zero=False)
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        turned = x if axis == rank - 1 else b.Transpose(x, order)
        y = b.add(last(axis=rank - 1, coerce_to_2d=True), turned)[0]
        return y if axis == rank - 1 else b.Transpose(y, order)


class Softmax(
    _Exponential,
    onnx=(
        "Softmax-1(x; axis~front=1 | coerce_to_2d=true)",
        "Softmax-11(x; axis=1 | coerce_to_2d=true)",
        "Softmax-13(x; axis=-1)",
    ),
    openvino=("SoftMax-1(x; axis~front=1)", "SoftMax-8(x; axis=1)"),
):
    """``exp(x) / sum(exp(x))`` over ``axis``; with ``coerce_to_2d`` over it and all after it together.

    Sources: ONNX Softmax 1, 11 (coerced to two dimensions), 13; OpenVINO SoftMax-1, -8.
    """

    def evaluate(self, xp: Any, x: Any) -> Any:
        return arrays.softmax(xp, x, self.axes(x.ndim))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        weighted = b.Multiply(g, y)
        total = b.ReduceSum(weighted, list(self.axes(len(x.dims))), keepdims=True)
        return [b.Subtract(weighted, b.Multiply(y, total))]


class LogSoftmax(
    _Exponential,
    onnx=(
        "LogSoftmax-1(x; axis~front=1 | coerce_to_2d=true)",
        "LogSoftmax-11(x; axis=1 | coerce_to_2d=true)",
        "LogSoftmax-13(x; axis=-1)",
    ),
    openvino="LogSoftmax-5(x; axis=1)",
):
    """``log(softmax(x))`` over ``axis``; with ``coerce_to_2d`` over it and all after it together.

    Sources: ONNX LogSoftmax 1, 11 (coerced to two dimensions), 13; OpenVINO LogSoftmax-5.
    """

    def evaluate(self, xp: Any, x: Any) -> Any:
        return arrays.log_softmax(xp, x, self.axes(x.ndim))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        total = b.ReduceSum(g, list(self.axes(len(x.dims))), keepdims=True)
        return [b.Subtract(g, b.Multiply(b.Exp(y), total))]


class Hardmax(
    _Exponential,
    onnx=(
        "Hardmax-1(x; axis~front=1 | coerce_to_2d=true)",
        "Hardmax-11(x; axis=1 | coerce_to_2d=true)",
        "Hardmax-13(x; axis=-1)",
    ),
):
    """1 at the first greatest element over ``axis`` and 0 elsewhere; with ``coerce_to_2d`` over it and all after it together.

    Sources: ONNX Hardmax 1, 11 (coerced to two dimensions), 13.
    """

    def evaluate(self, xp: Any, x: Any) -> Any:
        axis = axis_in(self.axis, x.ndim)
        flat = xp.reshape(x, (*x.shape[:axis], -1)) if self.coerce_to_2d and 0 not in x.shape else x
        if 0 in x.shape:
            return x
        wide = xp.moveaxis(arrays.widened(xp, flat), axis, -1)
        one, zero = (xp.asarray(number, dtype=x.dtype) for number in (1, 0))
        hot = arrays.one_hot(xp, xp.argmax(wide, axis=-1), wide.shape[-1], one, zero)
        return xp.reshape(xp.moveaxis(hot, -1, axis), x.shape)

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        """A step function has no slope."""
        return [None]
