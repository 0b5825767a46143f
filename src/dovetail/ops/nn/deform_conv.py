"""DeformConv: a convolution that reads at displaced positions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Size, View, agree, static
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.nn.conv import Convolution
from dovetail.ops.nn.grid_sample import size_of
from dovetail.ops.nn.sliding_window import PADS, STALE, spatial_sizes
from dovetail.ops.shape_values import indices_of_axis, join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_IN_IR = "strides, dilations, group=1, deformable_group:offset_group=1"
_PADDED = "bilinear_interpolation_pad=false"


class DeformConv(
    Convolution,
    sig="x: F, w: F, offset: F, bias?: F, mask?: F -> y: F",
    onnx=("DeformConv-19,22(x, w, offset, bias?, mask?; strides?, pads?, dilations?, group=1, offset_group=1, kernel_shape?)"),
    openvino=(
        f"DeformableConvolution-1(x, offset, w; {_IN_IR}, {PADS} | bilinear_interpolation_pad=false)",
        f"DeformableConvolution-1(x, offset, w; {_IN_IR}, {STALE} | bilinear_interpolation_pad=false)",
        f"DeformableConvolution-8(x, offset, w, mask?; {_IN_IR}, {PADS}, {_PADDED})",
        f"DeformableConvolution-8(x, offset, w, mask?; {_IN_IR}, {STALE}, {_PADDED})",
    ),
):
    """Compute a deformable convolution: kernel element k reads at ``i * stride - pad + k * dilation + offset`` for output i.

    ``offset`` [N, offset_group * kernel elements * axes, *outs] holds the displacement for each channel group, kernel element
    and axis in order. ``mask`` [N, offset_group * kernel elements, *outs] multiplies the elements that are read. Positions
    between elements are interpolated linearly.

    With ``bilinear_interpolation_pad`` zeros surround ``x``. Otherwise a position before the first element, or at least 1 after
    the last element, reads 0; a position less than 1 after the last element reads the last element.
    Sources: ONNX DeformConv 19, 22; OpenVINO DeformableConvolution-1, -8.
    """

    offset_group: int = 1
    bilinear_interpolation_pad: bool = True

    def validate(self) -> None:
        super().validate()
        if self.offset_group < 1:
            raise RuleError("attribute.range", f"offset_group must be at least 1, got {self.offset_group}")

    def shape(self, x: View, w: View, offset: View, bias: View | None = None, mask: View | None = None) -> Any:
        if w.shape is None:
            return None
        kernel = self._kernel(x, w)
        self._check_bias(bias, w.dims[0])
        outs: tuple[Any, ...] = (None,) * len(kernel)
        batch = None
        if x.shape is not None:
            if symbolic.equal(x.shape[1], w.dims[1] * self.group) is False:
                raise RuleError(
                    "shape.disagree", f"input channels ({x.shape[1]}) must equal the weights' channels ({w.dims[1] * self.group})"
                )
            for count, name in ((self.group, "group"), (self.offset_group, "offset_group")):
                if isinstance(x.shape[1], int) and x.shape[1] % count:
                    raise RuleError("shape.multiple", f"input channels ({x.shape[1]}) must be a multiple of {name} ({count})")
            batch, outs = x.shape[0], self.geometry(spatial_sizes(x.shape), kernel).outs
        if isinstance(w.dims[0], int) and w.dims[0] % self.group:
            raise RuleError("shape.multiple", f"output channels ({w.dims[0]}) must be a multiple of group ({self.group})")
        for name, item, numbers in (("offset", offset, len(kernel)), ("mask", mask, 1)):
            if item is not None and item.shape is not None:
                self._check_offsets(item, name, numbers, kernel, batch, outs)
        return (batch, w.dims[0], *outs)

    def _check_offsets(self, item: View, name: str, numbers: int, kernel: Sequence[Size], batch: Size | None, outs: Any) -> None:
        """Check the shape of ``item``, offsets or mask, which has ``numbers`` channels per offset group and kernel element."""
        if len(item.dims) != len(kernel) + 2:
            raise RuleError("shape.rank", f"offset and mask must have rank {len(kernel) + 2}, got {len(item.dims)}")
        expected = symbolic.product(kernel) * numbers * self.offset_group
        agree(item.dims[1], expected, (name, 1), f"kernel elements * {numbers} * offset_group")
        for axis, (ours, theirs) in enumerate(zip((batch, None, *outs), item.dims, strict=True)):
            if ours is not None:
                agree(ours, theirs, ("the output", axis), (name, axis))

    def canonical(self, x: View, w: View, offset: View, bias: View | None = None, mask: View | None = None) -> Op:
        count = len(w.shape) - 2 if w.shape is not None else None
        return self if count is None else self.with_(kernel_shape=None, **self.plain(count))

    def decompose(
        self, b: Builder, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
    ) -> Any:
        """Gather the elements that each kernel element reads, and multiply them by the weights with MatMul."""
        wide = wide_type(x.dtype)
        outputs, _, *kernel = static(w.dims)
        channels, count, elements = w.dims[1] * self.group, len(kernel), prod(kernel)
        batch, outs = shape_value(b, x, [0]), shape_value(b, offset, range(2, count + 2))
        shift = as_type(
            b, b.Reshape(offset, join_sizes(b, [batch, self.offset_group, elements, count, outs]), special_zero=False), wide
        )
        positions = [
            self._positions(b, x, offset, axis, kernel, b.Gather(shift, np.array(axis), axis=3)) for axis in range(count)
        ]
        taps = [self._taps(b, position, size_of(b, x, axis + 2, wide)) for axis, position in enumerate(positions)]
        flat = b.Reshape(x, join_sizes(b, [batch, self.offset_group, channels // self.offset_group, -1]), special_zero=False)
        flat = b.Transpose(flat, [0, 1, 3, 2])
        total: Any = None
        for chosen in product(*taps):
            index, weight = _combine_taps(b, x, chosen)
            read = as_type(b, b.GatherND(flat, b.Unsqueeze(index, [-1]), batch_dims=2), wide)
            part = b.Multiply(read, b.Unsqueeze(weight, [-1]))
            total = part if total is None else b.Add(total, part)
        if mask is not None:
            factors = b.Reshape(mask, join_sizes(b, [batch, self.offset_group, elements, outs]), special_zero=False)
            total = b.Multiply(total, b.Unsqueeze(as_type(b, factors, wide), [-1]))
        order = [0, 1, count + 3, *range(2, count + 3)]
        inner = channels // self.group * elements
        columns = b.Reshape(b.Transpose(total, order), join_sizes(b, [batch, self.group, inner, -1]), special_zero=False)
        weights = as_type(b, b.Reshape(w, [self.group, outputs // self.group, inner], special_zero=False), wide)
        y = b.Reshape(b.MatMul(weights, columns), join_sizes(b, [batch, outputs, outs]), special_zero=False)
        if bias is not None:
            y = b.Add(y, as_type(b, b.Unsqueeze(bias, list(range(1, count + 1))), wide))
        return as_type(b, y, x.dtype)

    def _positions(self, b: Builder, x: Value, offset: Value, axis: int, kernel: list[int], shift: Value) -> Any:
        """Compute the positions to read along an axis: [batch, offset groups, kernel elements, *outs]."""
        count, wide = len(kernel), shift.dtype
        strides, dilations = self.steps(count)
        has_explicit_pads = self.auto_pad in ("explicit", "valid")
        begin = (self.explicit_pads(count)[0] if has_explicit_pads else with_explicit_pads(self, x, kernel)["pads"])[axis]
        index = np.indices(kernel)[axis].reshape(-1, *(1,) * count) * dilations[axis] - begin
        steps = b.Multiply(b.Cast(indices_of_axis(b, offset, axis + 2), to=wide), float(strides[axis]))
        steps = b.Unsqueeze(steps, list(range(1, count - axis))) if axis < count - 1 else steps
        return b.Add(shift, b.Add(steps, b.constant(index.astype(wide.numpy), wide)))

    def _taps(self, b: Builder, position: Value, size: Value) -> list[tuple[Any, Any]]:
        """Return the two neighbouring elements of a position, each with its weight."""
        last = b.Subtract(size, 1.0)
        if not self.bilinear_interpolation_pad:
            inside = b.And(b.GreaterEqual(position, 0.0), b.Less(position, size))
            position = b.Minimum(b.Maximum(position, 0.0), last)
        first = b.Floor(position)
        share = b.Subtract(position, first)
        pairs = [(first, b.Subtract(1.0, share)), (b.Add(first, 1.0), share)]
        taps = []
        for element, weight in pairs:
            clamped = b.Minimum(b.Maximum(element, 0.0), last)
            counts = b.Equal(clamped, element) if self.bilinear_interpolation_pad else inside
            taps.append((b.Cast(clamped, to=dtypes.i64), b.Where(counts, weight, 0.0)))
        return taps


def _combine_taps(b: Builder, x: Value, chosen: tuple[tuple[Any, Any], ...]) -> tuple[Any, Any]:
    """Combine one neighbour per axis: return the row-major index of the element, and the product of the weights."""
    index, weight = chosen[0]
    for axis, (element, factor) in enumerate(chosen[1:], 3):
        index = b.Add(b.Multiply(index, size_of(b, x, axis, dtypes.i64)), element)
        weight = b.Multiply(weight, factor)
    return index, weight


def with_explicit_pads(op: Convolution, x: View, kernel: Sequence[Size]) -> dict[str, Any]:
    """Return the attributes with ``auto_pad`` resolved to explicit pads."""
    geometry = op.geometry(static(x.dims[2:]), list(kernel))
    return {"auto_pad": "explicit", "pads": (*geometry.begins, *geometry.ends)}
