"""Shape and Size, and tensors generated from sizes: ConstantOfShape and Range."""

from __future__ import annotations

from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import refuse_array
from dovetail.ir.op import Op, Window, Windows, check_inputs
from dovetail.ir.types import Tensor, Type, View, dtype_in, static, total
from dovetail.ops.shape_values import elements_of, host_view_of, length_of_vector, shape_of_rank, view_of
from dovetail.ops.tensor.transpose_expand_tile import strides_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Shape(
    Op,
    sig="data: T -> shape: I",
    onnx=("Shape-1,13(data)", "Shape-15,19,21,23,24,25(data; start=0, end?)"),
    openvino=("ShapeOf-1(data)", "ShapeOf-3(data; output_type=i64)"),
):
    """Return the sizes of ``data`` from axis ``start`` to before ``end``, as a vector of ``output_type``.

    Negative ``start`` and ``end`` count from the rank; both are clamped to [0, rank]. The default ``end`` is the rank.
    Sources: ONNX Shape 1 to 25; OpenVINO ShapeOf-1, -3.
    """

    start: int = 0
    end: int | None = None
    output_type: DType = dtypes.i64

    def types(self, data: View) -> list[Type]:
        check_inputs(self, (data,))
        count = None if data.shape is None else len(data.shape[self._cut(len(data.shape))])
        return [Tensor(self.output_type, (count,))]  # type: ignore[arg-type]

    def _cut(self, rank: int) -> slice:
        return slice(self.start, self.end)

    def value(self, data: View) -> Any:
        sizes = data.dims[self._cut(len(data.dims))]
        result = np.empty(len(sizes), dtype=object)
        result[:] = sizes
        return result

    def canonical(self, data: View) -> Op:
        if data.shape is None:
            return self
        start, stop, _ = self._cut(len(data.shape)).indices(len(data.shape))
        return self.with_(start=start, end=None if stop == len(data.shape) else max(start, stop))

    def evaluate(self, xp: Namespace, data: Array) -> Any:
        sizes = [int(size) for size in data.shape[self._cut(data.ndim)]]
        return arrays.from_numpy(xp, np.array(sizes, dtype=self.output_type.numpy), data)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value) -> Any:
        return [None]

    def decompose(self, b: Builder, data: Value) -> Any:
        if self.output_type != "i64":
            return b.Cast(b.Shape(data, start=self.start, end=self.end), to=self.output_type)
        if self.start == 0 and self.end is None:
            return None
        return b.Slice(b.Shape(data), [self.start], [2**63 - 1 if self.end is None else self.end], [0])


class Size(Op, sig="data: T -> size: i64", onnx="Size-1,13,19,21,23,24,25(data)"):
    """Return the number of elements of ``data``, a scalar. Source: ONNX Size 1 to 25."""

    def shape(self, data: View) -> Any:
        return ()

    def value(self, data: View) -> Any:
        result = np.empty((), dtype=object)
        result[()] = total(data.dims)
        return result

    def evaluate(self, xp: Namespace, data: Array) -> Any:
        return arrays.from_numpy(xp, np.array(prod(data.shape), dtype=np.int64), data)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value) -> Any:
        return [None]

    def decompose(self, b: Builder, data: Value) -> Any:
        return b.Squeeze(b.Shape(b.Reshape(data, [-1])), [0])


