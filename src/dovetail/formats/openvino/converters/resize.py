"""Interpolate, whose padding is ours as Pad, and which leaves an axis alone that keeps its length."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.exporter import Lowering
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.formats.openvino.dialect import OPENVINO, spell
from dovetail.ir.graph import Node, Value
from dovetail.ops.nn.interpolation import Axis
from dovetail.ops.nn.resize import Resize

_INTS = "tuple[int, ...]"
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners")
_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_PILLOW = {"bilinear_pillow": "linear", "bicubic_pillow": "cubic"}
# A length that a scale leaves as it is: below it a scale of more than 1 may round down to no growth.
_SURE = 1.5
# What OpenVINO adds to a scale before it rounds the scaled length down.
_MARGIN = np.float32(1e-6)


@OPENVINO.lift("Interpolate", 1)
def interpolate_1(node: Lifting) -> list[Value]:
    """The modes that OpenVINO's own conversion to Interpolate-4 takes."""
    x, axes = node.input(0), node.attribute("axes", _INTS)
    mode = _mode(node)
    pads = _pads(node, len(x.dims))
    coordinates = "asymmetric"
    if node.attribute("align_corners", "bool", True):
        coordinates = "align_corners"
    elif mode == "linear" and not any(pads) and not (len(x.dims) == 4 and set(axes) == {2, 3}):
        coordinates = "half_pixel"
    antialias = node.attribute("antialias", "bool", False) and mode == "linear" and len(x.dims) == 5
    return _resize(node, pads, node.input(1), None, mode, coordinates, "simple", -0.75, antialias, axes)


@OPENVINO.lift("Interpolate", 4)
def interpolate_4(node: Lifting) -> list[Value]:
    by_scales = _by_scales(node)
    sizes, scales = (None, node.input(2)) if by_scales else (node.input(1), None)
    return _interpolate(node, sizes, scales, *_axes(node, 3))


@OPENVINO.lift("Interpolate", 11)
def interpolate_11(node: Lifting) -> list[Value]:
    by_scales = _by_scales(node)
    if node.node.attributes.get("mode") in _PILLOW:
        return _as_pillow(node, node.constant(2, _INTS, None), by_scales)
    sizes, scales = (None, node.input(1)) if by_scales else (node.input(1), None)
    return _interpolate(node, sizes, scales, *_axes(node, 2))


def _axes(node: Lifting, index: int) -> tuple[tuple[int, ...] | None, Value | None]:
    """The axes where they are constant, and as an input where they are not."""
    if node.optional(index) is None:
        return None, None
    axes = node.attribute_or_input(index, _INTS)
    return (None, axes) if isinstance(axes, Value) else (axes, None)


def _as_pillow(node: Lifting, axes: tuple[int, ...] | None, by_scales: bool) -> list[Value]:
    """Weights that widen with what is made smaller, of the elements inside alone. Text and reference implementation have
    ``cube_coeff`` in them, which the CPU plugin does not look at; nobody looks at the other attributes.
    """
    x = node.input(0)
    pads = _pads(node, len(x.dims))
    node.ignore("coordinate_transformation_mode", "nearest_mode", "antialias", "shape_calculation_mode")
    op = Resize(
        _PILLOW[node.attribute("mode", "str")],
        "half_pixel",
        cubic_coeff_a=node.attribute("cube_coeff", "float", -0.75),
        exclude_outside=True,
        antialias=True,
        axes=axes,
    )
    x = node.b.Pad(x, list(pads)) if any(pads) else x
    return node.b.add(op, x, _scaled_lengths(op, x, node.input(1)) if by_scales else node.input(1))


def _scaled_lengths(op: Resize, x: Value, scales: Value) -> list[int]:
    """What scales make of known lengths: Pillow looks at both lengths, and at nothing between them."""
    rows = op.plan(x, None, scales, None)
    if rows is None or not all(isinstance(row.out, int) and _same_length(row) for row in rows):
        raise UnsupportedError("resize.dynamic", "Interpolate as Pillow by scales, to lengths that only run time knows")
    return [row.out for row in rows]


