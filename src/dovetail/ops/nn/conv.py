"""Conv and ConvTranspose, over any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Size, Unknown, View, agree, agree_shapes, static
from dovetail.ops.nn.sliding_window import (
    ONNX_PAD,
    PADS,
    STALE,
    Geometry,
    SlidingWindowOp,
    extent_of,
    spatial_sizes,
    split_padding,
)

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_ONNX = f"strides?, pads~natural?, dilations?, {ONNX_PAD}, group=1, kernel_shape?"


class Convolution(SlidingWindowOp):
    """Convolution is the base of convolutions with ``group`` channel groups; each group has separate weights.

    ``kernel_shape``, if given, must equal the kernel sizes of the weights.
    """

    group: int = 1
    kernel_shape: tuple[int, ...] | None = None

    def validate(self) -> None:
        super().validate()
        if self.group < 1:
            raise RuleError("attribute.range", f"group must be at least 1, got {self.group}")

    def _kernel(self, x: View, w: View) -> tuple[Any, ...]:
        """Return the kernel sizes; weights and ``kernel_shape`` must agree."""
        shape = w.dims
        if len(shape) < 3 or (x.shape is not None and len(x.shape) != len(shape)):
            raise RuleError(
                "shape.rank",
                f"ranks of input ({'?' if x.shape is None else len(x.shape)}) and weights ({len(shape)}) must be equal and at "
                "least 3",
            )
        if self.kernel_shape is None:
            return tuple(shape[2:])
        if len(self.kernel_shape) != len(shape) - 2:
            raise RuleError(
                "attribute.length",
                f"kernel_shape {list(self.kernel_shape)} must have {len(shape) - 2} elements, one per spatial axis",
            )
        return agree_shapes(self.kernel_shape, shape[2:], ("the kernel of kernel_shape", 2), ("w", 2))

    def _check_bias(self, bias: View | None, channels: Size) -> None:
        if bias is None or bias.shape is None:
            return
        if len(bias.shape) != 1:
            raise RuleError("shape.rank", f"bias must be a vector, got rank {len(bias.shape)}")
        agree(bias.shape[0], channels, ("bias", 0), "the number of output channels")

    def _with_bias(self, xp: Namespace, kind: DType, y: Array, bias: Array) -> Any:
        """Add the bias in the accumulation type, then round once."""
        if bias is not None:
            y = y + xp.reshape(arrays.widen(xp, bias), (1, -1, *(1,) * (y.ndim - 2)))
        return y if arrays.element(y) is kind else arrays.cast(xp, y, kind, saturate=False)

    def decompose_bias(self, b: Builder, x: Value, w: Value, bias: Value, *rest: Value | None) -> Any:
        """Convolve without the bias and add it afterwards."""
        return _add_bias(b, b.add(self, x, w, *((None, *rest) if any(item is not None for item in rest) else ()))[0], bias)


class Conv(
    Convolution,
    sig="x: N, w: N, bias?: N -> y: N",
    onnx=f"Conv-1,11,22(x, w, bias?; {_ONNX})",
    openvino=(f"Convolution-1(x, w; strides, dilations, {PADS})", f"Convolution-1(x, w; strides, dilations, {STALE})"),
):
    """Compute the cross-correlation of ``x`` with the weights ``w``, plus ``bias``.

    ``y[n, o, i] = bias[o] + sum(x[n, c, i * stride - pad + k * dilation] * w[o, c, k])`` over c and k. ``x`` is [N, C, *sizes],
    ``w`` [O, C / group, *kernel], ``bias`` [O] and the result [N, O, *outs], with outs = floor((size + pads - span) / stride) +
    1 and span = (kernel - 1) * dilation + 1. Consecutive channels form the ``group`` groups. Floats of fewer than 32 bits are
    summed in f32, and the sum is rounded once.
    Sources: ONNX Conv 1, 11, 22; OpenVINO Convolution-1, GroupConvolution-1.
    """

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        """Return the number of multiply-adds: output elements * input channels of a group * kernel elements."""
        return prod(output) * prod((inputs[1] or ())[1:])

    def shape(self, x: View, w: View, bias: View | None = None) -> Any:
        if w.shape is None:
            return None
        kernel = self._kernel(x, w)
        outputs = w.dims[0]
        if isinstance(outputs, int) and outputs % self.group:
            raise RuleError("shape.multiple", f"output channels ({outputs}) must be a multiple of group ({self.group})")
        self._check_bias(bias, outputs)
        if x.shape is None:
            return (None, outputs, *(None,) * len(kernel))
        sizes = spatial_sizes(x.shape)
        if symbolic.equal(x.shape[1], w.dims[1] * self.group) is False:
            raise RuleError(
                "shape.disagree", f"input channels ({x.shape[1]}) must equal the weights' channels ({w.dims[1] * self.group})"
            )
        return (x.shape[0], outputs, *self.geometry(sizes, kernel).outs)

    def evaluate(self, xp: Namespace, x: Array, w: Array, bias: Array | None = None) -> Any:
        geometry = self.geometry(x.shape[2:], w.shape[2:])
        wide, weights = arrays.widen(xp, x), arrays.widen(xp, w)
        y = arrays.convolve(xp, wide, weights, geometry.strides, geometry.begins, geometry.ends, geometry.dilations, self.group)
        return self._with_bias(xp, arrays.element(x), y, bias)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, w: Value, bias: Value | None = None) -> Any:
        op, padded, _ = resolve_auto_pad(b, self, x, w)
        return [input_gradient(b, self, g, x, w), weights_gradient(b, padded, g, w, op), *_bias_gradient(b, g, bias)]

    def canonical(self, x: View, w: View, bias: View | None = None) -> Op:
        count = len(w.shape) - 2 if w.shape is not None else None
        if count is None:
            return self
        plain = self.plain(count)
        if self.auto_pad == "valid":
            plain |= {"auto_pad": "explicit", "pads": (0,) * (2 * count)}
        return self.with_(kernel_shape=None, **plain)


_ONNX_TARGET = (
    "strides?, dilations?, pads:_, "
    "auto_pad~{NOTSET:same_lower,VALID:same_lower,SAME_UPPER:same_upper,SAME_LOWER:same_lower}=NOTSET, "
    "group=1, kernel_shape?, output_padding~natural?, output_shape"
)
EXPLICIT = "strides, dilations, pads_begin+pads_end:pads, auto_pad~{explicit:explicit}=explicit, output_padding?"
AUTO = "strides, dilations, pads_begin:_, pads_end:_, output_padding?, "
SWAPPED_SAME = "auto_pad~{same_upper:same_lower,same_lower:same_upper,valid:valid}"


class ConvTranspose(
    Convolution,
    sig="x: N, w: N, bias?: N, output_shape?!: I -> y: N",
    onnx=(
        f"ConvTranspose-1,11,22(x, w, bias?; {_ONNX}, output_padding~natural?)",
        f"ConvTranspose-1,11,22(x, w, bias?; {_ONNX_TARGET})",
    ),
    openvino=(
        f"ConvolutionBackpropData-1(x, w; {EXPLICIT})",
        f"ConvolutionBackpropData-1(x, w; {AUTO}auto_pad~{{same_upper:valid,same_lower:valid,valid:valid}})",
        f"ConvolutionBackpropData-1(x, w, output_shape; {EXPLICIT})",
        f"ConvolutionBackpropData-1(x, w, output_shape; {AUTO}{SWAPPED_SAME})",
    ),
):
    """Compute the transpose of Conv.

    Element i of ``x`` adds ``w[c, o, k] * x[n, c, i]`` to the output element at ``i * stride + k * dilation - pad``. ``x`` is [N,
    C, *sizes], ``w`` [C, O / group, *kernel], ``bias`` [O] and the result [N, O, *outs], with outs = (size - 1) * stride + span +
    output_padding - pads. Output elements to which no product is added equal ``bias``.

    The input ``output_shape`` sets outs instead. With ``auto_pad`` same_upper and same_lower the padding is then the surplus of
    the full output over outs, with an odd element at the end (same_upper) or at the beginning (same_lower). With explicit and
    valid the padding at the beginning is kept, and the end is cut or extended. Without ``output_shape``, same_upper and
    same_lower mean outs = size * stride.

    Raises UnsupportedError [op.unsupported] for same_upper and same_lower if outs exceeds the full output by a stride or more,
    or without ``output_shape`` at all, because the sources disagree.
    Sources: ONNX ConvTranspose 1, 11, 22, the odd element as in onnxruntime and onnx.reference; OpenVINO
    ConvolutionBackpropData-1, GroupConvolutionBackpropData-1, whose same_upper puts the odd element at the beginning.
    """

    output_padding: tuple[int, ...] | None = None

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        """Return the number of multiply-adds: input elements * output channels of a group * kernel elements."""
        return prod(inputs[0] or ()) * prod((inputs[1] or ())[1:])

    def shape(self, x: View, w: View, bias: View | None = None, output_shape: View | None = None) -> Any:
        self._check_target(output_shape)
        if w.shape is None:
            return None
        kernel = self._kernel(x, w)
        outputs = w.dims[1] * self.group
        self._check_bias(bias, outputs)
        target = None if output_shape is None or output_shape.value is None else [_plain(size) for size in output_shape.value]
        if target is not None and len(target) != len(kernel):
            raise RuleError("attribute.length", f"output_shape must have {len(kernel)} elements, got {len(target)}")
        if x.shape is None:
            return (None, outputs, *(target or (None,) * len(kernel)))
        sizes = spatial_sizes(x.shape)
        channels = w.dims[0]
        if symbolic.equal(agree(x.shape[1], channels, ("x", 1), ("w", 0)) % self.group, 0) is False:
            raise RuleError("shape.multiple", f"input channels ({channels}) must be a multiple of group ({self.group})")
        if output_shape is not None and target is None:
            return (x.shape[0], outputs, *(None,) * len(kernel))
        return (x.shape[0], outputs, *self.transposed_geometry(sizes, kernel, target).outs)

    def _check_target(self, output_shape: View | None) -> None:
        if output_shape is not None and output_shape.shape is not None and len(output_shape.shape) != 1:
            raise RuleError("shape.rank", f"output_shape must be a vector, got rank {len(output_shape.shape)}")

    def transposed_geometry(self, sizes: Sequence[Any], kernel: Sequence[Any], target: Sequence[Any] | None) -> Geometry:
        """Compute the elements to cut at both ends of the full output (negative: zeros to add), and the output sizes."""
        count = len(sizes)
        strides, dilations = self.steps(count)
        extra = self._per_axis("output_padding", count, 0)
        begins, ends, outs = list(self.explicit_pads(count)[0]), list(self.explicit_pads(count)[1]), []
        for axis, (size, stride, reach) in enumerate(zip(sizes, strides, map(extent_of, kernel, dilations), strict=True)):
            full = (size - 1) * stride + reach
            if self.auto_pad.startswith("same"):
                out = size * stride if target is None else target[axis]
                surplus = full + extra[axis] - out
                self._check_surplus(surplus, 1 if target is None else stride)
                begins[axis] = split_padding(symbolic.maximum(surplus, 0), self.auto_pad == "same_upper")[0]
            else:
                out = full + extra[axis] - begins[axis] - ends[axis] if target is None else target[axis]
            if isinstance(out, int) and out < 0:
                raise RuleError("shape.range", f"output size must not be negative, got {out}")
            ends[axis] = full - begins[axis] - out
            outs.append(out)
        return Geometry(tuple(kernel), strides, dilations, tuple(begins), tuple(ends), tuple(outs))

    def _check_surplus(self, surplus: Size, allowed: int) -> None:
        if isinstance(surplus, int) and -surplus >= allowed:
            text = f"output_shape must exceed the full output by less than {allowed} elements, got {-surplus}"
            raise UnsupportedError("op.unsupported", f"{text} with auto_pad {self.auto_pad}")

    def evaluate(self, xp: Namespace, x: Array, w: Array, bias: Array | None = None, output_shape: Array | None = None) -> Any:
        target = None if output_shape is None else [int(size) for size in output_shape]
        geometry = self.transposed_geometry(x.shape[2:], w.shape[2:], target)
        wide, weights = arrays.widen(xp, x), arrays.widen(xp, w)
        none = (0,) * len(geometry.outs)
        y = arrays.convolve_transpose(
            xp, wide, weights, geometry.strides, geometry.begins, geometry.ends, none, geometry.dilations, self.group
        )
        return self._with_bias(xp, arrays.element(x), y, bias)

    def vjp(
        self, b: Builder, g: Value, y: Value, x: Value, w: Value, bias: Value | None = None, output_shape: Value | None = None
    ) -> Any:
        op, padded = self._gradient_convolution(b, g, x, w, output_shape)
        dx = b.add(op, padded, w)[0]
        sizes = x.dims[2:]
        if any(symbolic.equal(ours, theirs) is not True for ours, theirs in zip(dx.dims[2:], sizes, strict=True)):
            dx = crop(b, dx, [0] * len(sizes), sizes_of(b, x))
        dw = weights_gradient(b, padded, x, w, op)
        return [dx, dw, *_bias_gradient(b, g, bias), *([None] if output_shape is not None else [])]

    def _gradient_convolution(self, b: Builder, g: Value, x: Value, w: Value, output_shape: Value | None) -> tuple[Conv, Any]:
        """Return the convolution that computes the gradient of ``x``, and that convolution's input: ``g``, possibly padded."""
        count = len(w.dims) - 2
        strides, dilations = self.steps(count)
        try:
            sizes, kernel = static(x.dims[2:]), static(w.dims[2:])
            target = None if output_shape is None else [int(size) for size in output_shape.exact]
            geometry = self.transposed_geometry(sizes, kernel, target)
            ends = [max(end, 0) for end in geometry.ends]
            return Conv(strides, (*geometry.begins, *ends), dilations, group=self.group), g
        except (Unknown, symbolic.Inexact):
            begins, ends = self._pads_at_run_time(b, g, x, w)
        zeros = [0, 0]
        padded = b.Pad(g, concat_vectors(b, zeros, begins, zeros, ends))
        return Conv(strides, (0,) * 2 * count, dilations, group=self.group), padded

    def _pads_at_run_time(self, b: Builder, g: Value, x: Value, w: Value) -> tuple[Any, Any]:
        count = len(w.dims) - 2
        strides, dilations = self.steps(count)
        full = b.Add(b.Multiply(b.Subtract(_vector(b, sizes_of(b, x)), [1] * count), list(strides)), spans_of(b, w, dilations))
        rest = b.Subtract(full, _vector(b, sizes_of(b, g)))
        begins: Any = list(self.explicit_pads(count)[0])
        if self.auto_pad.startswith("same"):
            surplus = b.Maximum(b.Add(rest, list(self._per_axis("output_padding", count, 0))), b.constant([0]))
            begins = b.Divide(b.Add(surplus, [0 if self.auto_pad == "same_upper" else 1] * count), [2] * count)
        return begins, b.Maximum(b.Subtract(rest, begins), b.constant([0]))

    def _is_size_times_stride(self, x: Value, w: Value, output_shape: Value) -> bool:
        """Test whether ``output_shape`` is known to be size * stride, and span + output_padding to be at least the stride."""
        sizes, count = x.dims[2:], len(w.dims) - 2
        strides, dilations = self.steps(count)
        target, extra = output_shape.value, self._per_axis("output_padding", count, 0)
        if target is None or len(target) != len(sizes):
            return False
        spans = [extent_of(kernel, dilation) for kernel, dilation in zip(w.dims[2:], dilations, strict=True)]
        return all(
            symbolic.equal(_plain(out), size * stride) is True and isinstance(span, int) and span + more >= stride
            for out, size, stride, span, more in zip(target, sizes, strides, spans, extra, strict=True)
        )

    def canonical(self, x: View, w: View, bias: View | None = None, output_shape: View | None = None) -> Op:
        if w.shape is None:
            return self
        extra = self.output_padding if any(self.output_padding or ()) else None
        return self.with_(kernel_shape=None, output_padding=extra, **self.plain(len(w.shape) - 2))

    def resolve_output_shape(self, x: View, w: View, output_shape: View | None) -> ConvTranspose | None:
        """Return the operator with explicit pads and ``output_padding``, without ``output_shape``; None if a size is unknown."""
        try:
            target = None if output_shape is None else [int(size) for size in output_shape.exact]
            geometry = self.transposed_geometry(static(x.dims[2:]), static(w.dims[2:]), target)
        except (Unknown, symbolic.Inexact):
            return None
        ends = tuple(max(end, 0) for end in geometry.ends)
        extra = tuple(max(-end, 0) for end in geometry.ends)
        return ConvTranspose(
            geometry.strides, (*geometry.begins, *ends), geometry.dilations, group=self.group, output_padding=extra
        )

    def decompose(self, b: Builder, x: Value, w: Value, bias: Value | None = None, output_shape: Value | None = None) -> Any:
        """Replace ``output_shape`` by explicit pads, or crop the full output to it, for formats that lack this input.

        Returns None if ``output_shape`` is absent and ``auto_pad`` is neither same_upper nor same_lower.
        """
        if output_shape is None and not self.auto_pad.startswith("same"):
            return None
        resolved = self.resolve_output_shape(x, w, output_shape)
        if resolved is not None:
            return _apply_with_output_padding(b, resolved, x, w, bias)
        if self.auto_pad.startswith("same"):
            if output_shape is not None:
                if self._is_size_times_stride(x, w, output_shape):
                    return b.add(self, x, w, bias)[0]
                raise UnsupportedError("type.unknown", "output_shape with same_* padding must be constant, got a computed value")
            count = len(w.dims) - 2
            target = b.Multiply(_vector(b, sizes_of(b, x)), list(self.steps(count)[0]))
            return b.add(self, x, w, bias, target)[0]
        assert output_shape is not None
        count = len(w.dims) - 2
        strides, dilations = self.steps(count)
        begins = list(self.explicit_pads(count)[0])
        full = b.add(ConvTranspose(strides, None, dilations, group=self.group), x, w)[0]
        ends = b.Add(_vector(b, output_shape), begins)
        padding = b.Maximum(b.Subtract(ends, _vector(b, sizes_of(b, full))), b.constant([0]))
        full = b.Pad(full, concat_vectors(b, [0, 0], [0] * count, [0, 0], padding))
        return _add_bias(b, crop(b, full, begins, output_shape), bias)


