"""GroupConv and GroupConvTranspose: convolutions whose weights have an axis for the groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Tensor, Unknown, View, is_static, static
from dovetail.ops.nn.conv import AUTO, EXPLICIT, SWAPPED_SAME, Conv, Convolution, ConvTranspose
from dovetail.ops.nn.sliding_window import PADS, STALE
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class GroupConv(
    Convolution,
    sig="x: N, w: N -> y: N",
    openvino=(
        f"> GroupConvolution-1(x, w; strides, dilations, {PADS})",
        f"> GroupConvolution-1(x, w; strides, dilations, {STALE})",
    ),
):
    """Compute Conv with weights [G, O / G, C / G, *kernel] for G groups. Source: OpenVINO GroupConvolution-1."""

    decomposes_in_f32 = True

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return prod(output) * prod((inputs[1] or ())[2:])

    def shape(self, x: View, w: View) -> Any:
        _check_rank(w)
        if not isinstance(w.dims[0], int):
            return _partial_shape(x, w)
        return self._conv(w).shape(x, _merge_groups(w))

    def _conv(self, w: View) -> Conv:
        return Conv(self.strides, self.pads, self.dilations, self.auto_pad, _groups(w))

    def evaluate(self, xp: Namespace, x: Array, w: Array) -> Any:
        return self._conv(w).evaluate(xp, x, xp.reshape(w, (w.shape[0] * w.shape[1], *w.shape[2:])))

    def decompose(self, b: Builder, x: Value, w: Value) -> Any:
        return b.add(self._conv(w), x, merge_weight_groups(b, w))[0]

    def canonical(self, x: View, w: View) -> Op:
        return self if w.shape is None else self.with_(**self.plain(len(w.shape) - 3))


class GroupConvTranspose(
    Convolution,
    sig="x: N, w: N, output_shape?!: I -> y: N",
    openvino=(
        f"> GroupConvolutionBackpropData-1(x, w; {EXPLICIT})",
        f"> GroupConvolutionBackpropData-1(x, w; {AUTO}auto_pad~{{valid:valid}})",
        f"> GroupConvolutionBackpropData-1(x, w, output_shape; {EXPLICIT})",
        f"> GroupConvolutionBackpropData-1(x, w, output_shape; {AUTO}{SWAPPED_SAME})",
    ),
):
    """Compute ConvTranspose with weights [G, C / G, O / G, *kernel]. Source: OpenVINO GroupConvolutionBackpropData-1."""

    output_padding: tuple[int, ...] | None = None

    def shape(self, x: View, w: View, output_shape: View | None = None) -> Any:
        _check_rank(w)
        if not isinstance(w.dims[0], int):
            return _partial_shape(x, w)
        return self._conv(w).shape(x, _merge_groups(w), None, output_shape)

    def _conv(self, w: View) -> ConvTranspose:
        return ConvTranspose(self.strides, self.pads, self.dilations, self.auto_pad, _groups(w), None, self.output_padding)

    def evaluate(self, xp: Namespace, x: Array, w: Array, output_shape: Array | None = None) -> Any:
        merged = xp.reshape(w, (w.shape[0] * w.shape[1], *w.shape[2:]))
        return self._conv(w).evaluate(xp, x, merged, None, output_shape)

    def decompose(self, b: Builder, x: Value, w: Value, output_shape: Value | None = None) -> Any:
        return b.add(self._conv(w), x, merge_weight_groups(b, w), None, output_shape)[0]

    def canonical(self, x: View, w: View, output_shape: View | None = None) -> Op:
        return self if w.shape is None else self.with_(**self.plain(len(w.shape) - 3))


def _check_rank(w: View) -> None:
    if w.shape is not None and len(w.shape) < 4:
        raise RuleError("shape.rank", f"rank of grouped weights must be at least 4, got {len(w.shape)}")


def _groups(w: View) -> int:
    """Return the number of groups. Raises Unknown, RuleError [shape.rank]."""
    _check_rank(w)
    if w.shape is None or not isinstance(w.shape[0], int):
        raise Unknown
    return int(w.shape[0])


def _partial_shape(x: View, w: View) -> Any:
    """Return the output shape for an unknown number of groups: the batch size, and otherwise unknown sizes."""
    return (None if x.shape is None else x.shape[0], *(None,) * (len(w.dims) - 2))


def _merge_groups(w: View) -> View:
    """Return the view of grouped weights with the group axis and the axis after it merged into one."""
    groups, outputs, *rest = w.dims
    return View(Tensor(w.dtype, (groups * outputs, *rest)))


def merge_weight_groups(b: Builder, w: Value) -> Any:
    """Reshape weights [G, A / G, ...] to [A, ...]."""
    groups, first, *rest = static(w.dims)
    return reshape_once(b, w, (groups * first, *rest))


def split_weight_groups(b: Builder, w: Value, group: int) -> Any:
    """Reshape weights [A, ...] to [group, A / group, ...]; A must be known."""
    first = static(w.dims[:1])[0]
    if not is_static(w.type):
        rest = shape_value(b, w, range(1, len(w.dims)))
        return b.Reshape(w, join_sizes(b, [group, first // group, rest]), special_zero=False)
    return reshape_once(b, w, (group, first // group, *static(w.dims[1:])))


def reshape_once(b: Builder, x: Value, shape: tuple[int, ...]) -> Any:
    """Reshape ``x`` to ``shape``; if ``x`` is the result of a Reshape of a value with that shape, return this value."""
    source = x.node.inputs[0] if x.node is not None and type(x.node.op).__name__ == "Reshape" else None
    return source if source is not None and source.shape == shape else b.Reshape(x, list(shape), special_zero=False)
