"""Interpolate: its padding is a Pad, and an axis that keeps its length is not resampled."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO, encode_attribute
from dovetail.ir.graph import Node, Value
from dovetail.ops.nn.interpolation import ResizeAxis
from dovetail.ops.nn.resize import Resize

_INTS = "tuple[int, ...]"
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners")
_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_PILLOW = {"bilinear_pillow": "linear", "bicubic_pillow": "cubic"}
# Lengths from here on change with the scale; for shorter ones a scale above 1 may round down to the same length.
_SURE = 1.5
# OpenVINO adds this epsilon to the scaled length before rounding down.
_MARGIN = np.float32(1e-6)


@OPENVINO.importer("Interpolate", 1)
def import_interpolate_1(ctx: ImportContext) -> list[Value]:
    """Import Interpolate-1 in the modes that OpenVINO's own conversion to Interpolate-4 takes."""
    x, axes = ctx.input(0), ctx.attribute("axes", _INTS)
    mode = _mode(ctx)
    pads = _pads(ctx, len(x.dims))
    coordinates = "asymmetric"
    if ctx.attribute("align_corners", "bool", True):
        coordinates = "align_corners"
    elif mode == "linear" and not any(pads) and not (len(x.dims) == 4 and set(axes) == {2, 3}):
        coordinates = "half_pixel"
    antialias = ctx.attribute("antialias", "bool", False) and mode == "linear" and len(x.dims) == 5
    return _resize(ctx, pads, ctx.input(1), None, mode, coordinates, "simple", -0.75, antialias, axes)


@OPENVINO.importer("Interpolate", 4)
def import_interpolate_4(ctx: ImportContext) -> list[Value]:
    by_scales = _by_scales(ctx)
    sizes, scales = (None, ctx.input(2)) if by_scales else (ctx.input(1), None)
    return _interpolate(ctx, sizes, scales, *_axes(ctx, 3))


@OPENVINO.importer("Interpolate", 11)
def import_interpolate_11(ctx: ImportContext) -> list[Value]:
    by_scales = _by_scales(ctx)
    if ctx.node.attributes.get("mode") in _PILLOW:
        return _as_pillow(ctx, ctx.constant_input(2, _INTS, None), by_scales)
    sizes, scales = (None, ctx.input(1)) if by_scales else (ctx.input(1), None)
    return _interpolate(ctx, sizes, scales, *_axes(ctx, 2))


def _axes(ctx: ImportContext, index: int) -> tuple[tuple[int, ...] | None, Value | None]:
    """Return the axes as a list where they are constant, otherwise the input."""
    if ctx.optional_input(index) is None:
        return None, None
    axes = ctx.attribute_or_input(index, _INTS)
    return (None, axes) if isinstance(axes, Value) else (axes, None)


def _as_pillow(ctx: ImportContext, axes: tuple[int, ...] | None, by_scales: bool) -> list[Value]:
    """Import bilinear_pillow and bicubic_pillow: antialiased, without elements outside the image.

    Specification and reference implementation use ``cube_coeff``, which the CPU plugin ignores; no implementation reads the
    other attributes.
    """
    x = ctx.input(0)
    pads = _pads(ctx, len(x.dims))
    ctx.ignore("coordinate_transformation_mode", "nearest_mode", "antialias", "shape_calculation_mode")
    op = Resize(
        _PILLOW[ctx.attribute("mode", "str")],
        "half_pixel",
        cubic_coeff_a=ctx.attribute("cube_coeff", "float", -0.75),
        exclude_outside=True,
        antialias=True,
        axes=axes,
    )
    x = ctx.b.Pad(x, list(pads)) if any(pads) else x
    return ctx.b.add(op, x, _scaled_lengths(op, x, ctx.input(1)) if by_scales else ctx.input(1))


def _scaled_lengths(op: Resize, x: Value, scales: Value) -> list[int]:
    """Compute the resized lengths from scales; the Pillow modes use only the two lengths."""
    rows = op.plan(x, None, scales, None)
    if rows is None or not all(isinstance(row.out, int) and _same_length(row) for row in rows):
        raise UnsupportedError("resize.dynamic", "Interpolate in a Pillow mode by scales needs static lengths")
    return [row.out for row in rows]


