"""Clip, and the finite range of an element type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.types import View
from dovetail.ops.elementwise.broadcast import Elementwise, apply_in_wide_type, scalar_like, unbroadcast

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Clip(
    Elementwise,
    sig="x: R, min?: R, max?: R -> y: R",
    onnx=(
        "Clip-1(x; min?, max?, consumed_inputs:_)",
        "Clip-6(x; max=3.4028234663852886e+38, min=-3.4028234663852886e+38)",
        "Clip-11,12,13(x, min?, max?)",
    ),
    openvino="> Clamp-1(x; min, max)",
):
    """Compute min(max, max(min, x)): the result is ``max`` where ``min`` is greater than ``max``.

    The bounds are scalars; a missing bound is the least or greatest finite value of the type. Sources: ONNX Clip 1 to 13,
    OpenVINO Clamp-1.
    """

    is_activation = True
    commutes_with_rounding = True

    def shape(self, x: View, low: View | None = None, high: View | None = None) -> Any:
        for name, bound in (("min", low), ("max", high)):
            if bound is not None and bound.shape is not None and len(bound.shape):
                raise RuleError("attribute.range", f"{name} must be a scalar, got shape {list(bound.shape)}")
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, low: Array | None = None, high: Array | None = None) -> Any:
        if xp is not symbolic.xp:
            lowest, highest = finite_range(arrays.element(x))
            low = xp.asarray(np.asarray(lowest), dtype=x.dtype) if low is None else low
            high = xp.asarray(np.asarray(highest), dtype=x.dtype) if high is None else high
        x = x if low is None else apply_in_wide_type(xp, xp.maximum, x, low)
        return x if high is None else apply_in_wide_type(xp, xp.minimum, x, high)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, low: Value | None = None, high: Value | None = None) -> Any:
        zero = scalar_like(b, 0, x)
        below = None if low is None else b.Less(x, low)
        raised = x if low is None else b.Maximum(x, low)
        above = None if high is None else b.Greater(raised, high)
        gradient = g if above is None else b.Where(above, zero, g)
        dlow = None if below is None else unbroadcast(b, b.Where(below, gradient, zero), low)
        dhigh = None if above is None else unbroadcast(b, b.Where(above, g, zero), high)
        return [gradient if below is None else b.Where(below, zero, gradient), dlow, dhigh]


def finite_range(dtype: DType) -> tuple[Any, Any]:
    """Return the least and the greatest finite value of ``dtype``, as numpy scalars of this type."""
    if dtype.is_integer:
        low, high = dtype.range()
        return dtype.numpy.type(low), dtype.numpy.type(high)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return info.min, info.max
