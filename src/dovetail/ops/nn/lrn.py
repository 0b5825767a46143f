"""Normalization by a norm: LRN, NormalizeL2, LpNormalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import arrays
from dovetail.ir.builder import shape_value
from dovetail.ir.types import View, axes_in, axes_of, axis_in
from dovetail.ops.casts import as_type, round_to, wide_type
from dovetail.ops.nn.conv import concat_vectors
from dovetail.ops.nn.normalization import NormalizationOp
from dovetail.ops.nn.pool import AveragePool
from dovetail.ops.nn.sliding_window import split_padding

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class LRN(
    NormalizationOp,
    sig="x: F -> y: F",
    onnx="LRN-1,13(x; size, alpha=9.999999747378752e-05, beta=0.75, bias=1.0)",
    openvino="LRN-1(x, axes; alpha, beta, bias, size)",
):
    """Compute local response normalization, ``x / (bias + alpha / size ** n * sum(x ** 2)) ** beta``.

    The sum is over a region of ``size`` elements along each of the n ``axes``, from floor((size - 1) / 2) before to ceil((size
    - 1) / 2) after the element. Sources: ONNX LRN 1, 13 (over the channels); OpenVINO LRN-1 (odd sizes only: for an even size
    OpenVINO's text and implementation differ).
    """

    size: int
    alpha: float = 9.999999747378752e-05
    beta: float = 0.75
    bias: float = 1.0
    axes: tuple[int, ...] = (1,)

    def validate(self) -> None:
        if self.size < 1:
            raise RuleError("attribute.range", f"size must be at least 1, got {self.size}")

    def shape(self, x: View) -> Any:
        if x.shape is not None:
            axes_in(self.axes, len(x.shape))
        return x.shape

    def region(self, length: int) -> int:
        """Return the smallest region size with the same effect on an axis of ``length`` elements."""
        return min(self.size, 2 * length + 2 - self.size % 2)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        wide = arrays.widen(xp, x)
        axes = axes_in(self.axes, x.ndim)
        regions = tuple(self.region(x.shape[axis]) for axis in axes)
        before, after = zip(*(split_padding(size - 1, upper=True) for size in regions), strict=True) if axes else ((), ())
        count, last = len(axes), range(x.ndim - len(axes), x.ndim)
        squares = xp.moveaxis(wide * wide, axes, tuple(last)) if count else wide * wide
        ones = (1,) * count
        total = arrays.pool_sum(xp, squares, regions, ones, before, after, ones) if count else squares
        total = xp.moveaxis(total, tuple(last), axes) if count else total
        return round_to(xp, wide / (self.bias + self.alpha / self.size**count * total) ** self.beta, arrays.element(x))

    def decompose(self, b: Builder, x: Value) -> Any:
        """Decompose to AveragePool of the squares, with ``axes`` transposed to the end."""
        rank, kind = len(x.dims), wide_type(x.dtype)
        wide = as_type(b, x, kind)
        axes = list(axes_in(self.axes, rank))
        squares = b.Multiply(wide, wide)
        if axes:
            order = [axis for axis in range(rank) if axis not in axes] + axes
            transposed = b.Transpose(squares, order)
            flat = b.Reshape(transposed, concat_vectors(b, [-1, 1], shape_value(b, x, axes)), special_zero=False)
            before, after = split_padding(self.size - 1, upper=True)
            pads = (before,) * len(axes) + (after,) * len(axes)
            pool = AveragePool(pads=pads, kernel_shape=(self.size,) * len(axes), divisor="padded")
            means = b.Reshape(b.add(pool, flat)[0], shape_value(b, transposed), special_zero=False)
            squares = b.Transpose(means, [order.index(axis) for axis in range(rank)])
        denominator = b.Power(b.Add(b.Multiply(squares, self.alpha), self.bias), self.beta)
        return as_type(b, b.Divide(wide, denominator), x.dtype)


class NormalizeL2(NormalizationOp, sig="x: F, axes!: I -> y: F", openvino="NormalizeL2-1(x, axes; eps, eps_mode)"):
    """Compute ``x / sqrt(s + eps)``, where s is the sum of squares over ``axes`` (empty: the square of the element).

    With the ``eps_mode`` ``max`` the root is of the maximum of s and eps instead. Source: OpenVINO NormalizeL2-1.
    """

    decomposes_in_f32 = True

    eps: float
    eps_mode: str = "add"

    def validate(self) -> None:
        if self.eps_mode not in ("add", "max"):
            raise RuleError("attribute.value", f"eps_mode must be add or max, got {self.eps_mode!r}")

    def shape(self, x: View, axes: View) -> Any:
        if x.shape is not None and axes.value is not None:
            axes_in(axes_of(axes.value), len(x.shape))
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, axes: Array) -> Any:
        wide = arrays.widen(xp, x)
        indices = axes_in(axes_of(axes), x.ndim)
        total = xp.sum(wide * wide, axis=indices, keepdims=True) if indices else wide * wide
        denominator = total + self.eps if self.eps_mode == "add" else xp.maximum(total, xp.asarray(self.eps, dtype=wide.dtype))
        return round_to(xp, wide / xp.sqrt(denominator), arrays.element(x))

    def decompose(self, b: Builder, x: Value, axes: Value) -> Any:
        kind = wide_type(x.dtype)
        wide = as_type(b, x, kind)
        total = b.ReduceSum(b.Multiply(wide, wide), axes, keepdims=True, noop_with_empty_axes=True)
        denominator = b.Add(total, self.eps) if self.eps_mode == "add" else b.Maximum(total, self.eps)
        return as_type(b, b.Divide(wide, b.Sqrt(denominator)), x.dtype)


class LpNormalization(NormalizationOp, sig="x: F -> y: F", onnx="LpNormalization-1,22(x; axis=-1, p=2)"):
    """Divide ``x`` by its ``p``-norm (p is 1 or 2) over ``axis``; 0 where the norm is 0. Source: ONNX LpNormalization 1, 22."""

    decomposes_in_f32 = True

    axis: int = -1
    p: int = 2

    def validate(self) -> None:
        if self.p not in (1, 2):
            raise RuleError("attribute.range", f"p must be 1 or 2, got {self.p}")

    def shape(self, x: View) -> Any:
        if x.shape is not None:
            axis_in(self.axis, len(x.shape))
        return x.shape

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        wide = arrays.widen(xp, x)
        size = xp.abs(wide) if self.p == 1 else wide * wide
        total = xp.sum(size, axis=axis_in(self.axis, x.ndim), keepdims=True)
        norm = total if self.p == 1 else xp.sqrt(total)
        safe = xp.where(norm == 0, xp.ones_like(norm), norm)
        return round_to(xp, xp.where(norm == 0, xp.zeros_like(wide), wide / safe), arrays.element(x))

    def decompose(self, b: Builder, x: Value) -> Any:
        kind = wide_type(x.dtype)
        wide = as_type(b, x, kind)
        size = b.Abs(wide) if self.p == 1 else b.Multiply(wide, wide)
        total = b.ReduceSum(size, [axis_in(self.axis, len(x.dims))], keepdims=True)
        # The root has no gradient at 0, so 1 replaces a norm of 0.
        is_zero = b.Equal(total, 0.0)
        safe = b.Where(is_zero, b.constant(1.0, kind), total)
        y = b.Divide(wide, safe if self.p == 1 else b.Sqrt(safe))
        return as_type(b, b.Where(is_zero, b.constant(0.0, kind), y), x.dtype)
