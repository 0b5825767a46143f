"""Fallbacks for older opsets, which lack an operator, a type or an input; each fallback is exact."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.limits import refuse_table
from dovetail.ir.types import Size
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.elementwise.cast import FNUZ
from dovetail.ops.elementwise.clip import finite_range
from dovetail.ops.nn.dropout import is_inference
from dovetail.ops.shape_values import elements_of

_HALF_PRECISION = ("f16", "bf16")


@ONNX.fallback("Range")
def replace_range(b: Builder, node: Node) -> Any:
    """Lower Range before version 11 to NonZero of ones.

    Before version 27, half precision is cast to f32, and Range is computed in f32.
    """
    op: Any = node.op
    xs = [node.input(index) for index in range(3)]
    kind = xs[0].dtype
    if op.output_type is not None or any(x.dtype is not kind for x in xs):
        return None
    wide = dtypes.f32 if kind in _HALF_PRECISION and op.wide else dtypes.i64 if kind.is_integer and kind.bits < 64 else kind
    if wide is not kind:
        return b.Cast(b.Range(*(b.Cast(x, to=wide) for x in xs)), to=kind)
    if kind not in ("i64", "f32", "f64"):
        return None
    first, last, item = (b.Reshape(x, []) for x in xs)
    zero = b.constant(0, dtypes.i64)
    if kind.is_integer:
        # This is ceil((last - first) / step), where integer division rounds toward zero.
        count = b.Divide(b.Subtract(b.Add(b.Subtract(last, first), item), b.Sign(item)), item)
    else:
        length, size = b.Cast(b.Subtract(last, first), to=dtypes.f64), b.Cast(item, to=dtypes.f64)
        count = b.Cast(b.Ceil(b.Divide(length, size)), to=dtypes.i64)
    count = b.Where(b.Less(count, zero), zero, count)
    ones = b.apply("ConstantOfShape", b.Reshape(count, [1]), np.ones(1, np.int64))
    counters = b.Squeeze(b.NonZero(ones), [0])
    return b.Add(first, b.Multiply(counters if kind == "i64" else b.Cast(counters, to=kind), item))


@ONNX.fallback("Equal")
def replace_equal(b: Builder, node: Node) -> Any:
    """Lower Equal to Less and Greater, because Equal-7 supports only i32, i64 and booleans."""
    x, y = node.input(0), node.input(1)
    kind = x.dtype
    if not (kind.is_integer or kind in ("f16", "f32", "f64")):
        return None
    broadcasting = {"broadcast": node.op.broadcast}  # type: ignore[attr-defined]
    differs = b.Or(b.Less(x, y, **broadcasting), b.Greater(x, y, **broadcasting))
    if kind.is_float:
        differs = b.Or(differs, b.Or(b.IsNaN(x), b.IsNaN(y), **broadcasting))
    return b.Not(differs)


@ONNX.fallback("Maximum", "Minimum")
def replace_maximum_minimum(b: Builder, node: Node) -> Any:
    """Lower Maximum and Minimum of integers before version 12 to Where."""
    first, *rest = (node.input(index) for index in range(len(node.inputs)))
    if not first.dtype.is_integer:
        return None
    compare = b.Greater if type(node.op).__name__ == "Maximum" else b.Less
    return reduce(lambda x, y: b.Where(compare(x, y), x, y), rest, b.Identity(first))


@ONNX.fallback("Clip")
def replace_clip(b: Builder, node: Node) -> Any:
    """Lower Clip to Maximum and Minimum: Clip before version 11 has constant bounds, before version 12 only float inputs.

    An absent bound of floats becomes the largest or lowest finite number, so that infinities are clipped.
    """
    x, low, high = (*node.inputs, None, None)[:3]
    assert x is not None
    if x.dtype.is_float and (low is None or high is None):
        lowest, highest = (b.constant(np.asarray(end, x.dtype.numpy), x.dtype) for end in finite_range(x.dtype))
        return b.Clip(x, lowest if low is None else low, highest if high is None else high)
    y = x if low is None else b.Maximum(x, low)
    return y if high is None else b.Minimum(y, high)


@ONNX.fallback("Round")
def replace_round(b: Builder, node: Node) -> Any:
    """Lower Round before version 11 to Floor.

    The fractional part of the absolute value is exact, and a zero result has the sign of the input.
    """
    x = node.inputs[0]
    if x is None or x.dtype not in ("f16", "f32", "f64") or node.op.mode != "half_to_even":  # type: ignore[attr-defined]
        return None
    size = b.Abs(x)
    whole = b.Floor(size)
    half = b.Multiply(whole, scalar_like(b, 0.5, x))
    rest, is_odd = b.Subtract(size, whole), b.Greater(half, b.Floor(half))
    tie = b.And(b.Not(b.Less(rest, scalar_like(b, 0.5, x))), is_odd)
    nearest = b.Where(b.Or(b.Greater(rest, scalar_like(b, 0.5, x)), tie), b.Add(whole, scalar_like(b, 1, x)), whole)
    return b.Where(b.Less(nearest, scalar_like(b, 1, x)), b.Multiply(x, scalar_like(b, 0, x)), b.Multiply(nearest, b.Sign(x)))


@ONNX.fallback("IsInf")
def replace_is_inf(b: Builder, node: Node) -> Any:
    """Lower IsInf to comparisons before version 10, and before version 20 for types other than f32 and f64."""
    op: Any = node.op
    x = node.input(0)
    if x.dtype == "bf16":
        return b.add(op, b.Cast(x, to=dtypes.f32))
    if x.dtype not in ("f16", "f32", "f64") or not (op.detect_negative or op.detect_positive):
        return None
    low, high = (b.constant(np.asarray(end, x.dtype.numpy), x.dtype) for end in finite_range(x.dtype))
    if op.detect_negative and op.detect_positive:
        return b.Greater(b.Abs(x), high)
    return b.Less(x, low) if op.detect_negative else b.Greater(x, high)


@ONNX.fallback("Mod")
def replace_mod(b: Builder, node: Node) -> Any:
    """Lower Mod of integers before version 10 to Divide, Multiply and Subtract."""
    op: Any = node.op
    x, y = node.input(0), node.input(1)
    kind = x.dtype
    if kind not in ("i32", "i64", "u32", "u64"):
        return None
    broadcasting = {"broadcast": op.broadcast}
    rest = b.Subtract(x, b.Multiply(b.Divide(x, y, **broadcasting), y))
    if op.fmod or kind.kind != "int":
        return rest
    zero = scalar_like(b, 0, rest)
    is_other = b.And(b.Not(b.Equal(rest, zero)), b.Xor(b.Less(rest, zero), b.Less(y, zero)))
    return b.Where(is_other, b.Add(rest, y), rest)


@ONNX.fallback("BitShift")
def replace_bit_shift(b: Builder, node: Node) -> Any:
    """Lower BitShift of signed integers before version 28 to BitShift of unsigned integers.

    A right shift of a negative x is -1 - ((-1 - x) >> amount).
    """
    op: Any = node.op
    x, amount = node.input(0), node.input(1)
    kind = x.dtype
    if kind.kind != "int" or op.beyond != "open":
        return None
    bare = dtypes.dtype(f"u{kind.bits}")

    def shift(y: Value) -> Any:
        return b.Cast(b.add(op, b.Cast(y, to=bare), b.Cast(amount, to=bare))[0], to=kind)

    if op.direction == "left":
        return shift(x)
    is_negative, minus_one = b.Less(x, scalar_like(b, 0, x)), scalar_like(b, -1, x)
    y = shift(b.Where(is_negative, b.Subtract(minus_one, x), x))
    return b.Where(is_negative, b.Subtract(minus_one, y), y)


@ONNX.fallback("BitwiseNot")
def replace_bitwise_not(b: Builder, node: Node) -> Any:
    """Lower BitwiseNot before version 18 to -1 - x, or to max - x for unsigned x."""
    x = node.input(0)
    return b.Subtract(scalar_like(b, -1 if x.dtype.kind == "int" else x.dtype.range()[1], x), x) if x.dtype.is_integer else None


@ONNX.fallback("Cast")
def replace_cast(b: Builder, node: Node) -> Any:
    """Replace infinities before a cast to a type without infinity, if the target version converts infinities differently."""
    op: Any = node.op
    x = node.input(0)
    if op.to not in FNUZ or not op.saturate or not x.dtype.is_float:
        return None
    wide = x if x.dtype in ("f32", "f64") else b.Cast(x, to=dtypes.f32)
    greatest = scalar_like(b, float(finite_range(op.to)[1]), wide)
    instead = b.Multiply(b.Sign(wide), greatest) if op.saturate_infinity else scalar_like(b, np.nan, wide)
    return b.add(op.with_(saturate_infinity=not op.saturate_infinity), b.Where(b.IsInf(wide), instead, wide))


@ONNX.fallback("Dropout")
def replace_dropout(b: Builder, node: Node) -> Any:
    """Lower Dropout in inference mode: remove the seed, or replace Dropout by Identity with an all-true mask."""
    op: Any = node.op
    x, (_, _, training) = node.input(0), (*node.inputs, None, None)[:3]
    if not is_inference(training):
        return None
    if op.seed is not None:
        return b.add(op.with_(seed=None), x)
    y = b.Identity(x)
    return y if op.outputs == 1 else [y, b.apply("ConstantOfShape", b.Shape(x), np.ones(1, bool))]


@ONNX.fallback("Reshape")
def replace_reshape(b: Builder, node: Node) -> Any:
    """Lower Reshape with sizes that may be 0 before version 14, where a 0 copies the input's size at that axis.

    Sizes equal to the input's size at the same axis stay. For the other sizes that may be 0:

    - A single such size stays if no other size may be 0. A non-empty tensor then refuses 0, and an empty tensor has the result 0.
    - A single such size becomes -1 if other sizes may be 0; an empty tensor then refuses -1.
    - Several such sizes stay if each divides the input's size at its axis, which is 0 whenever the size is 0. They also stay at
    axes that the input lacks, where 0 is refused.

    A constant 0 and a target computed at run time cannot be expressed.
    """
    op: Any = node.op
    x, target = node.input(0), node.input(1)
    wanted = elements_of(target)
    if op.special_zero or wanted is None or x.shape is None:
        return None
    open_axes = [axis for axis, size in enumerate(wanted) if _may_be_zero(size)]
    others = [axis for axis in open_axes if symbolic.equal(wanted[axis], _at(x.shape, axis)) is not True]
    if any(isinstance(wanted[axis], int) for axis in others):
        return None
    if len(others) > 1:
        divides = (axis >= len(x.shape) or symbolic.exact_quotient(x.shape[axis], wanted[axis]) is not None for axis in others)
        return b.add(op.with_(special_zero=True), x, target) if -1 not in wanted and all(divides) else None
    if others and len(open_axes) > 1:
        if -1 in wanted:
            return None
        target = b.constant([-1 if axis in others else 0 if axis in open_axes else size for axis, size in enumerate(wanted)])
    return b.add(op.with_(special_zero=True), x, target)


def _may_be_zero(size: Size) -> bool:
    minimum = size if isinstance(size, int) else symbolic.bounds(size)[0]
    return minimum is None or (size == 0 if isinstance(size, int) else minimum <= 0)


def _at(shape: tuple[Any, ...], axis: int) -> Any:
    return shape[axis] if axis < len(shape) else -1


@ONNX.fallback("MaxPool", "AveragePool")
def replace_ceil_pool(b: Builder, node: Node) -> Any:
    """Lower pooling with ceil rounding before version 10 to padding for the last windows, if padding is not averaged.

    MaxPool before version 12: i8 and u8 are cast to f32.
    """
    op: Any = node.op
    x = node.inputs[0]
    if x is not None and x.dtype in ("i8", "u8"):
        y, *indices = b.add(op, b.Cast(x, to=dtypes.f32))
        return [b.Cast(y, to=x.dtype), *indices]
    if op.rounding_type == "floor" or getattr(op, "divisor", "inside") != "inside":
        return None
    simple = op.with_floor_rounding(node.inputs[0])
    return None if simple is None else b.add(simple, node.inputs[0])


@ONNX.fallback("Bernoulli", "DFT")
def replace_by_decomposition(b: Builder, node: Node) -> Any:
    """Decompose Bernoulli before opset 15, and DFT before opset 17, where the decomposition needs static sizes."""
    return node.op.decompose(b, *node.inputs)


@ONNX.fallback("TopK")
def replace_top_k(b: Builder, node: Node) -> Any:
    """Lower TopK of the smallest elements before version 11 to TopK of the negated tensor.

    ONNX does not specify the position of NaN. TopK with other attributes is decomposed first, for which version 11 needs no
    negation.
    """
    op: Any = node.op
    x, k = node.inputs
    if op.largest or op.sort == "index" or op.index_element_type != "i64" or x is None or x.dtype not in ("f16", "f32", "f64"):
        return None
    values, indices = b.add(op.with_(largest=True), b.Negative(x), k)
    return [b.Negative(values), indices]


@ONNX.fallback("ReverseSequence", "_OneHot")
def replace_by_float_operator(b: Builder, node: Node) -> Any:
    """Lower ReverseSequence and OneHot of bf16 before version 28: compute in f32."""
    data_index = 2 if type(node.op).__name__ == "_OneHot" else 0
    x = node.inputs[data_index]
    if x is None or x.dtype != "bf16":
        return None
    xs: list[Value | None] = [b.Cast(x, to=dtypes.f32) if other_input is x else other_input for other_input in node.inputs]
    return b.Cast(b.add(node.op, *xs)[0], to=x.dtype)


@ONNX.fallback("Slice")
def replace_slice(b: Builder, node: Node) -> Any:
    """Lower Slice with constant steps before version 10 to Gather."""
    x, *bounds = (*node.inputs, None, None)[:5]
    assert x is not None
    lists = [None if item is None else elements_of(item) for item in bounds]
    if x.shape is None or not all(isinstance(item, int) for bound in lists for item in bound or ()):
        return None
    starts, stops, axes, steps = lists
    if starts is None or stops is None or steps is None or (axes is None and bounds[2] is not None):
        return None
    sliced_axes = range(len(starts)) if axes is None else [axis % len(x.shape) for axis in axes]
    if not all(isinstance(x.shape[axis], int) for axis in sliced_axes):
        return None
    for axis, start, stop, step in zip(sliced_axes, starts, stops, steps, strict=True):
        refuse_table((x.dims[axis],), 8, "the indices of a Slice with steps")
        cut = (np.array([bound], np.int64) for bound in (start, stop, 0, step))
        indices = node.op.evaluate(np, np.arange(x.dims[axis], dtype=np.int64), *cut)
        x = b.Gather(x, b.constant(indices), axis=axis)
    return x


@ONNX.fallback("Split")
def replace_split(b: Builder, node: Node) -> Any:
    """Lower Split before version 13 to Slices, if its lengths are computed at run time or depend on an unknown size."""
    op: Any = node.op
    x, sizes = (*node.inputs, None)[:2]
    if op.wildcard or x is None or x.shape is None or (sizes is None and (not op.ragged or isinstance(x.shape[op.axis], int))):
        return None
    if sizes is None:
        whole = b.Gather(b.Shape(x), [op.axis % len(x.shape)], axis=0)
        piece = b.Divide(b.Add(whole, op.outputs - 1), op.outputs)
    parts, start = [], b.constant(np.zeros(1, np.int64))
    for index in range(op.outputs):
        stop = b.Add(start, piece if sizes is None else b.Gather(sizes, [index], axis=0))
        parts.append(b.Slice(x, start, stop, [op.axis]))
        start = stop
    return parts
