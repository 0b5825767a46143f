"""Fourier transforms in ONNX's words: one axis, counted with that of the parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import axis_in
from dovetail.ops.shape_values import elements_of, integers_of
from dovetail.ops.signal.dft import DFT


@ONNX.importer("DFT", 17, 20)
def import_dft(ctx: ImportContext) -> list[Value]:
    b, x, length = ctx.b, ctx.input(0), ctx.optional_input(1)
    if ctx.node.version == 17:
        axes = _axis(b, x, ctx.attribute("axis", "int", 1))
    elif (axis := ctx.optional_input(2)) is None or axis.constant is not None:
        axes = _axis(b, x, ctx.constant_input(2, "int", -2))
    else:
        # Counted from the end, the axis of the parts is one of them.
        axes = b.Reshape(b.Where(b.Less(axis, 0), b.Add(axis, 1), axis), [1])
    op = DFT(ctx.attribute("inverse", "bool", False), ctx.attribute("onesided", "bool", False))
    given = () if length is None else (length,)
    return b.add(op, x, axes, *given)


def _axis(b: Any, x: Value, axis: int) -> Value:
    place = axis_in(axis, len(x.dims))
    if place == len(x.dims) - 1:
        raise UnsupportedError("fourier.parts", "DFT over the axis of the parts")
    found: Value = b.constant([place])
    return found


class _AxisDFT(
    Op,
    sig="x: F, length?!: I1, axis!: I -> y: F",
    onnx="DFT-20(x, length?, axis; inverse=0, onesided=0)",
):
    """DFT as ONNX has it: over one axis, which counts that of the parts from the end."""

    inverse: bool = False
    onesided: bool = False

    def shape(self, x: Any, length: Any, axis: Any) -> Any:
        parts = 1 if self.onesided and self.inverse else 2
        return None if x.shape is None else (*[None] * (len(x.shape) - 1), parts)


def _one_axis(b: Any, op: Any, x: Any, axes: Any, lengths: Any) -> Any:
    """Over the axis that only run time knows."""
    if axes.shape != (1,) or (lengths is not None and lengths.shape != ()):
        raise UnsupportedError("fourier.axes", "axes that only run time knows")
    axis = _read_axis(axes)
    if axis is None:
        zero = b.constant(np.zeros(1, axes.dtype.numpy))
        axis = b.Reshape(b.Where(b.Less(axes, zero), b.Subtract(axes, 1), axes), [])
    return b.add(_AxisDFT(op.inverse, op.onesided), x, lengths, axis)


def _read_axis(axes: Value) -> Value | None:
    """The scalar of which :func:`transform` has made ``axes``."""
    where = axes.node.inputs[0] if axes.node is not None and type(axes.node.op).__name__ == "Reshape" else None
    if where is None or where.node is None or type(where.node.op).__name__ != "Where":
        return None
    condition, _, axis = where.node.inputs
    less = None if condition is None else condition.node
    is_so = less is not None and type(less.op).__name__ == "Less" and less.inputs[0] is axis and axis is not None
    return axis if is_so and axis.shape == () else None  # type: ignore[union-attr]


@ONNX.legalize("DFT")
def legalize_transform(b: Any, node: Node) -> Any:
    """One axis after the other."""
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    places = integers_of(axes)
    if places is None:
        return _one_axis(b, op, x, axes, lengths)
    if len(places) == 1 and (lengths is None or (lengths.shape == () and (integers_of(lengths) or [0])[0] != -1)):
        return _halved(b, op, x, places[0], lengths) if op.inverse and op.onesided else None
    return _each(b, op, x, places, _lengths(b, lengths, len(places)))


def _lengths(b: Any, lengths: Any, count: int) -> list[Any]:
    """Each length as a scalar; None for one that is left out."""
    if lengths is None:
        return [None] * count
    known = elements_of(lengths)
    if known is None:
        raise UnsupportedError("fourier.length", "a length that only run time knows, and that may be -1")
    if lengths.shape == ():
        return [None if known[0] == -1 else lengths]
    scalar = np.zeros((), np.int64)
    return [None if item == -1 else b.Gather(lengths, scalar + index, axis=0) for index, item in enumerate(known)]


def _halved(b: Any, op: Any, x: Any, place: int, lengths: Any) -> Any:
    """With as many elements as the length asks for: onnxruntime does not leave out what is beyond."""
    length = next(iter(integers_of(lengths) or ()), None)
    axis = axis_in(place, len(x.dims) - 1)
    size = x.dims[axis]
    if length is None or symbolic.less_equal(size, length // 2 + 1) is True:
        return None
    return b.add(op, b.Slice(x, [0], [length // 2 + 1], [axis]), b.constant([place]), lengths)[0]


def _each(b: Any, op: Any, x: Any, places: list[int], lengths: list[Any]) -> Any:
    order = list(range(len(places)))
    for index in order if op.inverse else reversed(order):
        each = DFT(op.inverse, op.onesided and index == order[-1])
        length = lengths[index]
        given = () if length is None else (length,)
        x = b.add(each, x, b.constant([places[index]]), *given)[0]
    return x


@ONNX.fallback("DFT")
def replace_dft(b: Any, node: Node) -> Any:
    """Before version 17, where the sizes are known."""
    return node.op.decompose(b, *node.inputs)


@ONNX.exporter("DFT")
def export_transform(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    assert x is not None
    version = ctx.version_of("", "DFT")
    if version is None:
        raise UnsupportedError("op.unsayable", "the target has no DFT")
    (axis,) = integers_of(axes) or [0]
    place = axis_in(axis, len(x.dims) - 1)
    attributes = {"inverse": int(op.inverse), "onesided": int(op.onesided)}
    inputs = [ctx.key(x), ctx.key(lengths)]
    if version < 20:
        return [ctx.add_node(node, "", "DFT", version, inputs, {**attributes, "axis": place})]
    inputs.append(ctx.add_constant(node, ForeignTensor(dtypes.i64, np.array(place, np.int64), ""), "axis"))
    return [ctx.add_node(node, "", "DFT", version, inputs, attributes)]
