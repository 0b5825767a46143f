"""NonZero and Compress: elements selected by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View, axis_in

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def _elements(x: View) -> Any:
    """Return the elements of an input as a numpy array if all elements are known, else None."""
    data = getattr(x, "constant", None)
    if data is not None:
        return data
    value = None if x.value is None else np.asarray(x.value)
    return None if value is None or any(isinstance(item, symbolic.Dim) for item in value.reshape(-1).tolist()) else value


class NonZero(
    Op,
    sig="x: T -> y: I",
    onnx="NonZero-9,13(x)",
    openvino="NonZero-3(x; output_type=i64)",
):
    """Return the coordinates of the elements that are not 0, in row-major order: [rank, count].

    For a scalar the result has the shape [0, 1] if the scalar is not 0, else [0, 0]. Sources: ONNX NonZero 9, 13; OpenVINO
    NonZero-3.
    """

    sizes_depend_on_data = True

    output_type: DType = dtypes.i64

    def types(self, x: View) -> list[Type]:
        check_inputs(self, (x,))
        data = _elements(x)
        count = None if data is None else int(np.count_nonzero(data != 0))
        return [Tensor(self.output_type, (None if x.shape is None else len(x.shape), count))]  # type: ignore[arg-type]

    def value(self, x: View) -> Any:
        raise symbolic.Inexact

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        kind = arrays.dtype_in(xp, self.output_type)
        is_nonzero = x if arrays.element(x) == "boolean" else x != 0
        if not x.ndim:
            return xp.zeros((0, int(bool(is_nonzero))), dtype=kind)
        return xp.stack([xp.astype(row, kind) for row in xp.nonzero(is_nonzero)], axis=0)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]

    def decompose(self, b: Builder, x: Value) -> Any:
        return None if self.output_type == "i64" else b.Cast(b.NonZero(x), to=self.output_type)


class Compress(
    Op,
    sig="input: T, condition: boolean -> output: T",
    onnx=("Compress-9(input, condition; axis~front?)", "Compress-11,28(input, condition; axis?)"),
):
    """Select the slices of ``input`` along ``axis`` for which the vector ``condition`` is true.

    Without ``axis`` elements are selected, in row-major order. Slices beyond the end of ``condition`` are dropped.
    Source: ONNX Compress 9 to 28.
    """

    sizes_depend_on_data = True

    axis: int | None = None

    def shape(self, input: View, condition: View) -> Any:
        if condition.shape is not None and len(condition.shape) != 1:
            raise RuleError("shape.rank", f"condition must be a vector, got rank {len(condition.shape)}")
        data = _elements(condition)
        count = None if data is None else int(np.count_nonzero(data))
        if self.axis is None:
            return (count,)
        if input.shape is None:
            return None
        axis = axis_in(self.axis, len(input.shape))
        if condition.shape is not None and symbolic.less(input.shape[axis], condition.shape[0]) is True:
            raise RuleError(
                "shape.disagree", f"condition ({condition.shape[0]}) must not be longer than the axis ({input.shape[axis]})"
            )
        return (*input.shape[:axis], count, *input.shape[axis + 1 :])

    def evaluate(self, xp: Namespace, input: Array, condition: Array) -> Any:
        (indices,) = xp.nonzero(condition)
        source, axis = (xp.reshape(input, (-1,)), 0) if self.axis is None else (input, axis_in(self.axis, input.ndim))
        return arrays.take(xp, source, indices, axis)

    def decompose(self, b: Builder, input: Value, condition: Value) -> Any:
        indices = b.Squeeze(b.NonZero(condition), [0])
        return (
            b.Gather(b.Reshape(input, [-1]), indices, axis=0) if self.axis is None else b.Gather(input, indices, axis=self.axis)
        )
