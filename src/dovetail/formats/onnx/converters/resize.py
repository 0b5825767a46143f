"""Resize and Upsample: empty inputs are left out on the way in, and filled in where an older version wants them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import Lifting
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node, Value
from dovetail.ops.nn.resize import Resize

_ALIGN = {"align_corners": "align_corners_scaled"}


@ONNX.lift("Upsample", 1)
def upsample_by_attributes(node: Lifting) -> list[Value]:
    height, width = node.attribute("height_scale", "float"), node.attribute("width_scale", "float")
    return _old(node, node.b.constant(np.array([1, 1, height, width], np.float32)))


@ONNX.lift("Upsample", 7)
def upsample_by_attribute(node: Lifting) -> list[Value]:
    return _old(node, node.b.constant(np.array(node.attribute("scales", "tuple[float, ...]"), np.float32)))


@ONNX.lift("Upsample", 9)
@ONNX.lift("Resize", 10)
def resize_by_scales(node: Lifting) -> list[Value]:
    return _old(node, node.input(1))


def _old(node: Lifting, scales: Value) -> list[Value]:
    """Before 11 the text is silent, and onnxruntime takes floor for a scale of at least 1 and ceil below, of i / scale."""
    return node.b.add(Resize(node.attribute("mode", "str", "nearest"), "asymmetric", "simple"), node.input(0), None, scales)


@ONNX.lift("Resize", 11, 13, 18, 19)
def resize(node: Lifting) -> list[Value]:
    coordinates = node.attribute("coordinate_transformation_mode", "str", "half_pixel")
    version = node.node.version
    if coordinates in ("align_corners_scaled",) or (coordinates == "tf_half_pixel_for_nn" and version > 11):
        raise UnsupportedError("resize.mode", f"Resize-{version} has no coordinate_transformation_mode {coordinates!r}")
    if coordinates == "half_pixel_symmetric" and version < 19:
        raise UnsupportedError("resize.mode", f"Resize-{version} has no coordinate_transformation_mode {coordinates!r}")
    op = Resize(
        mode=node.attribute("mode", "str", "nearest"),
        coordinate_transformation_mode=_ALIGN.get(coordinates, coordinates),
        nearest_mode=node.attribute("nearest_mode", "str", "round_prefer_floor"),
        cubic_coeff_a=node.attribute("cubic_coeff_a", "float", -0.75),
        exclude_outside=node.attribute("exclude_outside", "bool", False),
        extrapolation_value=node.attribute("extrapolation_value", "float", 0.0),
        **_since_18(node),
    )
    roi, scales, sizes = (_given(node.optional(index)) for index in (1, 2, 3))
    if op.coordinate_transformation_mode != "tf_crop_and_resize":
        roi = None
    inputs = [node.input(0), sizes, scales, roi]
    while inputs[-1] is None:
        inputs.pop()
    return node.b.add(op, *inputs)


def _since_18(node: Lifting) -> dict[str, Any]:
    if node.node.version < 18:
        return {}
    return {
        "antialias": node.attribute("antialias", "bool", False),
        "axes": node.attribute("axes", "tuple[int, ...]", None),
        "keep_aspect_ratio_policy": node.attribute("keep_aspect_ratio_policy", "str", "stretch"),
    }


def _given(x: Value | None) -> Value | None:
    """An input, None where it is left out or empty."""
    return None if x is None or x.shape == (0,) else x


@ONNX.lower("Resize")
def lower_resize(b: Any, node: Node) -> Any:
    """In the form that most versions have: sizes of i64, no ``simple`` nearest, corners aligned by whole lengths made
    explicit.
    """
    op: Any = node.op
    x, sizes, scales, roi = (*node.inputs, None, None, None)[:4]
    if sizes is not None and sizes.dtype is not dtypes.i64:
        return b.add(op, x, b.Cast(sizes, to=dtypes.i64), *(each for each in (scales, roi) if each is not None))
    if op.coordinate_transformation_mode == "align_corners" and not op.is_whole(x, sizes, scales):
        return op.decompose(b, x, sizes, scales, roi)
    if op.mode == "nearest" and op.nearest_mode == "simple" and op.coordinate_transformation_mode != "asymmetric":
        plain = op.canonical(x, sizes, scales, roi)
        return op.decompose(b, x, sizes, scales, roi) if plain.nearest_mode == "simple" else b.add(plain, *node.inputs)
    return None
