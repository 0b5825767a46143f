"""Operators that move data, where ONNX and the core differ by more than a slot line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import constant_of
from dovetail.formats.mapping_selection import constant_or_none
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import axes_in
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.depth_to_space import _Blocks
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.nonzero_compress import OneHot
from dovetail.ops.tensor.shape import ConstantOfShape
from dovetail.ops.tensor.transpose_expand_tile import inverse

_I64 = ("i64",)
_BOTH = ("i32", "i64")
# The integer inputs whose type ONNX narrows: by operator and place, what it may be.
_INTEGERS: dict[str, dict[int, tuple[str, ...]]] = {
    "Squeeze": {1: _I64},
    "Unsqueeze": {1: _I64},
    "Expand": {1: _I64},
    "Tile": {1: _I64},
    "Slice": dict.fromkeys((1, 2, 3, 4), _BOTH),
    "Pad": {1: _I64, 3: _I64},
    "Gather": {1: _BOTH},
    "GatherElements": {1: _BOTH},
    "GatherND": {1: _I64},
    "ScatterElements": {1: _BOTH},
    "ScatterND": {1: _I64},
    "ConstantOfShape": {0: _I64},
    "Trilu": {1: _I64},
    "ReverseSequence": {1: _I64},
}


def typed(b: Builder, node: Node) -> Value | None:
    """The node with its integer inputs of a type that ONNX takes; None where they are already."""
    xs = list(node.inputs)
    allowed = _INTEGERS.get(type(node.op).__name__, {})
    kinds = {xs[index].dtype.name for index in allowed if index < len(xs) and xs[index] is not None}  # type: ignore[union-attr]
    mixed = type(node.op).__name__ == "Slice" and len(kinds) > 1
    changed = False
    for index, names in allowed.items():
        x = xs[index] if index < len(xs) else None
        if x is not None and (x.dtype.name not in names or (mixed and x.dtype != "i64")):
            xs[index] = _cast(b, x, dtypes.i64)
            changed = True
    if not changed:
        return None
    return b.add(node.op, *xs)[0]


def _cast(b: Builder, x: Value, dtype: DType) -> Value:
    data = x.constant
    if data is not None:
        return b.constant(np.asarray(data).astype(dtype.numpy), dtype)
    result: Value = b.Cast(x, to=dtype)
    return result


@ONNX.legalize("Tile", "Slice", "Pad", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Trilu")
def legalize_integer_inputs(b: Builder, node: Node) -> Any:
    return typed(b, node)


@ONNX.legalize("Gather")
def legalize_gather(b: Builder, node: Node) -> Any:
    """An index outside, for which OpenVINO gives zeros, is refused by ONNX at run time."""
    op: Any = node.op
    x, indices = node.inputs
    return b.add(op.with_(bounds="error"), x, indices)[0] if op.bounds == "zero" else typed(b, node)


@ONNX.legalize("Expand")
def legalize_expand(b: Builder, node: Node) -> Any:
    """ONNX expands both ways; a shape that refuses this is taken all the same."""
    op: Any = node.op
    return typed(b, node) if op.both else b.Expand(node.input(0), node.input(1))


@ONNX.legalize("Squeeze")
def legalize_squeeze(b: Builder, node: Node) -> Any:
    """Axes that are known to stay are left out; those that only run time tells of are refused there if they are not 1."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    assert x is not None
    if axes is None:
        return b.Squeeze(x) if op.skip else None
    places = integers_of(axes)
    if places is None or x.shape is None:
        return b.Squeeze(x, axes) if op.skip else _upright(b, node)
    rank = len(x.shape)
    kept = [place for place in places if not (op.skip and isinstance(x.shape[place % rank], int) and x.shape[place % rank] != 1)]
    if not kept:
        return b.Identity(x)
    if kept != places or op.skip:
        return b.Squeeze(x, axes if kept == places else kept)
    return _upright(b, node)


@ONNX.legalize("Unsqueeze")
def legalize_unsqueeze(b: Builder, node: Node) -> Any:
    return _upright(b, node)


def _upright(b: Builder, node: Node) -> Any:
    """Axes as an i64 vector."""
    x, axes = node.inputs[:2]
    assert axes is not None
    if axes.shape == ():
        data = axes.constant
        vector = b.Reshape(axes, [1]) if data is None else b.constant(data.reshape(1), axes.dtype)
        return b.add(node.op, x, vector)[0]
    return typed(b, node)


@ONNX.legalize("Transpose")
def legalize_transpose(b: Builder, node: Node) -> Any:
    """An empty order is left out."""
    order = (*node.inputs, None)[1]
    return b.Transpose(node.input(0)) if order is not None and order.shape == (0,) else None


