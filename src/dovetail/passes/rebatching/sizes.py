"""Repair of constants that hold sizes other than the batch: targets of Reshape, bounds of Slice, sizes of Resize and Expand.

A constant becomes an expression only where it equals a size of the old model that the node reads. The original model has only
one value of each size: outputs are compared at this value, and at other values the new model is only run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import INT64_MAX, Shape, Size, Tensor, axes_in
from dovetail.ops.nn.resize import Resize
from dovetail.ops.shape_values import elements_of, integers_of
from dovetail.ops.tensor.transpose_expand_tile import Expand
from dovetail.passes.rebatching.axes import carries
from dovetail.passes.rebatching.reshape import become_transpose, infers_sizes
from dovetail.passes.rebatching.state import RepairState

Factors = tuple[Size, ...]
"""The factors of a size in row-major order, the outermost first."""


def carries_size(state: RepairState, value: Value) -> bool:
    """Return whether a size of a tensor depends on a freed size that is no batch."""
    return any(not freed.is_batch and carries(value.type, freed.name) for freed in state.freed)


def repair_reshape_sizes(state: RepairState, node: Node) -> bool:
    """Repair a Reshape whose old target has the factors of the input in order: write the new sizes into the target."""
    data = node.input(0)
    source, result = state.old_shape(data), state.old_shape(node.outputs[0])
    if source is None or result is None or not all(isinstance(size, int) for size in (*source, *result)):
        return False
    factors = [state.factors_of(data, index) for index in range(len(source))]
    matched = _match_with_batch(state, data, factors, [state.old_size(size) for size in result])
    moved = None
    if matched is None:
        found = _match_beside_batch(state, node, factors, result)
        if found is None:
            return False
        matched, moved = found
    sizes = [symbolic.product(own) for own in matched]
    for index, own in enumerate(matched):
        state.set_factors(node.outputs[0], index, own)
        _note_nesting(state, node.outputs[0], index, own)
    if moved is not None:
        _write_moved_batch(state, node, moved, sizes)
        return True
    if infers_sizes(node, sizes):
        return False
    old = integers_of(node.input(1))
    state.add_change(node, old or list(result), state.text(sizes), "the target fixes sizes of the input")
    state.replace_input(node, 1, _write_target(state, node, sizes))
    return True


def _match_with_batch(state: RepairState, data: Value, factors: list[Factors], target: list[int]) -> list[Factors] | None:
    """Distribute the factors of the input, including a batch of several samples, over ``target``; None if they do not fit."""
    every: list[Size] = []
    for index, own in enumerate(factors):
        for freed in state.freed:
            place = next((place for place in state.axes(data, freed) if freed.is_batch and place.axis == index), None)
            if place is None:
                continue
            if freed.old == 1:
                return None
            outer = symbolic.exact_quotient(own[0], freed.symbol * place.inner) if len(own) == 1 else None
            if outer is not None:
                own = (outer, freed.symbol, place.inner)
        every += own
    return match_factors(every, target, state.old_size)


def _note_nesting(state: RepairState, y: Value, axis: int, factors: Factors) -> None:
    """Record the number of consecutive elements of a merged axis that belong to one sample."""
    for freed in state.freed:
        if freed.is_batch and freed.symbol in factors:
            inner = symbolic.product(factors[factors.index(freed.symbol) + 1 :])
            state.inner.setdefault(id(y), {})[axis, freed.name] = inner


class _MovedBatch(NamedTuple):
    """_MovedBatch is a batch of 1 that a Reshape moves: the input's sizes with a separate batch axis, and both batch axes."""

    split: list[Size]
    source_axis: int
    target_axis: int


