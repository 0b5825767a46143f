"""Laws of slices in a graph: Slice of Slice, Slice and Split of Concat, and Concat of slices."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import INT64_MAX, Tensor, axis_in
from dovetail.laws.law import Inputs, Result, Types, is_read_once, producer
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.slice import Slice


class Cut(NamedTuple):
    """Cut is a slice of step 1 along one axis with constant bounds; a ``stop`` of INT64_MAX is the end of the axis."""

    axis: int
    start: int
    stop: int


def cuts_of(xs: Inputs) -> list[Cut] | None:
    """Return the cuts of a Slice from its inputs; None if a bound is not a constant >= 0, or if a step is not 1."""
    x, first, last, axes, steps = (*xs, None, None)[:5]
    starts, ends = integers_of(first), integers_of(last)
    if x is None or x.shape is None or starts is None or ends is None:
        return None
    rank = len(x.shape)
    indices = list(range(len(starts))) if axes is None else integers_of(axes)
    step = [] if steps is None else integers_of(steps)
    if indices is None or step is None or any(item != 1 for item in step):
        return None
    cuts: list[Cut] = []
    for start, stop, index in zip(starts, ends, indices, strict=True):
        axis = axis_in(index, rank)
        size = x.shape[axis]
        if isinstance(size, int):
            start, stop = (max(bound + size, 0) if bound < 0 else bound for bound in (start, stop))
        if start < 0 or stop < 0:
            return None
        is_end = stop >= 2**31 - 1 or (isinstance(size, int) and stop >= size)
        cuts.append(Cut(axis, start, INT64_MAX if is_end else stop))
    return cuts


def write_slice(b: Builder, x: Value, cuts: list[Cut]) -> Value:
    """Emit a Slice of step 1 for ``cuts``."""
    ordered = sorted(cuts)
    starts, stops, axes = (b.constant([cut[index] for cut in ordered], dtypes.i64) for index in (1, 2, 0))
    return b.Slice(x, starts, stops, axes)


def merge_slices(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Merge a Slice with the Slice or the Concat that produces its input."""
    x, cuts = xs[0], cuts_of(xs)
    if x is None or cuts is None:
        return None
    inner = producer(x, Slice)
    if inner is not None and is_read_once(b.graph, x):
        earlier = cuts_of(inner.inputs)
        return None if earlier is None else write_slice(b, inner.input(0), _compose(earlier, cuts))
    concat = producer(x, Concat)
    return None if concat is None else _slice_of_concat(b, concat, cuts)


def _compose(earlier: list[Cut], later: list[Cut]) -> list[Cut]:
    """Return the cuts of one Slice that replaces a Slice of cuts ``earlier`` and then one of cuts ``later``."""
    by_axis = {cut.axis: cut for cut in earlier}
    for axis, start, stop in later:
        first = by_axis.get(axis, Cut(axis, 0, INT64_MAX))
        end = first.stop if stop == INT64_MAX else min(first.stop, first.start + stop)
        by_axis[axis] = Cut(axis, min(first.start + start, end), end)
    return list(by_axis.values())


def _slice_of_concat(b: Builder, concat: Node, cuts: list[Cut]) -> Result:
    """Return a slice of one input of a Concat; None if no input contains the sliced range."""
    assert isinstance(concat.op, Concat)
    rank = len(concat.outputs[0].dims)
    axis = axis_in(concat.op.axis, rank)
    cut = next((cut for cut in cuts if cut.axis == axis), None)
    if cut is None:
        return None
    offset = 0
    for position, x in enumerate(concat.inputs):
        if x is None or x.shape is None:
            return None
        size = x.shape[axis]
        is_last = position == len(concat.inputs) - 1
        if cut.start >= offset and (is_last or (isinstance(size, int) and cut.stop <= offset + size)):
            is_end = cut.stop == INT64_MAX or (isinstance(size, int) and cut.stop >= offset + size)
            inner = Cut(axis, cut.start - offset, INT64_MAX if is_end else cut.stop - offset)
            others = [other for other in cuts if other.axis != axis]
            if inner.start == 0 and inner.stop == INT64_MAX:
                return write_slice(b, x, others) if others else x
            return write_slice(b, x, [*others, inner])
        if not isinstance(size, int):
            return None
        offset += size
    return None


