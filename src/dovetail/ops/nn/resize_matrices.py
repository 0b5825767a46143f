"""Lowering of a Resize with dynamic sizes: a graph that computes taps or weight matrices at run time.

The graph repeats the f32 arithmetic of ``Resize.taps``, so that a gradient uses the same elements as the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.types import Tensor
from dovetail.ops.nn.resize_sizes import MARGIN

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value
    from dovetail.ops.nn.resize import Resize

ONE, HALF = 1.0, 0.5


class RunTimeAxis(NamedTuple):
    """RunTimeAxis describes how Resize changes one axis at run time: from ``size`` elements to ``out``, both i64 scalars.

    ``scale`` is an f32 scalar, and ``roi`` holds begin and end as f32 scalars. ``shrinks`` is a boolean scalar: whether any axis
    of the Resize has a scale below 1; None if the operator does not need ``shrinks``.
    """

    size: Any
    out: Any
    scale: Any
    roi: tuple[Any, Any] | None
    shrinks: Any


def run_time_matrices(
    b: Builder, op: Resize, x: Value, y: Value, inputs: tuple[Value | None, Value | None, Value | None], unchanged: set[int]
) -> Iterator[Any]:
    """Yield pairs of an axis of ``op`` that is not in ``unchanged``, and the weight matrix [out, size] of the axis.

    The weights have the element type of ``x``, or f32 if that has fewer than 32 bits. ``inputs`` holds sizes, scales and roi,
    with None for an absent input.
    """
    sizes, scales, roi = inputs
    axes = op.axis_indices(len(x.dims))
    shapes = [b.Shape(value, output_type=dtypes.i64) for value in (x, y)]
    lengths = [(_element(b, shapes[0], axis), _element(b, shapes[1], axis)) for axis in axes]
    ratios = _scales(b, op, lengths, sizes, scales)
    shrinks = b.Less(_reduce_pairs(b, "Minimum", ratios), ONE) if op.narrow else None
    for index, (axis, (size, out), scale) in enumerate(zip(axes, lengths, ratios, strict=True)):
        if axis in unchanged:
            continue
        region = None
        if op.coordinate_transformation_mode == "tf_crop_and_resize":
            assert roi is not None
            ends = _f32(b, roi)
            region = _element(b, ends, index), _element(b, ends, index + len(axes))
        entry = RunTimeAxis(size, out, scale, region, shrinks)
        matrix = _matrix(b, op, entry, x.dtype)
        if op.convention == "openvino":
            rows, columns = (b.Range(0, count, 1, output_type=dtypes.i64) for count in (out, size))
            copy = b.Cast(b.Equal(b.Unsqueeze(rows, [1]), b.Unsqueeze(columns, [0])), to=matrix.dtype)
            matrix = b.Where(_is_copied(b, entry), copy, matrix)
        yield axis, matrix


def resize_at_run_time(
    b: Builder, op: Resize, x: Value, inputs: tuple[Value | None, Value | None, Value | None], unchanged: set[int]
) -> Any:
    """Emit the interpolation along each axis not in ``unchanged``: Gather of taps, or for antialiasing MatMul by weights."""
    sizes, scales, roi = inputs
    rank, kind = len(x.dims), x.dtype
    axes = op.axis_indices(rank)
    shape = b.Shape(x, output_type=dtypes.i64)
    starts = [_element(b, shape, axis) for axis in axes]
    regions: list[Any] = [None] * len(axes)
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        assert roi is not None
        ends = _f32(b, roi)
        regions = [(_element(b, ends, index), _element(b, ends, index + len(axes))) for index in range(len(axes))]
    lengths = _lengths(b, op, starts, sizes, scales, regions)
    ratios = _scales(b, op, lengths, sizes, scales)
    shrinks = b.Less(_reduce_pairs(b, "Minimum", ratios), ONE) if op.narrow else None
    wide = dtypes.f32 if kind.bits < 32 else kind
    y: Any = x if kind is wide or op.mode == "nearest" else b.Cast(x, to=wide)
    outside: Any = None
    for axis, (size, out), scale, region in zip(axes, lengths, ratios, regions, strict=True):
        if axis in unchanged:
            continue
        entry = RunTimeAxis(size, out, scale, region, shrinks)
        positions = _positions(b, op, entry)
        y = _resample(b, op, y, axis, entry, positions)
        if region is not None:
            mask = b.Or(b.Less(positions, 0.0), b.Less(_f32(b, b.Subtract(size, 1)), positions))
            mask = b.Unsqueeze(mask, list(range(1, rank - axis))) if axis < rank - 1 else mask
            outside = mask if outside is None else b.Or(outside, mask)
    y = y if y.dtype is kind else b.Cast(y, to=kind)
    return y if outside is None else b.Where(outside, b.constant(op.extrapolation_value, kind), y)


def run_time_sizes(b: Builder, op: Resize, x: Value, scales: Value) -> Any:
    """Emit the vector of output sizes for resizing ``x`` by ``scales``."""
    axes = op.axis_indices(len(x.dims))
    sizes = b.Gather(b.Shape(x, output_type=dtypes.i64), b.constant(list(axes)), axis=0)
    factors = b.Cast(scales, to=dtypes.f32)
    factors = b.Add(factors, b.constant(MARGIN)) if op.convention == "openvino" else factors
    return _floor(b, b.Multiply(_f32(b, sizes), factors))


def _lengths(
    b: Builder, op: Resize, starts: list[Any], sizes: Value | None, scales: Value | None, regions: list[Any]
) -> list[tuple[Any, Any]]:
    """Return the lengths of each axis before and after the resize, as i64 scalars."""
    if sizes is not None:
        vector = b.Cast(sizes, to=dtypes.i64)
        wanted = [_element(b, vector, index) for index in range(len(starts))]
        if op.keep_aspect_ratio_policy == "stretch":
            return list(zip(starts, wanted, strict=True))
        scale = _scales(b, op, list(zip(starts, wanted, strict=True)), sizes, None)[0]
        return [(size, _floor(b, b.Add(b.Multiply(_f32(b, size), scale), HALF))) for size in starts]
    assert scales is not None
    vector = b.Cast(scales, to=dtypes.f32)
    if op.convention == "openvino":
        vector = b.Add(vector, b.constant(MARGIN))
    lengths = []
    for index, (size, region) in enumerate(zip(starts, regions, strict=True)):
        part = _f32(b, size)
        part = part if region is None else b.Multiply(part, b.Subtract(region[1], region[0]))
        lengths.append((size, _floor(b, b.Multiply(part, _element(b, vector, index)))))
    return lengths


def _floor(b: Builder, x: Value) -> Any:
    return b.Cast(b.Floor(x), to=dtypes.i64)


def _positions(b: Builder, op: Resize, axis: RunTimeAxis) -> Any:
    count = b.Range(0, axis.out, 1, output_type=dtypes.i64)
    return _COORDINATES[op.coordinate_transformation_mode](b, _f32(b, count), axis)


def _resample(b: Builder, op: Resize, x: Value, axis: int, entry: RunTimeAxis, positions: Value) -> Any:
    last = b.Subtract(entry.size, 1)

    def element(index: Value) -> Any:
        return b.Gather(x, b.Maximum(b.Minimum(index, last), 0), axis=axis)

    if op.mode == "nearest":
        y = element(b.Cast(_nearest(b, op.nearest_mode, positions, entry.scale), to=dtypes.i64))
    elif op.antialias:
        y = product(b, x, axis, b.Transpose(_matrix(b, op, entry, x.dtype), [1, 0]))
    else:
        y = _sum_of_taps(b, op, x, axis, entry, positions, element)
    if op.convention == "openvino":
        count = b.Range(0, entry.out, 1, output_type=dtypes.i64)
        y = b.Where(_is_copied(b, entry), element(count), y)
    return y


def _is_copied(b: Builder, axis: RunTimeAxis) -> Any:
    """Emit the test whether the convention ``openvino`` copies an axis: the axis keeps its length and is not cropped."""
    keeps = b.Equal(axis.size, axis.out)
    if axis.roi is None:
        return keeps
    begin, end = axis.roi
    return b.And(keeps, b.And(b.Equal(begin, 0.0), b.Equal(end, 1.0)))


def _sum_of_taps(
    b: Builder, op: Resize, x: Value, axis: int, entry: RunTimeAxis, positions: Value, element: Callable[[Value], Any]
) -> Any:
    first = b.Floor(positions)
    start = b.Cast(first, to=dtypes.i64)
    indices, weights = [], []
    for offset in (0, 1) if op.mode == "linear" else (-1, 0, 1, 2):
        distance = b.Abs(b.Subtract(b.Subtract(positions, first), float(offset)))
        weight = b.Subtract(ONE, distance) if op.mode == "linear" else _keys(b, distance, op.cubic_coeff_a)
        index = b.Add(start, offset)
        if op.exclude_outside:
            is_outside = b.Or(b.Less(index, 0), b.Less(b.Subtract(entry.size, 1), index))
            weight = b.Where(is_outside, 0.0, weight)
        indices.append(index)
        weights.append(weight)
    if op.exclude_outside:
        total = weights[0]
        for weight in weights[1:]:
            total = b.Add(total, weight)
        total = b.Where(b.Equal(total, 0.0), ONE, total)
        weights = [b.Divide(weight, total) for weight in weights]
    after = list(range(1, len(x.dims) - axis))
    y: Any = None
    for index, weight in zip(indices, weights, strict=True):
        weight = b.Cast(weight, to=x.dtype) if x.dtype is not dtypes.f32 else weight
        part = b.Multiply(element(index), b.Unsqueeze(weight, after) if after else weight)
        y = part if y is None else b.Add(y, part)
    return y


def _element(b: Builder, vector: Value, index: int) -> Any:
    return b.Gather(vector, b.constant(index), axis=0)


def _scales(b: Builder, op: Resize, lengths: list[tuple[Any, Any]], sizes: Value | None, scales: Value | None) -> list[Any]:
    if scales is not None:
        vector = b.Cast(scales, to=dtypes.f32)
        return [_element(b, vector, index) for index in range(len(lengths))]
    outs = [out for _, out in lengths]
    if op.keep_aspect_ratio_policy != "stretch":
        assert sizes is not None
        vector = b.Cast(sizes, to=dtypes.i64)
        outs = [_element(b, vector, index) for index in range(len(lengths))]
    ratios = [b.Divide(_f32(b, out), _f32(b, size)) for out, (size, _) in zip(outs, lengths, strict=True)]
    if op.keep_aspect_ratio_policy == "stretch":
        return ratios
    return [_reduce_pairs(b, "Minimum" if op.keep_aspect_ratio_policy == "not_larger" else "Maximum", ratios)] * len(ratios)


def _reduce_pairs(b: Builder, kind: str, xs: list[Any]) -> Any:
    return b.apply(kind, *xs) if len(xs) > 1 else xs[0]


def _f32(b: Builder, x: Value) -> Any:
    return b.Cast(x, to=dtypes.f32)


def _f64(b: Builder, x: Value) -> Any:
    return b.Cast(x, to=dtypes.f64)


def _matrix(b: Builder, op: Resize, axis: RunTimeAxis, kind: DType) -> Any:
    wide = dtypes.f32 if kind.bits < 32 else kind
    last = b.Subtract(axis.size, 1)
    source = _positions(b, op, axis)
    columns = b.Unsqueeze(b.Range(0, axis.size, 1, output_type=dtypes.i64), [0])
    if op.mode == "nearest":
        nearest = b.Cast(_nearest(b, op.nearest_mode, source, axis.scale), to=dtypes.i64)
        indices = b.Maximum(b.Minimum(nearest, last), 0)
        weights = b.Cast(b.Equal(b.Unsqueeze(indices, [1]), columns), to=wide)
    else:
        weights = _weights(b, op, axis, source, last, columns, wide)
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        outside = b.Or(b.Less(source, 0.0), b.Less(_f32(b, last), source))
        weights = b.Where(b.Unsqueeze(outside, [1]), b.constant(0.0, wide), weights)
    return weights


def _weights(b: Builder, op: Resize, axis: RunTimeAxis, source: Value, last: Value, columns: Value, wide: DType) -> Any:
    """Emit the weights of ``linear`` and ``cubic``: a matrix [out, size].

    The weights of elements outside ``x`` are added to the border element, or dropped with ``exclude_outside``.
    """
    reach = 1 if op.mode == "linear" else 2
    stretch = None
    if op.antialias:
        stretch = b.Minimum(axis.scale, ONE)
        stretch = b.Where(axis.shrinks, axis.scale, stretch) if op.narrow else stretch
        stretch = b.Cast(stretch, to=wide)
    positions = columns
    if not op.exclude_outside:
        # A position is at most one element beyond the ends of the axis; the weights extend `reach / stretch` elements further.
        beyond: Any = b.constant(reach + 2)
        if stretch is not None:
            beyond = b.Add(b.Cast(b.Ceil(b.Divide(float(reach), stretch)), to=dtypes.i64), 2)
        stop = b.Add(axis.size, beyond)
        positions = b.Unsqueeze(b.Range(b.Subtract(0, beyond), stop, 1, output_type=dtypes.i64), [0])
    distance = b.Abs(b.Subtract(b.Unsqueeze(b.Cast(source, to=wide), [1]), b.Cast(positions, to=wide)))
    distance = distance if stretch is None else b.Multiply(distance, stretch)
    if op.mode == "linear":
        weights = b.Maximum(b.Subtract(ONE, distance), 0.0)
    else:
        weights = _keys(b, distance, op.cubic_coeff_a)
    if op.exclude_outside or op.antialias:
        total = b.ReduceSum(weights, [1], keepdims=True)
        weights = b.Divide(weights, b.Where(b.Equal(total, 0.0), b.constant(ONE, wide), total))
    if op.exclude_outside:
        return weights
    border = b.Maximum(b.Minimum(positions, last), 0)
    return b.MatMul(weights, b.Cast(b.Equal(b.Transpose(border, [1, 0]), columns), to=wide))


def _keys(b: Builder, d: Value, a: float) -> Any:
    """Evaluate Keys' cubic kernel by Horner's rule."""
    near = b.Add(b.Multiply(b.Multiply(b.Subtract(b.Multiply(d, a + 2), a + 3), d), d), ONE)
    far = b.Subtract(b.Multiply(b.Add(b.Multiply(b.Subtract(b.Multiply(d, a), 5 * a), d), 8 * a), d), 4 * a)
    zero = b.constant(0.0, d.dtype)
    return b.Where(b.LessEqual(d, 1.0), near, b.Where(b.Less(d, 2.0), far, zero))


def _nearest(b: Builder, mode: str, source: Value, scale: Value) -> Any:
    if mode == "simple":
        return b.Where(b.Less(scale, ONE), b.Ceil(source), b.Floor(source))
    steps: dict[str, Callable[[], Any]] = {
        "floor": lambda: b.Floor(source),
        "ceil": lambda: b.Ceil(source),
        "round_prefer_floor": lambda: b.Ceil(b.Subtract(source, HALF)),
        "round_prefer_ceil": lambda: b.Floor(b.Add(source, HALF)),
    }
    return steps[mode]()


# Functions that emit positions in x for output indices `y`, with the formulas of `dovetail.ops.nn.interpolation.COORDINATES`.


def _half_pixel(b: Builder, y: Value, axis: RunTimeAxis) -> Any:
    return b.Subtract(b.Divide(b.Add(y, HALF), axis.scale), HALF)


def _half_pixel_symmetric(b: Builder, y: Value, axis: RunTimeAxis) -> Any:
    size = _f64(b, axis.size)
    whole = b.Multiply(_f64(b, axis.scale), size)
    offset = b.Multiply(b.Multiply(size, HALF), b.Subtract(ONE, b.Divide(_f64(b, axis.out), whole)))
    return b.Subtract(b.Add(_f32(b, offset), b.Divide(b.Add(y, HALF), axis.scale)), HALF)


def _unless_one(b: Builder, axis: RunTimeAxis, positions: Value, otherwise: Value) -> Any:
    return b.Where(b.Less(1, axis.out), positions, otherwise)


def _align_corners(b: Builder, y: Value, axis: RunTimeAxis) -> Any:
    # A single element has position 0 for any divisor.
    steps = b.Maximum(b.Subtract(axis.out, 1), 1)
    return b.Divide(b.Multiply(y, _f32(b, b.Subtract(axis.size, 1))), _f32(b, steps))


def _align_scaled_corners(b: Builder, y: Value, axis: RunTimeAxis) -> Any:
    length = b.Multiply(_f64(b, axis.scale), _f64(b, axis.size))
    positions = b.Divide(b.Multiply(y, _f32(b, b.Subtract(axis.size, 1))), _f32(b, b.Subtract(length, ONE)))
    return b.Where(b.Equal(length, ONE), b.constant(0.0), positions)


def _crop(b: Builder, y: Value, axis: RunTimeAxis) -> Any:
    assert axis.roi is not None
    start, end = axis.roi
    last = _f32(b, b.Subtract(axis.size, 1))
    steps = _f64(b, b.Maximum(b.Subtract(axis.out, 1), 1))
    offsets = b.Multiply(b.Multiply(_f64(b, y), _f64(b, b.Subtract(end, start))), _f64(b, last))
    positions = b.Add(_f64(b, b.Multiply(start, last)), b.Divide(offsets, steps))
    middle = b.Multiply(b.Multiply(b.Add(start, end), HALF), last)
    return _unless_one(b, axis, _f32(b, positions), middle)


_COORDINATES: dict[str, Callable[[Any, Any, RunTimeAxis], Any]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda b, y, axis: _unless_one(b, axis, _half_pixel(b, y, axis), b.constant(0.0)),
    "asymmetric": lambda b, y, axis: b.Divide(y, axis.scale),
    "tf_half_pixel_for_nn": lambda b, y, axis: b.Divide(b.Add(y, HALF), axis.scale),
    "align_corners": _align_corners,
    "align_corners_scaled": _align_scaled_corners,
    "tf_crop_and_resize": _crop,
}


def product(b: Builder, x: Value, axis: int, matrix: Value) -> Any:
    """Multiply ``axis`` of ``x`` by the transpose of ``matrix`` [input size, output size]."""
    kind, rank = x.dtype, len(x.dims)
    assert isinstance(matrix.type, Tensor)
    wide = matrix.dtype
    y = x if kind is wide else b.Cast(x, to=wide)
    if axis == rank - 1:
        y = b.MatMul(y, matrix)
    elif axis == rank - 2:
        y = b.MatMul(b.Transpose(matrix, [1, 0]), y)
    else:
        order = [*range(axis), *range(axis + 1, rank), axis]
        y = b.Transpose(b.MatMul(b.Transpose(y, order), matrix), [*range(axis), rank - 1, *range(axis, rank - 1)])
    return y if kind is wide else b.Cast(y, to=kind)
