"""Slice, Roll and ReverseSequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Operand
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import INT64_MAX, Size, View, agree, axes_in, axis_in, dtype_in, static
from dovetail.ops.shape_values import (
    elements_of,
    host_view_of,
    indices_of_axis,
    integers_of,
    join_sizes,
    length_of_vector,
    shape_of_rank,
    view_of,
)
from dovetail.ops.tensor.transpose_expand_tile import strides_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MAX_WINDOWS = 1 << 12
"""Largest number of windows (strided copies) that one movement operator, such as Slice or Pad, may need."""


class Bounds(NamedTuple):
    """Bounds holds start, stop and step of a slice along one axis; a number that is unknown is None."""

    start: Any
    stop: Any
    step: Any


def _is_natural(item: Size | None) -> bool | None:
    return None if item is None else symbolic.less_equal(0, item)


def first_index_of(size: Size, bounds: Bounds) -> Any:
    """Return the first index of a slice: a negative start counts from the end, then the index is clamped; None if unknown."""
    start, _, step = bounds
    natural = _is_natural(start)
    if isinstance(step, int) and step > 0 and start is not None and symbolic.equal(start + size, 0) is True:
        # Start -n in an axis of n elements is index 0; this holds for n = 0 too, where the start 0 is not negative.
        return 0
    if natural is None or not isinstance(step, int):
        return None
    if step > 0:
        # A start beyond the end gives an empty slice, with or without clamping.
        return start if natural else symbolic.maximum(start + size, 0)
    if natural:
        return symbolic.minimum(start, size - 1)
    if start == -1:
        return size - 1
    return symbolic.maximum(start + size, symbolic.minimum(0, size - 1))


def end_index_of(size: Size, bounds: Bounds) -> Any:
    """Return the index before which a slice ends; None if it is unknown.

    The greatest i64 is the end of an axis of any size; the least i64 is the position before the first index.
    """
    _, stop, step = bounds
    natural = _is_natural(stop)
    if natural is None or not isinstance(step, int):
        return None
    if step > 0:
        if isinstance(stop, int) and stop >= INT64_MAX:
            return size
        return symbolic.minimum(stop, size) if natural else stop + size
    if isinstance(stop, int) and stop <= -INT64_MAX:
        return -1
    return stop if natural else symbolic.maximum(stop + size, -1)


def length_of_slice(size: Size, bounds: Bounds) -> Any:
    """Return the number of elements in a slice of an axis of ``size`` elements; None if it is unknown."""
    first, end, step = first_index_of(size, bounds), end_index_of(size, bounds), bounds.step
    if first is None or end is None:
        return None
    if step > 0 and end is size and isinstance(bounds.start, int) and bounds.start < 0:
        # min(-start, size) is a simpler expression than size - max(size + start, 0).
        return symbolic.ceil_divide(symbolic.minimum(-bounds.start, size), step)
    distance = end - first if step > 0 else first - end
    return symbolic.maximum(symbolic.ceil_divide(distance, abs(step)), 0)


class Slice(
    Op,
    sig="data: T, starts!: I, ends!: I, axes?!: I1, steps?!: I -> output: T",
    onnx=(
        "Slice-1(data; starts, ends, axes~front?)",
        "Slice-10,11,13(data, starts, ends, axes?, steps?)",
    ),
    openvino="Slice-8(data, starts, ends, steps, axes?)",
):
    """Slice ``data``: every ``steps[i]``-th element from ``starts[i]`` to before ``ends[i]`` along ``axes[i]``.

    Negative bounds count from the end. With a positive step start and end are clamped to [0, size]; with a negative step start
    is clamped to [0, size - 1] and end to [-1, size - 1]. Steps are not 0, and ``axes`` are distinct; the default ``axes`` are
    the first axes. A 32-bit bound of 2^31 - 1 (INT_MAX) is the end of the axis, and a 32-bit bound of -2^31 (INT_MIN) is the
    position before the first element.
    Sources: ONNX Slice 1, 10, 11, 13; OpenVINO Slice-8.
    """

    def shape(self, data: View, starts: View, ends: View, axes: View | None = None, steps: View | None = None) -> Any:
        rows = self._bounds(data, starts, ends, axes, steps)
        if data.shape is None:
            return None
        if rows is None:
            return shape_of_rank(len(data.shape))
        sizes = list(data.shape)
        for axis, bounds in rows:
            sizes[axis] = length_of_slice(sizes[axis], bounds)
        return tuple(sizes)

    def _bounds(
        self, data: View, starts: View, ends: View, axes: View | None, steps: View | None
    ) -> list[tuple[int, Bounds]] | None:
        """Return pairs of an axis and its bounds; None if the axes or the number of axes are unknown."""
        count = _common_length({"starts": starts, "ends": ends, "axes": axes, "steps": steps})
        step = elements_of(steps) or []
        if 0 in [item for item in step if isinstance(item, int)]:
            raise RuleError("attribute.range", f"steps must not be 0, got {step}")
        if data.shape is None or not isinstance(count, int):
            return None
        if axes is None and count > len(data.shape):
            raise RuleError("attribute.length", f"the number of bounds ({count}) must not exceed the rank ({len(data.shape)})")
        indices = list(range(count)) if axes is None else integers_of(axes)
        if indices is None:
            return None
        blank = [None] * count
        columns = (_bounds_of(starts) or blank, _bounds_of(ends) or blank, [1] * count if steps is None else step or blank)
        return [
            (axis, Bounds(*row)) for axis, row in zip(axes_in(indices, len(data.shape)), zip(*columns, strict=True), strict=True)
        ]

    def evaluate(
        self, xp: Namespace, data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> Any:
        rows = self._bounds(view_of(data), host_view_of(starts), host_view_of(ends), host_view_of(axes), host_view_of(steps))
        if rows is None:
            raise symbolic.Inexact
        cuts = [slice(None)] * data.ndim
        for axis, bounds in rows:
            cuts[axis] = _python_slice(int(data.shape[axis]), bounds)
        if not cuts:
            return data
        return arrays.strided_slice(xp, data, *zip(*((cut.start, cut.stop, cut.step or 1) for cut in cuts), strict=True))

    def vjp(
        self,
        b: Builder,
        g: Value,
        y: Value,
        data: Value,
        starts: Value,
        ends: Value,
        axes: Value | None = None,
        steps: Value | None = None,
    ) -> Any:
        from dovetail.ops.tensor.scatter import gradient_of_gather

        rows = self._bounds(data, starts, ends, axes, steps)
        if rows is None:
            raise UnsupportedError("constant.needed", "the gradient of Slice needs constant axes")
        padded: list[int] = []
        before: list[int] = []
        after: list[Any] = []
        for index, (axis, bounds) in enumerate(rows):
            size, length = data.dims[axis], y.dims[axis]
            begin = _known_begin(size, bounds)
            if begin is None:
                cut = [_element_value(b, item, index) for item in (starts, ends, steps)]
                indices = b.Slice(indices_of_axis(b, data, axis), cut[0], cut[1], [0], cut[2])
                g = gradient_of_gather(b, g, indices, axis, shape_value(b, data, [axis]))
                continue
            padded.append(axis)
            before.append(begin)
            if isinstance(size, int) and isinstance(length, int):
                after.append(size - length - begin)
                continue
            rest = b.Subtract(shape_value(b, data, [axis]), shape_value(b, y, [axis]))
            after.append(b.Subtract(rest, begin) if begin else rest)
        if padded:
            g = b.Pad(g, join_sizes(b, [*before, *after]), None, padded)
        return [g, None, None, *(None for item in (axes, steps) if item is not None)]

    def decompose(
        self, b: Builder, data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
    ) -> Any:
        """Drop steps that are all 1, or replace negative axes; return None if there are neither."""
        indices = integers_of(axes) if axes is not None else None
        plain = indices is None or data.shape is None or all(index >= 0 for index in indices)
        if steps is not None and set(elements_of(steps) or [None]) == {1}:
            return b.Slice(data, starts, ends, axes)
        return None if plain else b.Slice(data, starts, ends, list(axes_in(indices or [], len(data.dims))), steps)

    def windows(self, data: View, starts: View, ends: View, axes: View | None = None, steps: View | None = None) -> Windows:
        shape = static(data.shape)
        sizes = static(self.shape(data, starts, ends, axes, steps))
        rows = self._bounds(data, starts, ends, axes, steps) or []
        strides = list(strides_of(shape))
        offset = 0
        for axis, bounds in rows:
            offset += first_index_of(shape[axis], bounds) * strides[axis] if sizes[axis] else 0
            strides[axis] *= bounds.step
        return Windows((Window(0, 0, sizes, offset if prod(sizes) else 0, tuple(strides), 0, strides_of(sizes)),))


def _common_length(vectors: dict[str, Any]) -> Any:
    """Return the common length of several vectors. Raises RuleError [attribute.length] if the lengths differ."""
    lengths = {name: length_of_vector(x, name) for name, x in vectors.items() if x is not None}
    known = {name: length for name, length in lengths.items() if isinstance(length, int)}
    if len(set(known.values())) > 1:
        text = ", ".join(f"{length} {name}" for name, length in known.items())
        raise RuleError("attribute.length", f"{', '.join(known)} must have the same length, got {text}")
    return next(iter(known.values()), None)


def _bounds_of(x: View) -> list[Any] | None:
    """Return the bounds in a vector, with the extremes of i32 replaced by the extremes of i64; None if they are unknown."""
    result = elements_of(x)
    dtype = dtype_in(x.type)
    if result is None or dtype is None or dtype != "i32":
        return result
    low, high = dtype.range()
    return [{low: -INT64_MAX, high: INT64_MAX}.get(item, item) if isinstance(item, int) else item for item in result]


def _python_slice(size: int, bounds: Bounds) -> slice:
    """Return the equivalent Python slice, whose clamping differs for negative steps."""
    length = length_of_slice(size, bounds)
    if length is None:
        raise symbolic.Inexact
    if not length:
        return slice(0, 0, 1)
    first = first_index_of(size, bounds)
    end = first + length * bounds.step
    return slice(first, end if end >= 0 else None, bounds.step)


def _known_begin(size: Size, bounds: Bounds) -> int | None:
    """Return the first index of a slice of step 1 if it is the same number for all values of the symbols, else None."""
    if bounds.step != 1:
        return None
    first = first_index_of(size, bounds)
    if not isinstance(first, int):
        return None
    return first if symbolic.less_equal(first, size) is True else size if isinstance(size, int) else None


def _element_value(b: Builder, vector: Value | None, index: int) -> Any:
    """Return element ``index`` of a vector, as a vector of one element; [1] for an absent vector."""
    if vector is None:
        return [1]
    data = vector.constant
    if data is not None:
        return b.constant(data[index : index + 1], vector.dtype)
    return b.Gather(vector, [index], axis=0)


class Roll(Op, sig="data: T, shift!: I, axes!: I1 -> output: T", openvino="Roll-7(data, shift, axes)"):
    """Roll ``data`` by ``shift[i]`` positions towards larger indices along ``axes[i]``, cyclically.

    An axis that occurs several times in ``axes`` is rolled by the sum of its shifts; a single shift applies to all axes.
    Source: OpenVINO Roll-7.
    """

    def shape(self, data: View, shift: View, axes: View) -> Any:
        shifts, count = length_of_vector(shift, "shift", scalar=True), length_of_vector(axes, "axes", scalar=True)
        if shift.shape and shifts is not None and count is not None and symbolic.equal(shifts, count) is False:
            raise RuleError("attribute.length", f"the number of shifts ({shifts}) must equal the number of axes ({count})")
        if data.shape is not None:
            self._shifts(data, shift, axes)
        return data.shape

    def _shifts(self, data: View, shift: View, axes: View) -> dict[int, Any] | None:
        """Return a dictionary from each axis to the sum of its shifts; None if axes or shifts are unknown."""
        indices, steps = integers_of(axes), elements_of(shift)
        if indices is None or steps is None:
            return None
        result: dict[int, Any] = {}
        for index, step in zip(indices, steps * len(indices) if len(steps) == 1 else steps, strict=True):
            axis = axis_in(index, len(data.dims))
            result[axis] = result.get(axis, 0) + step
        return result

    def evaluate(self, xp: Namespace, data: Array, shift: Array, axes: Array) -> Any:
        self.shape(view_of(data), host_view_of(shift), host_view_of(axes))
        result = self._shifts(view_of(data), host_view_of(shift), host_view_of(axes))
        if result is None or any(isinstance(step, symbolic.Dim) for step in result.values()):
            raise symbolic.Inexact
        # xp.roll takes int64; the remainder of a shift modulo the size always fits.
        steps = {axis: step % data.shape[axis] for axis, step in result.items() if data.shape[axis]}
        return xp.roll(data, tuple(steps.values()), axis=tuple(steps)) if steps else data

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, shift: Value, axes: Value) -> Any:
        return [b.Roll(g, b.Negative(shift), axes), None, None]

    def windows(self, data: View, shift: View, axes: View) -> Windows:
        shape = static(data.shape)
        result = self._shifts(data, shift, axes)
        if result is None:
            raise UnsupportedError("constant.needed", "windows of Roll need constant shifts")
        pieces = [list(_runs_of_roll(size, result.get(axis, 0))) for axis, size in enumerate(shape)]
        return Windows(tuple(windows_of(pieces, shape, shape)))

    def decompose(self, b: Builder, data: Value, shift: Value, axes: Value) -> Any:
        """Decompose Roll: for each rolled axis, a Concat of the last elements and the first ones."""
        indices = None if data.shape is None else integers_of(axes)
        if indices is None:
            raise UnsupportedError("constant.needed", "Roll needs constant axes, got computed ones")
        known = self._shifts(data, shift, axes)
        y = data
        for axis in sorted({axis_in(position, len(data.dims)) for position in indices}):
            steps = [index for index, position in enumerate(indices) if axis_in(position, len(data.dims)) == axis]
            y = _roll_axis(b, y, axis, None if known is None else known[axis], shift, steps)
        return b.Identity(data) if y is data else y


def _roll_axis(b: Builder, x: Value, axis: int, step: Any, shift: Value, indices: Sequence[int]) -> Any:
    """Roll one axis by ``step``; if ``step`` is None, by the sum of the elements of ``shift`` at ``indices``."""
    size = x.dims[axis]
    if isinstance(size, int) and isinstance(step, int):
        step = step % size if size else 0
    if isinstance(step, int) and not step:
        return x
    if isinstance(step, int) and symbolic.less_equal(abs(step), size) is True:
        return _rotate(b, x, axis, [-step])
    back = b.constant([-step]) if isinstance(step, int) else b.Negative(_sum_of_elements(b, shift, indices))
    # The modulus of an empty axis is 1: division by 0 is an error.
    return _rotate(b, x, axis, b.Mod(back, b.Maximum(_axis_size(b, x, axis), b.constant([1]))))


def _sum_of_elements(b: Builder, vector: Value, indices: Sequence[int]) -> Any:
    """Return the sum of the elements at ``indices`` as an i64 vector; a single element is used for all ``indices``."""
    wide = vector if vector.dtype == "i64" else b.Cast(vector, to=dtypes.i64)
    if wide.shape == ():
        wide = b.Unsqueeze(wide, [0])
    if wide.dims == (1,):
        return wide if len(indices) == 1 else b.Multiply(wide, b.constant([len(indices)]))
    result = b.Gather(wide, [indices[0]], axis=0)
    for index in indices[1:]:
        result = b.Add(result, b.Gather(wide, [index], axis=0))
    return result


def _axis_size(b: Builder, x: Value, axis: int) -> Any:
    size = x.dims[axis]
    return b.constant([size]) if isinstance(size, int) else b.Gather(b.Shape(x), [axis], axis=0)


def _rotate(b: Builder, x: Value, axis: int, cut: Operand) -> Any:
    """Emit the elements from index ``cut`` on, followed by the elements before index ``cut``."""
    end = b.Slice(x, cut, [INT64_MAX], [axis])
    return b.Concat(end, b.Slice(x, [0], cut, [axis]), axis=axis)


class ReverseSequence(
    Op,
    sig="input: T, sequence_lens: R -> y: T",
    onnx="ReverseSequence-10,28(input, sequence_lens; batch_axis=1, time_axis=0)",
    openvino="ReverseSequence-1(input, sequence_lens; batch_axis=0, seq_axis:time_axis=1)",
):
    """Reverse the first ``sequence_lens[i]`` elements along ``time_axis`` for each index i of ``batch_axis``.

    The other elements keep their positions. Sources: ONNX ReverseSequence 10, 28; OpenVINO ReverseSequence-1.
    """

    batch_axis: int = 1
    time_axis: int = 0

    def shape(self, input: View, sequence_lens: View) -> Any:
        if sequence_lens.shape is not None and len(sequence_lens.shape) != 1:
            raise RuleError("shape.rank", f"sequence_lens must be a vector, got rank {len(sequence_lens.shape)}")
        if input.shape is None:
            return None
        batch, time = (axis_in(axis, len(input.shape)) for axis in (self.batch_axis, self.time_axis))
        if batch == time:
            raise RuleError("axis.repeated", f"batch_axis and time_axis must differ, got {batch} twice")
        if sequence_lens.shape is not None:
            agree(input.shape[batch], sequence_lens.shape[0], ("input", batch), ("sequence_lens", 0))
        result = integers_of(sequence_lens)
        size = input.shape[time]
        if result is not None and any(length < 0 or (isinstance(size, int) and length > size) for length in result):
            raise RuleError("attribute.range", f"sequence_lens must be in [0, {size}], got {result}")
        return input.shape

    def canonical(self, input: View, sequence_lens: View) -> Op:
        if input.shape is None:
            return self
        rank = len(input.shape)
        return ReverseSequence(axis_in(self.batch_axis, rank), axis_in(self.time_axis, rank))

    def evaluate(self, xp: Namespace, input: Array, sequence_lens: Array) -> Any:
        batch, time = (axis_in(axis, input.ndim) for axis in (self.batch_axis, self.time_axis))
        counts = np.asarray(arrays.to_numpy(sequence_lens)).astype(np.int64)[:, None]
        positions = np.arange(input.shape[time], dtype=np.int64)[None, :]
        if counts.size and (counts.min() < 0 or counts.max() > input.shape[time]):
            raise RuleError("attribute.range", f"sequence_lens must be in [0, {input.shape[time]}], got {counts[:, 0].tolist()}")
        indices = arrays.from_numpy(xp, np.where(positions < counts, counts - 1 - positions, positions), input)
        front = xp.moveaxis(input, (batch, time), (0, 1))
        return xp.moveaxis(arrays.take(xp, front, indices, 1, 1), (0, 1), (batch, time))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, sequence_lens: Value) -> Any:
        return [b.apply("ReverseSequence", g, sequence_lens, batch_axis=self.batch_axis, time_axis=self.time_axis), None]


class Run(NamedTuple):
    """Run is a copy of ``size`` elements of one axis.

    The source indices begin at ``source`` and are ``step`` apart; the target indices begin at ``target`` and are consecutive.
    """

    size: int
    source: int
    step: int
    target: int


def _runs_of_roll(size: int, shift: int) -> Iterator[Run]:
    start = shift % size if size else 0
    yield Run(size - start, 0, 1, start)
    if start:
        yield Run(start, size - start, 1, 0)


def windows_of(pieces: Sequence[Sequence[Run]], shape: Sequence[int], target: Sequence[int]) -> Iterator[Window]:
    """Yield a window for each combination of one run per axis. Raises UnsupportedError [op.unsupported] for too many windows."""
    count = prod(map(len, pieces))
    if count > MAX_WINDOWS:
        raise UnsupportedError("op.unsupported", f"a movement may have at most {MAX_WINDOWS} windows, got {count}")
    source_strides, target_strides = strides_of(shape), strides_of(target)
    for row in product(*pieces):
        yield Window(
            0,
            0,
            tuple(piece.size for piece in row),
            sum(piece.source * stride for piece, stride in zip(row, source_strides, strict=True)),
            tuple(piece.step * stride for piece, stride in zip(row, source_strides, strict=True)),
            sum(piece.target * stride for piece, stride in zip(row, target_strides, strict=True)),
            target_strides,
        )
