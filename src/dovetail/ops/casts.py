"""Cast values and arrays, and choose the element type of intermediate results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import arrays, dtypes
from dovetail.ir.dtypes import DType

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def as_type(b: Builder, x: Value, dtype: DType) -> Value:
    """Cast ``x`` to ``dtype``; return ``x`` itself if its element type is ``dtype``."""
    if x.dtype is dtype:
        return x
    y: Value = b.Cast(x, to=dtype)
    return y


def round_to(xp: Namespace, y: Array, dtype: DType) -> Array:
    """Round an array to the float type ``dtype``; values beyond its range become infinite."""
    return y if arrays.element(y) is dtype else arrays.cast(xp, y, dtype, saturate=False)


def wide_type(*types: DType) -> DType:
    """Return the element type of intermediate results: f64 if any of ``types`` is f64, otherwise f32."""
    return dtypes.f64 if any(dtype == "f64" for dtype in types) else dtypes.f32
