"""Reductions over axes, the places of extremes, and running sums."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import RuleError
from dovetail.ir.types import axes_in, total
from dovetail.ops.elementwise.broadcast import Elementwise, is_float, number
from dovetail.ops.elementwise.clip import finite_range


def _versions(kind: str, old: tuple[int, ...], by_input: str) -> tuple[str, ...]:
    """The lines of an ONNX reduction, whose axes became an input in the versions ``by_input``."""
    later = ",".join(map(str, old[1:]))
    return (
        f"{kind}-1(x; axes~front?, keepdims=1 | noop_with_empty_axes=false)",
        f"{kind}-{later}(x; axes?, keepdims=1 | noop_with_empty_axes=false)",
        f"{kind}-{by_input}(x, axes?; noop_with_empty_axes=0, keepdims=1)",
    )


def _line(kind: str, version: int = 1) -> str:
    return f"{kind}-{version}(x, axes; keep_dims:keepdims=false | noop_with_empty_axes=true)"


class _Reduction(Elementwise, sig="x: R, axes!?: I -> y: R"):
    """One number of all those along ``axes``, a scalar or vector, which counts from the end where negative.

    The axes are kept with size 1, or taken out. Axes left out or empty are all of them, or with ``noop_with_empty_axes`` none,
    where each element is a set of its own. Narrow floats are computed in f32 and rounded once; integers wrap.
    """

    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def axes_of(self, rank: int, axes: Any) -> tuple[int, ...]:
        """The axes counted from the front; ``axes`` is an array or None."""
        listed = [] if axes is None else [_number(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]
        if not listed:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        return axes_in(listed, rank)

    def shape(self, x: Any, axes: Any = None) -> Any:
        if axes is not None and axes.shape is not None and len(axes.shape) > 1:
            raise RuleError("reduce.axes", f"axes should be a scalar or a vector, not of shape {list(axes.shape)}")
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

    def _shape_of_unknown(self, shape: Any, axes: Any) -> Any:
        """Axes that only run time knows: the rank stands where they are kept, or counted."""
        if self.keepdims:
            return tuple(1 if isinstance(size, int) and size == 1 else None for size in shape)
        counted = axes.shape is not None and (len(axes.shape) == 0 or isinstance(axes.shape[0], int))
        if not counted:
            return None
        return (None,) * (len(shape) - (axes.shape[0] if len(axes.shape) else 1))

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        """The reduction of a wide enough ``x`` over at least one element each, with the axes kept."""
        raise NotImplementedError

    def nothing(self, dtype: Any) -> Any:
        """What no elements give, as a numpy scalar."""
        raise NotImplementedError

    def evaluate(self, xp: Any, x: Any, axes: Any = None) -> Any:
        reduced = self.axes_of(x.ndim, axes)
        if not reduced:
            # Some libraries take no axes for all: each element is put on an axis of its own.
            return self.with_(keepdims=False).evaluate(xp, xp.expand_dims(x, axis=-1), [-1])
        if xp is symbolic.xp:
            y = self.function(xp, x, reduced)
        elif not prod(x.shape[axis] for axis in reduced):
            shape = tuple(1 if axis in reduced else size for axis, size in enumerate(x.shape))
            y = xp.broadcast_to(xp.asarray(np.asarray(self.nothing(arrays.element(x))), dtype=x.dtype), shape)
        else:
            kind = arrays.element(x)
            with np.errstate(all="ignore"):
                y = arrays.cast(xp, xp.asarray(self.function(xp, arrays.widened(xp, x), reduced)), kind, saturate=False)
        return y if self.keepdims else xp.squeeze(y, axis=reduced)

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        """Axes counted from the end were not there from the beginning."""
        if axes is None or axes.constant is None or x.shape is None or not any(axis < 0 for axis in np.ravel(axes.constant)):
            return None
        return b.add(self, x, b.constant(np.array(self.axes_of(len(x.shape), axes.constant), np.int64)))[0]

    # For gradients

    def kept(self, b: Any, reduced: Any, x: Any, axes: Any) -> Any:
        """A value of the output's shape, with the axes put back as 1."""
        if self.keepdims:
            return reduced
        rank = None if x.shape is None else len(x.shape)
        listed = None if axes is None else axes.value
        if rank is not None and (axes is None or (listed is not None and not any(map(_is_symbol, np.ravel(listed))))):
            places = self.axes_of(rank, listed)
            return b.Unsqueeze(reduced, list(places)) if places else reduced
        full = b.add(self.with_(keepdims=True), x, axes)[0]
        return b.Reshape(reduced, b.Shape(full, output_type=dtypes.i64), special_zero=False)

    def whole(self, b: Any, g: Any, x: Any, axes: Any) -> Any:
        """The incoming gradient at every element of ``x``."""
        from dovetail.ir.builder import shape_value

        return b.Expand(self.kept(b, g, x, axes), shape_value(b, x))

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        """The gradient for ``x``; ``g`` and ``y`` with their axes kept."""
        raise NotImplementedError

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axes: Any = None) -> Any:
        if not is_float(x):
            return [None, None]
        return [self.slope(b, self.kept(b, g, x, axes), self.kept(b, y, x, axes), x, axes), None]

    def again(self, b: Any, kind: str, x: Any, axes: Any) -> Any:
        """Another reduction over the same axes, kept."""
        return b.apply(kind, x, axes, keepdims=True, noop_with_empty_axes=self.noop_with_empty_axes)


