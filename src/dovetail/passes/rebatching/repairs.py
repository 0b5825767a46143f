"""Repair of operators whose indices, bounds or sizes contain the old batch, such as Gather, Slice, Split, Expand and Resize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dovetail.ir.edit import connect, disconnect
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import INT64_MAX, Size, Tensor, axes_in, axis_in
from dovetail.ops.constant import Identity
from dovetail.ops.nn.resize import Resize
from dovetail.ops.random import RandomNormal, RandomUniform
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.gather import Gather, GatherElements, GatherND
from dovetail.ops.tensor.reshape import Reshape, Squeeze
from dovetail.ops.tensor.scatter import ScatterElements, ScatterND, ScatterUpdate
from dovetail.ops.tensor.slice import Slice
from dovetail.ops.tensor.transpose_expand_tile import Expand
from dovetail.passes.rebatching.axes import BatchAxis, FreedSize
from dovetail.passes.rebatching.indices import elements_of_indices, repair_elements, repair_scatter_nd
from dovetail.passes.rebatching.reshape import repair_reshape
from dovetail.passes.rebatching.sizes import (
    repair_expand_sizes,
    repair_reshape_sizes,
    repair_resize_sizes,
    repair_slice_sizes,
    replace_bounds,
)
from dovetail.passes.rebatching.state import RepairState

Repair = Callable[[RepairState, Node, FreedSize], bool]


def repair_slice(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Slice whose bounds are multiples of the batch size: they become the same multiples of the new batch size."""
    data = node.input(0)
    starts, ends = integers_of(node.input(1)), integers_of(node.input(2))
    if starts is None or ends is None:
        return False
    given = node.inputs[3] if len(node.inputs) > 3 else None
    numbers = list(range(len(starts))) if given is None else integers_of(given)
    steps = integers_of(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else [1] * len(starts)
    before, after = state.old_shape(data), state.old_shape(node.outputs[0])
    if numbers is None or steps is None or before is None or after is None:
        return False
    axes = axes_in(numbers, len(before))
    first: list[Size] = list(starts)
    last: list[Size] = list(ends)
    for place in state.axes(data, freed):
        size = before[place.axis]
        if place.axis not in axes or not isinstance(size, int):
            continue
        index = axes.index(place.axis)
        start, end, step = slice(starts[index], ends[index], steps[index]).indices(size)
        if step == 1 and (start, end) == (0, size):
            last[index] = INT64_MAX
        elif step == 1 and place.inner == 1 and start % freed.old == end % freed.old == 0 and size > freed.old:
            first[index], last[index] = start // freed.old * freed.symbol, end // freed.old * freed.symbol
    if (first, last) == (starts, ends):
        return False
    reason = "the slice takes whole batches: its bounds follow the batch of the input"
    state.add_change(node, f"{starts} to {ends}", f"{state.text(first)} to {state.text(last)}", reason)
    replace_bounds(state, node, first, last)
    return True


def repair_squeeze(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Squeeze without axes: list its axes, since without axes it would also remove a batch of 1."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return False
    old = state.old_shape(node.input(0))
    batch = {place.axis for place in state.axes(node.input(0), freed)}
    if old is None or not batch:
        return False
    axes = [axis for axis, size in enumerate(old) if size == 1 and axis not in batch]
    state.add_change(node, "all axes of size 1", axes, "a Squeeze without axes would remove a batch of 1")
    if not axes:
        _make_identity(node, node.input(0))
        return True
    value = state.b.constant(np.array(axes, np.int64))
    if len(node.inputs) > 1:
        state.replace_input(node, 1, value)
    else:
        node.inputs.append(value)
        value.uses[node, 1] = None
    return True


def repair_expand(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair an Expand: its target becomes 1 at the batch axis, which keeps the size of the input."""
    data, target = node.input(0), node.input(1)
    wanted = integers_of(target)
    if wanted is None:
        return False
    new = list(wanted)
    for place in state.axes(data, freed):
        index = place.axis - len(data.dims) + len(wanted)
        old = state.old_shape(data)
        if 0 <= index < len(wanted) and old is not None and wanted[index] == old[place.axis]:
            new[index] = 1
    if new == wanted and node.op.__dict__["bidirectional"]:
        return False
    state.add_change(node, wanted, new, "the target fixes the batch; 1 keeps the input's size")
    node.op = Expand(bidirectional=True)
    state.replace_input(node, 1, state.b.constant(np.array(new, np.int64)))
    return True


def repair_gather(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Gather along the batch axis if its indices list all samples in order or select rows within each sample."""
    assert isinstance(node.op, Gather)
    data, indices = node.input(0), node.input(1)
    axis = axis_in(node.op.axis, len(data.dims))
    place = next((place for place in state.axes(data, freed) if place.axis == axis), None)
    numbers = integers_of(indices)
    old = state.old_shape(data)
    if place is None or old is None or node.op.batch_dims or not isinstance(old[axis], int) or not isinstance(place.inner, int):
        return False
    if numbers is not None and place.inner == 1 and numbers == list(range(freed.old)) and len(indices.dims) == 1:
        state.add_change(node, numbers, "all samples", "the indices are those of all samples in order")
        _make_identity(node, data)
        return True
    return _repair_flat_gather(state, node, freed, place)


def _repair_flat_gather(state: RepairState, node: Node, freed: FreedSize, place: BatchAxis) -> bool:
    """Repair a Gather on an axis that merges the batch with the rows of each sample.

    The offset ``rows * sample`` is added to indices that carry the batch. Constant indices lose this offset, and select from
    data with separate axes for samples and rows.
    """
    data, indices = node.input(0), node.input(1)
    rows = place.inner
    shape = indices.shape or ()
    if not isinstance(rows, int) or rows == 1 or state.at_old_sizes(data.dims[place.axis]) != freed.old * rows or not shape:
        return False
    carried = [index.axis for index in state.axes(indices, freed)]
    b = state.b
    if carried:
        if carried != [0] or state.choose(node, f"Gather {data.dims} {shape}", 2) == 0:
            return False
        offset = b.Range(b.constant(np.int64(0)), b.Squeeze(state.write_size(freed), [0]), b.constant(np.int64(1)))
        offset = b.Multiply(offset, b.constant(np.int64(rows)))
        offset = b.Reshape(offset, [-1, *[1] * (len(shape) - 1)])
        if indices.dtype.name != "i64":
            offset = b.Cast(offset, to=indices.dtype)
        state.add_change(node, "indices of one sample", f"indices + {rows} * sample", "the rows of all samples lie on one axis")
        state.replace_input(node, 1, b.Add(indices, offset))
        return True
    numbers = elements_of_indices(indices)
    if numbers is None or numbers.shape[0] != freed.old:
        return False
    own = numbers - rows * np.arange(freed.old).reshape(-1, *[1] * (numbers.ndim - 1))
    if any(not np.array_equal(own[0], row) for row in own) or own.min(initial=0) < 0 or own.max(initial=0) >= rows:
        return False
    sizes = [size if isinstance(size, int) else -1 for size in data.dims]
    split = b.Reshape(data, [*sizes[: place.axis], -1, rows, *sizes[place.axis + 1 :]])
    if place.axis != 0:
        return False
    state.add_change(
        node,
        f"indices {list(numbers.shape)} over {freed.old} * {rows} rows",
        f"axis 1 of [*, {rows}]",
        "the batch gets a separate axis",
    )
    node.op = Gather(axis=1, bounds=node.op.__dict__["bounds"])
    state.replace_input(node, 0, split)
    state.replace_input(node, 1, b.constant(own[0].astype(indices.dtype.numpy)))
    return True


def repair_gather_nd(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a GatherND whose first index component enumerates the samples: replace the component by ``batch_dims=1``."""
    assert isinstance(node.op, GatherND)
    data, indices = node.input(0), node.input(1)
    old = state.old_shape(indices)
    if node.op.batch_dims or not old or old[0] != freed.old or not isinstance(old[-1], int) or old[-1] < 2:
        return False
    if [(place.axis, place.inner) for place in state.axes(data, freed)] != [(0, 1)]:
        return False
    numbers = elements_of_indices(indices)
    if numbers is not None:
        sample = np.arange(freed.old).reshape(-1, *[1] * (numbers.ndim - 2))
        rows = numbers[..., 1:]
        if not np.array_equal(numbers[..., 0] % freed.old, np.broadcast_to(sample, numbers.shape[:-1])):
            return False
        if any(not np.array_equal(rows[0], row) for row in rows):
            return False
        new: Value = state.b.constant(np.ascontiguousarray(rows, dtype=indices.dtype.numpy))
        new = state.write_rows(new, BatchAxis(0, freed.name, 1), False)
    else:
        new = state.b.Slice(indices, [1], [INT64_MAX], [len(old) - 1])
        places = [place.axis for place in state.axes(indices, freed)]
        if places != [0]:
            if not isinstance(new.type, Tensor) or places:
                return False
            new = state.write_rows(new, BatchAxis(0, freed.name, 1), False)
    state.add_change(
        node, f"indices {list(old)}", state.text(new.dims), "the first index component counts the samples: batch_dims=1"
    )
    node.op = GatherND(batch_dims=1)
    state.replace_input(node, 1, new)
    return True


def repair_resize(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Resize whose sizes contain the old batch: remove the batch axis from its axes and sizes."""
    assert isinstance(node.op, Resize)
    batch = {place.axis for place in state.axes(node.input(0), freed)}
    sizes = integers_of(node.inputs[1]) if len(node.inputs) > 1 else None
    rank = len(node.input(0).dims)
    axes = list(range(rank)) if node.op.axes is None else list(axes_in(node.op.axes, rank))
    if not sizes or not batch & set(axes) or (len(node.inputs) > 3 and node.inputs[3] is not None):
        return False
    rest = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if axis not in batch]
    state.add_change(
        node,
        sizes,
        [size for _, size in rest],
        f"the sizes contain the batch; only axes {[axis for axis, _ in rest]} are resized",
    )
    node.op = node.op.with_(axes=tuple(axis for axis, _ in rest))
    state.replace_input(node, 1, state.b.constant(np.array([size for _, size in rest], np.int64)))
    return True


def repair_concat(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Concat along the batch axis: insert a Transpose that an optimizer may have removed at a batch of 1."""
    assert isinstance(node.op, Concat)
    axis = axis_in(node.op.axis, len(node.input(0).dims))
    operands = [node.input(index) for index in range(len(node.inputs))]
    places = [state.axes(x, freed) for x in operands]
    inners = {place.inner for found in places for place in found}
    if len(inners) == 1 and all([place.axis for place in found] == [axis] for found in places):
        # Operands are consecutive along the axis: the result nests in the order operand, sample, inner elements.
        state.inner.setdefault(id(node.outputs[0]), {})[axis, freed.name] = inners.pop()
    on_axis = [bool(found) and [(place.axis, place.inner) for place in found] == [(axis, 1)] for found in places]
    if freed.old != 1 or not any(on_axis) or any(found and not fits for found, fits in zip(places, on_axis, strict=True)):
        return False
    olds = [state.old_shape(x) or () for x in operands]
    others = [index for index in range(len(olds[0])) if index != axis and all(old[index] == 1 for old in olds)]
    choice = state.choose(node, f"Concat {axis} {olds}", len(others) + 1)
    if choice == len(others):
        return False
    state.inner.pop(id(node.outputs[0]), None)
    other = others[choice]
    perm = [other if index == axis else axis if index == other else index for index in range(len(olds[0]))]
    for index, (x, is_batch) in enumerate(zip(operands, on_axis, strict=True)):
        moved = state.b.Transpose(x, perm) if is_batch else state.write_rows(x, BatchAxis(other, freed.name, 1), False)
        state.replace_input(node, index, moved)
    reason = f"the operands are joined along axis {axis}: the batch moves to axis {other}"
    state.add_change(node, f"batch on axis {axis}", f"batch on axis {other}", reason)
    return True


def repair_split(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Split into whole batches: its lengths become multiples of the new batch."""
    assert isinstance(node.op, Split)
    data = node.input(0)
    lengths = integers_of(node.inputs[1]) if len(node.inputs) > 1 else None
    axis = axis_in(node.op.axis, len(data.dims))
    place = next((place for place in state.axes(data, freed) if place.axis == axis), None)
    if lengths is None or place is None or not isinstance(place.inner, int):
        return False
    step = freed.old * place.inner
    if any(length != -1 and length % step for length in lengths):
        return False
    new = [length if length == -1 else length // freed.old * freed.symbol for length in lengths]
    state.add_change(node, lengths, state.text(new), "the parts are whole batches")
    state.replace_input(node, 1, state.write_sizes(new))
    return True


def force_random(state: RepairState, node: Node) -> None:
    """Give the output of a random operator the new batch, so that each sample gets different random numbers."""
    axis, name = state.forced[state.key_of(node)]
    sizes: list[Any] = list(node.outputs[0].shape or ())
    old = list(sizes)
    sizes[axis] = state.freed_of(name).symbol
    state.add_change(node, old, state.text(sizes), "the shape has the old batch; random numbers are drawn for each sample")
    if isinstance(node.op, RANDOM):
        state.replace_input(node, 0, state.write_sizes(sizes))
    else:
        row = node.input(0) if old[axis] == 1 else state.b.Slice(node.input(0), [0], [1], [axis])
        state.replace_input(node, 0, state.b.Expand(row, state.write_sizes(sizes)))


def _make_identity(node: Node, x: Value) -> None:
    disconnect(node)
    node.op = Identity()
    node.inputs = [x]
    connect(node)


class Repairs(NamedTuple):
    """Repairs holds the repairs of an operator class.

    ``of_meaning`` is always applied, since inference may succeed at the new sizes although the result means something else.
    ``of_fault`` is applied where inference fails or the outputs lose the batch. ``of_sizes`` is applied where an input carries a
    freed size that is no batch.
    """

    of_meaning: Repair | None = None
    of_fault: Repair | None = None
    of_sizes: Callable[[RepairState, Node], bool] | None = None


# A table instead of methods: operator classes do not depend on this pass.
REPAIRS: dict[type, Repairs] = {
    Concat: Repairs(of_meaning=repair_concat),
    Expand: Repairs(of_fault=repair_expand, of_sizes=repair_expand_sizes),
    Gather: Repairs(of_meaning=repair_gather),
    GatherElements: Repairs(of_meaning=repair_elements),
    GatherND: Repairs(of_fault=repair_gather_nd),
    Reshape: Repairs(of_meaning=repair_reshape, of_sizes=repair_reshape_sizes),
    Resize: Repairs(of_fault=repair_resize, of_sizes=repair_resize_sizes),
    ScatterElements: Repairs(of_meaning=repair_elements),
    ScatterND: Repairs(of_meaning=repair_scatter_nd),
    ScatterUpdate: Repairs(of_meaning=repair_elements),
    Slice: Repairs(of_fault=repair_slice, of_sizes=repair_slice_sizes),
    Split: Repairs(of_fault=repair_split),
    Squeeze: Repairs(of_meaning=repair_squeeze),
}
NO_REPAIRS = Repairs()
COORDINATES = (Gather, GatherND, ScatterND)
"""Operators whose indices may select samples; with ``batch_dims`` 0 such indices are never repeated per sample."""
RANDOM = (RandomUniform, RandomNormal)
"""Random operators whose input 0 is the shape of the output."""
