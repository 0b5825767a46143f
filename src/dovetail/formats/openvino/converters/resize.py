"""Converters for Interpolate, whose padding becomes a Pad, and which does not resample axes that keep their length."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO, encode_attribute
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.nn.interpolation import ResizeAxis
from dovetail.ops.nn.resize import Resize
from dovetail.ops.nn.resize_matrices import run_time_sizes

_INTS = "tuple[int, ...]"
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners")
_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_PILLOW_COEFFICIENT = -0.5
_PILLOW = {"bilinear_pillow": "linear", "bicubic_pillow": "cubic"}


@OPENVINO.importer("Interpolate", 1)
def import_interpolate_1(ctx: ImportContext) -> list[Value]:
    """Import Interpolate-1 with the coordinate modes of OpenVINO's conversion from Interpolate-1 to Interpolate-4."""
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
    """Return (axes, None) for constant axes, (None, input) for axes computed at run time, and (None, None) without axes."""
    if ctx.optional_input(index) is None:
        return None, None
    axes = ctx.attribute_or_input(index, _INTS)
    return (None, axes) if isinstance(axes, Value) else (axes, None)


def _as_pillow(ctx: ImportContext, axes: tuple[int, ...] | None, by_scales: bool) -> list[Value]:
    """Import the modes bilinear_pillow and bicubic_pillow, which are antialiased and exclude elements outside the image.

    The coefficient of bicubic_pillow is -0.5 for any ``cube_coeff``, as in Pillow, torch and OpenVINO's plugins. In these
    modes, ``coordinate_transformation_mode``, ``nearest_mode`` and ``antialias`` have no effect in OpenVINO either.
    """
    x = ctx.input(0)
    pads = _pads(ctx, len(x.dims))
    ctx.ignore("coordinate_transformation_mode", "nearest_mode", "antialias", "shape_calculation_mode", "cube_coeff")
    x = ctx.b.Pad(x, list(pads)) if any(pads) else x
    mode = _PILLOW[ctx.attribute("mode", "str")]
    coefficient = _PILLOW_COEFFICIENT if mode == "cubic" else -0.75
    op: Any = Resize(mode, "half_pixel", cubic_coeff_a=coefficient, exclude_outside=True, antialias=True, axes=axes)
    if x.dtype.is_integer:
        op = op.with_(convention="openvino")
    return ctx.b.add(op, x, _scaled_lengths(ctx.b, op, x, ctx.input(1)) if by_scales else ctx.input(1))


def _scaled_lengths(b: Builder, op: Resize, x: Value, scales: Value) -> Any:
    """Return the output lengths for ``scales``; the Pillow modes depend only on input and output lengths."""
    by_margin: Any = op.with_(convention="openvino")
    rows = by_margin.plan(x, None, scales, None)
    if rows is not None and all(isinstance(row.out, int) for row in rows):
        return [row.out for row in rows]
    return run_time_sizes(b, by_margin, x, scales)


def _interpolate(ctx: ImportContext, sizes: Value | None, scales: Value | None, axes: Any, late: Value | None) -> list[Value]:
    mode = _mode(ctx)
    pads = _pads(ctx, len(ctx.input(0).dims))
    if late is not None:
        sizes, scales = _for_every_axis(ctx, pads, late, sizes, scales)
    # Only the mode "linear" supports antialiasing.
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
    """Return sizes and scales for all axes if ``axes`` is computed at run time; axes outside of ``axes`` keep their length."""
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
        raise UnsupportedError("attribute.value", f"Interpolate: mode must be one of {', '.join(_MODES)}, got {name!r}")
    return _MODES[name]


def _by_scales(ctx: ImportContext) -> bool:
    mode = ctx.attribute("shape_calculation_mode", "str")
    if mode not in ("sizes", "scales"):
        raise RuleError("attribute.value", f"shape_calculation_mode must be sizes or scales, got {mode!r}")
    return bool(mode == "scales")


def _pads(ctx: ImportContext, rank: int) -> tuple[int, ...]:
    sides: list[int] = []
    for name in ("pads_begin", "pads_end"):
        pads = ctx.attribute(name, _INTS, ())
        if len(pads) > rank:
            raise RuleError("attribute.length", f"{name} must have at most {rank} elements, got {list(pads)}")
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
        raise UnsupportedError(
            "attribute.value", f"coordinate_transformation_mode must be one of {', '.join(_COORDINATES)}, got {coordinates!r}"
        )
    b, x = ctx.b, ctx.input(0)
    if any(pads):
        x = b.Pad(x, list(pads))
    # OpenVINO's linear mode excludes elements outside the tensor, which without antialiasing equals repeating the border.
    op: Any = Resize(mode, coordinates, nearest, cubic, axes=axes, convention="openvino")
    if op.is_same_in_onnx(x, sizes, scales):
        op = op.with_(convention="onnx")
    rows = op.plan(x, sizes, scales, None) or [ResizeAxis(axis, None, None, None) for axis in op.axis_indices(len(x.dims))]
    if antialias and any(row.scale is None or row.scale < 1 for row in rows):
        # The specification and the reference implementation apply antialiasing; the CPU plugin ignores it.
        narrow = any(row.scale is None or row.scale > 1 for row in rows)
        op = op.with_(antialias=True, narrow=narrow, exclude_outside=True)
    return b.add(op, x, *((sizes,) if sizes is not None else (None, scales)))