def _interpolate(node: Lifting, sizes: Value | None, scales: Value | None, axes: Any, late: Value | None) -> list[Value]:
    mode = _mode(node)
    pads = _pads(node, len(node.input(0).dims))
    if late is not None:
        sizes, scales = _for_every_axis(node, pads, late, sizes, scales)
    # linear_onnx has no antialias, and the other modes none either.
    antialias = node.attribute("antialias", "bool", False) and node.node.attributes.get("mode") == "linear"
    return _resize(
        node,
        pads,
        sizes,
        scales,
        mode,
        node.attribute("coordinate_transformation_mode", "str", "half_pixel"),
        node.attribute("nearest_mode", "str", "round_prefer_floor"),
        node.attribute("cube_coeff", "float", -0.75),
        antialias,
        axes,
    )


def _for_every_axis(
    node: Lifting, pads: tuple[int, ...], axes: Value, sizes: Value | None, scales: Value | None
) -> tuple[Value | None, Value | None]:
    """The sizes or scales of all axes, where which axes are named is known at run time: the others stay as they are."""
    b, x = node.b, node.input(0)
    rank = len(x.dims)
    if sizes is None:
        assert scales is not None
        ones = b.constant(np.ones(rank, scales.dtype.numpy), scales.dtype)
        return None, b.ScatterElements(ones, axes, scales, axis=0)
    before = b.Shape(x, output_type=sizes.dtype) if sizes.dtype.name in ("i32", "i64") else b.Cast(b.Shape(x), to=sizes.dtype)
    more = np.array(pads, np.int64).reshape(2, rank).sum(axis=0)
    padded = b.Add(before, b.constant(more.astype(sizes.dtype.numpy), sizes.dtype)) if any(pads) else before
    return b.ScatterElements(padded, axes, sizes, axis=0), None


def _mode(node: Lifting) -> str:
    name = node.attribute("mode", "str")
    if name not in _MODES:
        raise UnsupportedError("resize.mode", f"Interpolate with mode {name!r}")
    return _MODES[name]


def _by_scales(node: Lifting) -> bool:
    how = node.attribute("shape_calculation_mode", "str")
    if how not in ("sizes", "scales"):
        raise RuleError("resize.mode", f"shape_calculation_mode {how!r} is none of sizes, scales")
    return bool(how == "scales")


def _pads(node: Lifting, rank: int) -> tuple[int, ...]:
    sides: list[int] = []
    for name in ("pads_begin", "pads_end"):
        given = node.attribute(name, _INTS, ())
        if len(given) > rank:
            raise RuleError("resize.pads", f"{name} {list(given)} over {rank} axes")
        sides.extend((*given, *(0,) * (rank - len(given))))
    return tuple(sides)