def _number(axis: Any) -> Any:
    return axis if isinstance(axis, symbolic.Dim) else int(axis)


def _is_symbol(axis: Any) -> bool:
    return isinstance(axis, symbolic.Dim)


class _Whole(_Reduction):
    """A reduction whose result for integers is cut off toward zero."""

    def wide(self, xp: Any, x: Any) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("real numbers")
        return arrays.cast(xp, x, dtypes.f64) if arrays.element(x).is_integer else x


class ReduceSum(_Reduction, onnx=_versions("ReduceSum", (1, 11), "13"), openvino=_line("ReduceSum")):
    """The sum; 0 of nothing. Sources: ONNX ReduceSum 1 to 13, OpenVINO ReduceSum-1."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        return xp.sum(x, axis=axes, keepdims=True) if xp is symbolic.xp else xp.sum(x, axis=axes, keepdims=True, dtype=x.dtype)

    def nothing(self, dtype: Any) -> Any:
        return 0

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axes: Any = None) -> Any:
        return [self.whole(b, g, x, axes) if is_float(x) else None, None]


class ReduceMean(_Reduction, onnx=_versions("ReduceMean", (1, 11, 13), "18"), openvino=_line("ReduceMean")):
    """The mean; that of integers is their wrapped sum divided toward zero; NaN of nothing (0 for integers).

    Sources: ONNX ReduceMean 1 to 18, OpenVINO ReduceMean-1.
    """

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        if xp is symbolic.xp:
            raise symbolic.Inexact("a mean")
        count = prod(x.shape[axis] for axis in axes)
        sum = xp.sum(x, axis=axes, keepdims=True, dtype=x.dtype)
        if not arrays.element(x).is_integer:
            return sum / count
        wide = sum if arrays.element(x).bits == 64 else arrays.cast(xp, sum, dtypes.i64)
        return arrays.cast(xp, arrays.trunc_divide(xp, wide, xp.full_like(wide, count)), arrays.element(x))

    def nothing(self, dtype: Any) -> Any:
        return 0 if dtype.is_integer else np.nan

    def decompose(self, b: Any, x: Any, axes: Any = None) -> Any:
        """The sum of integers wraps before it is divided: in a wider type it would not."""
        return self.composed(b, x, axes) if x.dtype.is_integer else super().decompose(b, x, axes)

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axes: Any = None) -> Any:
        if not is_float(x):
            return [None, None]
        share = b.Divide(self.kept(b, g, x, axes), self.count(b, x, axes))
        return [b.Expand(share, _sizes(b, x)), None]

    def count(self, b: Any, x: Any, axes: Any) -> Any:
        """How many elements each mean is of, in the type of ``x``."""
        if x.shape is not None and (axes is None or axes.value is not None):
            size = total(x.shape[axis] for axis in self.axes_of(len(x.shape), None if axes is None else axes.value))
            if isinstance(size, int):
                return number(b, size, x)
        ones = b.Expand(number(b, 1, x), _sizes(b, x))
        return self.again(b, "ReduceSum", ones, axes)


def _sizes(b: Any, x: Any) -> Any:
    from dovetail.ir.builder import shape_value

    return shape_value(b, x)


class _Extreme(_Reduction, sig="x: T, axes!?: I -> y: T"):
    """The greatest or least, of real numbers or truth values (False < True)."""

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        """Truth values as numbers; of nothing the last number of its sign."""
        if x.dtype.kind != "bool":
            return super().composed(b, x, axes)
        return b.Greater(b.add(self, b.Cast(x, to=dtypes.i32), axes)[0], 0)

    def types(self, x: Any, axes: Any = None) -> Any:
        found = super().types(x, axes)
        dtype = x.type.dtype
        if dtype is not None and dtype.kind not in ("float", "int", "uint", "bool"):
            raise RuleError("type.class", f"input 'x' should be a real number type or boolean, not {dtype}")
        return found

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        """Elements that are extreme together share the gradient equally."""
        hit = b.Cast(b.Equal(x, y), to=x.dtype)
        return b.Multiply(hit, b.Divide(g, self.again(b, "ReduceSum", hit, axes)))


class ReduceMax(
    _Extreme,
    onnx=_versions("ReduceMax", (1, 11, 12, 13), "18,20"),
    openvino=_line("ReduceMax"),
):
    """The greatest; NaN where one is; of nothing -inf, or the least value of the type.

    Sources: ONNX ReduceMax 1 to 20, OpenVINO ReduceMax-1.
    """

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        if xp is not symbolic.xp and arrays.element(x).kind == "bool":
            return xp.any(x, axis=axes, keepdims=True)
        return xp.max(x, axis=axes, keepdims=True)

    def nothing(self, dtype: Any) -> Any:
        return _outermost(dtype, -1)


class ReduceMin(
    _Extreme,
    onnx=_versions("ReduceMin", (1, 11, 12, 13), "18,20"),
    openvino=_line("ReduceMin"),
):
    """The least; NaN where one is; of nothing +inf, or the greatest value of the type.

    Sources: ONNX ReduceMin 1 to 20, OpenVINO ReduceMin-1.
    """

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        if xp is not symbolic.xp and arrays.element(x).kind == "bool":
            return xp.all(x, axis=axes, keepdims=True)
        return xp.min(x, axis=axes, keepdims=True)

    def nothing(self, dtype: Any) -> Any:
        return _outermost(dtype, 1)


def _outermost(dtype: Any, sign: int) -> Any:
    """The infinity of that sign, or the last value where the type has none."""
    if dtype.kind == "bool":
        return sign > 0
    last = finite_range(dtype)[0 if sign < 0 else 1]
    if dtype.is_integer:
        return last
    infinity = np.asarray(sign * np.inf).astype(dtype.numpy)
    return infinity if np.isinf(infinity.astype(np.float32)) else last


class ReduceProd(_Reduction, onnx=_versions("ReduceProd", (1, 11, 13), "18"), openvino=_line("ReduceProd")):
    """The product; 1 of nothing. Sources: ONNX ReduceProd 1 to 18, OpenVINO ReduceProd-1."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        return xp.prod(x, axis=axes, keepdims=True) if xp is symbolic.xp else xp.prod(x, axis=axes, keepdims=True, dtype=x.dtype)

    def nothing(self, dtype: Any) -> Any:
        return 1

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        """The product of the others: where one factor is 0 it alone has a slope, where two are, none has."""
        zero, one = number(b, 0, x), number(b, 1, x)
        is_zero = b.Equal(x, zero)
        filled = b.Where(is_zero, one, x)
        others = b.Divide(self.again(b, "ReduceProd", filled, axes), filled)
        zeros = self.again(b, "ReduceSum", b.Cast(is_zero, to=x.dtype), axes)
        meant = b.Equal(zeros, b.Where(is_zero, one, zero))
        return b.Multiply(g, b.Where(meant, others, zero))