class ConstantOfShape(Op, sig="input!: I, value: T -> output: T"):
    """Fill a tensor of the shape ``input``, a vector, with the one element of ``value``.

    Sizes must not be negative; an empty ``input`` gives a scalar. Source: ONNX ConstantOfShape 9 to 25.
    """

    def shape(self, input: View, value: View) -> Any:
        length = length_of_vector(input, "shape")
        if value.shape is not None and symbolic.equal(total(value.shape), 1) is False:
            raise RuleError("constant.value", f"value must have one element, got the shape {list(map(str, value.shape))}")
        sizes = elements_of(input)
        if sizes is None:
            return shape_of_rank(length)
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise RuleError("shape.range", f"sizes must not be negative, got {sizes}")
        return tuple(size if isinstance(size, int) or symbolic.less_equal(0, size) else None for size in sizes)

    def evaluate(self, xp: Namespace, input: Array, value: Array) -> Any:
        sizes = self.shape(host_view_of(input), view_of(value))
        if sizes is None or not all(isinstance(size, int) for size in sizes):
            raise symbolic.Inexact
        return xp.broadcast_to(xp.reshape(value, ()), sizes)

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, value: Value) -> Any:
        gradient = b.ReduceSum(b.Reshape(g, [-1]), [0], keepdims=True)
        return [None, b.Reshape(gradient, [int(size) for size in value.dims])]

    def windows(self, input: View, value: View) -> Windows:
        sizes = static(self.shape(input, value))
        return Windows((Window(1, 0, sizes, 0, (0,) * len(sizes), 0, strides_of(sizes)),))

    def decompose(self, b: Builder, input: Value, value: Value) -> Any:
        return b.Expand(b.Reshape(value, []), input)


class Range(
    Op,
    sig="start!: R, limit!: R1, delta!: R2 -> output: R",
    onnx=("Range-11(start, limit, delta)", "Range-27(start, limit, delta; stash_type~{1:true}:wide=1)"),
    openvino=("Range-1(start, limit, delta)", "Range-4(start, limit, delta; output_type)"),
):
    """Return ``start``, ``start + delta``, ``start + 2 delta``, ... up to before ``limit``.

    The number of elements is max(ceil((limit - start) / delta), 0). Each input has one element; ``delta`` is not 0.
    ``output_type`` is the element type of the result, by default the type of ``start``; floats of fewer than 32 bits are computed
    in f32 (``wide``). Integer inputs of a float range are rounded first. Inference does not round symbolic sizes, because only
    sizes above 2^24 would change. An integer range with float inputs is an error, because OpenVINO does not specify where the
    inputs are rounded. Sources: ONNX Range 11, 27; OpenVINO Range-1, -4.
    """

    rounds_half_once = False

    output_type: DType | None = None
    wide: bool = True

    def types(self, start: View, limit: View, delta: View) -> list[Type]:
        check_inputs(self, (start, limit, delta))
        kinds = [dtype_in(x.type) for x in (start, limit, delta)]
        dtype = self.output_type or kinds[0]
        if dtype is not None and dtype.is_integer and any(kind is not None and kind.is_float for kind in kinds):
            raise UnsupportedError("type.class", f"a range of {dtype} needs integer inputs, got floats")
        for name, x in (("start", start), ("limit", limit), ("delta", delta)):
            if x.shape is not None and (len(x.shape) > 1 or symbolic.equal(total(x.shape), 1) is False):
                raise RuleError("shape.single", f"{name} must be a scalar, got the shape {list(map(str, x.shape))}")
        limits = [_scalar(x) for x in (start, limit, delta)]
        if dtype is not None and dtype.is_float:
            limits = [_round_to(item, dtype) if isinstance(item, int) else item for item in limits]
        return [Tensor(dtype, (_count(*limits),))]

    def value(self, start: View, limit: View, delta: View) -> Any:
        first, last, item = (_scalar(x) for x in (start, limit, delta))
        count = _count(first, last, item)
        if not isinstance(count, int) or isinstance(first, float) or count > 1024:
            raise symbolic.Inexact
        result = np.empty(count, dtype=object)
        result[:] = [first + index * item for index in range(count)]
        return result

    def evaluate(self, xp: Namespace, start: Array, limit: Array, delta: Array) -> Any:
        kind = self.output_type or dtypes.dtype(start.dtype)
        work = kind.numpy if kind.is_integer or kind.bits >= 32 else np.dtype(np.float32)
        numbers = [np.asarray(x).reshape(()) for x in (start, limit, delta)]
        if kind.is_integer:
            start_, stop_, step_ = (int(number) for number in numbers)
            count = _count(start_, stop_, step_)
            refuse_array((count,), 8, "a range")
            whole = start_ + np.arange(count, dtype=object) * step_
            return arrays.from_numpy(xp, whole.astype(object).astype(work))
        first, last, item = (number.astype(work) for number in numbers)
        if item == 0:
            raise RuleError("attribute.range", "delta must not be 0")
        count = _float_count(0.0, float(last - first), float(item))
        refuse_array((count,), work.itemsize + 8, "a range")
        result = (first + np.arange(count).astype(work) * item).astype(work)
        return arrays.from_numpy(xp, arrays.cast(np, result, kind, saturate=False))

    def vjp(self, b: Builder, g: Value, y: Value, start: Value, limit: Value, delta: Value) -> Any:
        if not y.dtype.is_float:
            return [None, None, None]
        indices = b.Range(b.constant(0), b.Gather(b.Shape(y), b.constant(np.array(0)), axis=0), b.constant(1))
        steps = b.ReduceSum(b.Multiply(g, b.Cast(indices, to=y.dtype)), [0], keepdims=False)
        return [b.ReduceSum(g, [0], keepdims=False), None, steps]

    def decompose(self, b: Builder, start: Value, limit: Value, delta: Value) -> Any:
        """Cast the inputs to ``output_type``; return None if ``output_type`` is absent."""
        dtype = self.output_type or start.dtype
        if all(x.dtype is dtype for x in (start, limit, delta)) and self.output_type is not None:
            return b.apply("Range", start, limit, delta, wide=self.wide)
        if self.output_type is None:
            return None
        return b.apply("Range", *(x if x.dtype is dtype else b.Cast(x, to=dtype) for x in (start, limit, delta)), wide=self.wide)

    def canonical(self, start: View, limit: View, delta: View) -> Op:
        """Set an absent ``output_type`` to the type of ``start``."""
        kind = dtype_in(start.type)
        return self if self.output_type is not None or kind is None else self.with_(output_type=kind)