def _match_beside_batch(
    state: RepairState, node: Node, factors: list[Factors], result: Shape
) -> tuple[list[Factors], _MovedBatch | None] | None:
    """Distribute the factors of the input without a batch of 1 over the axes of ``result``, and insert the batch.

    Several positions may fit. At its stride the batch fits an axis of size 1, or a position among the factors of an axis. The
    batch may also move to any other axis of size 1. Returns None if no position fits.
    """
    data = node.input(0)
    target = [state.old_size(size) for size in result]
    freed = next((each for each in state.freed if each.is_batch and carries(data.type, each.name)), None)
    if freed is None:
        matched = match_factors([factor for own in factors for factor in own], target, state.old_size)
        return None if matched is None else (matched, None)
    axes = state.axes(data, freed)
    if len(axes) != 1:
        return None
    place = axes[0]
    own = factors[place.axis]
    if freed.symbol not in own:
        outer = symbolic.exact_quotient(own[0], freed.symbol * place.inner) if len(own) == 1 else None
        if outer is None:
            return None
        own = (outer, freed.symbol, place.inner)
    index = own.index(freed.symbol)
    before = [factor for part in (*factors[: place.axis], own[:index]) for factor in part]
    behind = [factor for part in (own[index + 1 :], *factors[place.axis + 1 :]) for factor in part]
    matched = match_factors([*before, *behind], target, state.old_size)
    if matched is None:
        return None
    found = _insertions(matched, prod(map(state.old_size, behind)), state.old_size)
    exact = [axis for axis, offset in found if offset == 0 and not matched[axis]]
    moves = [(axis, -1) for axis, part in enumerate(matched) if not part and axis not in exact]
    choices = [*found, *moves]
    if not choices:
        return None
    axis, offset = choices[state.choose(node, f"Reshape {state.old_shape(data)} {result} {place}", len(choices))]
    if offset >= 0:
        matched[axis] = (*matched[axis][:offset], freed.symbol, *matched[axis][offset:])
        return matched, None
    matched[axis] = (freed.symbol,)
    outer_part, inner_part = symbolic.product(own[:index]), symbolic.product(own[index + 1 :])
    split = [*data.dims[: place.axis], outer_part, freed.symbol, inner_part, *data.dims[place.axis + 1 :]]
    return matched, _MovedBatch(split, place.axis + 1, axis)


def _write_moved_batch(state: RepairState, node: Node, moved: _MovedBatch, sizes: list[Size]) -> None:
    """Replace a Reshape by Reshape, Transpose, Reshape and Transpose, which move the batch and reshape each sample."""
    b, data = state.b, node.input(0)
    rest = [size for index, size in enumerate(sizes) if index != moved.target_axis]
    split = b.Reshape(data, state.write_sizes(moved.split))
    others = [index for index in range(len(moved.split)) if index != moved.source_axis]
    first = b.Transpose(split, [moved.source_axis, *others])
    reshaped = b.Reshape(first, state.write_sizes([moved.split[moved.source_axis], *rest]))
    reason = "the Reshape moves the batch from one axis to another, as a Transpose does"
    state.add_change(node, state.text(elements_of(node.input(1)) or ()), state.text(sizes), reason)
    back = [*range(1, moved.target_axis + 1), 0, *range(moved.target_axis + 1, len(sizes))]
    become_transpose(node, reshaped, b.constant(np.array(back, np.int64)))


def _insertions(matched: Sequence[Factors], stride: int, old_size: Callable[[Size], int]) -> list[tuple[int, int]]:
    """Return pairs of axis and offset among its factors that have the stride ``stride``; axes of size 1 come first."""
    found = []
    behind = 1
    for axis in reversed(range(len(matched))):
        offsets = reversed(range(len(matched[axis]) + 1))
        found += [(axis, offset) for offset in offsets if prod(map(old_size, matched[axis][offset:])) * behind == stride]
        behind *= prod(map(old_size, matched[axis]))
    return sorted(found, key=lambda item: (len(matched[item[0]]) > 0, item))


