"""Fourier transforms in ONNX's words: one axis, counted with that of the parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.lifting import Lifting
from dovetail.formats.lower import Lowering
from dovetail.formats.onnx.dialect import ONNX
from dovetail.graph import Node, Value
from dovetail.ops.fourier import DFT
from dovetail.ops.reshaping import items, numbers
from dovetail.types import axis_in


@ONNX.lift("DFT", 17, 20)
def transform(node: Lifting) -> list[Value]:
    b, x, length = node.b, node.input(0), node.optional(1)
    if node.node.version == 17:
        axes = _axis(b, x, node.attribute("axis", "int", 1))
    elif (axis := node.optional(2)) is None or axis.constant is not None:
        axes = _axis(b, x, node.constant(2, "int", -2))
    else:
        # Counted from the end, the axis of the parts is one of them.
        axes = b.Reshape(b.Where(b.Less(axis, 0), b.Add(axis, 1), axis), [1])
    op = DFT(node.attribute("inverse", "bool", False), node.attribute("onesided", "bool", False))
    given = () if length is None else (length,)
    return b.add(op, x, axes, *given)


def _axis(b: Any, x: Value, axis: int) -> Value:
    place = axis_in(axis, len(x.dims))
    if place == len(x.dims) - 1:
        raise UnsupportedError("fourier.parts", "DFT over the axis of the parts")
    found: Value = b.constant([place])
    return found


@ONNX.lower("DFT")
def lower_transform(b: Any, node: Node) -> Any:
    """One axis after the other."""
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    places = numbers(axes)
    if places is None:
        raise UnsupportedError("fourier.axes", "axes that only run time knows")
    if len(places) == 1 and (lengths is None or (lengths.shape == () and (numbers(lengths) or [0])[0] != -1)):
        return _halved(b, op, x, places[0], lengths) if op.inverse and op.onesided else None
    return _each(b, op, x, places, _lengths(b, lengths, len(places)))


def _lengths(b: Any, lengths: Any, count: int) -> list[Any]:
    """Each length as a scalar; None for one that is left out."""
    if lengths is None:
        return [None] * count
    known = items(lengths)
    if known is None:
        raise UnsupportedError("fourier.length", "a length that only run time knows, and that may be -1")
    if lengths.shape == ():
        return [None if known[0] == -1 else lengths]
    scalar = np.zeros((), np.int64)
    return [None if item == -1 else b.Gather(lengths, scalar + index, axis=0) for index, item in enumerate(known)]


def _halved(b: Any, op: Any, x: Any, place: int, lengths: Any) -> Any:
    """With as many elements as the length asks for: onnxruntime does not leave out what is beyond."""
    length = next(iter(numbers(lengths) or ()), None)
    axis = axis_in(place, len(x.dims) - 1)
    size = x.dims[axis]
    if length is None or not isinstance(size, int) or size <= length // 2 + 1:
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


@ONNX.emit("DFT")
def emit_transform(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    assert x is not None
    version = lowering.version_of("", "DFT")
    if version is None:
        raise UnsupportedError("op.unsayable", "the target has no DFT")
    (axis,) = numbers(axes) or [0]
    place = axis_in(axis, len(x.dims) - 1)
    attributes = {"inverse": int(op.inverse), "onesided": int(op.onesided)}
    inputs = [lowering.key(x), lowering.key(lengths)]
    if version < 20:
        return [lowering.finish(node, "", "DFT", version, inputs, {**attributes, "axis": place})]
    inputs.append(lowering.initializer(node, ForeignTensor(dtypes.i64, np.array(place, np.int64), ""), "axis"))
    return [lowering.finish(node, "", "DFT", version, inputs, attributes)]