@OPENVINO.legalize("Resize")
def legalize_resize(b: Builder, node: Node) -> Any:
    """Legalize Resize: decompose what Interpolate cannot express into products with weights.

    For ``nearest`` the weights must be known before the run: OpenVINO multiplies by the reciprocal of a constant divisor, which
    moves positions across rounding limits.
    """
    op: Any = node.op
    x, sizes, scales, roi = (*node.inputs, None, None, None)[:4]
    plain = op.canonical(x, sizes, scales, roi)
    if plain != op:
        return b.add(plain, *node.inputs)
    assert x is not None
    if _interpolation_mode(op, x, sizes, scales) is not None:
        is_rounded = op.convention == "onnx" and op.mode != "nearest" and x.dtype.is_integer
        return b.add(op.with_(convention="openvino"), *node.inputs) if is_rounded else None
    fewer = _over_changed_axes(b, op, x, sizes, roi)
    if fewer is not None:
        return fewer
    if op.mode == "nearest":
        op.known_rows(x, sizes, scales, roi)
    return op.decompose(b, x, sizes, scales, roi)


def _over_changed_axes(b: Builder, op: Resize, x: Value, sizes: Value | None, roi: Value | None) -> Any:
    """Return an antialiased Resize along only the axes whose size changes; None if OpenVINO has no such Interpolate.

    The new sizes of these axes must be known.
    """
    rows = None if sizes is None or not op.antialias else op.plan(x, sizes, None, roi)
    if rows is None:
        return None
    changed = [row for row in rows if not op.is_identity(row)]
    fewer: Any = op.with_(axes=tuple(row.axis for row in changed))
    if fewer.axes == op.axes or not changed or not all(isinstance(row.out, int) for row in changed):
        return None
    wanted = b.constant(np.array([row.out for row in changed], np.int64))
    return b.add(fewer, x, wanted) if _interpolation_mode(fewer, x, wanted, None) is not None else None


def _interpolation_mode(op: Resize, x: Value, sizes: Value | None, scales: Value | None) -> str | None:
    """Return the mode of the Interpolate that is equivalent to ``op``; None if there is none."""
    has_sizes = sizes is not None and sizes.shape != (0,)
    if op.coordinate_transformation_mode not in _COORDINATES or op.keep_aspect_ratio_policy != "stretch":
        return None
    if op.antialias:
        return _pillow_mode(op, x) if has_sizes else None
    if op.exclude_outside and op.mode == "cubic":
        return None
    if op.convention == "onnx":
        rows = op.plan(x, sizes if has_sizes else None, None if has_sizes else scales, None)
        rows = rows or [ResizeAxis(axis, None, None, None) for axis in op.axis_indices(len(x.dims))]
        if not all(op.is_row_same_in_onnx(row, not has_sizes) for row in rows):
            return None
    if op.mode == "linear" and _suits_linear_onnx(op.axis_indices(len(x.dims)), len(x.dims)):
        return "linear_onnx"
    return op.mode


def _pillow_mode(op: Resize, x: Value) -> str | None:
    """Return the Pillow mode that is equivalent to an antialiased Resize of one or two axes; None if there is none."""
    axes, rank = op.axis_indices(len(x.dims)), len(x.dims)
    is_plain = op.exclude_outside and not op.narrow and op.coordinate_transformation_mode == "half_pixel"
    # OpenVINO rounds integers after each axis; only convention "openvino" has that rounding.
    is_plain = is_plain and (x.dtype.is_float or op.convention == "openvino")
    if not is_plain or not 2 <= rank <= 4 or axes not in ((rank - 2, rank - 1), (rank - 1,), (rank - 2,)):
        return None
    if op.mode == "cubic" and op.cubic_coeff_a != _PILLOW_COEFFICIENT:
        return None
    return next(name for name, mode in _PILLOW.items() if mode == op.mode)


@OPENVINO.exporter("Resize")
def export_resize(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x, sizes, scales = (*node.inputs, None, None)[:3]
    assert x is not None
    has_sizes = sizes is not None and sizes.shape != (0,)
    mode = _interpolation_mode(op, x, sizes, scales)
    if mode is None:
        raise UnsupportedError("op.unsayable", f"openvino cannot express {op}")
    axes = op.axis_indices(len(x.dims))
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
    """Return whether linear_onnx supports the axes: all axes, or all axes but batch and channels."""
    return axes == tuple(range(rank)) or (rank >= 4 and axes == tuple(range(2, rank)))
