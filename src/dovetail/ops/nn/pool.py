"""MaxPool, MaxUnpool, AveragePool, LpPool and the global pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op, Sizes, check_inputs
from dovetail.ir.types import Shape, Tensor, Type, Unknown, View, agree_shapes, static
from dovetail.ops.builders import zeros_like
from dovetail.ops.nn.conv import Conv, concat_vectors, input_gradient, sizes_of
from dovetail.ops.nn.sliding_window import (
    ONNX_PAD,
    PADS,
    STALE,
    Geometry,
    SlidingWindowOp,
    extent_of,
    refuse_small_input,
    spatial_sizes,
)
from dovetail.ops.reduction.reduce import ReduceMax
from dovetail.ops.shape_values import elements_of, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

# For auto_pad VALID the specification counts complete windows only, while onnxruntime applies ceil_mode. VALID with ceil_mode
# is therefore not imported.
_AUTO_CEIL = (
    "auto_pad~{NOTSET:explicit,SAME_UPPER:same_upper,SAME_LOWER:same_lower}=NOTSET, ceil_mode~{1:ceil_torch}:rounding_type"
)
_STORAGE = "storage_order~{0:0,1:1}=0"
_ONNX = "kernel_shape, strides?, pads~natural?"
_CEIL = "ceil_mode~{0:floor}:rounding_type=0"
_ROUNDING = "rounding_type~{floor:floor,ceil:ceil}=floor"
_ROUNDING_14 = "rounding_type~{floor:floor,ceil:ceil,ceil_torch:ceil_torch}=floor"


class _Pool(SlidingWindowOp):
    """_Pool is the base of pooling operators, which reduce windows of ``kernel_shape``.

    ``rounding_type`` decides about an incomplete window at the end of the padded input: ``floor`` drops the window, ``ceil``
    keeps it, and ``ceil_torch`` keeps it unless it starts in the padding at the end.
    """

    kernel_shape: tuple[int, ...] = ()
    rounding_type: str = "floor"

    def validate(self) -> None:
        super().validate()
        if min(self.kernel_shape, default=1) < 1:
            raise RuleError("attribute.range", f"kernel_shape must be at least 1, got {list(self.kernel_shape)}")
        if self.rounding_type not in ("floor", "ceil", "ceil_torch"):
            raise RuleError("attribute.value", f"rounding_type must be floor, ceil or ceil_torch, got {self.rounding_type!r}")

    def operations(self, inputs: Sequence[Sizes | None], outputs: Sequence[Sizes]) -> int:
        """Return one operation per element of each window."""
        return prod(outputs[0]) * prod(self.kernel_shape)

    def _count(self, rest: Any, size: Any, begin: int, stride: int) -> Any:
        refuse_small_input(rest)
        if self.rounding_type == "floor":
            return rest // stride + 1
        count = symbolic.ceil_divide(rest, stride) + 1
        if self.rounding_type == "ceil":
            return count
        # ceil_torch keeps the windows that start, at -begin, -begin + stride, ..., before the end of the input.
        return symbolic.minimum(count, symbolic.ceil_divide(size + begin, stride))

    def _sizes(self, x: View) -> tuple[Any, ...]:
        sizes = spatial_sizes(x.dims)
        if len(sizes) != len(self.kernel_shape):
            raise RuleError(
                "attribute.length",
                f"kernel_shape ({len(self.kernel_shape)} elements) must have one element per spatial axis ({len(sizes)})",
            )
        return sizes

    def _output_shape(self, x: View) -> Any:
        if x.shape is None:
            return (None, None, *(None,) * len(self.kernel_shape))
        return (*x.shape[:2], *self.geometry(self._sizes(x), self.kernel_shape).outs)

    def covering_pads(self, geometry: Geometry, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Return the end padding of each axis with which the last window ends exactly at the padded end."""
        return tuple(
            (out - 1) * stride + extent - size - begin
            for out, stride, extent, size, begin in zip(
                geometry.outs, geometry.strides, geometry.spans, sizes, geometry.begins, strict=True
            )
        )

    def canonical(self, x: View) -> Op:
        plain = self.with_(**self.plain(len(self.kernel_shape)))
        try:
            sizes = static(x.dims[2:])
        except Unknown:
            return plain
        floor: Any = plain.with_(rounding_type="floor")
        same: bool = floor.geometry(sizes, self.kernel_shape).outs == self.geometry(sizes, self.kernel_shape).outs
        result: Op = floor if same else plain
        return result

    def with_floor_rounding(self, x: View) -> Op | None:
        """Return the operator with explicit padding and ``floor``; None if the spatial sizes are not static.

        Both operators are equivalent if padding does not contribute to the result.
        """
        try:
            sizes = static(x.dims[2:])
        except Unknown:
            return None
        geometry = self.geometry(sizes, self.kernel_shape)
        ends = [max(end, 0) for end in self.covering_pads(geometry, sizes)]
        return self.with_(
            strides=geometry.strides,
            dilations=geometry.dilations,
            pads=(*geometry.begins, *ends),
            auto_pad="explicit",
            rounding_type="floor",
        )


