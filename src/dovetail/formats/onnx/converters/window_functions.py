"""Import HannWindow, HammingWindow and BlackmanWindow as sums of cosines."""

from __future__ import annotations

import math

import numpy as np

from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value

_TERMS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}


@ONNX.importer("HannWindow", 17)
@ONNX.importer("HammingWindow", 17)
@ONNX.importer("BlackmanWindow", 17)
def import_window(ctx: ImportContext) -> Value:
    """Import a window function: a - b * cos(t) + c * cos(2 * t) at n points t of one period.

    The points are 2 * pi * i / n; with ``periodic=0`` they are 2 * pi * i / (n - 1).
    """
    b, size = ctx.b, ctx.input(0)
    kind = ctx.attribute("output_datatype", "DType", dtypes.f32)
    periodic = ctx.attribute("periodic", "bool", True)
    first, second, third = _TERMS[ctx.node.kind]
    count = _number(b, size)
    points = b.Cast(b.Range(b.constant(np.array(0)), count, b.constant(np.array(1))), to=dtypes.f32)
    count = b.Cast(count, to=dtypes.f32)
    turn = b.Divide(np.array(math.tau, np.float32), count if periodic else b.Subtract(count, 1.0))
    angle = b.Multiply(points, turn)
    y = b.Subtract(np.array(first, np.float32), b.Multiply(b.Cos(angle), second))
    if third:
        y = b.Add(y, b.Multiply(b.Cos(b.Multiply(angle, 2.0)), third))
    window: Value = y if kind is dtypes.f32 else b.Cast(y, to=kind)
    return window


def _number(b: Builder, size: Value) -> Value:
    """Return ``size`` as an i64 scalar."""
    wide = size if size.dtype is dtypes.i64 else b.Cast(size, to=dtypes.i64)
    return wide if wide.shape == () else b.Reshape(wide, [])
