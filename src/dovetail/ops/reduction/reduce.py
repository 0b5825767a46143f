"""Reductions over axes: ReduceSum, ReduceMean, ReduceMax and the others."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, axes_in, dtype_in, total
from dovetail.ops.elementwise.broadcast import Elementwise, is_float, scalar_like
from dovetail.ops.elementwise.clip import finite_range

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def _onnx_mappings(kind: str, old: tuple[int, ...], by_input: str) -> tuple[str, ...]:
    """Return the op mappings of an ONNX reduction; the axes are an input in the versions ``by_input``."""
    later = ",".join(map(str, old[1:]))
    return (
        f"{kind}-1(x; axes~front?, keepdims=1 | noop_with_empty_axes=false)",
        f"{kind}-{later}(x; axes?, keepdims=1 | noop_with_empty_axes=false)",
        f"{kind}-{by_input}(x, axes?; noop_with_empty_axes=0, keepdims=1)",
    )


def _openvino_mapping(kind: str, version: int = 1) -> str:
    return f"{kind}-{version}(x, axes; keep_dims:keepdims=false | noop_with_empty_axes=true)"


class Reduction(Elementwise, sig="x: R, axes!?: I -> y: R", is_registered=False):
    """Reduction is the base of reductions along ``axes``, a scalar or vector; negative axes count from the end.

    ``keepdims`` keeps the reduced axes with size 1. If ``axes`` is absent or empty, all axes are reduced. With
    ``noop_with_empty_axes`` no axis is reduced in this case: the reduction applies to each element separately. Narrow floats are
    computed in f32 and rounded once; integers wrap around.
    """

    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def axes_of(self, rank: int, axes: Array | None) -> tuple[int, ...]:
        """Return the axes to reduce as indices of at least 0; ``axes`` is an array or None."""
        listed = [] if axes is None else [_number(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]
        if not listed:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        return axes_in(listed, rank)

    def canonical(self, x: View, axes: View | None = None) -> Op:
        """Drop ``noop_with_empty_axes`` if ``axes`` is known to have at least one element."""
        sizes = None if axes is None else axes.shape
        names_one = sizes is not None and all(isinstance(size, int) and size > 0 for size in sizes)
        return self.with_(noop_with_empty_axes=False) if self.noop_with_empty_axes and names_one else self

    def shape(self, x: View, axes: View | None = None) -> Any:
        if axes is not None and axes.shape is not None and len(axes.shape) > 1:
            raise RuleError("constant.needed", f"axes must be a scalar or a vector, got shape {list(axes.shape)}")
        if x.shape is None:
            return None
        rank = len(x.shape)
        if axes is not None and axes.value is None and axes.shape != (0,):
            return self._shape_of_unknown(x.shape, axes)
        values = None if axes is None else axes.value
        listed = None if values is None else [_number(axis) for axis in np.atleast_1d(np.asarray(values)).tolist()]
        if listed is not None and any(isinstance(axis, symbolic.Dim) for axis in listed):
            return self._shape_of_unknown(x.shape, axes)
        reduced = self.axes_of(rank, listed)
        sizes = enumerate(x.shape)
        if self.keepdims:
            return tuple(1 if axis in reduced else size for axis, size in sizes)
        return tuple(size for axis, size in sizes if axis not in reduced)

    def _shape_of_unknown(self, shape: Shape, axes: View | None) -> Any:
        """Infer the shape for axes only known at run time: ``keepdims`` or the number of axes determines the rank."""
        if self.keepdims:
            return tuple(1 if isinstance(size, int) and size == 1 else None for size in shape)
        if axes is None or axes.shape is None:
            return None
        count = axes.shape[0] if len(axes.shape) else 1
        return (None,) * (len(shape) - count) if isinstance(count, int) else None

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        """Reduce a widened ``x`` over at least one element per output, keeping the axes with size 1."""
        raise NotImplementedError

    def empty_result(self, dtype: DType) -> Any:
        """Return the reduction of no elements, as a numpy scalar."""
        raise NotImplementedError

    def evaluate(self, xp: Namespace, x: Array, axes: Array | None = None) -> Any:
        reduced = self.axes_of(x.ndim, axes)
        if not reduced:
            # Some libraries reduce all axes if `axes` is empty. A new last axis of size 1 is reduced instead.
            return self.with_(keepdims=False).evaluate(xp, xp.expand_dims(x, axis=-1), [-1])
        if xp is symbolic.xp:
            y = self.function(xp, x, reduced)
        elif not prod(x.shape[axis] for axis in reduced):
            shape = tuple(1 if axis in reduced else size for axis, size in enumerate(x.shape))
            y = xp.broadcast_to(xp.asarray(np.asarray(self.empty_result(arrays.element(x))), dtype=x.dtype), shape)
        else:
            kind = arrays.element(x)
            with np.errstate(all="ignore"):
                y = arrays.cast(xp, xp.asarray(self.function(xp, arrays.widen(xp, x), reduced)), kind, saturate=False)
        return y if self.keepdims else xp.squeeze(y, axis=reduced)

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        """Replace negative constant axes, which early ONNX versions do not allow; reduce a new axis if no axes are given."""
        if self.noop_with_empty_axes and (axes is None or axes.shape == (0,)):
            plain = self.with_(noop_with_empty_axes=False, keepdims=False)
            return b.add(plain, b.Unsqueeze(x, [0]), b.constant(np.zeros(1, np.int64)))[0]
        if axes is None or axes.constant is None or x.shape is None or not any(axis < 0 for axis in np.ravel(axes.constant)):
            return None
        return b.add(self, x, b.constant(np.array(self.axes_of(len(x.shape), axes.constant), np.int64)))[0]

    # Helpers of the gradients

    def restore_axes(self, b: Builder, reduced: Value, x: Value, axes: Value | None) -> Any:
        """Reshape ``reduced``, which has the shape of the output, so that the reduced axes have size 1."""
        if self.keepdims:
            return reduced
        rank = None if x.shape is None else len(x.shape)
        listed = None if axes is None else axes.value
        if rank is not None and (axes is None or (listed is not None and not any(map(_is_symbol, np.ravel(listed))))):
            indices = self.axes_of(rank, listed)
            return b.Unsqueeze(reduced, list(indices)) if indices else reduced
        full = b.add(self.with_(keepdims=True), x, axes)[0]
        return b.Reshape(reduced, b.Shape(full, output_type=dtypes.i64), special_zero=False)

    def expand_gradient(self, b: Builder, g: Value, x: Value, axes: Value | None) -> Any:
        """Broadcast the output gradient ``g`` to the shape of ``x``."""
        from dovetail.ir.builder import shape_value

        return b.Expand(self.restore_axes(b, g, x, axes), shape_value(b, x))

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        """Return the gradient for ``x``; ``g`` and ``y`` have the reduced axes with size 1."""
        raise NotImplementedError

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None = None) -> Any:
        if not is_float(x):
            return [None, None]
        return [self.gradient(b, self.restore_axes(b, g, x, axes), self.restore_axes(b, y, x, axes), x, axes), None]

    def reduce_same_axes(self, b: Builder, kind: str, x: Value, axes: Value | None) -> Any:
        """Apply the reduction ``kind`` to ``x`` over the axes that this operator reduces; keep these axes with size 1."""
        return b.apply(kind, x, axes, keepdims=True, noop_with_empty_axes=self.noop_with_empty_axes)


def _number(axis: int | symbolic.Dim) -> Any:
    return axis if isinstance(axis, symbolic.Dim) else int(axis)


def _is_symbol(axis: int | symbolic.Dim) -> bool:
    return isinstance(axis, symbolic.Dim)


class _TruncatedReduction(Reduction):
    """_TruncatedReduction is the base of reductions that truncate the results for integers toward zero."""

    def wide(self, xp: Namespace, x: Array) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("real numbers")
        return arrays.cast(xp, x, dtypes.f64) if arrays.element(x).is_integer else x


class ReduceSum(Reduction, onnx=_onnx_mappings("ReduceSum", (1, 11), "13"), openvino=_openvino_mapping("ReduceSum")):
    """Compute the sum; no elements give 0. Sources: ONNX ReduceSum 1 to 13, OpenVINO ReduceSum-1."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        return xp.sum(x, axis=axes, keepdims=True) if xp is symbolic.xp else xp.sum(x, axis=axes, keepdims=True, dtype=x.dtype)

    def empty_result(self, dtype: DType) -> Any:
        return 0

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None = None) -> Any:
        return [self.expand_gradient(b, g, x, axes) if is_float(x) else None, None]


