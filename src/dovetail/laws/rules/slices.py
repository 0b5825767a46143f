"""Exact rules of Slice, Split and Gather: each becomes an ExactSlice; successive ExactSlice merge and move to the sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Size, Tensor, Type, Unknown, View
from dovetail.laws.law import Result, permutation_of
from dovetail.laws.rules.movement import expand, is_one, reshape, sizes_term, transpose
from dovetail.laws.rules.pointwise_classes import is_pointwise
from dovetail.laws.terms.terms import Terms, known_elements
from dovetail.ops.elementwise.broadcast import BroadcastingOp
from dovetail.ops.shape_values import elements_of
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.gather import Gather
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.slice import Bounds, end_index_of, first_index_of, length_of_slice
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace

MAX_RANGE = 1 << 16
"""Maximum number of indices of a Gather that are compared with a slice."""
MAX_SOURCES = 4
"""Maximum number of terms of which a term is known to be a slice."""


class Span(NamedTuple):
    """Span is a range of one axis: ``length`` elements from ``start`` on, ``step`` apart."""

    start: Size
    length: Size
    step: int


def slice_axes(b: Terms, x: Value, spans: dict[int, Span]) -> Value:
    """Return ``x`` sliced to ``spans``, which maps axes to spans."""
    shape = x.dims
    spans = {axis: span for axis, span in spans.items() if not _is_whole(shape[axis], span)}
    if not spans:
        return x
    inner = spans_of(x)
    if inner is not None and x.node is not None:
        merged = dict(inner)
        for axis, span in spans.items():
            if axis not in inner:
                merged[axis] = span
            elif inner[axis].step == 1 and span.step == 1:
                merged[axis] = Span(inner[axis].start + span.start, span.length, 1)
            else:
                return _slice_term(b, x, spans)
        return slice_axes(b, x.node.input(0), merged)
    return _slice_term(b, x, spans)


def move_slice(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Move a slice towards the sources of its operand."""
    x, spans = xs[0], spans_of_operands(xs)
    if x is None or spans is None:
        return None
    inner = spans_of(x) or {}
    if any(_is_whole(x.dims[axis], span) for axis, span in spans.items()) or (
        inner and all(span.step == 1 and inner.get(axis, span).step == 1 for axis, span in spans.items())
    ):
        return slice_axes(b, x, spans)
    return _slice_concat(b, x, spans) or _try(_slice_operands, b, x, spans)


def _try(function: Callable[..., Value | None], *arguments: object) -> Value | None:
    """Call a rule; return None if the rule meets unknown sizes or raises RuleError."""
    try:
        return function(*arguments)
    except (Unknown, symbolic.Inexact, RuleError):
        return None


def _is_whole(size: Size, span: Span) -> bool:
    return span.step == 1 and symbolic.equal(span.length, size) is True


def _slice_term(b: Terms, x: Value, spans: dict[int, Span]) -> Value:
    axes = sorted(spans)
    starts = [spans[axis].start for axis in axes]
    # Lengths replace stops, because with a negative step the stop may be before index 0.
    lengths = [spans[axis].length for axis in axes]
    steps = [spans[axis].step for axis in axes]
    inputs = [sizes_term(b, vector) for vector in (starts, lengths, axes, steps)]
    found = b.term(ExactSlice(), [x, *inputs])[0]
    sources = b.sources.setdefault(id(found), [])
    if len(sources) < MAX_SOURCES and (x, spans) not in sources:
        sources.append((x, spans))
    return found


class ExactSlice(Op, sig="data: T, starts!: I, lengths!: I, axes!: I, steps!: I -> output: T", is_registered=False):
    """Take ``lengths`` elements from ``starts`` on along ``axes``, ``steps`` apart: a Slice without clamping."""

    moves_elements = True

    def shape(self, data: View, starts: View, lengths: View, axes: View, steps: View) -> Any:
        sizes = list(data.dims)
        for axis, length in zip(elements_of(axes) or (), elements_of(lengths) or (), strict=True):
            sizes[axis] = length
        return tuple(sizes)

    def evaluate(self, xp: Namespace, data: Array, starts: Array, lengths: Array, axes: Array, steps: Array) -> Any:
        for start, length, axis, step in zip(starts, lengths, axes, steps, strict=True):
            data = xp.take(data, start + step * np.arange(length), axis=int(axis))
        return data


def spans_of(x: Value) -> dict[int, Span] | None:
    """Return the spans of a slice by axis; None for another term."""
    if x.node is None or not isinstance(x.node.op, ExactSlice):
        return None
    return spans_of_operands(x.node.inputs)