class MaxPool(
    _Pool,
    sig="x: R -> y: R, indices: i64",
    onnx=(
        f"MaxPool-1(x; {_ONNX}, {ONNX_PAD} | outputs=1)",
        f"MaxPool-8(x; {_ONNX}, {ONNX_PAD}, {_STORAGE} | index_element_type=i64)",
        f"MaxPool-10,11,12,22(x; {_ONNX}, dilations?, {_AUTO_CEIL}, {_STORAGE} | index_element_type=i64)",
        f"MaxPool-10,11,12,22(x; {_ONNX}, dilations?, {ONNX_PAD}, {_CEIL}, {_STORAGE} | index_element_type=i64)",
    ),
    openvino=(
        f"MaxPool-1(x; strides, kernel:kernel_shape, {PADS}, {_ROUNDING} | outputs=1)",
        f"MaxPool-1(x; strides, kernel:kernel_shape, {STALE}, {_ROUNDING} | outputs=1)",
        *(
            f"MaxPool-{version}(x; strides, dilations, kernel:kernel_shape, {pads}, {rounding}, index_element_type=i64, "
            "axis=0 | outputs=2)"
            for version, rounding in ((8, _ROUNDING), (14, _ROUNDING_14))
            for pads in (PADS, STALE)
        ),
    ),
):
    """Compute the maximum of each window of ``x`` [N, C, *sizes], and the index of the maximum's first occurrence.

    Padding is never the maximum. Indices are row-major over the axes of ``x`` from ``axis`` on; with ``storage_order`` 1 the
    spatial axes are column-major. Sources: ONNX MaxPool 1 to 22; OpenVINO MaxPool-1, -8, -14.
    """

    storage_order: int = 0
    index_element_type: DType = dtypes.i64
    axis: int = 0
    outputs: int = 1

    def validate(self) -> None:
        super().validate()
        if self.outputs not in (1, 2):
            raise RuleError("node.outputs", f"MaxPool has 1 or 2 outputs, got {self.outputs}")

    def types(self, x: View) -> list[Type]:
        bound = check_inputs(self, (x,))
        shape = self._output_shape(x)
        if x.shape is not None and not -len(x.shape) <= self.axis < len(x.shape):
            raise RuleError("axis.range", f"axis must be in [{-len(x.shape)}, {len(x.shape) - 1}], got {self.axis}")
        types: list[Type] = [Tensor(bound.get("R"), shape), Tensor(self.index_element_type, shape)]
        return types[: self.outputs]

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        geometry = self.geometry(x.shape[2:], self.kernel_shape)
        window = (
            self.kernel_shape,
            geometry.strides,
            geometry.begins,
            self.covering_pads(geometry, x.shape[2:]),
            geometry.dilations,
        )
        if self.outputs == 1:
            return (arrays.pool_max(xp, x, *window),)
        y, indices = arrays.pool_max_indices(xp, x, *window)
        indices = self._convert_indices(xp, indices, x.shape)
        return y, arrays.cast(xp, indices, self.index_element_type)

    def _convert_indices(self, xp: Namespace, indices: Array, shape: tuple[int, ...]) -> Any:
        """Convert row-major spatial indices to the indices that ``axis`` and ``storage_order`` define."""
        axis = self.axis % len(shape)
        if self.storage_order:
            indices = _to_column_major(indices, shape[2:])
        if axis > 2:
            return indices % prod(shape[axis:])
        planes = np.arange(prod(shape[axis:2]), dtype=np.int64).reshape(
            (*(1,) * axis, *shape[axis:2], *(1,) * len(self.kernel_shape))
        )
        return indices + arrays.from_numpy(xp, planes * prod(shape[2:]), indices)

    def vjp(self, b: Builder, g: Sequence[Value | None], y: Sequence[Value], x: Value) -> Any:
        if g[0] is None:
            return [None]
        plain = self.with_(storage_order=0, index_element_type=dtypes.i64, axis=0, outputs=2)
        indices = y[1] if self == plain else b.add(plain, x)[1]
        zeros = b.Reshape(zeros_like(b, x), [-1])
        flat = b.ScatterElements(zeros, b.Reshape(indices, [-1]), b.Reshape(g[0], [-1]), axis=0, reduction="add")
        return [b.Reshape(flat, shape_value(b, x), special_zero=False)]

    def decompose(self, b: Builder, x: Value) -> Any:
        """Decompose to MaxPool with ``floor`` and row-major i64 indices, and convert the indices; None if there is no change."""
        simple = self.with_floor_rounding(x) or self
        if self.storage_order == 0 and self.axis == 0 and self.index_element_type == "i64":
            if simple == self:
                return None
            return b.add(simple, x)
        y, indices = b.add(simple.with_(storage_order=0, index_element_type=dtypes.i64, axis=0, outputs=2), x)
        axis = self.axis % len(x.dims)
        if axis > 0:
            indices = b.Mod(indices, _extent(b, x, range(axis, len(x.dims))))
        if self.storage_order:
            spatial = range(2, len(x.dims))
            plane_indices = b.Mod(indices, _extent(b, x, spatial))
            indices = b.Subtract(indices, plane_indices)
            for at in spatial:
                position = b.Mod(b.Divide(plane_indices, _extent(b, x, range(at + 1, len(x.dims)))), _extent(b, x, [at]))
                indices = b.Add(indices, b.Multiply(position, _extent(b, x, range(2, at))))
        return [y, indices if self.index_element_type == "i64" else b.Cast(indices, to=self.index_element_type)][: self.outputs]