def merge_parts(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Flatten nested Concat, and merge adjacent parts of one tensor: the outputs of a Split, or slices."""
    assert isinstance(op, Concat)
    if not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    axis = axis_in(op.axis, len(types[0].shape))
    parts: list[Value] = []
    for x in xs:
        if x is None:
            return None
        inner = producer(x, Concat)
        is_nested = inner is not None and getattr(inner.op.canonical(*inner.inputs), "axis", None) == axis
        if inner is not None and is_nested and is_read_once(b.graph, x):
            parts += [each for each in inner.inputs if each is not None]
        elif not (x.shape is not None and x.shape[axis] == 0):
            parts.append(x)
    joined = _join_parts(b, parts, axis)
    if not joined or len(joined) == len(xs):
        return None
    return joined[0] if len(joined) == 1 else b.Concat(*joined, axis=axis)


def _join_parts(b: Builder, parts: list[Value], axis: int) -> list[Value]:
    joined: list[Value] = []
    position = 0
    while position < len(parts):
        whole, count = _whole_split(parts, position, axis)
        if whole is None:
            whole, count = _adjacent_slices(b, parts, position, axis)
        joined.append(parts[position] if whole is None else whole)
        position += count
    return joined


def _whole_split(parts: list[Value], position: int, axis: int) -> tuple[Value | None, int]:
    """Return the input of a Split whose outputs are all adjacent in ``parts``, and their number; None and 1 otherwise."""
    split = producer(parts[position], Split)
    if split is None or not isinstance(split.op, Split) or axis_in(split.op.axis, len(parts[position].dims)) != axis:
        return None, 1
    count = len(split.outputs)
    row = parts[position : position + count]
    if len(row) < count or any(part is not y for part, y in zip(row, split.outputs, strict=True)):
        return None, 1
    return split.input(0), count


def _adjacent_slices(b: Builder, parts: list[Value], position: int, axis: int) -> tuple[Value | None, int]:
    """Return one Slice that replaces adjacent slices of one tensor, and their number; None and 1 otherwise."""
    first = _cut_along(parts[position], axis)
    if first is None:
        return None, 1
    source, start, stop = first
    count = 1
    while position + count < len(parts) and stop != INT64_MAX:
        following = _cut_along(parts[position + count], axis)
        size = source.dims[axis]
        # A slice that is clamped to a smaller size would join differently.
        if following is None or following[0] is not source or following[1] != stop or not isinstance(size, int):
            break
        stop = following[2]
        count += 1
    if count == 1:
        return None, 1
    is_whole = start == 0 and stop == INT64_MAX
    return source if is_whole else write_slice(b, source, [Cut(axis, start, stop)]), count


def _cut_along(value: Value, axis: int) -> tuple[Value, int, int] | None:
    node = producer(value, Slice)
    cuts = None if node is None else cuts_of(node.inputs)
    if node is None or cuts is None or len(cuts) != 1 or cuts[0].axis != axis:
        return None
    return node.input(0), cuts[0].start, cuts[0].stop


def undo_concat(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the inputs of a Concat if a Split along the same axis gives equal parts."""
    whole, concat = xs[0], producer(xs[0], Concat)
    if whole is None or concat is None or not isinstance(op, Split) or not isinstance(concat.op, Concat):
        return None
    rank = len(whole.dims)
    axis = axis_in(op.axis, rank)
    if axis != axis_in(concat.op.axis, rank) or len(concat.inputs) != len(types):
        return None
    for type, x in zip(types, concat.inputs, strict=True):
        shape = type.shape if isinstance(type, Tensor) else None
        if x is None or x.shape is None or shape is None or symbolic.equal(x.shape[axis], shape[axis]) is not True:
            return None
    return list(concat.inputs)
