"""Elements told apart or put in their places: Unique, SearchSorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.op import Op, default_types
from dovetail.ir.types import Tensor, Type, View, agree, axis_in, total
from dovetail.ops.casts import as_type
from dovetail.ops.elementwise.broadcast import is_float

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Unique(
    Op,
    sig="x: T -> y: T, indices: I1, inverse_indices: I2, counts: I3",
    onnx="Unique-11,28(x; axis?, sorted=1)",
    openvino="Unique-10(x, axis?; sorted=true, index_element_type=i64, count_element_type=i64)",
):
    """Every element of ``x`` once, in a vector, or every slice along ``axis``; where each first occurs; which one each of ``x``
    is; how often each occurs.

    With ``sorted`` they rise, slices element by element in row-major order; without it they stand as they first occur. Elements
    are counted in row-major order. ``outputs``: how many of the four there are.
    Sources: ONNX Unique 11, 28; OpenVINO Unique-10.
    """

    axis: int | None = None
    sorted: bool = True
    index_element_type: DType = dtypes.i64
    count_element_type: DType = dtypes.i64
    outputs: int = 4

    def validate(self) -> None:
        for kind in (self.index_element_type, self.count_element_type):
            if kind not in ("i32", "i64"):
                raise RuleError("unique.dtype", f"indices or counts of {kind}, of i32 or i64")
        if not 1 <= self.outputs <= 4:
            raise RuleError("node.outputs", f"{self.outputs} outputs of 1 to 4")

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
        raise symbolic.Inexact("which elements are the same")

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
        made = (
            values,
            indices.astype(self.index_element_type.numpy),
            inverse.astype(self.index_element_type.numpy),
            counts.astype(self.count_element_type.numpy),
        )
        found = tuple(arrays.from_numpy(xp, item, x) for item in made[: self.outputs])
        return found if self.outputs > 1 else found[0]

    def vjp(self, b: Builder, g: Sequence[Value | None], y: Sequence[Value], x: Value) -> Any:
        """Each goes back to where it first occurs."""
        from dovetail.ir.builder import shape_value
        from dovetail.ops.tensor.scatter import added_back

        first = g[0]
        if first is None or not is_float(x):
            return [None]
        places = y[1] if self.outputs > 1 else b.add(self.with_(outputs=2), x)[1]
        flat = x if self.axis is not None else b.Reshape(x, [-1])
        axis = 0 if self.axis is None else axis_in(self.axis, len(x.dims))
        found = added_back(b, first, places, axis, shape_value(b, flat, [axis]))
        return [found if self.axis is not None else b.Reshape(found, shape_value(b, x), special_zero=False)]

    def decompose(self, b: Builder, x: Value) -> Any:
        """With indices and counts of i64, which are cast."""
        if self.index_element_type == "i64" and self.count_element_type == "i64":
            return None
        made = b.add(self.with_(index_element_type=dtypes.i64, count_element_type=dtypes.i64), x)
        kinds = (x.dtype, self.index_element_type, self.index_element_type, self.count_element_type)
        return [as_type(b, item, kind) for item, kind in zip(made, kinds, strict=False)]


class SearchSorted(
    Op,
    sig="sorted_sequence: R, values: R -> output: I",
    openvino=(
        "Bucketize-3(values, sorted_sequence; output_type=i64, with_right_bound~not:right_mode=true)",
        "SearchSorted-15(sorted_sequence, values; right_mode=false, output_type=i64)",
    ),
):
    """For each of ``values`` how many elements of the rising ``sequence`` come before it: those that are less, or with ``right``
    also those that are equal.

    ``sequence`` is a vector, or its axes but the last are those of ``values``. Sources: OpenVINO Bucketize-3, SearchSorted-15.
    """

    right_mode: bool = False
    output_type: DType = dtypes.i64

    def validate(self) -> None:
        if self.output_type not in ("i32", "i64"):
            raise RuleError("unique.dtype", f"indices of {self.output_type}, of i32 or i64")

    def types(self, sorted_sequence: View, values: View) -> list[Type]:
        found = default_types(self, (sorted_sequence, values))[0]
        return [Tensor(self.output_type, getattr(found, "shape", None))]

    def shape(self, sorted_sequence: View, values: View) -> Any:
        ours, theirs = sorted_sequence.shape, values.shape
        if ours is not None and not ours:
            raise RuleError("shape.scalar", "a scalar is no sequence to search")
        if ours is None or len(ours) == 1 or theirs is None:
            return theirs if ours is None or len(ours) == 1 else (*ours[:-1], None)
        if len(ours) != len(theirs):
            raise RuleError("shape.rank", f"ranks {len(ours)}, {len(theirs)} should be equal")
        return (*map(agree, ours[:-1], theirs[:-1]), theirs[-1])

    def decompose(self, b: Builder, sorted_sequence: Value, values: Value) -> Any:
        if len(sorted_sequence.dims) == 1:
            each = b.Unsqueeze(values, [len(values.dims)])
        else:
            sorted_sequence, each = b.Unsqueeze(sorted_sequence, [-2]), b.Unsqueeze(values, [-1])
        before = b.LessEqual(sorted_sequence, each) if self.right_mode else b.Less(sorted_sequence, each)
        return as_type(b, b.ReduceSum(b.Cast(before, to=dtypes.i64), [-1], keepdims=False), self.output_type)