def _extent(b: Builder, x: Value, axes: Sequence[int]) -> Any:
    """Return the number of elements of ``x`` along ``axes``: an integer, or a vector of one element read at run time."""
    sizes = [x.dims[axis] for axis in axes]
    if all(isinstance(size, int) for size in sizes):
        return prod(sizes)
    return b.ReduceProd(b.Gather(b.Shape(x), list(axes), axis=0), [0], keepdims=True)


def _to_column_major(indices: Array, sizes: tuple[int, ...]) -> Any:
    """Convert row-major indices over axes of ``sizes`` elements to column-major indices."""
    converted, step, inner = 0 * indices, 1, prod(sizes)
    for size in sizes:
        inner //= max(size, 1)
        converted = converted + indices // max(inner, 1) % max(size, 1) * step
        step *= size
    return converted


class AveragePool(
    _Pool,
    sig="x: R -> y: R",
    onnx=(
        f"AveragePool-1(x; {_ONNX}, {ONNX_PAD})",
        f"AveragePool-7(x; {_ONNX}, {ONNX_PAD}, count_include_pad~{{0:inside,1:padded}}:divisor=0)",
        f"AveragePool-10,11(x; {_ONNX}, {_AUTO_CEIL}, count_include_pad~{{0:inside,1:padded}}:divisor=0)",
        f"AveragePool-10,11(x; {_ONNX}, {ONNX_PAD}, {_CEIL}, count_include_pad~{{0:inside,1:padded}}:divisor=0)",
        f"AveragePool-19,22(x; {_ONNX}, dilations?, {_AUTO_CEIL}, count_include_pad~{{0:inside,1:padded}}:divisor=0)",
        f"AveragePool-19,22(x; {_ONNX}, dilations?, {ONNX_PAD}, {_CEIL}, count_include_pad~{{0:inside,1:padded}}:divisor=0)",
    ),
    openvino=tuple(
        f"AvgPool-{version}(x; strides, kernel:kernel_shape, {pads}, {rounding}, "
        f"exclude-pad~{{true:inside,false:window}}:divisor{dilations})"
        for version, rounding, dilations in ((1, _ROUNDING, ""), (14, _ROUNDING_14, ""), (16, _ROUNDING_14, ", dilations"))
        for pads in (PADS, STALE)
    ),
):
    """Compute the average of each window of ``x`` [N, C, *sizes]: the sum, with padding as 0, over a number of elements.

    ``divisor`` selects that number: the window's elements in the input (``inside``), in the padded input (``padded``, ONNX and
    torch), or all elements of the window (``window``, OpenVINO; without padding it equals ``inside``). A window without elements
    gives 0. Floats of fewer than 32 bits are summed in f32; integers are rounded to nearest, ties to even.
    Sources: ONNX AveragePool 1 to 22; OpenVINO AvgPool-1, -14, -16.
    """

    divisor: str = "inside"

    def validate(self) -> None:
        super().validate()
        if self.divisor not in ("inside", "padded", "window"):
            raise RuleError("attribute.value", f"divisor must be inside, padded or window, got {self.divisor!r}")

    def shape(self, x: View) -> Any:
        return self._output_shape(x)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        kind = arrays.element(x)
        sizes = x.shape[2:]
        geometry = self.geometry(sizes, self.kernel_shape)
        wide = arrays.widen(xp, x) if kind.is_float else arrays.cast(xp, x, dtypes.f32)
        total = arrays.pool_sum(
            xp,
            wide,
            self.kernel_shape,
            geometry.strides,
            geometry.begins,
            self.covering_pads(geometry, sizes),
            geometry.dilations,
        )
        counts = np.maximum(self.counts(sizes), 1).astype(arrays.element(wide).numpy)
        mean = total / arrays.from_numpy(xp, counts, wide)
        return arrays.cast(xp, mean if kind.is_float else xp.round(mean), kind, saturate=False)

    def counts(self, sizes: tuple[int, ...]) -> Any:
        """Return the divisor of each window."""
        geometry = self.geometry(sizes, self.kernel_shape)
        divisor = self.divisor
        if divisor == "window":
            divisor = "window" if any((*geometry.begins, *geometry.ends)) else "inside"
        if divisor == "window":
            return np.full(geometry.outs, prod(self.kernel_shape))
        per_axis = []
        for n, size, stride, dilation, begin, end, out in zip(sizes, *geometry, strict=True):
            low, high = (0, n) if divisor == "inside" else (-begin, n + end)
            per_axis.append(arrays.WindowAxis(n, size, stride, dilation, begin, out).counts(low, high))
        return reduce(np.multiply.outer, per_axis)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        """Distribute the gradient of each window equally, as a transposed depthwise convolution with ones."""
        refuse_table(self.kernel_shape, 8, "the ones of an AveragePool's gradient")
        ones = b.constant(np.ones((1, 1, *self.kernel_shape), dtype=x.dtype.numpy), x.dtype)
        conv = Conv(self.strides, self.pads, self.dilations, self.auto_pad)
        share = b.Divide(g, self._counts_value(b, conv, ones, x))
        planes = b.Reshape(share, concat_vectors(b, [-1, 1], sizes_of(b, share)), special_zero=False)
        image = b.Reshape(x, concat_vectors(b, [-1, 1], sizes_of(b, x)), special_zero=False)
        gradient = input_gradient(b, conv, planes, image, ones)
        return [b.Reshape(gradient, shape_value(b, x), special_zero=False)]

    def _counts_value(self, b: Builder, conv: Conv, ones: Value, x: Value) -> Any:
        try:
            sizes = static(x.dims[2:])
            refuse_table(self.geometry(sizes, self.kernel_shape).outs, 16, "the divisors of an AveragePool's gradient")
            counts = np.maximum(self.counts(sizes), 1)
            return b.constant(counts.astype(x.dtype.numpy), x.dtype)
        except Unknown:
            pass
        if self.rounding_type != "floor":
            raise UnsupportedError("type.unknown", f"the gradient of {self} needs static sizes")
        if self.divisor != "inside" and (any(self.pads or ()) or self.auto_pad.startswith("same")):
            # Every window lies completely in the padded input.
            return b.constant(prod(self.kernel_shape), x.dtype)
        sizes = concat_vectors(b, [1, 1], sizes_of(b, x))
        return b.add(conv, b.Expand(b.constant(1, x.dtype), sizes), ones)[0]