class ReduceL1(_Reduction, onnx=_versions("ReduceL1", (1, 11, 13), "18"), openvino=_line("ReduceL1", 4)):
    """The sum of magnitudes; 0 of nothing. Sources: ONNX ReduceL1 1 to 18, OpenVINO ReduceL1-4."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        sizes = x if xp is not symbolic.xp and arrays.element(x).kind == "uint" else xp.abs(x)
        return ReduceSum().function(xp, sizes, axes)

    def nothing(self, dtype: Any) -> Any:
        return 0

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        return b.ReduceSum(b.Abs(x), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes)

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        return b.Multiply(g, b.Sign(x))


class ReduceL2(_Whole, onnx=_versions("ReduceL2", (1, 11, 13), "18"), openvino=_line("ReduceL2", 4)):
    """The square root of the sum of squares; 0 of nothing. Sources: ONNX ReduceL2 1 to 18, OpenVINO ReduceL2-4."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        wide = self.wide(xp, x)
        return xp.sqrt(xp.sum(wide * wide, axis=axes, keepdims=True, dtype=wide.dtype))

    def nothing(self, dtype: Any) -> Any:
        return 0

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        if x.dtype.is_integer:
            return super().composed(b, x, axes)
        return b.Sqrt(b.ReduceSum(b.Multiply(x, x), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes))

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        zero = number(b, 0, x)
        at_zero = b.Equal(y, zero)
        return b.Multiply(g, b.Where(at_zero, zero, b.Divide(x, b.Where(at_zero, number(b, 1, x), y))))