def _add_bias(b: Builder, y: Value, bias: Value | None) -> Any:
    return y if bias is None else b.Add(y, b.Reshape(bias, [1, -1] + [1] * (len(y.dims) - 2)))


def _apply_with_output_padding(b: Builder, op: ConvTranspose, x: Value, w: Value, bias: Value | None) -> Any:
    """Apply ``op``, which has explicit pads; emit a Pad for an ``output_padding`` of a stride or more."""
    extra, (strides, _) = op.output_padding or (), op.steps(len(w.dims) - 2)
    if all(padding < stride for padding, stride in zip(extra, strides, strict=True)):
        return b.add(op, x, w, bias)[0]
    y = b.add(op.with_(output_padding=None), x, w)[0]
    return _add_bias(b, b.Pad(y, [0, 0, *(0,) * len(extra), 0, 0, *extra]), bias)


# Gradients


def sizes_of(b: Builder, x: Value) -> Any:
    """Return the spatial sizes of ``x``: a list, or a vector read at run time."""
    return shape_value(b, x, range(2, len(x.dims)))


def spans_of(b: Builder, w: Value, dilations: Sequence[int]) -> Any:
    reach = b.Subtract(_vector(b, sizes_of(b, w)), [1] * len(dilations))
    return b.Add(b.Multiply(reach, list(dilations)), [1] * len(dilations))