def _scalar(x: View) -> Any:
    """Return the only element of an input, which is an integer, a symbolic size or a float; None if it is unknown.

    A Cast of an integer to f32 or f64 is taken to be exact, because only sizes above 2^24 would be rounded.
    """
    node = getattr(x, "node", None)
    if node is not None and type(node.op).__name__ == "Cast" and dtype_in(x.type) in (dtypes.f32, dtypes.f64):
        source = node.inputs[0]
        kind = None if source is None else dtype_in(source.type)
        return _scalar(source) if kind is not None and kind.is_integer else None
    result = elements_of(x)
    if result is not None:
        return result[0] if len(result) == 1 else None
    data = getattr(x, "constant", None)
    return float(data.reshape(()).item()) if data is not None and data.size == 1 else None


def _round_to(item: int, kind: DType) -> int | float:
    """Return an integer rounded to ``kind``, or to f32 if that is wider; return an exactly representable integer unchanged."""
    number = float(np.float32(item) if kind.bits <= 32 else np.float64(item))
    return item if number == item else number


def _float_count(start: float, stop: float, step: float) -> int:
    with np.errstate(all="ignore"):
        count = float(np.ceil(np.float64(stop - start) / np.float64(step)))
    if not isfinite(count):
        raise RuleError("attribute.range", f"a range from {start} to {stop} by {step} must have a finite number of elements")
    return max(int(count), 0)


def _count(start: Any, stop: Any, step: Any) -> Any:
    if isinstance(step, int | float) and step == 0:
        raise RuleError("attribute.range", "delta must not be 0")
    if start is None or stop is None or not isinstance(step, int | float):
        return None
    if any(isinstance(item, float) for item in (start, stop, step)):
        if not any(isinstance(item, symbolic.Dim) for item in (start, stop)):
            return _float_count(start, stop, step)
        if any(isinstance(item, float) and not item.is_integer() for item in (start, stop, step)):
            return None
        start, stop, step = (int(item) if isinstance(item, float) else item for item in (start, stop, step))
    distance = stop - start if step > 0 else start - stop
    return symbolic.maximum(symbolic.ceil_divide(distance, abs(int(step))), 0)