class MaxUnpool(
    SlidingWindowOp,
    sig="x: F, indices: i64, output_shape?!: i64 -> y: F",
    onnx="MaxUnpool-9,11,22(x, indices, output_shape?; kernel_shape, strides?, pads~natural?)",
):
    """Scatter ``x`` to the positions ``indices`` that MaxPool returns; all other elements are 0.

    The result has ``(size - 1) * stride + kernel - pads`` elements along a spatial axis, and ``indices`` are row-major over all
    axes of the result. With ``output_shape`` zeros are appended to each axis up to that shape. Source: ONNX MaxUnpool 9 to 22
    and its reference evaluator (for ``output_shape``).
    """

    kernel_shape: tuple[int, ...] = ()

    def shape(self, x: View, indices: View, target: View | None = None) -> Any:
        shape = agree_shapes(x.shape, indices.shape, "x", "indices")
        if target is not None:
            length_of_vector(target, "target")
        inner = None if shape is None else self.default_output_shape(shape)
        if target is None:
            return inner
        sizes = elements_of(target)
        if sizes is None:
            return None if shape is None else (None,) * len(shape)
        if inner is not None:
            if len(inner) != len(sizes):
                raise RuleError("shape.rank", f"output_shape must have {len(inner)} elements, got {len(sizes)}")
            for size, whole in zip(inner, sizes, strict=True):
                if symbolic.less(whole, size) is True:
                    raise RuleError("shape.range", f"output_shape must be at least the size of its axis ({size}), got {whole}")
        return tuple(sizes)

    def default_output_shape(self, shape: Shape) -> tuple[Any, ...]:
        """Return the output shape for an absent input ``output_shape``."""
        count = len(shape) - 2
        if count < 1 or len(self.kernel_shape) != count:
            raise RuleError("attribute.length", f"kernel_shape {list(self.kernel_shape)} must have {count} elements")
        strides, _ = self.steps(count)
        begins, ends = self.explicit_pads(count)
        axes = zip(shape[2:], strides, self.kernel_shape, begins, ends, strict=True)
        return (*shape[:2], *((n - 1) * stride + extent_of(size, 1) - begin - end for n, stride, size, begin, end in axes))

    def canonical(self, x: View, indices: View, target: View | None = None) -> Op:
        return self if x.shape is None else self.with_(**self.plain(len(x.shape) - 2) | {"dilations": None})

    def decompose(self, b: Builder, x: Value, indices: Value, target: Value | None = None) -> Any:
        shape = x.dims
        inner = self.default_output_shape(shape)
        if all(isinstance(size, int) for size in inner):
            sizes: Any = list(inner)
        else:
            count = len(shape) - 2
            strides, _ = self.steps(count)
            begins, ends = self.explicit_pads(count)
            rest = [
                size - stride - low - high
                for size, stride, low, high in zip(self.kernel_shape, strides, begins, ends, strict=True)
            ]
            spatial = b.Add(b.Multiply(b.Gather(b.Shape(x), list(range(2, len(shape))), axis=0), list(strides)), rest)
            sizes = b.Concat(b.Gather(b.Shape(x), [0, 1], axis=0), spatial, axis=0)
        whole = [prod(sizes)] if isinstance(sizes, list) else b.ReduceProd(sizes, [0])
        zero = b.constant(np.zeros((), x.dtype.numpy), x.dtype)
        flat = b.ScatterElements(b.Expand(zero, whole), b.Reshape(indices, [-1]), b.Reshape(x, [-1]), axis=0)
        y = b.Reshape(flat, sizes, special_zero=False)
        if target is None:
            return y
        padding = b.Subtract(b.Cast(target, to=dtypes.i64) if target.dtype != "i64" else target, sizes)
        return b.Pad(y, b.Concat(b.constant(np.zeros(len(shape), np.int64)), padding, axis=0))


