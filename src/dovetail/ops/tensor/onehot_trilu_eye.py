"""OneHot, Trilu and EyeLike: operators that set or keep elements at a pattern of positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View, axis_in, dtype_in, total
from dovetail.ops.shape_values import elements_of, host_view_of, indices_of_axis, integers_of, is_size

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


_NEGATIVE = "negative_indices_mode~{ignore_negative:false,normalize:true}:negative_indices=ignore_negative"


class OneHot(
    Op,
    sig="indices: R, depth!: R1, on_value: T, off_value: T -> output: T",
    openvino=(
        "OneHot-1(indices, depth, on_value, off_value; axis | negative_indices=false)",
        f"OneHot-16(indices, depth, on_value, off_value; axis, {_NEGATIVE})",
    ),
):
    """Encode indices one-hot: a new axis of size ``depth``, ``on_value`` at the index and ``off_value`` elsewhere.

    The new axis is ``axis`` of the result. With ``negative_indices`` indices in [-depth, -1] count from the end; any other index
    outside [0, depth - 1] gives ``off_value`` everywhere. Indices and depths that are not integers are truncated toward zero.
    Sources: ONNX OneHot 9 (no negative indices), 11, 28; OpenVINO OneHot-1, -16.
    """

    axis: int = -1
    negative_indices: bool = True

    def shape(self, indices: View, depth: View, on_value: View, off_value: View) -> Any:
        size = _depth(depth)
        if isinstance(size, int) and size < 0:
            raise RuleError("shape.range", f"depth must not be negative, got {size}")
        if indices.shape is None:
            return None
        axis = axis_in(self.axis, len(indices.shape) + 1)
        known = size is not None and is_size(size)
        return (*indices.shape[:axis], size if known else None, *indices.shape[axis:])

    def canonical(self, indices: View, depth: View, on_value: View, off_value: View) -> Op:
        return self if indices.shape is None else self.with_(axis=axis_in(self.axis, len(indices.shape) + 1))

    def evaluate(self, xp: Namespace, indices: Array, depth: Array, on_value: Array, off_value: Array) -> Any:
        size = int(np.asarray(depth).reshape(()).item())
        if size < 0:
            raise RuleError("shape.range", f"depth must not be negative, got {size}")
        if not arrays.element(indices).is_integer:
            indices = arrays.cast(xp, indices, dtypes.i64)
        values = (xp.reshape(on_value, ()), xp.reshape(off_value, ()))
        return arrays.one_hot(xp, indices, size, *values, axis_in(self.axis, indices.ndim + 1), self.negative_indices)

    def vjp(self, b: Builder, g: Value, y: Value, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Any:
        one, zero = (b.constant(np.array(value, dtype=g.dtype.numpy), g.dtype) for value in (1, 0))
        hot = b.apply("OneHot", indices, depth, one, zero, axis=self.axis, negative_indices=self.negative_indices)
        sums = [_sum(b, b.Multiply(g, hot)), _sum(b, b.Multiply(g, b.Subtract(one, hot)))]
        return [
            None,
            None,
            *(b.Reshape(s, [int(size) for size in x.dims]) for s, x in zip(sums, (on_value, off_value), strict=True)),
        ]


def _sum(b: Builder, x: Value) -> Any:
    return b.ReduceSum(b.Reshape(x, [-1]), [0], keepdims=True)


def _depth(depth: View) -> Any:
    result = elements_of(depth)
    if result is not None:
        return result[0] if len(result) == 1 else None
    data = getattr(depth, "constant", None)
    return int(data.reshape(()).item()) if data is not None and data.size == 1 else None


class Trilu(Op, sig="input: T, k?!: I -> output: T", onnx="Trilu-14(input, k?; upper=1)"):
    """Keep the elements on and above (without ``upper``: below) diagonal ``k`` of the matrices in the last two axes.

    The other elements are 0. Source: ONNX Trilu 14.
    """

    rounds_half_once = False

    upper: bool = True

    def shape(self, input: View, k: View | None = None) -> Any:
        if input.shape is not None and len(input.shape) < 2:
            raise RuleError("shape.rank", f"input must have a rank of at least 2, got {len(input.shape)}")
        if k is not None and k.shape is not None and symbolic.equal(total(k.shape), 1) is False:
            raise RuleError("shape.single", f"k must have one element, got the shape {list(map(str, k.shape))}")
        return input.shape

    def evaluate(self, xp: Namespace, input: Array, k: Array | None = None) -> Any:
        result = [0] if k is None else integers_of(host_view_of(k))
        if not result:
            raise symbolic.Inexact("the diagonal is not known")
        return arrays.triangle(xp, input, result[0], self.upper)

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, k: Value | None = None) -> Any:
        return [b.apply("Trilu", g, k, upper=self.upper), None][: 1 if k is None else 2]

    def decompose(self, b: Builder, input: Value, k: Value | None = None) -> Any:
        """Select the elements with column - row >= k, or without ``upper`` the elements with column - row <= k."""
        rows, columns = (indices_of_axis(b, input, len(input.dims) - 2 + index) for index in (0, 1))
        distance = b.Subtract(columns, b.Unsqueeze(rows, [1]))
        limit = b.constant([0]) if k is None else b.Reshape(k, [1])
        limit = limit if limit.dtype == "i64" else b.Cast(limit, to=dtypes.i64)
        keep = b.GreaterEqual(distance, limit) if self.upper else b.LessEqual(distance, limit)
        return b.Where(keep, input, b.constant(np.zeros((), dtype=input.dtype.numpy), input.dtype))


class EyeLike(Op, sig="input: T -> output: T1", onnx="EyeLike-9,22(input; dtype?, k=0)"):
    """Return a matrix of the shape of ``input`` with 1 on diagonal ``k`` and 0 elsewhere.

    The element type is ``dtype``, by default the type of ``input``. Source: ONNX EyeLike 9, 22.
    """

    k: int = 0
    dtype: DType | None = None

    def types(self, input: View) -> list[Type]:
        check_inputs(self, (input,))
        if input.shape is not None and len(input.shape) != 2:
            raise RuleError("shape.rank", f"input must have the rank 2, got {len(input.shape)}")
        return [Tensor(self.dtype or dtype_in(input.type), input.shape or (None, None))]  # type: ignore[arg-type]

    def value(self, input: View) -> Any:
        raise symbolic.Inexact

    def evaluate(self, xp: Namespace, input: Array) -> Any:
        kind = self.dtype or arrays.element(input)
        return arrays.from_numpy(xp, np.eye(int(input.shape[0]), int(input.shape[1]), k=self.k).astype(kind.numpy), input)

    def vjp(self, b: Builder, g: Value, y: Value, input: Value) -> Any:
        return [None]

    def decompose(self, b: Builder, input: Value) -> Any:
        """Decompose to a comparison of column - row with ``k``."""
        rows, columns = (indices_of_axis(b, input, axis) for axis in (0, 1))
        return b.Cast(b.Equal(b.Subtract(columns, b.Unsqueeze(rows, [1])), self.k), to=self.dtype or input.dtype)