def _interpolate(ctx: ImportContext, sizes: Value | None, scales: Value | None, axes: Any, late: Value | None) -> list[Value]:
    mode = _mode(ctx)
    pads = _pads(ctx, len(ctx.input(0).dims))
    if late is not None:
        sizes, scales = _for_every_axis(ctx, pads, late, sizes, scales)
    # Neither linear_onnx nor the modes below have antialiasing.
    antialias = ctx.attribute("antialias", "bool", False) and ctx.node.attributes.get("mode") == "linear"
    return _resize(
        ctx,
        pads,
        sizes,
        scales,
        mode,
        ctx.attribute("coordinate_transformation_mode", "str", "half_pixel"),
        ctx.attribute("nearest_mode", "str", "round_prefer_floor"),
        ctx.attribute("cube_coeff", "float", -0.75),
        antialias,
        axes,
    )


def _for_every_axis(
    ctx: ImportContext, pads: tuple[int, ...], axes: Value, sizes: Value | None, scales: Value | None
) -> tuple[Value | None, Value | None]:
    """Expand sizes or scales to all axes, where the axes are computed at run time: other axes stay as they are."""
    b, x = ctx.b, ctx.input(0)
    rank = len(x.dims)
    if sizes is None:
        assert scales is not None
        ones = b.constant(np.ones(rank, scales.dtype.numpy), scales.dtype)
        return None, b.ScatterElements(ones, axes, scales, axis=0)
    before = b.Shape(x, output_type=sizes.dtype) if sizes.dtype.name in ("i32", "i64") else b.Cast(b.Shape(x), to=sizes.dtype)
    added = np.array(pads, np.int64).reshape(2, rank).sum(axis=0)
    padded = b.Add(before, b.constant(added.astype(sizes.dtype.numpy), sizes.dtype)) if any(pads) else before
    return b.ScatterElements(padded, axes, sizes, axis=0), None


def _mode(ctx: ImportContext) -> str:
    name = ctx.attribute("mode", "str")
    if name not in _MODES:
        raise UnsupportedError("resize.mode", f"Interpolate: mode {name!r} is not supported")
    return _MODES[name]


def _by_scales(ctx: ImportContext) -> bool:
    mode = ctx.attribute("shape_calculation_mode", "str")
    if mode not in ("sizes", "scales"):
        raise RuleError("resize.mode", f"shape_calculation_mode must be sizes or scales, got {mode!r}")
    return bool(mode == "scales")


def _pads(ctx: ImportContext, rank: int) -> tuple[int, ...]:
    sides: list[int] = []
    for name in ("pads_begin", "pads_end"):
        pads = ctx.attribute(name, _INTS, ())
        if len(pads) > rank:
            raise RuleError("resize.pads", f"{name} must have at most {rank} elements, got {list(pads)}")
        sides.extend((*pads, *(0,) * (rank - len(pads))))
    return tuple(sides)


def _resize(
    ctx: ImportContext,
    pads: tuple[int, ...],
    sizes: Value | None,
    scales: Value | None,
    mode: str,
    coordinates: str,
    nearest: str,
    cubic: float,
    antialias: bool,
    axes: tuple[int, ...] | None,
) -> list[Value]:
    if coordinates not in _COORDINATES:
        raise UnsupportedError("resize.mode", f"Interpolate: coordinate_transformation_mode {coordinates!r} is not supported")
    b, x = ctx.b, ctx.input(0)
    if any(pads):
        x = b.Pad(x, list(pads))
    # The linear mode excludes elements outside; without antialiasing that equals repeating the border.
    op = Resize(mode, coordinates, nearest, cubic, axes=axes)
    rows = op.plan(x, sizes, scales, None) or [ResizeAxis(axis, None, None, None) for axis in op.axis_indices(len(x.dims))]
    for row in rows:
        _check_row(op, row, sizes is None)
    if antialias and any(row.scale is None or row.scale < 1 for row in rows):
        # By specification and reference implementation; the CPU plugin ignores it.
        narrow = any(row.scale is None or row.scale > 1 for row in rows)
        op = Resize(mode, coordinates, nearest, cubic, antialias=True, narrow=narrow, exclude_outside=True, axes=axes)
    return b.add(op, x, *((sizes,) if sizes is not None else (None, scales)))


