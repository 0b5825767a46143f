"""Converters for tensor operators that no op mapping can express."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import constant_of
from dovetail.formats.mapping_selection import constant_or_none
from dovetail.formats.onnx.dialect import ONNX, constraints_of
from dovetail.formats.onnx.schemas import newest_opset
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import View, axes_in
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.depth_to_space import _Blocks
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.onehot_trilu_eye import OneHot
from dovetail.ops.tensor.shape import ConstantOfShape
from dovetail.ops.tensor.transpose_expand_tile import inverse_of

_INDICES = frozenset(("i32", "i64"))
"""The element types of inputs with indices, sizes or axes; an ONNX operator allows one of the two types, or both."""


def cast_integer_inputs(b: Builder, node: Node) -> Value | None:
    """Cast indices, sizes and axes to i64 if ONNX does not allow one of their types, or if their types differ.

    Returns None if no cast is needed.
    """
    constraints = constraints_of("", type(node.op).__name__, newest_opset("", 1) or 1)
    assert constraints is not None
    allowed = constraints.inputs
    indices = {
        index: x
        for index, (x, types) in enumerate(zip(node.inputs, allowed, strict=False))
        if x is not None and types <= _INDICES
    }
    given = {x.dtype.name for x in indices.values()}
    if len(given) < 2 and all(given <= allowed[index] for index in indices):
        return None
    return b.add(node.op, *(_as_i64(b, x) if x is not None and index in indices else x for index, x in enumerate(node.inputs)))[0]


def _as_i64(b: Builder, x: Value) -> Value:
    return x if x.dtype == "i64" else _cast(b, x, dtypes.i64)


def _cast(b: Builder, x: Value, dtype: DType) -> Value:
    data = x.constant
    if data is not None:
        return b.constant(np.asarray(data).astype(dtype.numpy), dtype)
    result: Value = b.Cast(x, to=dtype)
    return result


@ONNX.legalize("Tile", "Slice", "Pad", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Trilu")
def legalize_integer_inputs(b: Builder, node: Node) -> Any:
    return cast_integer_inputs(b, node)


@ONNX.legalize("Gather")
def legalize_gather(b: Builder, node: Node) -> Any:
    """Legalize Gather of OpenVINO, which returns zeros for indices out of range; ONNX refuses such indices at run time."""
    op: Any = node.op
    x, indices = node.inputs
    return b.add(op.with_(bounds="error"), x, indices)[0] if op.bounds == "zero" else cast_integer_inputs(b, node)


@ONNX.legalize("Expand")
def legalize_expand(b: Builder, node: Node) -> Any:
    """Legalize Expand without bidirectional broadcasting to the Expand of ONNX, which broadcasts in both directions."""
    op: Any = node.op
    return cast_integer_inputs(b, node) if op.bidirectional else b.Expand(node.input(0), node.input(1))


@ONNX.legalize("Squeeze")
def legalize_squeeze(b: Builder, node: Node) -> Any:
    """Legalize Squeeze: drop axes that certainly do not have size 1; ONNX refuses other axes at run time unless their size is 1.

    Axes are sorted in ascending order, which onnx's inference of Squeeze-1 requires.
    """
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    assert x is not None
    if axes is None:
        return b.Squeeze(x) if op.skip else None
    axis_numbers = integers_of(axes)
    if axis_numbers is None or x.shape is None:
        return b.Squeeze(x, axes) if op.skip else _as_axes_vector(b, node)
    rank = len(x.shape)
    remaining = [
        number
        for number in axis_numbers
        if not (op.skip and isinstance(x.shape[number % rank], int) and x.shape[number % rank] != 1)
    ]
    if not remaining:
        return b.Identity(x)
    remaining.sort(key=lambda number: number % rank)
    if remaining != axis_numbers or op.skip:
        return b.Squeeze(x, axes if remaining == axis_numbers else remaining)
    return _as_axes_vector(b, node)


@ONNX.legalize("Unsqueeze")
def legalize_unsqueeze(b: Builder, node: Node) -> Any:
    return _as_axes_vector(b, node)


def _as_axes_vector(b: Builder, node: Node) -> Any:
    """Reshape scalar axes to a vector, or cast axes to i64; None if neither is needed."""
    x, axes = node.inputs[:2]
    assert axes is not None
    if axes.shape == ():
        data = axes.constant
        vector = b.Reshape(axes, [1]) if data is None else b.constant(data.reshape(1), axes.dtype)
        return b.add(node.op, x, vector)[0]
    return cast_integer_inputs(b, node)


@ONNX.legalize("Transpose")
def legalize_transpose(b: Builder, node: Node) -> Any:
    """Legalize Transpose with an empty order, which reverses all axes: omit the order."""
    order = (*node.inputs, None)[1]
    return b.Transpose(node.input(0)) if order is not None and order.shape == (0,) else None


@ONNX.legalize("DepthToSpace", "SpaceToDepth")
def legalize_depth_to_space(b: Builder, node: Node) -> Any:
    """Decompose DepthToSpace and SpaceToDepth unless the input has two spatial axes."""
    x, op = node.inputs[0], node.op
    assert x is not None and isinstance(op, _Blocks)
    return None if x.shape is None or len(x.shape) == 4 else op.decompose(b, x)


def _as_integers(data: np.ndarray[Any, Any], label: str) -> Any:
    """Convert an array of integral floats to i64. Raises FormatError [constant.value] for other numbers."""
    wide = np.asarray(data, dtype=np.float64)
    wrong = wide[~np.isfinite(wide) | (wide != np.trunc(wide)) | (np.abs(wide) >= 2**63)]
    if wrong.size:
        raise FormatError("constant.value", f"Tile: {label} must be integers of 64 bits, got {wrong[0]}")
    return wide.astype(np.int64)


@ONNX.importer("Tile", 1)
def import_tile(ctx: ImportContext) -> Any:
    """Import Tile-1: ``tiles`` copies along one ``axis``; both inputs are scalars with the element type of the data."""
    x = ctx.input(0)
    tiles_and_axis = [
        _as_integers(constant_of(ctx.input(index), f"Tile: {name}"), name) for index, name in ((1, "tiles"), (2, "axis"))
    ]
    if any(data.size != 1 for data in tiles_and_axis):
        raise FormatError("constant.value", "Tile-1: tiles and axis must be scalars")
    count, axis = (int(data.reshape(())) for data in tiles_and_axis)
    if x.shape is None:
        raise UnsupportedError("type.unknown", "the input of Tile-1 must have a known rank")
    if not 0 <= axis < len(x.shape):
        raise RuleError("axis.range", f"Tile-1: axis must be in [0, {len(x.shape) - 1}], got {axis}")
    return ctx.b.Tile(x, [count if other_axis == axis else 1 for other_axis in range(len(x.shape))])


# Range


_RANGES = ("f32", "f64", "i16", "i32", "i64")


@ONNX.legalize("Range")
def legalize_range(b: Builder, node: Node) -> Any:
    """Legalize Range: reshape vectors of size 1 to scalars, and cast integer types that Range does not support."""
    op: Any = node.op
    xs = [x for x in node.inputs if x is not None]
    if any(x.shape is not None and x.shape != () for x in xs):
        return b.add(op, *(x if x.shape == () else b.Reshape(x, []) for x in xs))[0]
    start = xs[0]
    dtype = op.output_type or start.dtype
    if dtype.name in (*_RANGES, "f16", "bf16") or not dtype.is_integer:
        return None
    return b.Cast(b.Range(*(_cast(b, x, dtypes.i64) for x in xs)), to=dtype)


# Constants


_CONSTANT_VERSIONS = (1, 9, 11, 12, 13, 19, 21, 23, 24, 25)
_CONSTANT_FORMS: dict[str, tuple[str, DType]] = {
    "value_int": ("int", dtypes.i64),
    "value_ints": ("tuple[int, ...]", dtypes.i64),
    "value_float": ("float", dtypes.f32),
    "value_floats": ("tuple[float, ...]", dtypes.f32),
    "value_string": ("str", dtypes.string),
    "value_strings": ("tuple[str, ...]", dtypes.string),
}


@ONNX.importer("Constant", *_CONSTANT_VERSIONS)
def import_constant(ctx: ImportContext) -> Value:
    """Import Constant: one attribute is the value, a tensor or sparse tensor; since version 12 also a number, string or list."""
    allowed = ["value"]
    if ctx.node.version >= 11:
        allowed.append("sparse_value")
    if ctx.node.version >= 12:
        allowed += _CONSTANT_FORMS
    names = [name for name in allowed if name in ctx.node.attributes]
    if len(names) != 1:
        names_text = " and ".join(names) if names else "none"
        raise FormatError("attribute.conflict", f"Constant must have exactly one of {', '.join(allowed)}, got {names_text}")
    name = names[0]
    if name in _CONSTANT_FORMS:
        annotation, dtype = _CONSTANT_FORMS[name]
        data = ctx.attribute(name, annotation)
        array = (
            np.empty((), dtype=object)
            if dtype is dtypes.string and isinstance(data, str)
            else np.asarray(data, dtype=dtype.numpy)
        )
        if dtype is dtypes.string and isinstance(data, str):
            array[()] = data
        return ctx.b.constant(array, dtype)
    tensor = ctx.attribute(name, "tensor")
    if not isinstance(tensor, ForeignTensor):
        raise FormatError("attribute.value", f"Constant: {name} must be a tensor")
    return ctx.b.constant(tensor.storage, tensor.dtype)


_OF_SHAPE = (9, 20, 21, 23, 24, 25)


@ONNX.importer("ConstantOfShape", *_OF_SHAPE)
def import_constant_of_shape(ctx: ImportContext) -> Any:
    """Import ConstantOfShape: the value is a tensor of one element, by default 0 of type f32."""
    tensor = ctx.attribute("value", "tensor", None)
    if tensor is None:
        value = ctx.add_constant(np.zeros(1), dtypes.f32)
    elif not isinstance(tensor, ForeignTensor) or tensor.data.size != 1:
        raise FormatError("attribute.value", "ConstantOfShape: value must be a tensor of one element")
    else:
        value = ctx.add_constant(tensor.data, tensor.dtype)
    return ConstantOfShape(), [ctx.input(0), value]


@ONNX.legalize("ConstantOfShape")
def legalize_constant_of_shape(b: Builder, node: Node) -> Any:
    """Legalize ConstantOfShape: decompose it into Expand if the value is computed at run time."""
    shape, value = node.inputs
    assert value is not None
    if constant_or_none(value) is None:
        return node.op.decompose(b, shape, value)
    return cast_integer_inputs(b, node)


@ONNX.exporter("ConstantOfShape")
def export_constant_of_shape(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    shape, value = node.inputs
    assert value is not None
    version = ctx.version_of("", "ConstantOfShape")
    if version not in _OF_SHAPE:
        raise UnsupportedError("op.unsayable", "ONNX cannot express ConstantOfShape before opset 9")
    data = constant_or_none(value)
    assert data is not None
    tensor = ForeignTensor(value.dtype, data.reshape(1))
    return [ctx.add_node(node, "", "ConstantOfShape", version, [ctx.key(shape)], {"value": tensor})]


# Masks and sequences


class _OneHot(
    Op,
    sig="indices: R, depth!: R1, values: T -> y: T",
    onnx=(
        "OneHot-9(indices, depth, values; axis=-1 | negative=false)",
        "OneHot-11,28(indices, depth, values; axis=-1 | negative=true)",
    ),
):
    """_OneHot is the OneHot of ONNX, whose ``values`` are a vector [off, on]."""

    axis: int = -1
    negative: bool = True

    def shape(self, indices: View, depth: View, values: View) -> Any:
        return OneHot(self.axis, self.negative).shape(indices, depth, values, values)

    def decompose(self, b: Builder, *xs: Value) -> Any:
        """Decompose into an _OneHot with the opposite ``negative``: make negative indices positive, or move them out of range."""
        indices, depth, values = xs
        size = b.Cast(b.Reshape(depth, []), to=indices.dtype)
        shifted = b.Add(indices, size) if self.negative else size
        zero = b.constant(np.zeros((), dtype=indices.dtype.numpy), indices.dtype)
        plain = b.Where(b.Less(indices, zero), shifted, indices)
        return b.add(_OneHot(self.axis, not self.negative), plain, depth, values)[0]


@ONNX.importer("Gather", 1)
def import_gather(ctx: ImportContext) -> Op | None:
    """Import Gather-1 with constant negative indices, a deviation that all runtimes interpret as version 11 does."""
    x, known_indices = ctx.input(0), integers_of(ctx.optional_input(1))
    if not known_indices or min(known_indices) >= 0 or x.shape is None:
        return None
    op, _ = ctx.apply_mapping(*ctx.inputs, **ctx.node.attributes)
    ctx.deviate(RuleError("index.range", f"Gather: indices must not be negative before opset 11, got {min(known_indices)}"))
    return op.with_(bounds="error")


@ONNX.importer("OneHot", 9, 11, 28)
def import_one_hot(ctx: ImportContext) -> Any:
    """Import OneHot: split the vector [off, on] into two scalars."""
    values = ctx.input(2)
    if values.shape is not None and values.shape not in ((2,),) and all(isinstance(size, int) for size in values.shape):
        raise RuleError("shape.disagree", f"OneHot: values must have shape [2], got {list(values.shape)}")
    axis = ctx.attribute("axis", "int", -1)
    if axis < -1 and ctx.node.version < 11:
        ctx.deviate(FormatError("attribute.value", f"OneHot: axis must be at least -1, got {axis}"))
    off, on = (ctx.b.Gather(values, ctx.b.constant(np.array(index)), axis=0) for index in (0, 1))
    return ctx.b.apply("OneHot", ctx.input(0), ctx.input(1), on, off, axis=axis, negative_indices=ctx.node.version >= 11)


@ONNX.legalize("OneHot")
def legalize_one_hot(b: Builder, node: Node) -> Any:
    op: Any = node.op
    indices, depth, on, off = node.inputs
    assert on is not None and off is not None
    values = _pair_of(off, on)
    if values is None:
        values = b.Concat(b.Reshape(off, [1]), b.Reshape(on, [1]), axis=0)
    axis = op.axis if indices is None or indices.shape is None or op.axis == -1 else op.axis % (len(indices.shape) + 1)
    return b.add(_OneHot(axis, op.negative_indices), indices, depth, values)[0]


def _pair_of(first: Value, second: Value) -> Value | None:
    """Return the vector of shape [2] from which two Gather take ``first`` and ``second``; None if other nodes compute them."""
    nodes = (first.node, second.node)
    if not all(node is not None and isinstance(node.op, Gather) for node in nodes):
        return None
    sources = [node.inputs[0] for node in nodes if node is not None]
    positions = [integers_of(node.inputs[1]) for node in nodes if node is not None]
    return sources[0] if sources[0] is sources[1] and positions == [[0], [1]] and sources[0].shape == (2,) else None  # type: ignore[union-attr]


@ONNX.legalize("ReverseSequence")
def legalize_reverse_sequence(b: Builder, node: Node) -> Any:
    """Legalize ReverseSequence: transpose batch and time to the first two axes, as ONNX requires."""
    x, lengths = node.input(0), node.input(1)
    if x.shape is None:
        return cast_integer_inputs(b, node)
    op: Any = node.op.canonical(x, lengths)
    if {op.batch_axis, op.time_axis} == {0, 1}:
        return cast_integer_inputs(b, node)
    order = [op.time_axis, op.batch_axis, *(axis for axis in range(len(x.shape)) if axis not in (op.time_axis, op.batch_axis))]
    reversed_ = b.ReverseSequence(b.Transpose(x, order), lengths, batch_axis=1, time_axis=0)
    return b.Transpose(reversed_, inverse_of(order))


@ONNX.importer("CenterCropPad", 18)
def import_center_crop_pad(ctx: ImportContext) -> Value:
    """Import CenterCropPad: crop to the center, then pad with zeros; the larger half of an odd difference is at the end."""
    b, x, target = ctx.b, ctx.input(0), ctx.input(1)
    rank = len(x.dims)
    axes = ctx.attribute("axes", "tuple[int, ...]", None)
    axis_numbers = list(range(rank)) if axes is None else list(axes_in(axes, rank))
    target_sizes = target if target.dtype is dtypes.i64 else b.Cast(target, to=dtypes.i64)
    sizes = b.Gather(b.Shape(x), axis_numbers, axis=0)
    zero, two = b.constant(np.array(0)), b.constant(np.array(2))
    start = b.Divide(b.Maximum(b.Subtract(sizes, target_sizes), zero), two)
    middle = b.Slice(x, start, b.Add(start, b.Minimum(sizes, target_sizes)), axis_numbers)
    lacking = b.Maximum(b.Subtract(target_sizes, sizes), zero)
    before = b.Divide(lacking, two)
    pads = b.Concat(before, b.Subtract(lacking, before), axis=0)
    padded: Value = b.Pad(middle, pads, None, axis_numbers)
    return padded
