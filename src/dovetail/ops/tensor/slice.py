"""Some of the elements, and elements moved along an axis: Slice, Roll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import INT64_MAX, View, axes_in, axis_in, dtype_in, static
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
from dovetail.ops.tensor.transpose_expand_tile import dense

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MOST_WINDOWS = 1 << 12
"""The most pieces in which data moves that a plan looks at one by one."""


class Bounds(NamedTuple):
    """Where a slice begins, ends and how it steps along one axis; None where that is not known."""

    start: Any
    stop: Any
    step: Any


def _is_natural(item: Any) -> bool | None:
    return None if item is None else symbolic.less_equal(0, item)


def first_index(size: Any, bounds: Bounds) -> Any:
    """The index of the first element of a slice, if it has one: counted from the end when negative, then clamped."""
    start, _, step = bounds
    natural = _is_natural(start)
    if natural is None or not isinstance(step, int):
        return None
    if step > 0:
        # A start beyond the end leaves nothing, as the clamped one does.
        return start if natural else symbolic.maximum(start + size, 0)
    if natural:
        return symbolic.minimum(start, size - 1)
    if start == -1:
        return size - 1
    return symbolic.maximum(start + size, symbolic.minimum(0, size - 1))


def end_index(size: Any, bounds: Bounds) -> Any:
    """The index before which a slice ends; behind an axis of any size for the greatest and before it for the least bound."""
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


def slice_length(size: Any, bounds: Bounds) -> Any:
    """How many elements a slice takes of an axis of ``size``."""
    first, end, step = first_index(size, bounds), end_index(size, bounds), bounds.step
    if first is None or end is None:
        return None
    if step > 0 and end is size and isinstance(bounds.start, int) and bounds.start < 0:
        # The last elements: simpler said than size - max(size + start, 0).
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
    """Every ``steps[i]``-th element of ``x`` from ``starts[i]`` to before ``stops[i]`` along ``axes[i]``; all of the other axes.

    Bounds count from the end when negative. With a positive step the start is clamped to [0, size] and the stop to [0, size];
    with a negative one to [0, size - 1] and [-1, size - 1]. No step is 0; no axis comes twice; without ``axes`` they are the
    first ones. The greatest value of a 32-bit bound means the end of the axis, the least the place before it ("INT_MAX",
    "INT_MIN"). Sources: ONNX Slice 1, 10, 11, 13; OpenVINO Slice-8.
    """

    def shape(self, data: View, starts: View, ends: View, axes: View | None = None, steps: View | None = None) -> Any:
        rows = self._bounds(data, starts, ends, axes, steps)
        if data.shape is None:
            return None
        if rows is None:
            return shape_of_rank(len(data.shape))
        sizes = list(data.shape)
        for axis, bounds in rows:
            sizes[axis] = slice_length(sizes[axis], bounds)
        return tuple(sizes)

    def _bounds(
        self, data: View, starts: View, ends: View, axes: View | None, steps: View | None
    ) -> list[tuple[int, Bounds]] | None:
        """The bounds by axis; None where it is not known which axes are cut, or their number."""
        count = _common_length({"starts": starts, "stops": ends, "axes": axes, "steps": steps})
        step = elements_of(steps) or []
        if 0 in [item for item in step if isinstance(item, int)]:
            raise RuleError("slice.step", "a step of 0")
        if data.shape is None or not isinstance(count, int):
            return None
        if axes is None and count > len(data.shape):
            raise RuleError("slice.axes", f"bounds for {count} axes of {len(data.shape)}")
        places = list(range(count)) if axes is None else integers_of(axes)
        if places is None:
            return None
        blank = [None] * count
        columns = (_limits(starts) or blank, _limits(ends) or blank, [1] * count if steps is None else step or blank)
        return [
            (axis, Bounds(*row)) for axis, row in zip(axes_in(places, len(data.shape)), zip(*columns, strict=True), strict=True)
        ]

    def evaluate(
        self, xp: Namespace, data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> Any:
        rows = self._bounds(view_of(data), host_view_of(starts), host_view_of(ends), host_view_of(axes), host_view_of(steps))
        if rows is None:
            raise symbolic.Inexact
        cuts = [slice(None)] * data.ndim
        for axis, bounds in rows:
            cuts[axis] = _as_python(int(data.shape[axis]), bounds)
        return (
            arrays.strided(xp, data, *zip(*((cut.start, cut.stop, cut.step or 1) for cut in cuts), strict=True)) if cuts else data
        )

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
        from dovetail.ir.builder import shape_value
        from dovetail.ops.tensor.scatter import added_back

        rows = self._bounds(data, starts, ends, axes, steps)
        if rows is None:
            raise UnsupportedError("grad.axes", "the gradient needs to know the axes that are cut")
        padded: list[int] = []
        before: list[int] = []
        after: list[Any] = []
        for place, (axis, bounds) in enumerate(rows):
            size, length = data.dims[axis], y.dims[axis]
            begin = _known_begin(size, bounds)
            if begin is None:
                cut = [_at(b, each, place) for each in (starts, ends, steps)]
                indices = b.Slice(indices_of_axis(b, data, axis), cut[0], cut[1], [0], cut[2])
                g = added_back(b, g, indices, axis, shape_value(b, data, [axis]))
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
        return [g, None, None, *(None for each in (axes, steps) if each is not None)]

    def decompose(
        self, b: Builder, data: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
    ) -> Any:
        """Without steps that are all 1, with axes counted from the front; None where it is so already."""
        places = integers_of(axes) if axes is not None else None
        plain = places is None or data.shape is None or all(place >= 0 for place in places)
        if steps is not None and set(elements_of(steps) or [None]) == {1}:
            return b.Slice(data, starts, ends, axes)
        return None if plain else b.Slice(data, starts, ends, list(axes_in(places or [], len(data.dims))), steps)

    def windows(self, data: View, starts: View, ends: View, axes: View | None = None, steps: View | None = None) -> Windows:
        shape = static(data.shape)
        sizes = static(self.shape(data, starts, ends, axes, steps))
        rows = self._bounds(data, starts, ends, axes, steps) or []
        strides = list(dense(shape))
        offset = 0
        for axis, bounds in rows:
            offset += first_index(shape[axis], bounds) * strides[axis] if sizes[axis] else 0
            strides[axis] *= bounds.step
        return Windows((Window(0, 0, sizes, offset if prod(sizes) else 0, tuple(strides), 0, dense(sizes)),))


def _common_length(vectors: dict[str, Any]) -> Any:
    """The one length of several vectors. Raises RuleError [slice.bounds] where they differ."""
    lengths = {name: length_of_vector(x, name) for name, x in vectors.items() if x is not None}
    known = {name: length for name, length in lengths.items() if isinstance(length, int)}
    if len(set(known.values())) > 1:
        text = ", ".join(f"{length} {name}" for name, length in known.items())
        raise RuleError("slice.bounds", f"{text} should be as many")
    return next(iter(known.values()), None)


def _limits(x: View) -> list[Any] | None:
    """The bounds in a vector; those of 32 bits that stand for "all the way" widened."""
    found = elements_of(x)
    dtype = dtype_in(x.type)
    if found is None or dtype is None or dtype != "i32":
        return found
    low, high = dtype.range()
    return [{low: -INT64_MAX, high: INT64_MAX}.get(item, item) if isinstance(item, int) else item for item in found]


def _as_python(size: int, bounds: Bounds) -> slice:
    """The same elements as a Python slice, whose clamping differs for negative steps."""
    length = slice_length(size, bounds)
    if length is None:
        raise symbolic.Inexact
    if not length:
        return slice(0, 0, 1)
    first = first_index(size, bounds)
    end = first + length * bounds.step
    return slice(first, end if end >= 0 else None, bounds.step)


def _known_begin(size: Any, bounds: Bounds) -> int | None:
    """The first index of a slice of step 1 where that is a number whatever the symbols are."""
    if bounds.step != 1:
        return None
    first = first_index(size, bounds)
    if not isinstance(first, int):
        return None
    return first if symbolic.less_equal(first, size) is True else size if isinstance(size, int) else None


def _at(b: Builder, vector: Value | None, place: int) -> Any:
    """Element ``place`` of a vector, as a vector."""
    if vector is None:
        return [1]
    data = vector.constant
    if data is not None:
        return b.constant(data[place : place + 1], vector.dtype)
    return b.Gather(vector, [place], axis=0)


class Roll(Op, sig="data: T, shift!: I, axes!: I1 -> output: T", openvino="Roll-7(data, shift, axes)"):
    """``x`` moved by ``shift[i]`` places towards larger indices along ``axes[i]``; what leaves at the end comes back at the
    front.

    An axis that is named several times moves by the sum; one shift stands for all axes. Source: OpenVINO Roll-7.
    """

    def shape(self, data: View, shift: View, axes: View) -> Any:
        shifts, count = length_of_vector(shift, "shift", scalar=True), length_of_vector(axes, "axes", scalar=True)
        if shift.shape and shifts is not None and count is not None and symbolic.equal(shifts, count) is False:
            raise RuleError("roll.shift", f"the number of shifts ({shifts}) must equal the number of axes ({count})")
        if data.shape is not None:
            self._shifts(data, shift, axes)
        return data.shape

    def _shifts(self, data: View, shift: View, axes: View) -> dict[int, Any] | None:
        """The sum of the shifts by axis."""
        places, steps = integers_of(axes), elements_of(shift)
        if places is None or steps is None:
            return None
        found: dict[int, Any] = {}
        for place, step in zip(places, steps * len(places) if len(steps) == 1 else steps, strict=True):
            axis = axis_in(place, len(data.dims))
            found[axis] = found.get(axis, 0) + step
        return found

    def evaluate(self, xp: Namespace, data: Array, shift: Array, axes: Array) -> Any:
        self.shape(view_of(data), host_view_of(shift), host_view_of(axes))
        found = self._shifts(view_of(data), host_view_of(shift), host_view_of(axes))
        if found is None or any(isinstance(step, symbolic.Dim) for step in found.values()):
            raise symbolic.Inexact
        # A shift by many times the size is one by the rest, and small.
        steps = {axis: step % data.shape[axis] for axis, step in found.items() if data.shape[axis]}
        return xp.roll(data, tuple(steps.values()), axis=tuple(steps)) if steps else data

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, shift: Value, axes: Value) -> Any:
        return [b.Roll(g, b.Negative(shift), axes), None, None]

    def windows(self, data: View, shift: View, axes: View) -> Windows:
        shape = static(data.shape)
        found = self._shifts(data, shift, axes)
        if found is None:
            raise UnsupportedError("windows.shift", "the shifts are not known")
        pieces = [list(_rolled(size, found.get(axis, 0))) for axis, size in enumerate(shape)]
        return Windows(tuple(windows_of(pieces, shape, shape)))

    def decompose(self, b: Builder, data: Value, shift: Value, axes: Value) -> Any:
        """Along each axis the end before the beginning."""
        places = None if data.shape is None else integers_of(axes)
        if places is None:
            raise UnsupportedError("roll.axes", "the axes of Roll are computed at run time, and have to be constant here")
        known = self._shifts(data, shift, axes)
        y = data
        for axis in sorted({axis_in(place, len(data.dims)) for place in places}):
            steps = [index for index, place in enumerate(places) if axis_in(place, len(data.dims)) == axis]
            y = _rolled_axis(b, y, axis, None if known is None else known[axis], shift, steps)
        return b.Identity(data) if y is data else y


def _rolled_axis(b: Builder, x: Value, axis: int, step: Any, shift: Value, places: Sequence[int]) -> Any:
    """``x`` moved by ``step`` along an axis; where that is None, by the sum of what stands at ``places`` of ``shift``."""
    size = x.dims[axis]
    if isinstance(size, int) and isinstance(step, int):
        step = step % size if size else 0
    if isinstance(step, int) and not step:
        return x
    if isinstance(step, int) and symbolic.less_equal(abs(step), size) is True:
        return _swapped(b, x, axis, [-step])
    back = b.constant([-step]) if isinstance(step, int) else b.Negative(_sum_at(b, shift, places))
    # An axis without elements has none to take a rest by.
    return _swapped(b, x, axis, b.Mod(back, b.Maximum(_size_of(b, x, axis), b.constant([1]))))


def _sum_at(b: Builder, vector: Value, places: Sequence[int]) -> Any:
    """The sum of the elements at ``places``, one after the other, as an i64 vector; one element stands for all."""
    wide = vector if vector.dtype == "i64" else b.Cast(vector, to=dtypes.i64)
    if wide.shape == ():
        wide = b.Unsqueeze(wide, [0])
    if wide.dims == (1,):
        return wide if len(places) == 1 else b.Multiply(wide, b.constant([len(places)]))
    found = b.Gather(wide, [places[0]], axis=0)
    for place in places[1:]:
        found = b.Add(found, b.Gather(wide, [place], axis=0))
    return found


def _size_of(b: Builder, x: Value, axis: int) -> Any:
    size = x.dims[axis]
    return b.constant([size]) if isinstance(size, int) else b.Gather(b.Shape(x), [axis], axis=0)


def _swapped(b: Builder, x: Value, axis: int, cut: Any) -> Any:
    """What follows the index ``cut`` before what precedes it."""
    end = b.Slice(x, cut, [INT64_MAX], [axis])
    return b.Concat(end, b.Slice(x, [0], cut, [axis]), axis=axis)


class Piece(NamedTuple):
    """Along one axis: ``size`` elements from ``source``, ``step`` apart, to ``target``, one after the other."""

    size: int
    source: int
    step: int
    target: int


def _rolled(size: int, shift: int) -> Iterator[Piece]:
    start = shift % size if size else 0
    yield Piece(size - start, 0, 1, start)
    if start:
        yield Piece(start, size - start, 1, 0)


def windows_of(pieces: Sequence[Sequence[Piece]], shape: Sequence[int], target: Sequence[int]) -> Iterator[Window]:
    """One window for each choice of a piece along every axis. Raises UnsupportedError [windows.many]."""
    count = prod(map(len, pieces))
    if count > MOST_WINDOWS:
        raise UnsupportedError("windows.many", f"the data lies in {count} pieces, more than {MOST_WINDOWS}")
    ours, theirs = dense(shape), dense(target)
    for row in product(*pieces):
        yield Window(
            0,
            0,
            tuple(piece.size for piece in row),
            sum(piece.source * stride for piece, stride in zip(row, ours, strict=True)),
            tuple(piece.step * stride for piece, stride in zip(row, ours, strict=True)),
            sum(piece.target * stride for piece, stride in zip(row, theirs, strict=True)),
            theirs,
        )