def _resize(
    node: Lifting,
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
        raise UnsupportedError("resize.mode", f"Interpolate with coordinate_transformation_mode {coordinates!r}")
    b, x = node.b, node.input(0)
    if any(pads):
        x = b.Pad(x, list(pads))
    # Its linear mode leaves out what lies outside, which is the border repeated where weights are not widened.
    op = Resize(mode, coordinates, nearest, cubic, axes=axes)
    rows = op.plan(x, sizes, scales, None) or [Axis(axis, None, None, None) for axis in op.places(len(x.dims))]
    for row in rows:
        _check_row(op, row, sizes is None)
    if antialias and any(row.scale is None or row.scale < 1 for row in rows):
        # So text and reference implementation; the CPU plugin does not look at it.
        narrow = any(row.scale is None or row.scale > 1 for row in rows)
        op = Resize(mode, coordinates, nearest, cubic, antialias=True, narrow=narrow, exclude_outside=True, axes=axes)
    return b.add(op, x, *((sizes,) if sizes is not None else (None, scales)))


def _check_row(op: Resize, row: Axis, by_scales: bool) -> None:
    """Raise UnsupportedError [resize.dynamic] where the two formats may mean different things by one axis."""
    equal = None if row.size is None or row.out is None else symbolic.equal(row.size, row.out)
    if row.scale is not None and row.scale == 1 and op.coordinate_transformation_mode != "tf_half_pixel_for_nn":
        return
    if (
        equal is not False
        and (by_scales or op.coordinate_transformation_mode == "tf_half_pixel_for_nn")
        and not _surely_changes(row)
    ):
        raise UnsupportedError(
            "resize.dynamic", f"axis {row.axis} from {row.size} to {row.out} elements, which may leave it as it is"
        )
    if by_scales and not _same_length(row):
        raise UnsupportedError(
            "resize.dynamic", f"axis {row.axis} of {row.size} elements by {row.scale}, which formats round differently"
        )


def _surely_changes(row: Axis) -> bool:
    """Whether an axis of more than one element never keeps its length; one element alone is itself whatever the place."""
    return row.scale is not None and bool(row.scale < 1 or row.scale >= _SURE)


def _same_length(row: Axis) -> bool:
    """Whether a scaled length is the same with and without the margin."""
    if row.scale is None:
        return False
    if isinstance(row.size, int):
        return bool(np.floor(np.float32(row.size) * (row.scale + _MARGIN)) == row.out)
    # Steps of 1/1024 are wider than what the margin makes of any length that is found in practice.
    return float(row.scale) * 1024 == int(float(row.scale) * 1024)


@OPENVINO.lower("Resize")
def lower_resize(b: Any, node: Node) -> Any:
    op: Any = node.op
    x, sizes, scales, roi = (*node.inputs, None, None, None)[:4]
    plain = op.canonical(x, sizes, scales, roi)
    if plain != op:
        return b.add(plain, *node.inputs)
    assert x is not None
    return None if _is_sayable(op, x, sizes, scales) else op.decompose(b, x, sizes, scales, roi)


def _is_sayable(op: Resize, x: Value, sizes: Value | None, scales: Value | None) -> bool:
    given = sizes is not None and sizes.shape != (0,)
    if op.coordinate_transformation_mode not in _COORDINATES or op.keep_aspect_ratio_policy != "stretch" or op.antialias:
        return False
    if op.exclude_outside and op.mode == "cubic":
        return False
    try:
        rows = op.plan(x, sizes if given else None, None if given else scales, None)
        for row in rows or [Axis(axis, None, None, None) for axis in op.places(len(x.dims))]:
            _check_row(op, row, not given)
    except UnsupportedError:
        return False
    return True


@OPENVINO.emit("Resize")
def emit_resize(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x, sizes, scales = (*node.inputs, None, None)[:3]
    assert x is not None
    given = sizes is not None and sizes.shape != (0,)
    if not _is_sayable(op, x, sizes, scales):
        raise UnsupportedError("op.unsayable", f"openvino cannot say {op}")
    axes = op.places(len(x.dims))
    mode = op.mode
    if mode == "linear":
        mode = "linear_onnx" if _suits_linear_onnx(axes, len(x.dims)) else "linear"
    rank = len(x.dims)
    attributes = {
        "mode": mode,
        "shape_calculation_mode": "sizes" if given else "scales",
        "coordinate_transformation_mode": op.coordinate_transformation_mode,
        "nearest_mode": op.nearest_mode,
        "antialias": spell(False),
        "pads_begin": spell((0,) * rank),
        "pads_end": spell((0,) * rank),
        "cube_coeff": spell(op.cubic_coeff_a),
    }
    target = sizes if given else scales
    assert target is not None
    inputs = [lowering.key(x), lowering.key(target), lowering.constant_key(node, "axes", axes)]
    return [lowering.finish(node, "", "Interpolate", 11, inputs, attributes)]


def _suits_linear_onnx(axes: tuple[int, ...], rank: int) -> bool:
    """Which axes that mode takes: all of them, or all but the batch and channels."""
    return axes == tuple(range(rank)) or (rank >= 4 and axes == tuple(range(2, rank)))
