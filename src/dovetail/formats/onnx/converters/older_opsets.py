"""Operators, types and inputs that came late to ONNX, in the words of the opsets before: exact, and only where these need it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Node, Value
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.elementwise.cast import FNUZ
from dovetail.ops.elementwise.clip import finite_range
from dovetail.ops.nn.dropout import is_inference
from dovetail.ops.shape_values import elements_of

_HALVES = ("f16", "bf16")


@ONNX.substitute("Range")
def counted(b: Any, node: Node) -> Any:
    """Before version 11 the places of as many ones as there are; before 27 halves in f32, in which they are computed."""
    op: Any = node.op
    start, stop, step = node.inputs
    kind = start.dtype  # type: ignore[union-attr]
    if op.output_type is not None or any(x.dtype is not kind for x in (stop, step)):  # type: ignore[union-attr]
        return None
    wide = dtypes.f32 if kind in _HALVES and op.wide else dtypes.i64 if kind.is_integer and kind.bits < 64 else kind
    if wide is not kind:
        return b.Cast(b.Range(*(b.Cast(x, to=wide) for x in node.inputs)), to=kind)
    if kind not in ("i64", "f32", "f64"):
        return None
    first, last, each = (b.Reshape(x, []) for x in node.inputs)
    zero = b.constant(0, dtypes.i64)
    if kind.is_integer:
        # Up to the next whole step, then cut off toward zero.
        count = b.Divide(b.Subtract(b.Add(b.Subtract(last, first), each), b.Sign(each)), each)
    else:
        length, size = b.Cast(b.Subtract(last, first), to=dtypes.f64), b.Cast(each, to=dtypes.f64)
        count = b.Cast(b.Ceil(b.Divide(length, size)), to=dtypes.i64)
    count = b.Where(b.Less(count, zero), zero, count)
    ones = b.apply("ConstantOfShape", b.Reshape(count, [1]), np.ones(1, np.int64))
    places = b.Squeeze(b.NonZero(ones), [0])
    return b.Add(first, b.Multiply(places if kind == "i64" else b.Cast(places, to=kind), each))


@ONNX.substitute("Equal")
def neither_less_nor_greater(b: Any, node: Node) -> Any:
    """Version 7 compares integers of 32 and 64 bits and truth values only."""
    x, y = node.inputs
    kind = x.dtype  # type: ignore[union-attr]
    if not (kind.is_integer or kind in ("f16", "f32", "f64")):
        return None
    how = {"broadcast": node.op.broadcast}  # type: ignore[attr-defined]
    differs = b.Or(b.Less(x, y, **how), b.Greater(x, y, **how))
    if kind.is_float:
        differs = b.Or(differs, b.Or(b.IsNaN(x), b.IsNaN(y), **how))
    return b.Not(differs)


@ONNX.substitute("Maximum", "Minimum")
def chosen(b: Any, node: Node) -> Any:
    """Before version 12 these are for floats."""
    first, *rest = node.inputs
    if first is None or not first.dtype.is_integer:
        return None
    compare = b.Greater if type(node.op).__name__ == "Maximum" else b.Less
    return reduce(lambda x, y: b.Where(compare(x, y), x, y), rest, b.Identity(first))


@ONNX.substitute("Clip")
def bounded(b: Any, node: Node) -> Any:
    """Bounds that are no constants, or not both there, before version 11; integers before 12."""
    x, low, high = (*node.inputs, None, None)[:3]
    assert x is not None
    if low is None and high is None:
        ends = finite_range(x.dtype)
        low, high = (b.constant(np.asarray(end, x.dtype.numpy), x.dtype) for end in ends)
    y = x if low is None else b.Maximum(x, low)
    return y if high is None else b.Minimum(y, high)


@ONNX.substitute("Round")
def rounded(b: Any, node: Node) -> Any:
    """Before version 11: what is left of the magnitude after its whole part is exact, and a zero keeps its sign."""
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


@ONNX.substitute("IsInf")
def beyond_the_greatest(b: Any, node: Node) -> Any:
    """Before version 10, and before 20 for other floats than f32 and f64."""
    op: Any = node.op
    x = node.inputs[0]
    assert x is not None
    if x.dtype == "bf16":
        return b.add(op, b.Cast(x, to=dtypes.f32))
    if x.dtype not in ("f16", "f32", "f64") or not (op.detect_negative or op.detect_positive):
        return None
    low, high = (b.constant(np.asarray(end, x.dtype.numpy), x.dtype) for end in finite_range(x.dtype))
    if op.detect_negative and op.detect_positive:
        return b.Greater(b.Abs(x), high)
    return b.Less(x, low) if op.detect_negative else b.Greater(x, high)


@ONNX.substitute("Mod")
def rest_of_division(b: Any, node: Node) -> Any:
    """Of integers, before version 10."""
    op: Any = node.op
    x, y = node.inputs
    kind = x.dtype  # type: ignore[union-attr]
    if kind not in ("i32", "i64", "u32", "u64"):
        return None
    how = {"broadcast": op.broadcast}
    rest = b.Subtract(x, b.Multiply(b.Divide(x, y, **how), y))
    if op.fmod or kind.kind != "int":
        return rest
    zero = scalar_like(b, 0, rest)
    is_other = b.And(b.Not(b.Equal(rest, zero)), b.Xor(b.Less(rest, zero), b.Less(y, zero)))
    return b.Where(is_other, b.Add(rest, y), rest)


@ONNX.substitute("BitShift")
def shifted_without_sign(b: Any, node: Node) -> Any:
    """Signed integers, before version 28: those of the same bits without a sign; a negative one as what it lacks of -1."""
    op: Any = node.op
    x, amount = node.input(0), node.input(1)
    kind = x.dtype
    if kind.kind != "int" or op.beyond != "open":
        return None
    bare = dtypes.dtype(f"u{kind.bits}")

    def shift(y: Any) -> Any:
        return b.Cast(b.add(op, b.Cast(y, to=bare), b.Cast(amount, to=bare))[0], to=kind)

    if op.direction == "left":
        return shift(x)
    is_negative, minus_one = b.Less(x, scalar_like(b, 0, x)), scalar_like(b, -1, x)
    y = shift(b.Where(is_negative, b.Subtract(minus_one, x), x))
    return b.Where(is_negative, b.Subtract(minus_one, y), y)


@ONNX.substitute("BitwiseNot")
def complement(b: Any, node: Node) -> Any:
    """Before version 18: what an integer lacks of all bits."""
    x = node.inputs[0]
    assert x is not None
    return b.Subtract(scalar_like(b, -1 if x.dtype.kind == "int" else x.dtype.range()[1], x), x) if x.dtype.is_integer else None


@ONNX.substitute("Cast")
def cast_infinities(b: Any, node: Node) -> Any:
    """To the types without infinity, where the target takes it for the other of NaN and the greatest value."""
    op: Any = node.op
    x = node.inputs[0]
    assert x is not None
    if op.to not in FNUZ or not op.saturate or not x.dtype.is_float:
        return None
    wide = x if x.dtype in ("f32", "f64") else b.Cast(x, to=dtypes.f32)
    greatest = scalar_like(b, float(finite_range(op.to)[1]), wide)
    instead = b.Multiply(b.Sign(wide), greatest) if op.saturate_infinity else scalar_like(b, np.nan, wide)
    return b.add(op.with_(saturate_infinity=not op.saturate_infinity), b.Where(b.IsInf(wide), instead, wide))


@ONNX.substitute("Dropout")
def dropped_nothing(b: Any, node: Node) -> Any:
    """In inference a seed says nothing, and the mask is all true."""
    op: Any = node.op
    x, _, training = (*node.inputs, None, None)[:3]
    if not is_inference(training):
        return None
    if op.seed is not None:
        return b.add(op.with_(seed=None), x)
    y = b.Identity(x)
    return y if op.outputs == 1 else [y, b.apply("ConstantOfShape", b.Shape(x), np.ones(1, bool))]


@ONNX.substitute("Reshape")
def copying_zeros(b: Any, node: Node) -> Any:
    """Sizes that may be 0, before version 14, where a 0 copies the size in its place.

    Sizes that equal those in their places stay. One other size that may be 0 stays where it alone may be: a tensor that is not
    empty then refuses it, and an empty one has a 0 in its place. Beside others it is written as -1, which an empty tensor
    refuses. A 0 that is written down, or a target that only run time knows, cannot be said.
    """
    op: Any = node.op
    x, target = node.inputs
    assert x is not None and target is not None
    wanted = elements_of(target)
    if op.special_zero or wanted is None or x.shape is None:
        return None
    open_axes = [axis for axis, size in enumerate(wanted) if _may_be_zero(size)]
    others = [axis for axis in open_axes if symbolic.equal(wanted[axis], _at(x.shape, axis)) is not True]
    if len(others) > 1 or any(isinstance(wanted[axis], int) for axis in others):
        return None
    if others and len(open_axes) > 1:
        if -1 in wanted:
            return None
        target = b.constant([-1 if axis in others else 0 if axis in open_axes else size for axis, size in enumerate(wanted)])
    return b.add(op.with_(special_zero=True), x, target)


def _may_be_zero(size: Any) -> bool:
    least = size if isinstance(size, int) else symbolic.bounds(size)[0]
    return least is None or (size == 0 if isinstance(size, int) else least <= 0)


def _at(shape: tuple[Any, ...], axis: int) -> Any:
    return shape[axis] if axis < len(shape) else -1


@ONNX.substitute("MaxPool", "AveragePool")
def padded_to_the_last_window(b: Any, node: Node) -> Any:
    """Rounding up, before version 10: enough padding for the last windows, where it does not count. Bytes, before version 12, as
    floats."""
    op: Any = node.op
    x = node.inputs[0]
    if x is not None and x.dtype in ("i8", "u8"):
        y, *places = b.add(op, b.Cast(x, to=dtypes.f32))
        return [b.Cast(y, to=x.dtype), *places]
    if op.rounding_type == "floor" or getattr(op, "divisor", "inside") != "inside":
        return None
    simple = op.with_floor_rounding(node.inputs[0])
    return None if simple is None else b.add(simple, node.inputs[0])


@ONNX.substitute("Bernoulli")
def drawn(b: Any, node: Node) -> Any:
    """Before version 15: a number between 0 and 1 lies below the chance."""
    return node.op.decompose(b, *node.inputs)


@ONNX.substitute("TopK")
def least_of_negatives(b: Any, node: Node) -> Any:
    """Before version 11 the greatest only."""
    op: Any = node.op
    x, k = node.inputs
    if op.largest or x is None or x.dtype not in ("f16", "f32", "f64"):
        return None
    values, places = b.add(op.with_(largest=True), b.Negative(x), k)
    return [b.Negative(values), places]


@ONNX.substitute("ReverseSequence", "_OneHot")
def moved_as_floats(b: Any, node: Node) -> Any:
    """bf16 before version 28, by way of f32."""
    place = 2 if type(node.op).__name__ == "_OneHot" else 0
    x = node.inputs[place]
    if x is None or x.dtype != "bf16":
        return None
    xs: list[Value | None] = [b.Cast(x, to=dtypes.f32) if each is x else each for each in node.inputs]
    return b.Cast(b.add(node.op, *xs)[0], to=x.dtype)


@ONNX.substitute("Slice")
def taken_by_places(b: Any, node: Node) -> Any:
    """Steps, before version 10: the elements at the places that they reach."""
    x, *bounds = (*node.inputs, None, None)[:5]
    assert x is not None
    lists = [None if item is None else elements_of(item) for item in bounds]
    if x.shape is None or not all(isinstance(item, int) for each in lists for item in each or ()):
        return None
    starts, stops, axes, steps = lists
    if starts is None or stops is None or steps is None or (axes is None and bounds[2] is not None):
        return None
    places = range(len(starts)) if axes is None else [axis % len(x.shape) for axis in axes]
    if not all(isinstance(x.shape[axis], int) for axis in places):
        return None
    for axis, start, stop, step in zip(places, starts, stops, steps, strict=True):
        cut = (np.array([each], np.int64) for each in (start, stop, 0, step))
        taken = node.op.evaluate(np, np.arange(x.dims[axis], dtype=np.int64), *cut)
        x = b.Gather(x, b.constant(taken), axis=axis)
    return x


@ONNX.substitute("Split")
def sliced(b: Any, node: Node) -> Any:
    """Lengths that only run time knows, before version 13."""
    op: Any = node.op
    x, sizes = (*node.inputs, None)[:2]
    if op.wildcard or x is None or x.shape is None or (sizes is None and (not op.ragged or isinstance(x.shape[op.axis], int))):
        return None
    if sizes is None:
        whole = b.Gather(b.Shape(x), [op.axis % len(x.shape)], axis=0)
        piece = b.Divide(b.Add(whole, op.outputs - 1), op.outputs)
    found, start = [], b.constant(np.zeros(1, np.int64))
    for index in range(op.outputs):
        stop = b.Add(start, piece if sizes is None else b.Gather(sizes, [index], axis=0))
        found.append(b.Slice(x, start, stop, [op.axis]))
        start = stop
    return found
