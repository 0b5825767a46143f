"""Converters for Resize and Upsample; imports treat empty inputs as absent, exports add inputs that older versions require."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.nn.resize import Resize
from dovetail.ops.nn.resize_matrices import run_time_sizes

_ALIGN = {"align_corners": "align_corners_scaled"}


@ONNX.importer("Upsample", 1)
def import_upsample_1(ctx: ImportContext) -> list[Value]:
    height, width = ctx.attribute("height_scale", "float"), ctx.attribute("width_scale", "float")
    return _add_legacy_resize(ctx, ctx.b.constant(np.array([1, 1, height, width], np.float32)))


@ONNX.importer("Upsample", 7)
def import_upsample_7(ctx: ImportContext) -> list[Value]:
    return _add_legacy_resize(ctx, ctx.b.constant(np.array(ctx.attribute("scales", "tuple[float, ...]"), np.float32)))


@ONNX.importer("Upsample", 9)
@ONNX.importer("Resize", 10)
def import_resize_by_scales(ctx: ImportContext) -> list[Value]:
    return _add_legacy_resize(ctx, ctx.input(1))


def _add_legacy_resize(ctx: ImportContext, scales: Value) -> list[Value]:
    """Add a Resize of opset 10 or older.

    The specification does not define the nearest element. onnxruntime uses floor(i / scale) for scale >= 1, and ceil(i / scale)
    for scale < 1.
    """
    return ctx.b.add(Resize(ctx.attribute("mode", "str", "nearest"), "asymmetric", "simple"), ctx.input(0), None, scales)


@ONNX.importer("Resize", 11, 13, 18, 19)
def import_resize(ctx: ImportContext) -> list[Value]:
    coordinates = ctx.attribute("coordinate_transformation_mode", "str", "half_pixel")
    version = ctx.node.version
    if coordinates in ("align_corners_scaled",) or (coordinates == "tf_half_pixel_for_nn" and version > 11):
        raise UnsupportedError("attribute.value", f"Resize-{version} has no coordinate_transformation_mode {coordinates!r}")
    if coordinates == "half_pixel_symmetric" and version < 19:
        raise UnsupportedError("attribute.value", f"Resize-{version} has no coordinate_transformation_mode {coordinates!r}")
    op = Resize(
        mode=ctx.attribute("mode", "str", "nearest"),
        coordinate_transformation_mode=_ALIGN.get(coordinates, coordinates),
        nearest_mode=ctx.attribute("nearest_mode", "str", "round_prefer_floor"),
        cubic_coeff_a=ctx.attribute("cubic_coeff_a", "float", -0.75),
        exclude_outside=ctx.attribute("exclude_outside", "bool", False),
        extrapolation_value=ctx.attribute("extrapolation_value", "float", 0.0),
        **_since_18(ctx),
    )
    roi, scales, sizes = (_non_empty(ctx.optional_input(index)) for index in (1, 2, 3))
    if op.coordinate_transformation_mode != "tf_crop_and_resize":
        roi = None
    inputs = [ctx.input(0), sizes, scales, roi]
    while inputs[-1] is None:
        inputs.pop()
    return ctx.b.add(op, *inputs)


def _since_18(ctx: ImportContext) -> dict[str, Any]:
    if ctx.node.version < 18:
        return {}
    return {
        "antialias": ctx.attribute("antialias", "bool", False),
        "axes": ctx.attribute("axes", "tuple[int, ...]", None),
        "keep_aspect_ratio_policy": ctx.attribute("keep_aspect_ratio_policy", "str", "stretch"),
    }


def _non_empty(x: Value | None) -> Value | None:
    """Return ``x``, or None if ``x`` is absent or empty."""
    return None if x is None or x.shape == (0,) else x


@ONNX.legalize("Resize")
def legalize_resize(b: Builder, node: Node) -> Any:
    """Legalize Resize to the form of most versions: i64 sizes, and no ``simple`` nearest mode.

    align_corners with fractional output lengths is decomposed, or gets sizes that are computed from the shape.
    """
    op: Any = node.op
    x, sizes, scales, roi = (*node.inputs, None, None, None)[:4]
    if op.convention != "onnx" and op.is_same_in_onnx(x, sizes, scales):
        return b.add(op.with_(convention="onnx"), *node.inputs)
    assert x is not None
    if sizes is not None and sizes.dtype is not dtypes.i64:
        return b.add(op, x, b.Cast(sizes, to=dtypes.i64), *(item for item in (scales, roi) if item is not None))
    if op.coordinate_transformation_mode == "align_corners" and not op.is_whole(x, sizes, scales):
        if scales is not None and op.convention == "onnx" and not op.is_planned(x, sizes, scales, roi):
            return b.add(op, x, run_time_sizes(b, op, x, scales))
        return op.decompose(b, x, sizes, scales, roi)
    if op.mode == "nearest" and op.nearest_mode == "simple" and op.coordinate_transformation_mode != "asymmetric":
        plain = op.canonical(x, sizes, scales, roi)
        return op.decompose(b, x, sizes, scales, roi) if plain.nearest_mode == "simple" else b.add(plain, *node.inputs)
    return None