def match_factors(factors: Sequence[Size], target: Sequence[int], old_size: Callable[[Size], int]) -> list[Factors] | None:
    """Distribute factors over axes of the sizes ``target``, in order; None where the sizes split a symbolic factor.

    An integer factor is split where a size needs only a part of the factor. A symbolic factor of the old size 1 also gives None,
    because it would fit any axis.
    """
    if any(not isinstance(factor, int) and old_size(factor) == 1 for factor in factors):
        return None
    queue = [factor for factor in factors if factor != 1]
    matched: list[Factors] = []
    for size in target:
        own: list[Size] = []
        while size != 1:
            if not queue:
                return None
            factor = queue.pop(0)
            old = old_size(factor)
            if old and size % old == 0:
                own.append(factor)
                size //= old
            elif isinstance(factor, int) and factor % size == 0:
                own.append(size)
                queue.insert(0, factor // size)
                size = 1
            else:
                return None
        matched.append(tuple(own))
    return None if queue else matched


def _write_target(state: RepairState, node: Node, sizes: Sequence[Size]) -> Value:
    """Emit a new target with -1 for the last symbolic size; the other symbolic sizes are computed from shapes."""
    elements: list[Size] = list(sizes)
    symbolic_axes = [axis for axis, size in enumerate(elements) if not isinstance(size, int)]
    if symbolic_axes and 0 not in elements:
        elements[symbolic_axes[-1]] = -1
    return state.write_sizes(elements)


def replace_bounds(state: RepairState, node: Node, first: Sequence[Size], last: Sequence[Size]) -> None:
    """Replace the bounds of a Slice; its axes and steps keep their values and become i64."""
    for index, bounds in ((1, first), (2, last)):
        state.replace_input(node, index, state.write_sizes(bounds))
    for index in range(3, len(node.inputs)):
        numbers = integers_of(node.inputs[index])
        if numbers is not None and node.input(index).dtype.name != "i64":
            state.replace_input(node, index, state.b.constant(np.array(numbers, np.int64)))


def repair_slice_sizes(state: RepairState, node: Node) -> bool:
    """Repair a Slice: bounds that equal the old size of the sliced axis, or a freed size, become the new size."""
    data = node.input(0)
    starts, ends = integers_of(node.input(1)), integers_of(node.input(2))
    old = state.old_shape(data)
    axes = list(range(len(data.dims)))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = list(axes_in(integers_of(node.inputs[3]) or [], len(axes)))
    if starts is None or ends is None or old is None or len(axes) != len(ends):
        return False
    first: list[Size] = list(starts)
    last: list[Size] = list(ends)
    for index, axis in enumerate(axes):
        for freed in state.freed:
            if freed.is_batch or not carries(Tensor(None, (data.dims[axis],)), freed.name):
                continue
            if ends[index] == old[axis]:
                last[index] = INT64_MAX
            elif freed.old > 1 and ends[index] == freed.old:
                last[index] = freed.symbol
            if freed.old > 1 and starts[index] == freed.old:
                first[index] = freed.symbol
    if (first, last) == (starts, ends):
        return False
    state.add_change(node, f"{starts} to {ends}", f"{state.text(first)} to {state.text(last)}", "the bounds are old sizes")
    replace_bounds(state, node, first, last)
    return True


def repair_resize_sizes(state: RepairState, node: Node) -> bool:
    """Repair a Resize: sizes that equal a freed size, or a multiple of the input's size, become expressions."""
    assert isinstance(node.op, Resize)
    data = node.input(0)
    given = node.inputs[1] if len(node.inputs) > 1 else None
    sizes = None if given is None else elements_of(given)
    old = state.old_shape(data)
    if not sizes or old is None or (len(node.inputs) > 3 and node.inputs[3] is not None):
        return False
    axes = tuple(range(len(data.dims))) if node.op.axes is None else axes_in(node.op.axes, len(data.dims))
    batch = {place.axis for freed in state.freed if freed.is_batch for place in state.axes(data, freed)}
    pairs = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if axis not in batch]
    new = [_resize_of(state, data.dims[axis], old[axis], size) for axis, size in pairs]
    if new == [size for _, size in pairs]:
        return False
    if len(pairs) < len(sizes):
        node.op = node.op.with_(axes=tuple(axis for axis, _ in pairs))
    state.add_change(node, state.text(sizes), state.text(new), "the sizes are old sizes, or multiples of sizes of the input")
    state.replace_input(node, 1, state.write_sizes(new))
    return True


def _resize_of(state: RepairState, dim: Size, old: Size, size: Size) -> Size:
    """Return the new size of a resized axis: a freed size, a quotient of a freed size, or a multiple of the input's size."""
    if not isinstance(old, int) or not isinstance(size, int):
        return size
    own = [freed for freed in state.freed if not freed.is_batch and carries(Tensor(None, (dim,)), freed.name)]
    for freed in own:
        if size == freed.old:
            return freed.symbol
        if size > 1 and freed.old % size == 0:
            quotient: Size = freed.symbol // (freed.old // size)
            return quotient
    return dim * (size // old) if own and old > 1 and size % old == 0 else size


def repair_expand_sizes(state: RepairState, node: Node) -> bool:
    """Repair an Expand: its target becomes 1 where it fixes a size of the input."""
    data, wanted, old = node.input(0), integers_of(node.input(1)), state.old_shape(node.input(0))
    if wanted is None or old is None:
        return False
    new = list(wanted)
    for axis, (dim, before) in enumerate(zip(data.dims, old, strict=True)):
        index = axis - len(old) + len(wanted)
        if index >= 0 and not isinstance(dim, int) and wanted[index] == before:
            new[index] = 1
    if new == wanted:
        return False
    state.add_change(node, wanted, new, "the target fixes a size; 1 keeps the input's size")
    node.op = Expand(bidirectional=True)
    state.replace_input(node, 1, state.b.constant(np.array(new, np.int64)))
    return True