class LpPool(
    _Pool,
    sig="x: F -> y: F",
    onnx=(
        f"LpPool-2,11(x; {_ONNX}, {ONNX_PAD}, p=2)",
        f"LpPool-18,22(x; {_ONNX}, dilations?, {_AUTO_CEIL}, p=2)",
        f"LpPool-18,22(x; {_ONNX}, dilations?, {ONNX_PAD}, {_CEIL}, p=2)",
    ),
):
    """Compute ``sum(abs(x) ** p) ** (1 / p)`` over each window of ``x`` [N, C, *sizes], padding counting as 0.

    Source: ONNX LpPool 2 to 22.
    """

    p: int = 2

    def validate(self) -> None:
        super().validate()
        if self.p < 1:
            raise RuleError("attribute.range", f"p must be at least 1, got {self.p}")

    def shape(self, x: View) -> Any:
        return self._output_shape(x)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        sizes = x.shape[2:]
        geometry = self.geometry(sizes, self.kernel_shape)
        powers = xp.abs(arrays.widen(xp, x)) ** self.p
        total = arrays.pool_sum(
            xp,
            powers,
            self.kernel_shape,
            geometry.strides,
            geometry.begins,
            self.covering_pads(geometry, sizes),
            geometry.dilations,
        )
        return arrays.cast(xp, total ** (1 / self.p), arrays.element(x), saturate=False)

    def decompose(self, b: Builder, x: Value) -> Any:
        """Decompose to AveragePool of the powers, scale the averages to sums, and take the root."""
        simple = self.with_floor_rounding(x)
        if simple is None and self.rounding_type != "floor":
            raise UnsupportedError("type.unknown", f"{self} needs static sizes")
        op: Any = simple or self
        mean = AveragePool(op.strides, op.pads, op.dilations, op.auto_pad, self.kernel_shape, divisor="padded")
        powers = b.Power(b.Abs(x), float(self.p))
        total = b.Multiply(b.add(mean, powers)[0], float(prod(self.kernel_shape)))
        return b.Power(total, 1 / self.p)


