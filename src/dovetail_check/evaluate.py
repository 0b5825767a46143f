"""Evaluate: operators on constants, of numbers or of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_check.sizes import Size, Symbols, Unproved, size
from dovetail_check.text import NUMPY, Operator

Array = np.ndarray[Any, Any]


def evaluate(
    op: Operator, xs: list[Array | None], symbols: Symbols, *, dtypes: list[str | None], wide: bool = False
) -> list[Array]:
    """Return the outputs of an operator on constants. Arrays of sizes have the dtype object; ``wide`` keeps casts in f64.

    Raises Unproved for operators that are not evaluated.
    """
    name, attributes = op.name, op.attributes
    rule = RULES.get(name)
    if rule is None:
        raise Unproved(f"{name} of constants")
    with np.errstate(all="ignore"):
        result = rule(_Operands(xs, symbols, attributes, dtypes, wide))
    return [_as_array(each) for each in (result if isinstance(result, list) else [result])]


def _as_array(value: Any) -> Array:
    if isinstance(value, Size):
        array = np.empty((), object)
        array[()] = value
        return array
    return np.asarray(value)


class _Operands:
    def __init__(self, xs: list[Array | None], symbols: Symbols, attributes: dict[str, Any], dtypes: Any, wide: bool) -> None:
        self.xs, self.symbols, self.attributes, self.dtypes, self.wide = xs, symbols, attributes, dtypes, wide

    def __getitem__(self, position: int) -> Array:
        x = self.xs[position] if position < len(self.xs) else None
        if x is None:
            raise Unproved("an operand is missing")
        return x

    def numbers(self, position: int) -> list[int]:
        return [int(_int(each)) for each in self[position].reshape(-1).tolist()]

    def has(self, position: int) -> bool:
        return position < len(self.xs) and self.xs[position] is not None

    def axis(self, default: int) -> int:
        return int(self.attributes.get("axis", default))


def _int(value: Any) -> Any:
    if isinstance(value, Size):
        if value.number is None:
            raise Unproved("a size that is not a number")
        return value.number
    return value


def _binary(function: Any, of_sizes: Any = None) -> Any:
    def rule(o: _Operands) -> Array:
        x, y = o[0], o[1]
        if x.dtype == object or y.dtype == object:
            if of_sizes is None:
                raise Unproved("an operator of sizes")
            pairs = np.broadcast(x, y)
            found = np.empty(pairs.shape, object)
            found.reshape(-1)[:] = [of_sizes(o, size(a), size(b)) for a, b in pairs] or []
            return found
        return np.asarray(function(x, y))

    return rule


def _fold(function: Any, of_sizes: Any) -> Any:
    rule = _binary(function, of_sizes)

    def fold(o: _Operands) -> Any:
        result = o[0]
        for position in range(1, len(o.xs)):
            result = rule(_Operands([result, o[position]], o.symbols, o.attributes, o.dtypes, o.wide))
        return result

    return fold


def _extremum(function: Any) -> Any:
    def extremum(x: Array, y: Array) -> Any:
        if x.dtype.kind == "f" and bool(np.any((x == y) & (np.signbit(x) != np.signbit(y)))):
            raise Unproved("an extremum of zeros of both signs")
        return function(x, y)

    return extremum


def _quotient(o: _Operands, x: Size, y: Size) -> Size:
    is_floor = o.attributes.get("m_pythondiv", False)
    if not ((is_floor or o.symbols.is_never_negative(x)) and o.symbols.is_less(0, y)):
        if x.number is not None and y.number and not is_floor:
            quotient = abs(x.number) // abs(y.number)
            return size(quotient if (x.number < 0) == (y.number < 0) else -quotient)
        if o.symbols.is_less(0, y) and o.symbols.is_less(0, x + y):
            # A quotient between -1 and 0 rounds to 0.
            return o.symbols.operation("//", o.symbols.operation("max", x, 0), y)
        raise Unproved("a quotient that may round up")
    return o.symbols.operation("//", x, y)


def _equal(o: _Operands, x: Size, y: Size) -> Size:
    if x == y:
        return size(1)
    if o.symbols.is_less(x, y) or o.symbols.is_less(y, x):
        return size(0)
    raise Unproved("a comparison of sizes")


def _is_less(o: _Operands, x: Size, y: Size) -> Size:
    if o.symbols.is_less(x, y):
        return size(1)
    if o.symbols.is_less_or_equal(y, x):
        return size(0)
    raise Unproved("a comparison of sizes")


def _divide(o: _Operands) -> Array:
    if o[0].dtype == object or o[1].dtype == object:
        return _binary(None, _quotient)(o)  # type: ignore[no-any-return]
    if o[0].dtype.kind in "iu":
        if o.attributes.get("m_pythondiv") and not bool(np.all((o[0] < 0) == (o[1] < 0))):
            raise Unproved("a quotient that is rounded down")
        if not np.all(o[1]):
            raise Unproved("a quotient by 0")
        quotient = np.abs(o[0].astype(object)) // np.abs(o[1].astype(object))
        return np.where((o[0] < 0) == (o[1] < 0), quotient, -quotient).astype(o[0].dtype)
    return np.asarray(o[0] / o[1])


def _cast(o: _Operands) -> Array:
    to = str(o.attributes["to"])
    if o[0].dtype == object:
        if to not in ("i64", "i32"):
            raise Unproved("a cast of sizes")
        return o[0]
    if to not in NUMPY:
        raise Unproved("a cast")
    if o[0].dtype.kind == "f" and NUMPY[to] not in (np.float16, np.float32, np.float64, np.bool_):
        whole = np.trunc(o[0].astype(np.float64))
        info = np.iinfo(NUMPY[to])
        # The successor of the maximum is a power of two, which f64 holds.
        if not bool(np.all((whole >= float(info.min)) & (whole < float(info.max + 1)))):
            raise Unproved("a cast of numbers outside of the type")
    if o.wide and to in ("f32", "f64") and o[0].dtype.kind == "f":
        return o[0].astype(np.float64)
    return o[0].astype(NUMPY[to])


def _slice(o: _Operands) -> Array:
    starts, ends = o.numbers(1), o.numbers(2)
    axes = o.numbers(3) if o.has(3) else list(range(len(starts)))
    steps = o.numbers(4) if o.has(4) else [1] * len(starts)
    index: list[Any] = [slice(None)] * o[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise Unproved("a slice without a step")
        index[axis] = slice(start, end, step)
    return o[0][tuple(index)]


def _exact_slice(o: _Operands) -> Array:
    result = o[0]
    for start, length, axis, step in zip(o.numbers(1), o.numbers(2), o.numbers(3), o.numbers(4), strict=True):
        places = start + step * np.arange(length)
        if places.min(initial=0) < 0:
            raise Unproved("an index outside")
        result = np.take(result, places, axis=axis)
    return result


def _split(o: _Operands) -> list[Array]:
    axis = o.axis(0)
    if o.has(1):
        lengths = o.numbers(1)
        if -1 in lengths:
            raise Unproved("a split")
        return np.split(o[0], np.cumsum(lengths)[:-1].tolist(), axis)
    return np.split(o[0], int(o.attributes.get("outputs", 1)), axis)


def _reshape(o: _Operands) -> Array:
    target = o.numbers(1)
    if o.attributes.get("special_zero", True):
        target = [o[0].shape[axis] if each == 0 else each for axis, each in enumerate(target)]
    return o[0].reshape(target)


def _squeeze(o: _Operands) -> Array:
    axes = tuple(o.numbers(1)) if o.has(1) else None
    return np.squeeze(o[0], axes)


def _unsqueeze(o: _Operands) -> Array:
    rank = o[0].ndim + len(o.numbers(1))
    axes = sorted(axis % rank for axis in o.numbers(1))
    result = o[0]
    for axis in axes:
        result = np.expand_dims(result, axis)
    return result


def _gather(o: _Operands) -> Array:
    if o.attributes.get("batch_dims"):
        raise Unproved("a gather with batch axes")
    axis = o.axis(0) % o[0].ndim
    indices = np.array(o.numbers(1), np.int64).reshape(o[1].shape)
    extent = o[0].shape[axis]
    is_outside = (indices < (0 if o.attributes.get("bounds") == "natural" else -extent)) | (indices >= extent)
    if o.attributes.get("bounds") == "zero" and bool(is_outside.any()) and extent:
        taken = np.take(o[0], np.where(is_outside, 0, indices), axis)
        mask = is_outside.reshape((1,) * axis + is_outside.shape + (1,) * (o[0].ndim - axis - 1))
        return np.where(mask, size(0) if o[0].dtype == object else np.zeros((), o[0].dtype), taken)
    if bool(is_outside.any()):
        raise Unproved("an index outside")
    return np.take(o[0], indices, axis)


def _expand(o: _Operands) -> Array:
    target = tuple(o.numbers(1))
    return np.broadcast_to(o[0], np.broadcast_shapes(o[0].shape, target))


def _where(o: _Operands) -> Array:
    condition = o[0]
    if condition.dtype == object:
        condition = np.array([bool(_int(each)) for each in condition.reshape(-1)]).reshape(condition.shape)
    return np.where(condition, o[1], o[2])


def _prod(o: _Operands) -> Array:
    if o[0].dtype != object:
        return _reduction_of(np.prod)(o)  # type: ignore[no-any-return]
    if o[0].ndim != 1 or (o.attributes.get("noop_with_empty_axes") and not (o.has(1) and o[1].size)):
        raise Unproved("a product of sizes")
    result = size(1)
    for each in o[0].tolist():
        result = result * each
    found = np.empty((1,) if o.attributes.get("keepdims", True) else (), object)
    found.reshape(-1)[0] = result
    return found


def _reduction_of(function: Any) -> Any:
    def rule(o: _Operands) -> Array:
        if function not in (np.prod, np.sum, np.max, np.min) and o[0].dtype not in (np.float32, np.float64):
            raise Unproved("a reduction that is rounded")
        axes = tuple(o.numbers(1)) if o.has(1) else None
        if not axes and o.attributes.get("noop_with_empty_axes"):
            raise Unproved("a reduction of no axes")
        return np.asarray(function(o[0], axis=axes or None, keepdims=bool(o.attributes.get("keepdims", True))), o[0].dtype)

    return rule


def _transpose(o: _Operands) -> Array:
    return o[0].transpose(o.numbers(1) if o.has(1) and o[1].size else None)


def _constant_of_shape(o: _Operands) -> Array:
    return np.broadcast_to(o[1].reshape(()), tuple(o.numbers(0)))


def _range(o: _Operands) -> Array:
    if any(o[position].dtype == object for position in range(3)):
        raise Unproved("a range of sizes")
    if o[0].dtype.kind != "i":
        raise Unproved("a range of floats")
    return np.arange(int(o[0]), int(o[1]), int(o[2]), dtype=o[0].dtype)


def _refuse(text: str) -> Any:
    raise Unproved(text)


def _gather_elements(o: _Operands) -> Array:
    axis = o.axis(0)
    indices = np.array(o.numbers(1), np.int64).reshape(o[1].shape)
    if bool(((indices < 0) | (indices >= o[0].shape[axis])).any()) or o[0].ndim != indices.ndim:
        raise Unproved("an index outside")
    return np.take_along_axis(o[0], indices, axis)


def _mod(o: _Operands) -> Array:
    if o[0].dtype == object or o[0].dtype.kind not in "iu" or not bool(np.all(o[1] > 0)):
        raise Unproved("a remainder")
    return np.asarray((np.fmod if o.attributes.get("fmod") else np.mod)(o[0], o[1]))


def _repeat(parts: Array, x: Array, axis: int, block: int) -> Array:
    """Return the scales or zero points of blocks for each element of ``x``."""
    expected = [*x.shape]
    expected[axis] = -(-x.shape[axis] // block)
    if type(block) is not int or block < 1 or [*parts.shape] != expected:
        raise Unproved("a quantization in blocks")
    return parts.take(np.arange(x.shape[axis]) // block, axis)


def _dequantize(o: _Operands) -> Array:
    x, scale = o[0], o[1]
    # Floats of 8 bits are held as f32, and are exact in the type of the scale.
    is_narrow = str(o.dtypes[0]) in ("f8e4m3", "f8e5m2") and not (o.has(2) and o[2].any())
    if (
        (x.dtype.kind not in "iu" and not is_narrow)
        or x.dtype.itemsize > (4 if not o.has(2) or not o[2].any() else 2)
        or scale.dtype.kind != "f"
        or o.attributes.get("output_dtype")
    ):
        raise Unproved("a quantization")
    axis = 1 if o.attributes.get("axis") is None else o.axis(1)
    # The difference is exact, and rounded to f32 at least; an f16 is rounded once.
    kind = np.promote_types(scale.dtype, np.float32)
    if block := o.attributes.get("block_size"):
        shift = _repeat(o[2], x, axis, block).astype(np.float64) if o.has(2) else 0
        factor = _repeat(scale, x, axis, block)
        return ((x.astype(np.float64) - shift).astype(kind) * factor.astype(kind)).astype(scale.dtype)
    shape = [1] * x.ndim
    if scale.size != 1:
        shape[axis] = scale.size
    shift = o[2].reshape(shape if o[2].size != 1 else [1] * x.ndim).astype(np.float64) if o.has(2) else 0
    return ((x.astype(np.float64) - shift).astype(kind) * scale.reshape(shape).astype(kind)).astype(scale.dtype)


def _product(o: _Operands) -> Array:
    # A transposed view has other bits than its row-major copy.
    x, y = (np.ascontiguousarray(o[place]) for place in (0, 1))
    x = x.swapaxes(-1, -2) if o.attributes.get("transpose_a") and x.ndim > 1 else x
    return np.matmul(x, y.swapaxes(-1, -2) if o.attributes.get("transpose_b") and y.ndim > 1 else y)


def _clip(o: _Operands) -> Array:
    x = o[0]
    for position, function in ((1, np.maximum), (2, np.minimum)):
        x = _extremum(function)(x, o[position]) if o.has(position) else x
    return np.asarray(x, o[0].dtype)


def _resize(o: _Operands) -> Array:
    """Interpolate floats to sizes that are given: positions in f32, weights in f64 that are rounded once, taps in order."""
    a, coordinates = float(o.attributes.get("cubic_coeff_a", -0.75)), o.attributes.get("coordinate_transformation_mode")
    known = {"axes", "mode", "nearest_mode", "cubic_coeff_a", "coordinate_transformation_mode", "convention"}
    taps = {"linear": (0, 1), "cubic": (-1, 0, 1, 2)}.get(o.attributes.get("mode", "nearest"))
    x, half = o[0], np.float32(0.5)
    if taps is None or o.attributes.keys() - known or x.dtype not in (np.float32, np.float64):
        raise Unproved("an interpolation")
    for axis, out in zip(o.attributes.get("axes") or range(x.ndim), o.numbers(1), strict=True):
        extent, places = x.shape[axis], np.arange(out, dtype=np.float32)
        if out == extent:
            continue
        scale = np.float32(out) / np.float32(extent)
        if coordinates in (None, "half_pixel"):
            places = (places + half) / scale - half
        elif coordinates in ("align_corners", "align_corners_scaled") and out > 1:
            last = (out if coordinates == "align_corners" else float(scale) * extent) - 1
            places = places * np.float32(extent - 1) / np.float32(last)
        else:
            raise Unproved("an interpolation")
        first = np.floor(places).astype(np.int64)
        total: Any = None
        for tap in taps:
            d = np.abs(places.astype(np.float64) - (first + tap))
            near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weights = np.clip(1 - d, 0, None) if len(taps) == 2 else np.where(d <= 1, near, np.where(d < 2, far, 0))
            if np.any(weights):
                rows = np.take(x, np.clip(first + tap, 0, extent - 1), axis)
                part = rows * weights.astype(x.dtype).reshape(-1, *(1,) * (x.ndim - axis - 1))
                total = part if total is None else total + part
        x = np.asarray(total)
    return x


ROUNDED = frozenset("Exp MatMul ReduceL2 ReduceMean ReduceProd ReduceSum".split())
"""Operators whose results over floats depend on the library that computes them."""
MOVES = frozenset(
    "Concat ConstantOfShape ExactSlice Expand Flatten Gather GatherElements Identity Reshape Slice Split Squeeze Transpose "
    "Unsqueeze".split()
)
"""Operators whose elements are those of an operand, of any element type."""
RULES: dict[str, Any] = {
    "Identity": lambda o: o[0],
    "Cast": _cast,
    "Add": _binary(np.add, lambda o, x, y: x + y),
    "Subtract": _binary(np.subtract, lambda o, x, y: x - y),
    "Multiply": _binary(np.multiply, lambda o, x, y: x * y),
    "Divide": _divide,
    "Maximum": _fold(_extremum(np.maximum), lambda o, x, y: o.symbols.operation("max", x, y)),
    "Minimum": _fold(_extremum(np.minimum), lambda o, x, y: o.symbols.operation("min", x, y)),
    "Equal": _binary(np.equal, _equal),
    "Greater": _binary(np.greater, lambda o, x, y: _is_less(o, y, x)),
    "GreaterEqual": _binary(np.greater_equal, lambda o, x, y: size(1) - _is_less(o, x, y)),
    "LessEqual": _binary(np.less_equal, lambda o, x, y: size(1) - _is_less(o, y, x)),
    "NotEqual": _binary(np.not_equal, lambda o, x, y: size(1) - _equal(o, x, y)),
    "Less": _binary(np.less, lambda o, x, y: _is_less(o, x, y)),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Xor": _binary(np.logical_xor),
    "Not": lambda o: np.logical_not(o[0]),
    "BitwiseNot": lambda o: np.invert(o[0]),
    "Negative": lambda o: np.negative(o[0]),
    "Reciprocal": lambda o: np.asarray(1 / o[0], o[0].dtype),
    "Sqrt": lambda o: np.sqrt(o[0]),
    "Exp": lambda o: np.exp(o[0]),
    "Where": _where,
    "Clip": _clip,
    "Resize": _resize,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Flatten": lambda o: o[0].reshape(int(np.prod(o[0].shape[: o.axis(1)], dtype=np.int64)), -1),
    "Transpose": _transpose,
    "Expand": _expand,
    "Concat": lambda o: np.concatenate([o[position] for position in range(len(o.xs))], o.axis(0)),
    "Split": _split,
    "Slice": _slice,
    "ExactSlice": _exact_slice,
    "Gather": _gather,
    "ConstantOfShape": _constant_of_shape,
    "ReduceProd": _prod,
    "Range": _range,
    "DequantizeLinear": _dequantize,
    "GatherElements": _gather_elements,
    "Round": lambda o: (
        np.round(o[0]) if o[0].dtype.kind == "f" and not o.attributes and o[0].dtype != object else _refuse("a rounding")
    ),
    "Mod": _mod,
    "ReduceMean": _reduction_of(np.mean),
    "ReduceSum": _reduction_of(np.sum),
    "ReduceL2": _reduction_of(lambda x, **axes: np.sqrt(np.sum(x * x, **axes))),
    "ReduceMax": _reduction_of(np.max),
    "ReduceMin": _reduction_of(np.min),
    "MatMul": _product,
}
"""Rules of operators on constants."""
