"""GroupedMatMul."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown, View, agree
from dovetail.ops.casts import as_type
from dovetail.ops.linalg.matmul import MatMul

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class GroupedMatMul(Op, sig="mat_a: N, mat_b: N, offsets?: I -> z: N", openvino="GroupedMatMul-17(mat_a, mat_b, offsets?)"):
    """Multiply each group of rows by the matrix of its group, as in a mixture of experts.

    ``mat_b`` [groups, columns, k] holds transposed matrices. ``mat_a`` is [groups, rows, k]; with ``offsets`` [groups] it is
    [rows, k], and ``offsets`` holds the end row of each group. A group starts at the end of the previous group, the first group
    at row 0. Result rows after the last group are 0. Accumulation and rounding are those of MatMul.
    Source: OpenVINO GroupedMatMul-17, as the openvino package describes it.
    """

    def shape(self, x: View, y: View, ends: View | None = None) -> Any:
        if y.shape is not None and len(y.shape) != 3:
            raise RuleError("shape.rank", f"mat_b must have rank 3, got {len(y.shape)}")
        if ends is not None and ends.shape is not None and len(ends.shape) != 1:
            raise RuleError("shape.rank", f"offsets must be a vector, got {ends.type}")
        if x.shape is None or y.shape is None:
            return None
        groups, columns, inner = y.shape
        if len(x.shape) != (3 if ends is None else 2):
            expected = "3 without offsets" if ends is None else "2 with offsets"
            raise RuleError("shape.rank", f"mat_a must have rank {expected}, got {x.type}")
        agree(x.shape[-1], inner, ("mat_a", len(x.shape) - 1), ("mat_b", 2))
        if ends is None:
            return (agree(x.shape[0], groups, ("mat_a", 0), ("mat_b", 0)), x.shape[1], columns)
        if ends.shape is not None:
            agree(ends.shape[0], groups, ("offsets", 0), ("mat_b", 0))
        return (x.shape[0], columns)

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are not tracked through matrix products."""
        raise Unknown

    def evaluate(self, xp: Namespace, x: Array, y: Array, ends: Array | None = None) -> Any:
        product = MatMul(transpose_b=True)
        if ends is None:
            return product.evaluate(xp, x, y)
        count = int(x.shape[0])
        bounds = [0, *np.sort(np.clip(arrays.to_numpy(ends).astype(np.int64), 0, count)).tolist()]
        groups = enumerate(pairwise(bounds))
        parts = [product.evaluate(xp, x[first:last, :], y[group, :, :]) for group, (first, last) in groups]
        rest = product.evaluate(xp, xp.zeros_like(x[bounds[-1] :, :]), xp.zeros_like(y[0, :, :]))
        return xp.concat([*parts, rest], axis=0)

    def decompose(self, b: Builder, x: Value, y: Value, ends: Value | None = None) -> Any:
        """Multiply every row by every matrix and select for each row the product with the matrix of its group."""
        if ends is None:
            return b.MatMul(x, y, transpose_b=True)
        sizes = [b.Reshape(b.Gather(b.Shape(operand), [0], axis=0), []) for operand in (x, y)]
        rows = b.Unsqueeze(b.Range(b.constant(0), sizes[0], b.constant(1)), [1])
        is_past_group = b.LessEqual(b.Unsqueeze(as_type(b, ends, dtypes.i64), [0]), rows)
        group = b.ReduceSum(b.Cast(is_past_group, to=dtypes.i64), [1])
        products = b.Transpose(b.MatMul(b.Unsqueeze(x, [0]), y, transpose_b=True), [1, 0, 2])
        own = b.GatherND(products, b.Minimum(group, b.Subtract(sizes[1], b.constant(1))), batch_dims=1)
        return b.Where(b.Less(group, sizes[1]), own, b.constant(0, x.dtype))