def _vector(b: Builder, items: Value | list[int]) -> Any:
    return b.constant(items, "i64") if isinstance(items, list) else items


def concat_vectors(b: Builder, *parts: Value | list[int]) -> Any:
    """Concatenate lists of integers and i64 vectors; the result is a list if all parts are lists."""
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    return b.Concat(*(_vector(b, part) for part in parts), axis=0)


def crop(b: Builder, x: Value, starts: Value | list[int], sizes: Value | list[int]) -> Any:
    """Slice the spatial axes of ``x``: ``sizes`` elements per axis, beginning at ``starts``."""
    if isinstance(starts, list) and isinstance(sizes, list):
        stops: Any = [start + size for start, size in zip(starts, sizes, strict=True)]
    else:
        stops = b.Add(_vector(b, starts), _vector(b, sizes))
    count = len(x.dims) - 2
    return b.Slice(x, starts, stops, list(range(2, count + 2)), [1] * count)


def resolve_auto_pad(b: Builder, op: Conv, x: Value, w: Value) -> tuple[Conv, Any, Any]:
    """Return ``op`` with explicit pads instead of ``auto_pad``, its input, and a function that removes the input's padding.

    If the padding is only known at run time, a Pad before the convolution pads the input.
    """
    count = len(w.dims) - 2
    strides, dilations = op.steps(count)
    if not op.auto_pad.startswith("same"):
        begins, ends = op.explicit_pads(count)
        return Conv(strides, (*begins, *ends), dilations, group=op.group), x, lambda value: value
    try:
        geometry = op.geometry(static(x.dims[2:]), static(w.dims[2:]))
        return Conv(strides, (*geometry.begins, *geometry.ends), dilations, group=op.group), x, lambda value: value
    except Unknown:
        pass
    sizes = _vector(b, sizes_of(b, x))
    outs = b.Divide(b.Add(sizes, [stride - 1 for stride in strides]), list(strides))
    reach = b.Add(b.Multiply(b.Subtract(outs, [1] * count), list(strides)), spans_of(b, w, dilations))
    total = b.Maximum(b.Subtract(reach, sizes), b.constant([0]))
    front = b.Divide(b.Add(total, [0 if op.auto_pad == "same_upper" else 1] * count), [2] * count)
    padded = b.Pad(x, concat_vectors(b, [0, 0], front, [0, 0], b.Subtract(total, front)))
    return Conv(strides, (0,) * 2 * count, dilations, group=op.group), padded, lambda value: crop(b, value, front, sizes)


