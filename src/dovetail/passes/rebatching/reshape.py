"""Repair of Reshape: the batch is assigned to an output axis and written into the target shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.edit import connect, disconnect
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import infer_types
from dovetail.ir.types import Shape, Size, Tensor
from dovetail.ops.shape_values import elements_of
from dovetail.ops.tensor.transpose_expand_tile import Transpose
from dovetail.passes.rebatching.axes import BatchAxis, FreedSize, has_symbol
from dovetail.passes.rebatching.state import RepairState


class Placement(NamedTuple):
    """Placement is an output axis of size ``outer * batch * inner`` that can carry the batch.

    ``is_moved`` means that output elements are in another order than input elements: the Reshape replaced a Transpose at a batch
    of 1.
    """

    axis: int
    outer: Size
    inner: Size
    is_moved: bool = False

    @property
    def is_exact(self) -> bool:
        return self.outer == 1 and self.inner == 1


def quotient(size: Size, divisor: Size) -> Size | None:
    """Return size / divisor if the quotient is exact, else None."""
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor if divisor and size % divisor == 0 else None
    return symbolic.exact_quotient(size, divisor)


def placements(source: Shape, target: Shape, place: BatchAxis, batch: int) -> list[Placement]:
    """Return the axes of ``target`` that can carry the batch of ``source``, the likeliest first.

    Both shapes are those at the old size ``batch``. In both, the row-major stride between samples is ``inner`` times the product
    of the sizes behind the batch axis. With a batch of 1 several axes fit, in this order: axes of exactly the batch; other axes
    of size 1, to which the batch moves; axes that merge the batch. A merge with the preceding axis comes before a merge with the
    following axis, unless the following axis is split or the source axis has inner elements.
    """
    stride = place.inner * symbolic.product(source[place.axis + 1 :])
    found = []
    for axis, size in enumerate(target):
        inner = quotient(stride, symbolic.product(target[axis + 1 :]))
        outer = None if inner is None else quotient(size, batch * inner)
        if inner is not None and outer is not None:
            found.append(Placement(axis, outer, inner))
    exact = [placement for placement in found if placement.is_exact]
    if len(exact) > 1:
        preferred = exact[_index_among_ones(source, place.axis, len(exact))]
        exact = [preferred, *(placement for placement in exact if placement is not preferred)]
    merged = [placement for placement in found if not placement.is_exact]
    behind = next((size for size in source[place.axis + 1 :] if size != 1), 1)
    joins_front = [placement for placement in merged if placement.inner == 1]
    joins_back = [placement for placement in merged if placement.inner != 1]
    is_split = bool(joins_back) and quotient(behind, joins_back[0].inner) not in (None, 1)
    has_merged_source = place.inner != 1 or source[place.axis] != batch
    joined = joins_back + joins_front if is_split or (has_merged_source and place.inner != 1) else joins_front + joins_back
    others = [axis for axis, size in enumerate(target) if size == 1 and all(axis != placement.axis for placement in exact)]
    moved = [Placement(axis, 1, 1, True) for axis in others] if batch == 1 else []
    return exact + moved + joined


def _index_among_ones(source: Shape, axis: int, count: int) -> int:
    """Return the index, among ``count`` target axes of size 1, of the axis that corresponds to source ``axis``.

    Source ``axis`` is in a run of axes of size 1.
    """
    first = axis
    while first and source[first - 1] == 1:
        first -= 1
    last = axis
    while last + 1 < len(source) and source[last + 1] == 1:
        last += 1
    if last - first + 1 == count or axis == first:
        return axis - first
    return count - 1 if axis == last else 0


def repair_reshape(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a Reshape: write the batch into its target. Returns whether the node changed; False if no axis fits the batch."""
    data, target = node.input(0), node.input(1)
    axes = state.axes(data, freed)
    source, result = state.old_shape(data), state.old_shape(node.outputs[0])
    if source is None or result is None:
        return False
    if len(axes) == 2 and source == result == (1, 1):
        return _write_transpose(state, node)
    if len(axes) != 1:
        return False
    elements = elements_of(target)
    if elements is not None and any(has_symbol(element, freed.name) for element in elements):
        return False
    found = placements(source, result, axes[0], freed.old)
    old_target = state.old_values.get(id(target))
    old = (
        elements
        if old_target is None
        else [item if isinstance(item, symbolic.Dim) else int(item) for item in np.ravel(old_target)]
    )
    if old is not None and found and (found[0].is_moved or not found[0].is_exact):
        inferred = [placement for placement in found if old[placement.axis] == -1 and not placement.is_moved]
        found = [*inferred, *(placement for placement in found if placement not in inferred)]
    if not found:
        return False
    placement = found[state.choose(node, f"Reshape {source} {result} {axes[0]}", len(found))]
    sizes = list(result)
    sizes[placement.axis] = placement.outer * freed.symbol * placement.inner
    if placement.inner != _factor(placement):
        state.inner.setdefault(id(node.outputs[0]), {})[placement.axis, freed.name] = placement.inner
    if placement.is_moved:
        return _write_transposes(state, node, axes[0], placement.axis, sizes)
    return _write_target(state, node, freed, placement.axis, sizes, old)