class ReduceMean(Reduction, onnx=_onnx_mappings("ReduceMean", (1, 11, 13), "18"), openvino=_openvino_mapping("ReduceMean")):
    """Compute the mean; no elements give NaN (integers: 0). For integers the wrapped sum is divided with truncation.

    Sources: ONNX ReduceMean 1 to 18, OpenVINO ReduceMean-1.
    """

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("a mean")
        count = prod(x.shape[axis] for axis in axes)
        sum = xp.sum(x, axis=axes, keepdims=True, dtype=x.dtype)
        if not arrays.element(x).is_integer:
            return sum / count
        wide = sum if arrays.element(x).bits == 64 else arrays.cast(xp, sum, dtypes.i64)
        return arrays.cast(xp, arrays.trunc_divide(xp, wide, xp.full_like(wide, count)), arrays.element(x))

    def empty_result(self, dtype: DType) -> Any:
        return 0 if dtype.is_integer else np.nan

    def decompose(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        """Lower a mean of integers in the integer type, in which the sum wraps around before the division."""
        return self.lower(b, x, axes) if x.dtype.is_integer else super().decompose(b, x, axes)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None = None) -> Any:
        if not is_float(x):
            return [None, None]
        share = b.Divide(self.restore_axes(b, g, x, axes), self.element_count(b, x, axes))
        return [b.Expand(share, _sizes(b, x)), None]

    def element_count(self, b: Builder, x: Value, axes: Value | None) -> Any:
        """Return the number of elements per mean, in the type of ``x``."""
        if x.shape is not None and (axes is None or axes.value is not None):
            size = total(x.shape[axis] for axis in self.axes_of(len(x.shape), None if axes is None else axes.value))
            if isinstance(size, int):
                return scalar_like(b, size, x)
        ones = b.Expand(scalar_like(b, 1, x), _sizes(b, x))
        return self.reduce_same_axes(b, "ReduceSum", ones, axes)