class ReduceSumSquare(_Reduction, onnx=_versions("ReduceSumSquare", (1, 11, 13), "18")):
    """The sum of squares; 0 of nothing. Source: ONNX ReduceSumSquare 1 to 18."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        return ReduceSum().function(xp, xp.multiply(x, x), axes)

    def nothing(self, dtype: Any) -> Any:
        return 0

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        return b.ReduceSum(b.Multiply(x, x), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes)

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        return b.Multiply(g, b.Multiply(x, 2))


class ReduceLogSum(_Whole, onnx=_versions("ReduceLogSum", (1, 11, 13), "18,28")):
    """The logarithm of the sum; -inf of nothing. Source: ONNX ReduceLogSum 1 to 28."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        wide = self.wide(xp, x)
        return xp.log(xp.sum(wide, axis=axes, keepdims=True, dtype=wide.dtype))

    def nothing(self, dtype: Any) -> Any:
        return _outermost(dtype, -1)

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        if x.dtype.is_integer:
            return super().composed(b, x, axes)
        return b.Log(b.ReduceSum(x, axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes))

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        return b.Expand(b.Divide(g, self.again(b, "ReduceSum", x, axes)), _sizes(b, x))


class ReduceLogSumExp(_Whole, onnx=_versions("ReduceLogSumExp", (1, 11, 13), "18,28")):
    """The logarithm of the sum of exponentials, without overflow; -inf of nothing. Source: ONNX ReduceLogSumExp 1 to 28."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        return arrays.logsumexp(xp, self.wide(xp, x), axes, keepdims=True)

    def nothing(self, dtype: Any) -> Any:
        return _outermost(dtype, -1)

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        """The greatest element, where it is finite, is taken out of the sum."""
        if x.dtype.is_integer:
            return super().composed(b, x, axes)
        greatest = self.again(b, "ReduceMax", x, axes)
        greatest = b.Where(b.IsInf(greatest), number(b, 0, x), greatest)
        logarithm = b.Log(self.again(b, "ReduceSum", b.Exp(b.Subtract(x, greatest)), axes))
        result = b.Add(logarithm, greatest)
        # Each is a set of its own, or one element after the reduction: a sum over the same axes takes them out.
        return (
            result if self.keepdims else b.ReduceSum(result, axes, keepdims=False, noop_with_empty_axes=self.noop_with_empty_axes)
        )

    def slope(self, b: Any, g: Any, y: Any, x: Any, axes: Any) -> Any:
        return b.Multiply(g, b.Exp(b.Subtract(x, y)))


class _Quantifier(_Reduction, sig="x: boolean, axes!?: I -> y: boolean"):
    """A truth value of all those along ``axes``."""

    def composed(self, b: Any, x: Any, axes: Any = None) -> Any:
        """As numbers: the truth values' own extremes came only with ONNX 20."""
        kind = "ReduceMin" if isinstance(self, ReduceAll) else "ReduceMax"
        counted = b.apply(
            kind, b.Cast(x, to=dtypes.i32), axes, keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes
        )
        return b.Greater(counted, 0)

    def vjp(self, b: Any, g: Any, y: Any, x: Any, axes: Any = None) -> Any:
        return [None, None]


class ReduceAll(_Quantifier, openvino=_line("ReduceLogicalAnd")):
    """Whether all hold; True of nothing. Source: OpenVINO ReduceLogicalAnd-1."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        return xp.all(x, axis=axes, keepdims=True)

    def nothing(self, dtype: Any) -> Any:
        return True


class ReduceAny(_Quantifier, openvino=_line("ReduceLogicalOr")):
    """Whether one holds; False of nothing. Source: OpenVINO ReduceLogicalOr-1."""

    def function(self, xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
        return xp.any(x, axis=axes, keepdims=True)

    def nothing(self, dtype: Any) -> Any:
        return False