class GlobalPool(Op):
    """GlobalPool is the base of global pools, which reduce all spatial axes of ``x``: [N, C, *sizes] to [N, C, 1, ...]."""

    def shape(self, x: View) -> Any:
        if x.shape is None:
            return None
        return (*x.shape[:2], *(1,) * len(spatial_sizes(x.shape)))

    def axes(self, x: View) -> list[int]:
        return list(range(2, len(x.dims)))


class GlobalAveragePool(GlobalPool, sig="x: F -> y: F", onnx="GlobalAveragePool-1,22(x)"):
    """Compute the mean over all spatial axes. Source: ONNX GlobalAveragePool 1, 22."""

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        mean = arrays.mean(xp, arrays.widen(xp, x), tuple(range(2, x.ndim)))
        return arrays.cast(xp, mean, arrays.element(x), saturate=False)

    def decompose(self, b: Builder, x: Value) -> Any:
        return b.ReduceMean(x, self.axes(x), keepdims=True)


class GlobalMaxPool(GlobalPool, sig="x: F -> y: F", onnx="GlobalMaxPool-1,22(x)"):
    """Compute the maximum over all spatial axes; no elements give -inf, as in ReduceMax. Source: ONNX GlobalMaxPool 1, 22."""

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return ReduceMax().evaluate(xp, x, np.arange(2, x.ndim))

    def decompose(self, b: Builder, x: Value) -> Any:
        return b.ReduceMax(x, self.axes(x), keepdims=True)


class GlobalLpPool(GlobalPool, sig="x: F -> y: F", onnx="GlobalLpPool-2,22(x; p=2)"):
    """Compute ``sum(abs(x) ** p) ** (1 / p)`` over all spatial axes. Source: ONNX GlobalLpPool 2, 22."""

    p: int = 2

    def validate(self) -> None:
        if self.p < 1:
            raise RuleError("attribute.range", f"p must be at least 1, got {self.p}")

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        powers = xp.abs(arrays.widen(xp, x)) ** self.p
        total = xp.sum(powers, axis=tuple(range(2, x.ndim)), keepdims=True)
        return arrays.cast(xp, total ** (1 / self.p), arrays.element(x), saturate=False)

    def decompose(self, b: Builder, x: Value) -> Any:
        powers = b.Power(b.Abs(x), float(self.p))
        return b.Power(b.ReduceSum(powers, self.axes(x), keepdims=True), 1 / self.p)