def _sizes(b: Builder, x: Value) -> Any:
    from dovetail.ir.builder import shape_value

    return shape_value(b, x)


class _Extremum(Reduction, sig="x: T, axes!?: I -> y: T"):
    """_Extremum is the base of ReduceMax and ReduceMin, which compare real numbers or booleans (False < True)."""

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        """Reduce booleans as i32, and compare the result with 0; no elements give the least or greatest i32."""
        if x.dtype.kind != "bool":
            return super().lower(b, x, axes)
        return b.Greater(b.add(self, b.Cast(x, to=dtypes.i32), axes)[0], 0)

    def types(self, x: View, axes: View | None = None) -> Any:
        result = super().types(x, axes)
        dtype = dtype_in(x.type)
        if dtype is not None and dtype.kind not in ("float", "int", "uint", "bool"):
            raise RuleError("type.class", f"input 'x' must be a real number type or boolean, got {dtype}")
        return result

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        """Split the gradient equally among the elements that attain the extremum."""
        hit = b.Cast(b.Equal(x, y), to=x.dtype)
        return b.Multiply(hit, b.Divide(g, self.reduce_same_axes(b, "ReduceSum", hit, axes)))


class ReduceMax(
    _Extremum,
    onnx=_onnx_mappings("ReduceMax", (1, 11, 12, 13), "18,20"),
    openvino=_openvino_mapping("ReduceMax"),
):
    """Compute the maximum, NaN if any element is NaN; no elements give -inf, or the least value of a type without -inf.

    Sources: ONNX ReduceMax 1 to 20, OpenVINO ReduceMax-1.
    """

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        if xp is not symbolic.xp and arrays.element(x).kind == "bool":
            return xp.any(x, axis=axes, keepdims=True)
        return xp.max(x, axis=axes, keepdims=True)

    def empty_result(self, dtype: DType) -> Any:
        return _extreme_value(dtype, -1)