def _check_row(op: Resize, row: ResizeAxis, by_scales: bool) -> None:
    """Raise UnsupportedError [resize.dynamic] where the two formats may differ for one axis."""
    equal = None if row.size is None or row.out is None else symbolic.equal(row.size, row.out)
    if row.scale is not None and row.scale == 1 and op.coordinate_transformation_mode != "tf_half_pixel_for_nn":
        return
    if (
        equal is not False
        and (by_scales or op.coordinate_transformation_mode == "tf_half_pixel_for_nn")
        and not _surely_changes(row)
    ):
        raise UnsupportedError(
            "resize.dynamic", f"axis {row.axis} may keep its length ({row.size} to {row.out} elements), where the formats differ"
        )
    if by_scales and not _same_length(row):
        raise UnsupportedError(
            "resize.dynamic", f"axis {row.axis} of {row.size} elements by {row.scale} is rounded differently by the formats"
        )


def _surely_changes(row: ResizeAxis) -> bool:
    """Tell whether an axis of more than one element never keeps its length."""
    return row.scale is not None and bool(row.scale < 1 or row.scale >= _SURE)


def _same_length(row: ResizeAxis) -> bool:
    """Tell whether a scaled length is the same with and without the epsilon."""
    if row.scale is None:
        return False
    if isinstance(row.size, int):
        return bool(np.floor(np.float32(row.size) * (row.scale + _MARGIN)) == row.out)
    # For lengths in practice the epsilon adds less than 1/1024.
    return float(row.scale) * 1024 == int(float(row.scale) * 1024)


@OPENVINO.legalize("Resize")
def legalize_resize(b: Any, node: Node) -> Any:
    op: Any = node.op
    x, sizes, scales, roi = (*node.inputs, None, None, None)[:4]
    plain = op.canonical(x, sizes, scales, roi)
    if plain != op:
        return b.add(plain, *node.inputs)
    assert x is not None
    return None if _is_expressible(op, x, sizes, scales) else op.decompose(b, x, sizes, scales, roi)


def _is_expressible(op: Resize, x: Value, sizes: Value | None, scales: Value | None) -> bool:
    has_sizes = sizes is not None and sizes.shape != (0,)
    if op.coordinate_transformation_mode not in _COORDINATES or op.keep_aspect_ratio_policy != "stretch" or op.antialias:
        return False
    if op.exclude_outside and op.mode == "cubic":
        return False
    try:
        rows = op.plan(x, sizes if has_sizes else None, None if has_sizes else scales, None)
        for row in rows or [ResizeAxis(axis, None, None, None) for axis in op.axis_indices(len(x.dims))]:
            _check_row(op, row, not has_sizes)
    except UnsupportedError:
        return False
    return True


@OPENVINO.exporter("Resize")
def export_resize(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x, sizes, scales = (*node.inputs, None, None)[:3]
    assert x is not None
    has_sizes = sizes is not None and sizes.shape != (0,)
    if not _is_expressible(op, x, sizes, scales):
        raise UnsupportedError("op.unsayable", f"openvino cannot express {op}")
    axes = op.axis_indices(len(x.dims))
    mode = op.mode
    if mode == "linear":
        mode = "linear_onnx" if _suits_linear_onnx(axes, len(x.dims)) else "linear"
    rank = len(x.dims)
    attributes = {
        "mode": mode,
        "shape_calculation_mode": "sizes" if has_sizes else "scales",
        "coordinate_transformation_mode": op.coordinate_transformation_mode,
        "nearest_mode": op.nearest_mode,
        "antialias": encode_attribute(False),
        "pads_begin": encode_attribute((0,) * rank),
        "pads_end": encode_attribute((0,) * rank),
        "cube_coeff": encode_attribute(op.cubic_coeff_a),
    }
    target = sizes if has_sizes else scales
    assert target is not None
    inputs = [ctx.key(x), ctx.key(target), ctx.add_attribute_constant(node, "axes", axes)]
    return [ctx.add_node(node, "", "Interpolate", 11, inputs, attributes)]


def _suits_linear_onnx(axes: tuple[int, ...], rank: int) -> bool:
    """Tell whether the axes suit linear_onnx: all axes, or all but batch and channels."""
    return axes == tuple(range(rank)) or (rank >= 4 and axes == tuple(range(2, rank)))
