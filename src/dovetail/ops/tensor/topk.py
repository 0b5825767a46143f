"""TopK: the greatest or least elements along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, default_types
from dovetail.ir.types import Tensor, Type, View, axis_in
from dovetail.ops.elementwise.broadcast import is_float
from dovetail.ops.shape_values import integers_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

SORTS = ("value", "index", "none")

_MODES = "mode~{max:true,min:false}:largest, sort"
_INDEX_TYPE = "index_element_type=i32"


class TopK(
    Op,
    sig="x: R, k!: I -> values: R, indices: I1",
    onnx=(
        "TopK-1(x; axis=-1, k~positive | largest=true, sort=value, stable=true/false, index_element_type=i64)",
        "TopK-10(x, k; axis=-1 | largest=true, sort=value, stable=true/false, index_element_type=i64)",
        "TopK-11,24(x, k; axis=-1, largest=1, sorted~{1:value,0:none}:sort=1 | stable=true/false, index_element_type=i64)",
    ),
    openvino=(
        f"TopK-1(x, k; axis, {_MODES}, {_INDEX_TYPE} | stable=false)",
        f"TopK-3(x, k; axis, {_MODES}, {_INDEX_TYPE} | stable=false)",
        f"TopK-11(x, k; axis, {_MODES}, {_INDEX_TYPE}, stable=false)",
    ),
):
    """Return the ``k`` greatest (without ``largest``: least) elements along ``axis``, and their indices.

    ``sort`` orders the selected elements by ``value``, the most extreme first, or by ``index``; with ``none`` the order is
    unspecified (dovetail orders by value). With ``stable`` the first of equal elements is selected and comes first; without
    ``stable`` the choice is unspecified (dovetail chooses as with ``stable``). A NaN is greater than any number.
    Sources: ONNX TopK 1 to 24; OpenVINO TopK-1, -3, -11.
    """

    axis: int = -1
    largest: bool = True
    sort: str = "value"
    stable: bool = True
    index_element_type: DType = dtypes.i64

    def validate(self) -> None:
        if self.sort not in SORTS:
            raise RuleError("attribute.value", f"sort must be one of {', '.join(SORTS)}, got {self.sort!r}")
        if self.index_element_type not in ("i32", "i64"):
            raise RuleError("attribute.value", f"index_element_type must be i32 or i64, got {self.index_element_type}")

    def types(self, x: View, k: View) -> list[Type]:
        values = default_types(self, (x, k))[0]
        return [values, Tensor(self.index_element_type, getattr(values, "shape", None))]

    def shape(self, x: View, k: View) -> Any:
        count = self.count(k)
        if x.shape is None:
            return [None, None]
        axis = axis_in(self.axis, len(x.shape))
        if count is not None and symbolic.less(x.shape[axis], count) is True:
            raise RuleError("attribute.range", f"k ({count}) must not exceed the size of the axis ({x.shape[axis]})")
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return [shape, shape]

    def count(self, k: View) -> Any:
        """Return ``k`` as a size; None if ``k`` is unknown."""
        if k.shape is not None and len(k.shape) > 1:
            raise RuleError("shape.single", f"k must have one element, got the shape {list(k.shape)}")
        if k.shape is not None and k.shape and symbolic.equal(k.shape[0], 1) is False:
            raise RuleError("shape.single", f"k must have one element, got {k.shape[0]}")
        if k.value is None:
            return None
        result = np.asarray(k.value).reshape(-1).tolist()[0]
        if isinstance(result, int) and result < 0:
            raise RuleError("attribute.range", f"k must not be negative, got {result}")
        low = symbolic.bounds(result)[0] if isinstance(result, symbolic.Dim) else result
        return result if low is not None and low >= 0 else None

    def canonical(self, x: View, k: View) -> Op:
        return self if x.shape is None else self.with_(axis=axis_in(self.axis, len(x.shape)))

    def value(self, x: View, k: View) -> Any:
        result = integers_of(x)
        if result is None or k.value is None:
            raise symbolic.Inexact("the order of elements")
        return self.evaluate(np, np.asarray(x.exact).astype(np.int64), np.asarray(k.exact).astype(np.int64))

    def evaluate(self, xp: Namespace, x: Array, k: Array) -> Any:
        axis = axis_in(self.axis, x.ndim)
        count = int(np.asarray(k).reshape(-1).tolist()[0])
        if not 0 <= count <= x.shape[axis]:
            raise RuleError("attribute.range", f"k ({count}) must not exceed the size of the axis ({x.shape[axis]})")
        front = (slice(None),) * axis
        order = self.order(xp, x, axis)[(*front, slice(0, count))]
        if self.sort == "index":
            order = xp.sort(order, axis=axis)
        return arrays.take_along(xp, x, order, axis), arrays.cast(xp, order, self.index_element_type)

    def order(self, xp: Namespace, x: Array, axis: int) -> Any:
        """Return the indices that sort elements along the axis: the most extreme first, equal elements by ascending index."""
        kind = arrays.element(x)
        wide = arrays.cast(xp, x, dtypes.dtype(f"{kind.kind}8")) if kind.is_integer and kind.bits < 8 else arrays.widen(xp, x)
        if not self.largest:
            return xp.argsort(wide, axis=axis, stable=True)
        # Reversing the input and the result of a stable ascending sort gives a stable descending sort.
        return xp.flip(x.shape[axis] - 1 - xp.argsort(xp.flip(wide, axis=axis), axis=axis, stable=True), axis=axis)

    def vjp(self, b: Builder, g: Sequence[Value | None], y: Sequence[Value], x: Value, k: Value) -> Any:
        from dovetail.ops.builders import zeros_like

        if g[0] is None or not is_float(x):
            return [None, None]
        return [b.ScatterElements(zeros_like(b, x), y[1], g[0], axis=self.axis), None]

    def decompose(self, b: Builder, x: Value, k: Value) -> Any:
        """Lower narrow element types to wider types, index types to i64, and ``sort`` index to a second TopK."""
        wide = _WIDER.get(x.dtype.name)
        if wide is not None:
            values, indices = b.add(self, b.Cast(x, to=wide), k)
            return [b.Cast(values, to=x.dtype), indices]
        if self.index_element_type != "i64":
            values, indices = b.add(self.with_(index_element_type=dtypes.i64), x, k)
            return [values, b.Cast(indices, to=self.index_element_type)]
        if self.sort == "index":
            _, unsorted = b.add(self.with_(sort="none"), x, k)
            indices = b.TopK(unsorted, shape_value(b, unsorted, [self.axis]), axis=self.axis, largest=False)[0]
            return [b.GatherElements(x, indices, axis=self.axis), indices]
        return None


_WIDER = {"bf16": dtypes.f32, "i8": dtypes.i32, "i16": dtypes.i32, "u8": dtypes.i32, "u16": dtypes.i32}
"""Wider type for each element type that TopK of early ONNX versions does not allow."""