class ReduceMin(
    _Extremum,
    onnx=_onnx_mappings("ReduceMin", (1, 11, 12, 13), "18,20"),
    openvino=_openvino_mapping("ReduceMin"),
):
    """Compute the minimum, NaN if any element is NaN; no elements give +inf, or the greatest value of a type without +inf.

    Sources: ONNX ReduceMin 1 to 20, OpenVINO ReduceMin-1.
    """

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        if xp is not symbolic.xp and arrays.element(x).kind == "bool":
            return xp.all(x, axis=axes, keepdims=True)
        return xp.min(x, axis=axes, keepdims=True)

    def empty_result(self, dtype: DType) -> Any:
        return _extreme_value(dtype, 1)


def _extreme_value(dtype: DType, sign: int) -> Any:
    """Return the infinity with the sign of ``sign``, or the extreme finite value of a type without infinities."""
    if dtype.kind == "bool":
        return sign > 0
    last = finite_range(dtype)[0 if sign < 0 else 1]
    if dtype.is_integer:
        return last
    infinity = np.asarray(sign * np.inf).astype(dtype.numpy)
    return infinity if np.isinf(infinity.astype(np.float32)) else last


class ReduceProd(Reduction, onnx=_onnx_mappings("ReduceProd", (1, 11, 13), "18"), openvino=_openvino_mapping("ReduceProd")):
    """Compute the product; no elements give 1. Sources: ONNX ReduceProd 1 to 18, OpenVINO ReduceProd-1."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        return xp.prod(x, axis=axes, keepdims=True) if xp is symbolic.xp else xp.prod(x, axis=axes, keepdims=True, dtype=x.dtype)

    def empty_result(self, dtype: DType) -> Any:
        return 1

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        """Multiply ``g`` by the product of the other factors.

        If exactly one factor is 0, only that factor has a gradient; if two or more factors are 0, no factor has a gradient.
        """
        zero, one = scalar_like(b, 0, x), scalar_like(b, 1, x)
        is_zero = b.Equal(x, zero)
        filled = b.Where(is_zero, one, x)
        others = b.Divide(self.reduce_same_axes(b, "ReduceProd", filled, axes), filled)
        zeros = self.reduce_same_axes(b, "ReduceSum", b.Cast(is_zero, to=x.dtype), axes)
        meant = b.Equal(zeros, b.Where(is_zero, one, zero))
        return b.Multiply(g, b.Where(meant, others, zero))


class ReduceL1(Reduction, onnx=_onnx_mappings("ReduceL1", (1, 11, 13), "18"), openvino=_openvino_mapping("ReduceL1", 4)):
    """Compute the L1 norm; no elements give 0. Sources: ONNX ReduceL1 1 to 18, OpenVINO ReduceL1-4."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        sizes = x if xp is not symbolic.xp and arrays.element(x).kind == "uint" else xp.abs(x)
        return ReduceSum().function(xp, sizes, axes)

    def empty_result(self, dtype: DType) -> Any:
        return 0

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        return b.ReduceSum(b.Abs(x), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes)

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        return b.Multiply(g, b.Sign(x))


class ReduceL2(
    _TruncatedReduction, onnx=_onnx_mappings("ReduceL2", (1, 11, 13), "18"), openvino=_openvino_mapping("ReduceL2", 4)
):
    """Compute the L2 norm; no elements give 0. Sources: ONNX ReduceL2 1 to 18, OpenVINO ReduceL2-4."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        wide = self.wide(xp, x)
        return xp.sqrt(xp.sum(wide * wide, axis=axes, keepdims=True, dtype=wide.dtype))

    def empty_result(self, dtype: DType) -> Any:
        return 0

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        if x.dtype.is_integer:
            return super().lower(b, x, axes)
        return b.Sqrt(b.ReduceSum(b.Multiply(x, x), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes))

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        zero = scalar_like(b, 0, x)
        at_zero = b.Equal(y, zero)
        return b.Multiply(g, b.Where(at_zero, zero, b.Divide(x, b.Where(at_zero, scalar_like(b, 1, x), y))))


class ReduceSumSquare(Reduction, onnx=_onnx_mappings("ReduceSumSquare", (1, 11, 13), "18")):
    """Compute the sum of squares; no elements give 0. Source: ONNX ReduceSumSquare 1 to 18."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        return ReduceSum().function(xp, xp.multiply(x, x), axes)

    def empty_result(self, dtype: DType) -> Any:
        return 0

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        return b.ReduceSum(b.Multiply(x, x), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes)

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        return b.Multiply(g, b.Multiply(x, 2))


