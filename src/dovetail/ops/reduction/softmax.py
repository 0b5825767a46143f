"""Softmax, LogSoftmax and Hardmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import arrays
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import INT64_MAX, View, axis_in, total
from dovetail.ops.nn.normalization import NormalizationOp

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _SoftmaxOp(NormalizationOp, sig="x: F -> y: F"):
    """_SoftmaxOp is the base of Softmax, LogSoftmax and Hardmax over ``axis``.

    With ``coerce_to_2d`` these operators apply over ``axis`` and all later axes flattened into one.
    """

    axis: int = -1
    coerce_to_2d: bool = False

    def shape(self, x: View) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
        return x.shape

    def axes(self, rank: int) -> tuple[int, ...]:
        axis = axis_in(self.axis, rank)
        return tuple(range(axis, rank)) if self.coerce_to_2d else (axis,)

    def canonical(self, x: View) -> Op:
        """Drop ``coerce_to_2d`` if all axes after ``axis`` have size 1."""
        if x.shape is None:
            return self.with_(coerce_to_2d=self.coerce_to_2d and self.axis != -1)
        axis = axis_in(self.axis, len(x.shape))
        alone = all(isinstance(size, int) and size == 1 for size in x.shape[axis + 1 :])
        return self.with_(axis=axis, coerce_to_2d=self.coerce_to_2d and not alone)

    def decompose(self, b: Builder, x: Value) -> Any:
        """Compute over the last axis: flatten ``axis`` and all later axes into one, or transpose ``axis`` to the end."""
        last: Any = type(self)
        if x.shape is None and self.coerce_to_2d:
            flat = b.Reshape(x, self._flat_target(b, x))
            # A 0 in the target copies a size, so that a size of 0 before ``axis`` is kept. A size of 0 after ``axis`` is refused.
            return b.Reshape(b.add(last(axis=-1), flat)[0], b.Shape(x))
        rank = len(x.dims)
        axis = axis_in(self.axis, rank)
        if self.coerce_to_2d:
            rest = total(x.dims[axis:])
            # Copied sizes cancel, so that -1 is the product of the sizes from ``axis`` on even if a copied size is 0.
            flat = b.Reshape(x, [*([0] * axis), rest if isinstance(rest, int) and rest else -1], empty="cancel")
            return b.Reshape(b.add(last(axis=-1), flat)[0], shape_value(b, x), special_zero=False)
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        transposed = x if axis == rank - 1 else b.Transpose(x, order)
        y = b.add(last(axis=rank - 1, coerce_to_2d=True), transposed)[0]
        return y if axis == rank - 1 else b.Transpose(y, order)

    def _flat_target(self, b: Builder, x: Value) -> Any:
        """Return the target of a Reshape of ``x``, of unknown rank, that flattens ``axis`` and all later axes into one."""
        sizes = b.Shape(x)
        rest = b.ReduceProd(b.Slice(sizes, [self.axis], [INT64_MAX], [0]), [0], keepdims=True)
        return b.Concat(b.Slice(sizes, [0], [self.axis], [0]), rest, axis=0)


class Softmax(
    _SoftmaxOp,
    onnx=(
        "Softmax-1(x; axis~front=1 | coerce_to_2d=true)",
        "Softmax-11(x; axis=1 | coerce_to_2d=true)",
        "Softmax-13(x; axis=-1)",
    ),
    openvino=("SoftMax-1(x; axis~front=1)", "SoftMax-8(x; axis=1)"),
):
    """Compute ``exp(x) / sum(exp(x))`` over ``axis``; with ``coerce_to_2d`` over ``axis`` and all later axes flattened into one.

    Sources: ONNX Softmax 1, 11 (coerced to two dimensions), 13; OpenVINO SoftMax-1, -8.
    """

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return arrays.softmax(xp, x, self.axes(x.ndim))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        weighted = b.Multiply(g, y)
        total = b.ReduceSum(weighted, list(self.axes(len(x.dims))), keepdims=True)
        return [b.Subtract(weighted, b.Multiply(y, total))]


class LogSoftmax(
    _SoftmaxOp,
    onnx=(
        "LogSoftmax-1(x; axis~front=1 | coerce_to_2d=true)",
        "LogSoftmax-11(x; axis=1 | coerce_to_2d=true)",
        "LogSoftmax-13(x; axis=-1)",
    ),
    openvino="LogSoftmax-5(x; axis=1)",
):
    """Compute ``log(softmax(x))`` over ``axis``; with ``coerce_to_2d`` over ``axis`` and all later axes flattened into one.

    Sources: ONNX LogSoftmax 1, 11 (coerced to two dimensions), 13; OpenVINO LogSoftmax-5.
    """

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return arrays.log_softmax(xp, x, self.axes(x.ndim))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        total = b.ReduceSum(g, list(self.axes(len(x.dims))), keepdims=True)
        return [b.Subtract(g, b.Multiply(b.Exp(y), total))]


class Hardmax(
    _SoftmaxOp,
    onnx=(
        "Hardmax-1(x; axis~front=1 | coerce_to_2d=true)",
        "Hardmax-11(x; axis=1 | coerce_to_2d=true)",
        "Hardmax-13(x; axis=-1)",
    ),
):
    """Return 1 at the first maximum along ``axis`` and 0 elsewhere.

    ``coerce_to_2d`` flattens ``axis`` and all later axes into one. Sources: ONNX Hardmax 1, 11 (coerced to two dimensions), 13.
    """

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        axis = axis_in(self.axis, x.ndim)
        flat = xp.reshape(x, (*x.shape[:axis], -1)) if self.coerce_to_2d and 0 not in x.shape else x
        if 0 in x.shape:
            return x
        wide = xp.moveaxis(arrays.widen(xp, flat), axis, -1)
        one, zero = (xp.asarray(number, dtype=x.dtype) for number in (1, 0))
        hot = arrays.one_hot(xp, xp.argmax(wide, axis=-1), wide.shape[-1], one, zero)
        return xp.reshape(xp.moveaxis(hot, -1, axis), x.shape)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        """Return no gradient: Hardmax is piecewise constant."""
        return [None]