def spans_of_operands(xs: Sequence[Value | None]) -> dict[int, Span] | None:
    """Return the spans by axis from the operands of an ExactSlice; None if they are unknown."""
    vectors = [None if x is None else known_elements(x) for x in xs[1:5]]
    if any(vector is None for vector in vectors):
        return None
    starts, lengths, axes, steps = (vector or () for vector in vectors)
    return {
        int(axis): Span(start, length, int(step)) for start, length, axis, step in zip(starts, lengths, axes, steps, strict=True)
    }


def merge_adjacent_slices(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Merge adjacent operands of a Concat that are adjacent slices of one term."""
    assert isinstance(op, Concat)
    parts = [x for x in xs if x is not None]
    merged: list[Value] = []
    position = 0
    while position < len(parts):
        joined, count = _joined_slice(b, parts, position, op)
        merged.append(parts[position] if joined is None else joined)
        position += count
    if len(merged) == len(parts):
        return None
    return merged[0] if len(merged) == 1 else b.add(op, *merged)


def _joined_slice(b: Terms, parts: list[Value], position: int, op: Concat) -> tuple[Value | None, int]:
    """Return the slice of the most operands from ``position`` on, and their number; None and 1 if two are not adjacent."""
    best: tuple[Value | None, int] = None, 1
    for source, spans in b.sources.get(id(parts[position]), ()):
        if op.axis not in spans or spans[op.axis].step != 1 or (source.node is not None and source.node.op == op):
            continue
        start, length, _ = spans[op.axis]
        known = [spans]
        for x in parts[position + 1 :]:
            following = spans | {op.axis: Span(start + length, x.dims[op.axis], 1)}
            if not _is_slice(b, x, source, following):
                break
            length += x.dims[op.axis]
            known.append(following)
        if len(known) > best[1]:
            for each in known:
                # The steps of the proof say of which term each operand is a slice.
                slice_axes(b, source, each)
            best = slice_axes(b, source, spans | {op.axis: Span(start, length, 1)}), len(known)
    return best


def _is_slice(b: Terms, x: Value, source: Value, spans: dict[int, Span]) -> bool:
    """Return whether a term is known to be a slice of ``source``."""
    known = (found for other, found in b.sources.get(id(x), ()) if other is source and found.keys() == spans.keys())
    return any(
        all(symbolic.equal(mine, theirs) is True for axis in spans for mine, theirs in zip(found[axis], spans[axis], strict=True))
        for found in known
    )


def _slice_concat(b: Terms, x: Value, spans: dict[int, Span]) -> Value | None:
    """Return a slice of one operand of a Concat; None if no operand contains the sliced range."""
    if x.node is None or not isinstance(x.node.op, Concat) or x.node.op.axis not in spans:
        return None
    axis = x.node.op.axis
    span, offset = spans[axis], 0
    if span.step != 1:
        return None
    for part in x.node.inputs:
        if part is None:
            return None
        size: Size = part.dims[axis]
        after = offset + size
        if symbolic.less_equal(offset, span.start) is True and symbolic.less_equal(span.start + span.length, after) is True:
            return slice_axes(b, part, {**spans, axis: Span(span.start - offset, span.length, 1)})
        offset = after
    return None


def _slice_operands(b: Terms, x: Value, spans: dict[int, Span]) -> Value | None:
    """Rewrite a slice of an operator as the operator applied to sliced operands; None if the operator does not allow it."""
    node = x.node
    if node is None or x.constant is not None:
        return None
    if isinstance(node.op, Transpose):
        order = permutation_of(node.inputs)
        return (
            None
            if order is None
            else transpose(b, slice_axes(b, node.input(0), {order[axis]: span for axis, span in spans.items()}), order)
        )
    if isinstance(node.op, Reshape):
        return _slice_reshape(b, x, spans)
    if isinstance(node.op, Expand):
        shape = tuple(spans[axis].length if axis in spans else size for axis, size in enumerate(x.dims))
        return expand(b, _slice_broadcast(b, node.input(0), spans, len(shape)), shape)
    if isinstance(node.op, BroadcastingOp) or (
        is_pointwise(type(node.op)) and all(x is None or x.shape == () for x in node.inputs[1:])
    ):
        parts = [None if x is None else _slice_broadcast(b, x, spans, len(node.outputs[0].dims)) for x in node.inputs]
        return b.term(node.op, parts)[0]
    return None


def _slice_broadcast(b: Terms, x: Value, spans: dict[int, Span], rank: int) -> Value:
    """Slice an operand that broadcasts to ``rank`` axes: axes of size 1 stay. Raises Unknown if a size may be 1."""
    offset = rank - len(x.dims)
    own = {}
    for axis, span in spans.items():
        if axis < offset:
            continue
        is_stretched = symbolic.equal(x.dims[axis - offset], 1)
        if is_stretched is None:
            raise Unknown
        if not is_stretched:
            own[axis - offset] = span
    return slice_axes(b, x, own) if own else x


def _slice_reshape(b: Terms, x: Value, spans: dict[int, Span]) -> Value | None:
    """Move a slice before a Reshape that keeps or splits each sliced axis."""
    assert x.node is not None
    source, shape = x.node.input(0), x.dims
    inner: dict[int, Span] = {}
    for axis, span in spans.items():
        before = symbolic.product(shape[:axis])
        found = next(
            (
                index
                for index in range(len(source.dims))
                if symbolic.equal(symbolic.product(source.dims[:index]), before) is True and not is_one(source.dims[index])
            ),
            None,
        )
        if found is None or span.step != 1:
            return None
        rest: Size = 1
        behind = axis + 1
        while symbolic.equal(shape[axis] * rest, source.dims[found]) is not True:
            if behind >= len(shape):
                return None
            rest, behind = rest * shape[behind], behind + 1
        if found in inner or any(axis < other < behind for other in spans):
            return None
        inner[found] = Span(span.start * rest, span.length * rest, 1)
    result = tuple(spans[axis].length if axis in spans else size for axis, size in enumerate(shape))
    return reshape(b, slice_axes(b, source, inner), result)


def write_slice_by_lengths(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    x, starts, ends, axes, steps = (*xs, None, None)[:5]
    if x is None or starts is None or ends is None or x.shape is None:
        return None
    first, last = known_elements(starts), known_elements(ends)
    if first is None or last is None:
        return None
    listed = tuple(range(len(first))) if axes is None else known_elements(axes)
    step = (1,) * len(first) if steps is None else known_elements(steps)
    if listed is None or step is None:
        return None
    is_narrow = starts.dtype.bits == 32
    spans: dict[int, Span] = {}
    for begin, end, axis, stride in zip(first, last, listed, step, strict=True):
        if not isinstance(axis, int) or not isinstance(stride, int):
            return None
        axis = axis + len(x.shape) if axis < 0 else axis
        size = x.shape[axis]
        bounds = Bounds(_widen(begin), _widen(end), stride) if is_narrow else Bounds(begin, end, stride)
        start, stop = first_index_of(size, bounds), end_index_of(size, bounds)
        length = length_of_slice(size, bounds)
        if start is None or stop is None or length is None:
            return None
        spans[axis] = Span(start, length, stride)
    return slice_axes(b, x, spans)


def _widen(item: Size) -> Size:
    """Return a 32-bit bound as a 64-bit bound: INT_MAX and INT_MIN mean the ends of an axis."""
    if item == 2**31 - 1:
        return 2**63 - 1
    return -(2**63) if item == -(2**31) else item


def write_split_as_slices(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    assert isinstance(op, Split)
    x = xs[0]
    if x is None or x.shape is None:
        return None
    axis, offset = op.axis % len(x.shape), 0
    results = []
    for type in types:
        if not isinstance(type, Tensor) or type.shape is None:
            return None
        size: Size = type.shape[axis]
        if any(str(symbolic.name_of(symbol)).startswith("?") for symbol in symbolic.symbols(size)) and size not in x.shape:
            # The length is a symbol that only this Split defines.
            return None
        results.append(slice_axes(b, x, {axis: Span(offset, size, 1)}))
        offset = offset + size
    return results


def _is_inside(index: int, size: Size) -> bool:
    """Return whether an index is within an axis for all values of its size."""
    return symbolic.less(index, size) is True if index >= 0 else symbolic.less_equal(-index, size) is True


def write_gather_as_slice(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite Gather of one index, or of ascending indices at equal distances, as a slice."""
    assert isinstance(op, Gather)
    x, indices = xs[0], xs[1]
    if x is None or indices is None or x.shape is None or indices.shape is None or op.batch_dims:
        return None
    data = indices.constant
    if data is None or data.size > MAX_RANGE or not data.size or data.ndim > 1 or not isinstance(types[0], Tensor):
        return None
    axis = op.axis % len(x.shape)
    size, numbers = x.shape[axis], [int(item) for item in data.reshape(-1)]
    counted = [number if number >= 0 else size + number for number in numbers]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if step < 1 or any(after - before != step for before, after in pairwise(numbers)):
        return None
    if len({number >= 0 for number in numbers}) > 1 or not all(_is_inside(number, size) for number in numbers):
        return None
    part = slice_axes(b, x, {axis: Span(counted[0], len(numbers), step)})
    return reshape(b, part, types[0].shape) if types[0].shape is not None else None