@ONNX.legalize("DepthToSpace", "SpaceToDepth")
def legalize_depth_to_space(b: Builder, node: Node) -> Any:
    """ONNX has them for two spatial axes only."""
    x, op = node.inputs[0], node.op
    assert x is not None and isinstance(op, _Blocks)
    return None if x.shape is None or len(x.shape) == 4 else op.decompose(b, x)


def _whole(data: Any, what: str) -> Any:
    """Floats that are whole numbers, as such. Raises FormatError [constant.value]."""
    wide = np.asarray(data, dtype=np.float64)
    if not np.all(np.isfinite(wide)) or np.any(wide != np.trunc(wide)) or np.any(np.abs(wide) >= 2**63):
        raise FormatError("constant.value", f"{what} are not whole numbers")
    return wide.astype(np.int64)


@ONNX.importer("Tile", 1)
def import_tile(ctx: ImportContext) -> Any:
    """``tiles`` copies along one ``axis``, both scalars of the type of the data."""
    x = ctx.input(0)
    given = [_whole(constant_of(ctx.input(index), f"Tile: {name}"), name) for index, name in ((1, "tiles"), (2, "axis"))]
    if any(data.size != 1 for data in given):
        raise FormatError("constant.value", "Tile: tiles and axis are scalars")
    count, axis = (int(data.reshape(())) for data in given)
    if x.shape is None:
        raise UnsupportedError("tile.rank", "Tile-1 of a tensor of unknown rank")
    if not 0 <= axis < len(x.shape):
        raise RuleError("axis.range", f"axis {axis} is not in [0, {len(x.shape) - 1}]")
    return ctx.b.Tile(x, [count if place == axis else 1 for place in range(len(x.shape))])


# Range


_RANGES = ("f32", "f64", "i16", "i32", "i64")


@ONNX.legalize("Range")
def legalize_range(b: Builder, node: Node) -> Any:
    """One-element vectors are no scalars; types that Range does not have, by one that it has."""
    op: Any = node.op
    xs = [x for x in node.inputs if x is not None]
    if any(x.shape is not None and x.shape != () for x in xs):
        return b.add(op, *(x if x.shape == () else b.Reshape(x, []) for x in xs))[0]
    start = xs[0]
    dtype = op.dtype or start.dtype
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
    """One attribute says the value: a tensor (sparse ones too), or from version 12 a number, a text, or a list of them."""
    allowed = ["value"]
    if ctx.node.version >= 11:
        allowed.append("sparse_value")
    if ctx.node.version >= 12:
        allowed += _CONSTANT_FORMS
    given = [name for name in allowed if name in ctx.node.attributes]
    if len(given) != 1:
        said = " and ".join(given) if given else "none"
        raise FormatError("constant.attribute", f"Constant needs exactly one of {', '.join(allowed)}, and has {said}")
    name = given[0]
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
        raise FormatError("attribute.value", f"Constant: {name} is no tensor")
    return ctx.b.constant(tensor.data, tensor.dtype)


_OF_SHAPE = (9, 20, 21, 23, 24, 25)


@ONNX.importer("ConstantOfShape", *_OF_SHAPE)
def import_constant_of_shape(ctx: ImportContext) -> Any:
    """The value is a tensor of one element, by default the f32 0."""
    tensor = ctx.attribute("value", "tensor", None)
    if tensor is None:
        value = ctx.add_constant(np.zeros(1), dtypes.f32)
    elif not isinstance(tensor, ForeignTensor) or tensor.data.size != 1:
        raise FormatError("attribute.value", "ConstantOfShape: value is no tensor of one element")
    else:
        value = ctx.add_constant(tensor.data, tensor.dtype)
    return ConstantOfShape(), [ctx.input(0), value]


@ONNX.legalize("ConstantOfShape")
def legalize_constant_of_shape(b: Builder, node: Node) -> Any:
    """A value that is computed has to be expanded."""
    shape, value = node.inputs
    assert value is not None
    if constant_or_none(value) is None:
        return node.op.decompose(b, shape, value)
    return typed(b, node)