def _write_transpose(state: RepairState, node: Node) -> bool:
    """Replace a Reshape of a [batch, batch] matrix by a Transpose, which an optimizer had replaced by the Reshape at batch 1."""
    data = node.input(0)
    state.add_change(node, "[1, 1]", state.text(data.dims), "a Reshape that keeps the shape [1, 1] replaced a Transpose")
    become_transpose(node, data, state.b.constant(np.array([1, 0], np.int64)))
    return True


def infers_sizes(node: Node, sizes: Sequence[Size]) -> bool:
    """Return whether the unchanged target gives an output of ``sizes``."""
    try:
        return infer_types(node.op, tuple(node.inputs))[0] == Tensor(node.outputs[0].dtype, tuple(sizes))
    except DovetailError:
        return False


def become_transpose(node: Node, data: Value, perm: Value) -> None:
    """Replace the operator and the inputs of a node by a Transpose of ``data``."""
    disconnect(node)
    node.op = Transpose()
    node.inputs = [data, perm]
    connect(node)


def _write_transposes(state: RepairState, node: Node, place: BatchAxis, axis: int, sizes: list[Size]) -> bool:
    """Replace a Reshape by Transpose, Reshape and Transpose, which move the batch to ``axis`` and reshape each sample."""
    b, data, rank = state.b, node.input(0), len(sizes)
    rest = [size for index, size in enumerate(sizes) if index != axis]
    if not all(isinstance(size, int) for size in rest) or 0 in rest:
        return False
    old = (state.old_shape(data) or ())[place.axis]
    batch_axis = place.axis
    if old != 1:
        # Split a merged axis first, so that the batch has a separate axis.
        outer = quotient(old, place.inner)
        others = [*data.dims[: place.axis], outer, -1, place.inner, *data.dims[place.axis + 1 :]]
        if not all(isinstance(size, int) for size in others):
            return False
        data = b.Reshape(data, b.constant(np.array(others, np.int64)))
        batch_axis += 1
    first = b.Transpose(data, [batch_axis, *(index for index in range(len(data.dims)) if index != batch_axis)])
    target = b.constant(np.array([-1, *rest], np.int64))
    back = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    reason = "the Reshape moves the batch from one axis to another, as a Transpose does"
    state.add_change(node, state.text(elements_of(node.input(1)) or ()), state.text(sizes), reason)
    moved = b.Reshape(first, target)
    become_transpose(node, moved, b.constant(np.array(back, np.int64)))
    return True


def _factor(placement: Placement) -> Size:
    return placement.outer * placement.inner


def _write_target(state: RepairState, node: Node, freed: FreedSize, axis: int, sizes: list[Size], old: list[Size] | None) -> bool:
    """Replace the target by one with the batch at ``axis``: as -1 if no other element is -1, else as 0 or as an expression."""
    special = bool(getattr(node.op, "special_zero", True))
    data_shape = node.input(0).shape or ()
    elements: list[Size] = []
    for index, size in enumerate(sizes):
        if index == axis or isinstance(size, int):
            elements.append(size)
        elif old is not None and old[index] in (0, -1):
            elements.append(old[index])
        else:
            elements.append(size)
    is_copied = special and axis < len(data_shape) and data_shape[axis] == sizes[axis]
    if infers_sizes(node, sizes):
        return False
    if -1 not in elements and 0 not in sizes:
        elements[axis] = -1
    elif is_copied:
        elements[axis] = 0
    if all(isinstance(element, int) for element in elements):
        new: Value = state.b.constant(np.array(elements, np.int64))
    else:
        new = state.write_sizes(elements)
    if old is not None and len(old) == len(elements):
        shown = state.text(sizes)
        state.add_change(node, state.text(old), state.text(elements), f"the target fixes the batch; the result is {shown}")
    state.replace_input(node, 1, new)
    return True
