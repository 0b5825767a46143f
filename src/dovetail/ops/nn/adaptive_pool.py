"""Adaptive average and max pooling."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op, default_types
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.shape_values import elements_of, integers_of, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _Adaptive(Op):
    """_Adaptive is the base of adaptive pools: window i of m over n elements is [floor(i * n / m), ceil((i + 1) * n / m))."""

    def pooled_shape(self, x: View, size: View) -> Any:
        count = length_of_vector(size, "size")
        if x.shape is None:
            return None
        if len(x.shape) < 3:
            raise RuleError("shape.rank", f"rank must be at least 3 (batch, channels, spatial axes), got {len(x.shape)}")
        if count is not None and symbolic.equal(count, len(x.shape) - 2) is False:
            raise RuleError(
                "attribute.length", f"output_shape ({count} elements) must have one element per spatial axis ({len(x.shape) - 2})"
            )
        sizes = elements_of(size)
        if sizes is None:
            return (*x.shape[:2], *(None,) * (len(x.shape) - 2))
        if any(isinstance(item, int) and item < 1 for item in sizes):
            raise RuleError("shape.range", f"output_shape must be at least 1, got {sizes}")
        return (*x.shape[:2], *sizes)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a pool")

    def targets(self, x: View, size: View) -> list[int]:
        targets = integers_of(size)
        if targets is None:
            raise UnsupportedError("type.unknown", f"{type(self).__name__} needs output_shape before run time")
        self.pooled_shape(x, size)
        return targets

    def bounds(self, b: Builder, x: Value, axis: int, target: int) -> tuple[Any, Any]:
        """Emit the begins and the ends of the windows of an axis, as i64 vectors."""
        refuse_table((target,), 24, "the window bounds of an adaptive pooling")
        length = size_of(b, x, axis, dtypes.i64)
        if length.constant is not None:
            size = int(length.constant)
            steps = np.arange(target)
            return b.constant(steps * size // target), b.constant(-(-(steps + 1) * size // target))
        begin = b.Divide(b.Multiply(length, np.arange(target)), b.constant(target))
        end = b.Divide(b.Add(b.Multiply(length, np.arange(1, target + 1)), b.constant(target - 1)), b.constant(target))
        return begin, end


class AdaptiveAveragePool(_Adaptive, sig="x: F, output_shape!: I -> y: F", openvino="AdaptiveAvgPool-8(x, output_shape)"):
    """Compute the mean of each window; the spatial axes are divided into ``output_shape`` windows.

    Window i of m windows over n elements begins at floor(i * n / m) and ends before ceil((i + 1) * n / m). Source: OpenVINO
    AdaptiveAvgPool-8.
    """

    def shape(self, x: View, size: View) -> Any:
        return self.pooled_shape(x, size)

    def decompose(self, b: Builder, x: Value, size: Value) -> Any:
        """Decompose to AveragePool if all windows are equal, otherwise to a MatMul with weights for each axis."""
        targets = self.targets(x, size)
        sizes = x.dims[2:]
        if all(target == 1 for target in targets):
            return b.ReduceMean(x, list(range(2, len(x.dims))), keepdims=True)
        if all(isinstance(n, int) and n and n % target == 0 for n, target in zip(sizes, targets, strict=True)):
            kernel = tuple(n // target for n, target in zip(sizes, targets, strict=True))
            return b.AveragePool(x, kernel_shape=kernel, strides=kernel)
        y, rank = as_type(b, x, wide_type(x.dtype)), len(x.dims)
        for axis, target in enumerate(targets, 2):
            begin, end = self.bounds(b, x, axis, target)
            indices = b.Unsqueeze(b.Range(b.constant(0), size_of(b, x, axis, dtypes.i64), b.constant(1)), [1])
            inside = b.And(b.GreaterEqual(indices, begin), b.Less(indices, end))
            weights = b.Divide(b.Cast(inside, to=y.dtype), b.Cast(b.Subtract(end, begin), to=y.dtype))
            order = [*(other for other in range(rank) if other != axis), axis]
            y = b.Transpose(b.MatMul(b.Transpose(y, order), weights), [order.index(other) for other in range(rank)])
        return as_type(b, y, x.dtype)


class AdaptiveMaxPool(
    _Adaptive,
    sig="x: F, output_shape!: I -> y: F, indices: I1",
    openvino="AdaptiveMaxPool-8(x, output_shape; index_element_type=i64)",
):
    """Compute the maximum of each window and the maximum's index; the spatial axes are divided into ``output_shape`` windows.

    The index is row-major over all spatial axes; of equal elements the first one is the maximum. Windows are defined as in
    AdaptiveAveragePool. Source: OpenVINO AdaptiveMaxPool-8.
    """

    index_element_type: DType = dtypes.i64

    def validate(self) -> None:
        if self.index_element_type not in ("i32", "i64"):
            raise RuleError("attribute.value", f"index_element_type must be i32 or i64, got {self.index_element_type}")

    def types(self, x: View, size: View) -> list[Type]:
        values = default_types(self, (x, size))[0]
        return [values, Tensor(self.index_element_type, getattr(values, "shape", None))]

    def shape(self, x: View, size: View) -> Any:
        pooled = self.pooled_shape(x, size)
        return [pooled, pooled]

    def decompose(self, b: Builder, x: Value, size: Value) -> Any:
        """Reduce the axes from last to first: gather the elements of each window, and select the first maximum by ArgMax."""
        targets, rank = self.targets(x, size), len(x.dims)
        sizes = shape_value(b, x, range(2, rank))
        if isinstance(sizes, list):
            refuse_table(sizes, 8, "the indices of an AdaptiveMaxPool")
            indices = b.constant(np.arange(prod(sizes)).reshape(1, 1, *sizes))
        else:
            count = b.ReduceProd(sizes, keepdims=False)
            flat = b.Range(b.constant(0), count, b.constant(1))
            indices = b.Unsqueeze(b.Reshape(flat, sizes, special_zero=False), [0, 1])
        y, indices = x, b.Expand(indices, shape_value(b, x))
        for axis in reversed(range(2, rank)):
            begin, end = self.bounds(b, x, axis, targets[axis - 2])
            longest = b.ReduceMax(b.Subtract(end, begin), keepdims=False)
            steps = b.Range(b.constant(0), longest, b.constant(1))
            table = b.Minimum(b.Add(b.Unsqueeze(begin, [1]), steps), b.Unsqueeze(b.Subtract(end, b.constant(1)), [1]))
            y, indices = b.Gather(y, table, axis=axis), b.Gather(indices, table, axis=axis)
            first = b.ArgMax(y, axis=axis + 1, keepdims=True)
            y, indices = (b.Squeeze(b.GatherElements(item, first, axis=axis + 1), [axis + 1]) for item in (y, indices))
        return [y, as_type(b, indices, self.index_element_type)]