class ReduceLogSum(_TruncatedReduction, onnx=_onnx_mappings("ReduceLogSum", (1, 11, 13), "18,28")):
    """Compute the logarithm of the sum; no elements give -inf. Source: ONNX ReduceLogSum 1 to 28."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        wide = self.wide(xp, x)
        return xp.log(xp.sum(wide, axis=axes, keepdims=True, dtype=wide.dtype))

    def empty_result(self, dtype: DType) -> Any:
        return _extreme_value(dtype, -1)

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        if x.dtype.is_integer:
            return super().lower(b, x, axes)
        return b.Log(b.ReduceSum(x, axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes))

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        return b.Expand(b.Divide(g, self.reduce_same_axes(b, "ReduceSum", x, axes)), _sizes(b, x))


class ReduceLogSumExp(_TruncatedReduction, onnx=_onnx_mappings("ReduceLogSumExp", (1, 11, 13), "18,28")):
    """Compute log(sum(exp(x))) without overflow; no elements give -inf. Source: ONNX ReduceLogSumExp 1 to 28."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        return arrays.logsumexp(xp, self.wide(xp, x), axes, keepdims=True)

    def empty_result(self, dtype: DType) -> Any:
        return _extreme_value(dtype, -1)

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        """Subtract the maximum (0 for an infinite maximum) before Exp, and add the maximum to the logarithm of the sum."""
        if x.dtype.is_integer:
            return super().lower(b, x, axes)
        greatest = self.reduce_same_axes(b, "ReduceMax", x, axes)
        greatest = b.Where(b.IsInf(greatest), scalar_like(b, 0, x), greatest)
        logarithm = b.Log(self.reduce_same_axes(b, "ReduceSum", b.Exp(b.Subtract(x, greatest)), axes))
        result = b.Add(logarithm, greatest)
        # The reduced axes of the result have size 1, so that a ReduceSum over the same axes only removes the axes.
        return (
            result if self.keepdims else b.ReduceSum(result, axes, keepdims=False, noop_with_empty_axes=self.noop_with_empty_axes)
        )

    def gradient(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None) -> Any:
        return b.Multiply(g, b.Exp(b.Subtract(x, y)))


class _LogicalReduction(Reduction, sig="x: boolean, axes!?: I -> y: boolean"):
    """_LogicalReduction is the base of logical reductions, which combine booleans along ``axes``."""

    def lower(self, b: Builder, x: Value, axes: Value | None = None) -> Any:
        """Reduce as i32, since ONNX before 20 has no ReduceMax and ReduceMin of booleans."""
        kind = "ReduceMin" if isinstance(self, ReduceAll) else "ReduceMax"
        counted = b.apply(
            kind, b.Cast(x, to=dtypes.i32), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes
        )
        return b.Greater(counted, 0)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value, axes: Value | None = None) -> Any:
        return [None, None]


class ReduceAll(_LogicalReduction, openvino=_openvino_mapping("ReduceLogicalAnd")):
    """Compute the logical AND; no elements give True. Source: OpenVINO ReduceLogicalAnd-1."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        return xp.all(x, axis=axes, keepdims=True)

    def empty_result(self, dtype: DType) -> Any:
        return True


class ReduceAny(_LogicalReduction, openvino=_openvino_mapping("ReduceLogicalOr")):
    """Compute the logical OR; no elements give False. Source: OpenVINO ReduceLogicalOr-1."""

    def function(self, xp: Namespace, x: Array, axes: tuple[int, ...]) -> Any:
        return xp.any(x, axis=axes, keepdims=True)

    def empty_result(self, dtype: DType) -> Any:
        return False