def input_gradient(b: Builder, op: Conv, g: Value, x: Value, w: Value) -> Any:
    """Compute the gradient of the input ``x`` of ``op`` from the output gradient ``g``; 0 for elements outside all windows."""
    fixed, padded, unpad = resolve_auto_pad(b, op, x, w)
    back = ConvTranspose(fixed.strides, fixed.pads, fixed.dilations, group=fixed.group)
    return unpad(b.add(back, g, w, None, sizes_of(b, padded))[0])


def weights_gradient(b: Builder, x: Value, g: Value, w: Value, op: Conv) -> Any:
    """Compute the gradient of the weights of ``op``, which has explicit pads.

    The gradient is a convolution with strides and dilations swapped. Its input is ``x`` [N, C, *sizes] as [C / group, group * N,
    *sizes], with the channels as the batch. Its weights are the output gradient ``g`` as [O, N, *outs]. Surplus elements of the
    gradient, which come from input elements behind the last window, are cut at the end.
    """
    count = len(w.dims) - 2
    rest = range(2, count + 2)
    strides, dilations = op.steps(count)
    if op.group == 1:
        images = b.Transpose(x, [1, 0, *rest])
    else:
        batch, sizes = shape_value(b, x, [0]), sizes_of(b, x)
        channels = shape_value(b, w, [1])
        parts = b.Reshape(x, concat_vectors(b, batch, [op.group], channels, sizes), special_zero=False)
        parts = b.Transpose(parts, [2, 1, 0, *range(3, count + 3)])
        images = b.Reshape(parts, concat_vectors(b, channels, [-1], sizes), special_zero=False)
    deltas = b.Transpose(g, [1, 0, *rest])
    gradient = b.add(Conv(dilations, op.pads, strides, group=op.group), images, deltas)[0]
    if any(symbolic.equal(ours, theirs) is not True for ours, theirs in zip(gradient.dims[2:], w.dims[2:], strict=True)):
        gradient = crop(b, gradient, [0] * count, sizes_of(b, w))
    return b.Transpose(gradient, [1, 0, *rest])


def _bias_gradient(b: Builder, g: Value, bias: Value | None) -> list[Any]:
    return [None if bias is None else b.ReduceSum(g, [0, *range(2, len(g.dims))], keepdims=False)]


def _plain(item: Any) -> Any:
    return item if isinstance(item, symbolic.Dim) else int(item)