@ONNX.exporter("ConstantOfShape")
def export_constant_of_shape(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    shape, value = node.inputs
    assert value is not None
    version = ctx.version_of("", "ConstantOfShape")
    if version not in _OF_SHAPE:
        raise UnsupportedError("op.unsayable", "onnx cannot say ConstantOfShape before opset 9")
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
    """OneHot as ONNX spells it: ``values`` is [off, on]."""

    axis: int = -1
    negative: bool = True

    def shape(self, indices: Any, depth: Any, values: Any) -> Any:
        return OneHot(self.axis, self.negative).shape(indices, depth, None, None)

    def decompose(self, b: Builder, *xs: Value) -> Any:
        """With the other meaning of negative indices: made positive, or moved out of the range."""
        indices, depth, values = xs
        size = b.Cast(b.Reshape(depth, []), to=indices.dtype)
        other = b.Add(indices, size) if self.negative else size
        zero = b.constant(np.zeros((), dtype=indices.dtype.numpy), indices.dtype)
        plain = b.Where(b.Less(indices, zero), other, indices)
        return b.add(_OneHot(self.axis, not self.negative), plain, depth, values)[0]


@ONNX.importer("Gather", 1)
def import_gather(ctx: ImportContext) -> Op | None:
    """Negative indices, which came with version 11: where they are known, as every runtime reads them in older versions too."""
    x, found = ctx.input(0), integers_of(ctx.optional_input(1))
    if not found or min(found) >= 0 or x.shape is None:
        return None
    op, _ = ctx.apply_mapping(*ctx.inputs, **ctx.node.attributes)
    ctx.deviate(RuleError("index.range", f"the index {min(found)} is negative, before opset 11"))
    return op.with_(bounds="error")


@ONNX.importer("OneHot", 9, 11, 28)
def import_one_hot(ctx: ImportContext) -> Any:
    """The two values come as one vector."""
    values = ctx.input(2)
    if values.shape is not None and values.shape not in ((2,),) and all(isinstance(size, int) for size in values.shape):
        raise RuleError("onehot.values", f"values should be two, not of shape {list(values.shape)}")
    axis = ctx.attribute("axis", "int", -1)
    if axis < -1 and ctx.node.version < 11:
        ctx.deviate(FormatError("attribute.value", f"OneHot: axis = {axis} is below -1"))
    off, on = (ctx.b.Gather(values, ctx.b.constant(np.array(place)), axis=0) for place in (0, 1))
    return ctx.b.apply("OneHot", ctx.input(0), ctx.input(1), on, off, axis=axis, negative=ctx.node.version >= 11)


@ONNX.legalize("OneHot")
def legalize_one_hot(b: Builder, node: Node) -> Any:
    op: Any = node.op
    indices, depth, on, off = node.inputs
    assert on is not None and off is not None
    values = _halves(off, on)
    if values is None:
        values = b.Concat(b.Reshape(off, [1]), b.Reshape(on, [1]), axis=0)
    axis = op.axis if indices is None or indices.shape is None or op.axis == -1 else op.axis % (len(indices.shape) + 1)
    return b.add(_OneHot(axis, op.negative), indices, depth, values)[0]


def _halves(first: Value, second: Value) -> Value | None:
    """The vector of which two values are the elements 0 and 1."""
    nodes = (first.node, second.node)
    if not all(node is not None and isinstance(node.op, Gather) for node in nodes):
        return None
    sources = [node.inputs[0] for node in nodes if node is not None]
    places = [integers_of(node.inputs[1]) for node in nodes if node is not None]
    return sources[0] if sources[0] is sources[1] and places == [[0], [1]] and sources[0].shape == (2,) else None  # type: ignore[union-attr]


@ONNX.legalize("ReverseSequence")
def legalize_reverse_sequence(b: Builder, node: Node) -> Any:
    """ONNX has the batch and the time in the first two axes only."""
    x, lengths = node.inputs
    assert x is not None and lengths is not None
    if x.shape is None:
        return typed(b, node)
    op: Any = node.op.canonical(x, lengths)
    if {op.batch_axis, op.time_axis} == {0, 1}:
        return typed(b, node)
    order = [op.time_axis, op.batch_axis, *(axis for axis in range(len(x.shape)) if axis not in (op.time_axis, op.batch_axis))]
    made = b.ReverseSequence(b.Transpose(x, order), lengths, batch_axis=1, time_axis=0)
    return b.Transpose(made, inverse(order))


@ONNX.importer("CenterCropPad", 18)
def import_center_crop_pad(ctx: ImportContext) -> Value:
    """As much of the middle as there is, then zeros on both sides; of an odd rest the larger half is on the right."""
    b, x, target = ctx.b, ctx.input(0), ctx.input(1)
    rank = len(x.dims)
    axes = ctx.attribute("axes", "tuple[int, ...]", None)
    places = list(range(rank)) if axes is None else list(axes_in(axes, rank))
    wanted = target if target.dtype is dtypes.i64 else b.Cast(target, to=dtypes.i64)
    sizes = b.Gather(b.Shape(x), places, axis=0)
    zero, two = b.constant(np.array(0)), b.constant(np.array(2))
    start = b.Divide(b.Maximum(b.Subtract(sizes, wanted), zero), two)
    middle = b.Slice(x, start, b.Add(start, b.Minimum(sizes, wanted)), places)
    lacking = b.Maximum(b.Subtract(wanted, sizes), zero)
    before = b.Divide(lacking, two)
    pads = b.Concat(before, b.Subtract(lacking, before), axis=0)
    found: Value = b.Pad(middle, pads, None, places)
    return found
