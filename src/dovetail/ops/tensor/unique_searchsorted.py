"""Unique and SearchSorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, default_types
from dovetail.ir.types import Tensor, Type, View, agree_shapes, axis_in, total
from dovetail.ops.casts import as_type
from dovetail.ops.elementwise.broadcast import is_float

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Unique(
    Op,
    sig="x: T -> y: T, indices: I1, inverse_indices: I2, counts: I3",
    onnx="Unique-11,28(x; axis?, sorted=1)",
    openvino="Unique-10(x, axis?; sorted=true, index_element_type=i64, count_element_type=i64)",
):
    """Return the unique elements of ``x``, or the unique slices along ``axis``, with first indices, inverse and counts.

    ``inverse_indices`` holds, for each element or slice of ``x``, the index of the equal unique element or slice. With ``sorted``
    the result is ascending, and slices are compared element by element in row-major order; otherwise the result is in the order
    of first occurrence. Without ``axis`` elements are indexed in row-major order. ``outputs``: the number of outputs, 1 to 4.
    Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
    """

    sizes_depend_on_data = True

    axis: int | None = None
    sorted: bool = True
    index_element_type: DType = dtypes.i64
    count_element_type: DType = dtypes.i64
    outputs: int = 4

    def validate(self) -> None:
        for kind in (self.index_element_type, self.count_element_type):
            if kind not in ("i32", "i64"):
                raise RuleError("attribute.value", f"indices and counts must be i32 or i64, got {kind}")
        if not 1 <= self.outputs <= 4:
            raise RuleError("node.outputs", f"Unique needs 1 to 4 outputs, got {self.outputs}")

    def types(self, x: View) -> list[Type]:
        values = default_types(self.with_(outputs=1), (x,))[0]
        shape = x.shape
        if shape is None:
            inverse = None
        else:
            inverse = total(shape) if self.axis is None else shape[axis_in(self.axis, len(shape))]
        kinds = (self.index_element_type, self.index_element_type, self.count_element_type)
        sizes = (None, inverse, None)
        return [values, *(Tensor(kind, (size,)) for kind, size in zip(kinds, sizes, strict=True))][: self.outputs]  # type: ignore[arg-type]

    def shape(self, x: View) -> Any:
        if self.axis is None:
            return (None,)
        if x.shape is None:
            return None
        axis = axis_in(self.axis, len(x.shape))
        return (*x.shape[:axis], None, *x.shape[axis + 1 :])

    def canonical(self, x: View) -> Op:
        return self if x.shape is None or self.axis is None else self.with_(axis=axis_in(self.axis, len(x.shape)))

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("the equality of elements")

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        data = arrays.to_numpy(x)
        axis = 0 if self.axis is None else axis_in(self.axis, data.ndim)
        rows = data.reshape(-1, 1) if self.axis is None else np.moveaxis(data, axis, 0)
        codes = np.unique(rows, return_inverse=True)[1].reshape(len(rows), rows[:1].size or 1 if rows.size else 0)
        if not codes.shape[1]:
            codes = np.zeros((len(rows), 1), np.int64)
        _, indices, inverse, counts = np.unique(codes, axis=0, return_index=True, return_inverse=True, return_counts=True)
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(indices, kind="stable")
            indices, counts, inverse = indices[order], counts[order], np.argsort(order, kind="stable")[inverse]
        values = np.take(data.reshape(-1) if self.axis is None else data, indices, axis=axis)
        results = (
            values,
            indices.astype(self.index_element_type.numpy),
            inverse.astype(self.index_element_type.numpy),
            counts.astype(self.count_element_type.numpy),
        )
        result = tuple(arrays.from_numpy(xp, item, x) for item in results[: self.outputs])
        return result if self.outputs > 1 else result[0]

    def vjp(self, b: Builder, g: Sequence[Value | None], y: Sequence[Value], x: Value) -> Any:
        """Add the gradient of each unique element to its first occurrence."""
        from dovetail.ir.builder import shape_value
        from dovetail.ops.tensor.scatter import gradient_of_gather

        first = g[0]
        if first is None or not is_float(x):
            return [None]
        indices = y[1] if self.outputs > 1 else b.add(self.with_(outputs=2), x)[1]
        flat = x if self.axis is not None else b.Reshape(x, [-1])
        axis = 0 if self.axis is None else axis_in(self.axis, len(x.dims))
        result = gradient_of_gather(b, first, indices, axis, shape_value(b, flat, [axis]))
        return [result if self.axis is not None else b.Reshape(result, shape_value(b, x), special_zero=False)]

    def decompose(self, b: Builder, x: Value) -> Any:
        """Cast indices and counts from i64; return None if both have the type i64."""
        if self.index_element_type == "i64" and self.count_element_type == "i64":
            return None
        results = b.add(self.with_(index_element_type=dtypes.i64, count_element_type=dtypes.i64), x)
        kinds = (x.dtype, self.index_element_type, self.index_element_type, self.count_element_type)
        return [as_type(b, item, kind) for item, kind in zip(results, kinds, strict=False)]


class SearchSorted(
    Op,
    sig="sorted_sequence: R, values: R -> output: I",
    openvino=(
        "Bucketize-3(values, sorted_sequence; output_type=i64, with_right_bound~not:right_mode=true)",
        "SearchSorted-15(sorted_sequence, values; right_mode=false, output_type=i64)",
    ),
):
    """Return for each of ``values`` the number of elements of the ascending ``sorted_sequence`` that are less than the value.

    With ``right_mode`` elements that equal the value are counted too. ``sorted_sequence`` is a vector, or has the sizes of
    ``values`` along all axes but the last. Sources: OpenVINO Bucketize-3, SearchSorted-15.
    """

    right_mode: bool = False
    output_type: DType = dtypes.i64

    def validate(self) -> None:
        if self.output_type not in ("i32", "i64"):
            raise RuleError("attribute.value", f"output_type must be i32 or i64, got {self.output_type}")

    def types(self, sorted_sequence: View, values: View) -> list[Type]:
        result = default_types(self, (sorted_sequence, values))[0]
        return [Tensor(self.output_type, getattr(result, "shape", None))]

    def shape(self, sorted_sequence: View, values: View) -> Any:
        sequence_shape, values_shape = sorted_sequence.shape, values.shape
        if sequence_shape is not None and not sequence_shape:
            raise RuleError("shape.rank", "sorted_sequence must have a rank of at least 1, got a scalar")
        if sequence_shape is None or len(sequence_shape) == 1 or values_shape is None:
            return values_shape if sequence_shape is None or len(sequence_shape) == 1 else (*sequence_shape[:-1], None)
        if len(sequence_shape) != len(values_shape):
            raise RuleError(
                "shape.rank", f"ranks of sorted_sequence ({len(sequence_shape)}) and values ({len(values_shape)}) must be equal"
            )
        common = agree_shapes(sequence_shape[:-1], values_shape[:-1], "sorted_sequence", "values")
        return (*common, values_shape[-1])

    def decompose(self, b: Builder, sorted_sequence: Value, values: Value) -> Any:
        if len(sorted_sequence.dims) == 1:
            item = b.Unsqueeze(values, [len(values.dims)])
        else:
            sorted_sequence, item = b.Unsqueeze(sorted_sequence, [-2]), b.Unsqueeze(values, [-1])
        before = b.LessEqual(sorted_sequence, item) if self.right_mode else b.Less(sorted_sequence, item)
        return as_type(b, b.ReduceSum(b.Cast(before, to=dtypes.i64), [-1], keepdims=False), self.output_type)
