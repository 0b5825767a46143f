"""Converters for DFT, which in ONNX has one axis and counts the axis of real and imaginary parts, and for STFT."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import View, axis_in
from dovetail.ops.shape_values import elements_of, integers_of
from dovetail.ops.signal.dft import DFT


@ONNX.importer("DFT", 17, 20)
def import_dft(ctx: ImportContext) -> list[Value]:
    b, x, length = ctx.b, ctx.input(0), ctx.optional_input(1)
    if ctx.node.version == 17:
        axes = _add_axis(b, x, ctx.attribute("axis", "int", 1))
    elif (axis := ctx.optional_input(2)) is None or axis.constant is not None:
        axes = _add_axis(b, x, ctx.constant_input(2, "int", -2))
    else:
        # ONNX counts the axis of real and imaginary parts, which the core does not: negative axes differ by one.
        axes = b.Reshape(b.Where(b.Less(axis, 0), b.Add(axis, 1), axis), [1])
    op = DFT(ctx.attribute("inverse", "bool", False), ctx.attribute("onesided", "bool", False))
    lengths = () if length is None else (length,)
    return b.add(op, x, axes, *lengths)


def _add_axis(b: Builder, x: Value, axis: int) -> Value:
    positive_axis = axis_in(axis, len(x.dims))
    if positive_axis == len(x.dims) - 1:
        raise UnsupportedError("shape.disagree", "DFT: axis must not be the axis of real and imaginary parts")
    result: Value = b.constant([positive_axis])
    return result


class _AxisDFT(
    Op,
    sig="x: F, length?!: I1, axis!: I -> y: F",
    onnx="DFT-20(x, length?, axis; inverse=0, onesided=0)",
):
    """_AxisDFT is the DFT of ONNX over one axis; negative axes count the axis of real and imaginary parts."""

    inverse: bool = False
    onesided: bool = False

    def shape(self, x: View, length: View, axis: View) -> Any:
        parts = 1 if self.onesided and self.inverse else 2
        return None if x.shape is None else (*[None] * (len(x.shape) - 1), parts)


def _one_axis(b: Builder, op: Any, x: Any, axes: Any, lengths: Any) -> Any:
    """Lower DFT over one axis, which is computed at run time, to _AxisDFT."""
    if axes.shape != (1,) or (lengths is not None and lengths.shape != ()):
        raise UnsupportedError("constant.needed", "DFT: axes must be constant if there are several")
    axis = _read_axis(axes)
    if axis is None:
        zero = b.constant(np.zeros(1, axes.dtype.numpy))
        axis = b.Reshape(b.Where(b.Less(axes, zero), b.Subtract(axes, 1), axes), [])
    return b.add(_AxisDFT(op.inverse, op.onesided), x, lengths, axis)


def _read_axis(axes: Value) -> Value | None:
    """Return the scalar axis from which :func:`import_dft` computed ``axes``; None if ``axes`` has another origin."""
    scalar = axes.node.inputs[0] if axes.node is not None and type(axes.node.op).__name__ == "Reshape" else None
    if scalar is None or scalar.node is None or type(scalar.node.op).__name__ != "Where":
        return None
    condition, _, axis = scalar.node.inputs
    less = None if condition is None else condition.node
    is_so = less is not None and type(less.op).__name__ == "Less" and less.inputs[0] is axis and axis is not None
    return axis if is_so and axis.shape == () else None  # type: ignore[union-attr]


@ONNX.legalize("DFT")
def legalize_dft(b: Builder, node: Node) -> Any:
    """Legalize DFT over several axes to one DFT per axis."""
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    known_axes = integers_of(axes)
    if known_axes is None:
        return _one_axis(b, op, x, axes, lengths)
    if len(known_axes) == 1 and (lengths is None or (lengths.shape == () and (integers_of(lengths) or [0])[0] != -1)):
        return _slice_half_spectrum(b, op, x, known_axes[0], lengths) if op.inverse and op.onesided else None
    return _split_axes(b, op, x, known_axes, _lengths(b, lengths, len(known_axes)))


def _lengths(b: Builder, lengths: Value | None, count: int) -> list[Any]:
    """Return the length of each axis as a scalar; None for an absent length."""
    if lengths is None:
        return [None] * count
    known = elements_of(lengths)
    if known is None:
        raise UnsupportedError("constant.needed", "DFT: signal lengths must be constant if there are several axes")
    if lengths.shape == ():
        return [None if known[0] == -1 else lengths]
    scalar = np.zeros((), np.int64)
    return [None if item == -1 else b.Gather(lengths, scalar + index, axis=0) for index, item in enumerate(known)]


def _slice_half_spectrum(b: Builder, op: Any, x: Any, signal_axis: int, lengths: Any) -> Any:
    """Slice a half spectrum to the length // 2 + 1 elements that the inverse DFT needs; onnxruntime does not ignore the rest."""
    length = next(iter(integers_of(lengths) or ()), None)
    axis = axis_in(signal_axis, len(x.dims) - 1)
    size = x.dims[axis]
    if length is None or symbolic.less_equal(size, length // 2 + 1) is True:
        return None
    return b.add(op, b.Slice(x, [0], [length // 2 + 1], [axis]), b.constant([signal_axis]), lengths)[0]


def _split_axes(b: Builder, op: Any, x: Any, axes: list[int], lengths: list[Any]) -> Any:
    order = list(range(len(axes)))
    for index in order if op.inverse else reversed(order):
        one_axis = DFT(op.inverse, op.onesided and index == order[-1])
        length = lengths[index]
        length_input = () if length is None else (length,)
        x = b.add(one_axis, x, b.constant([axes[index]]), *length_input)[0]
    return x


@ONNX.exporter("DFT")
def export_dft(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    x, axes, lengths = (*node.inputs, None)[:3]
    assert x is not None
    version = ctx.version_of("", "DFT")
    if version is None:
        raise UnsupportedError("op.unsayable", "the target has no DFT")
    (axis,) = integers_of(axes) or [0]
    positive_axis = axis_in(axis, len(x.dims) - 1)
    attributes = {"inverse": int(op.inverse), "onesided": int(op.onesided)}
    inputs = [ctx.key(x), ctx.key(lengths)]
    if version < 20:
        return [ctx.add_node(node, "", "DFT", version, inputs, {**attributes, "axis": positive_axis})]
    inputs.append(ctx.add_constant(node, ForeignTensor(dtypes.i64, np.array(positive_axis, np.int64), ""), "axis"))
    return [ctx.add_node(node, "", "DFT", version, inputs, attributes)]


@ONNX.importer("STFT", 17)
def import_stft(ctx: ImportContext) -> Any:
    """Import STFT of a rank-2 signal without an axis of parts, a deviation that torch's exporter writes."""
    x = ctx.input(0)
    if x.shape is None or len(x.shape) != 2:
        return None
    ctx.deviate(RuleError("shape.rank", f"STFT: the signal must have rank 3 (batch, signal, parts), got {x.type}"))
    return ctx.apply_mapping(ctx.b.Unsqueeze(x, [2]), *ctx.inputs[1:], **ctx.node.attributes)


@ONNX.legalize("STFT")
def legalize_stft(b: Builder, node: Node) -> Any:
    """Legalize STFT of a rank-2 signal: add an axis for its single (real) part."""
    x = node.input(0)
    return b.add(node.op, b.Unsqueeze(x, [2]), *node.inputs[1:]) if x.shape is not None and len(x.shape) == 2 else None
