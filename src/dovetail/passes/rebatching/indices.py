"""Repair of indices along the batch: of ScatterND, ScatterElements, ScatterUpdate and GatherElements."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import axis_in, is_static, static
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.gather import GatherElements
from dovetail.ops.tensor.scatter import ScatterElements, ScatterUpdate
from dovetail.passes.rebatching.axes import BatchAxis, FreedSize
from dovetail.passes.rebatching.state import RepairState

Integers: TypeAlias = np.ndarray[Any, Any]


def elements_of_indices(indices: Value) -> Integers | None:
    """Return the elements of indices that depend only on constants or on unchanged sizes; None for other indices."""
    numbers = integers_of(indices)
    if numbers is None or not is_static(indices.type):
        return constant_value(indices)
    return np.array(numbers, np.int64).reshape(static(indices.shape))


def repair_scatter_nd(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair a ScatterND: the index component for the batch axis enumerates all new samples."""
    data, indices = node.input(0), node.input(1)
    places, shape = state.axes(data, freed), indices.shape
    if len(places) != 1 or places[0].inner != 1 or not shape or not isinstance(shape[-1], int) or places[0].axis >= shape[-1]:
        return False
    coordinate = places[0].axis
    unit = np.eye(shape[-1], dtype=np.int64)[coordinate]
    if state.carries_any(indices):
        return _add_samples(state, node, freed, unit)
    numbers = elements_of_indices(indices)
    if numbers is None:
        return False
    numbers = np.array(numbers, np.int64)
    numbers[..., coordinate] %= freed.old
    candidates = [place for place in state.axes(node.input(2), freed) if place.axis < len(shape) - 1]
    if not candidates:
        sizes = numbers.shape[:-1]
        candidates = [
            BatchAxis(axis, freed.name, size // freed.old) for axis, size in enumerate(sizes) if size and size % freed.old == 0
        ]
    return any(_count_samples(state, node, freed, numbers, place, unit) for place in candidates)


def repair_elements(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Repair indices: indices into the batch axis enumerate all new samples, other indices get a row for each sample."""
    op = node.op
    assert isinstance(op, ScatterElements | GatherElements | ScatterUpdate)
    data, indices = node.input(0), node.input(1)
    places = state.axes(data, freed)
    if len(places) != 1 or not isinstance(places[0].inner, int):
        return False
    place = places[0]
    is_along = axis_in(op.axis, len(data.dims)) == place.axis
    if isinstance(op, ScatterUpdate):
        place = BatchAxis(0, place.name, place.inner)
    if state.carries_any(indices):
        return is_along and _add_samples(state, node, freed, np.array(places[0].inner))
    if not is_along and not isinstance(op, ScatterElements):
        return False
    numbers = elements_of_indices(indices)
    if numbers is None or place.axis >= numbers.ndim or not numbers.size or numbers.shape[place.axis] % freed.old:
        return False
    rows = BatchAxis(place.axis, freed.name, numbers.shape[place.axis] // freed.old)
    step = places[0].inner if is_along else 0
    return _count_samples(state, node, freed, np.array(numbers, np.int64), rows, np.array(step))


def _add_samples(state: RepairState, node: Node, freed: FreedSize, step: Integers) -> bool:
    """Add ``step`` times the sample number to indices that carry the batch, unless the indices already enumerate the samples."""
    indices = node.input(1)
    places = state.axes(indices, freed)
    if len(places) != 1 or not isinstance(places[0].inner, int) or not _repeat_updates(state, node, places[0]):
        return False
    kind = f"{type(node.op).__name__} {node.input(0).dims} {indices.dims}"
    if places[0].inner != 1 or state.choose(node, kind, 2) == 0:
        return False
    offset = state.write_counts(freed, len(indices.dims) - places[0].axis - 1, step, indices.dtype)
    state.add_change(node, "indices of one sample", f"indices + {step.tolist()} * sample", "the indices are within each sample")
    state.replace_input(node, 1, state.b.Add(indices, offset))
    return True


def _count_samples(state: RepairState, node: Node, freed: FreedSize, numbers: Integers, place: BatchAxis, step: Integers) -> bool:
    """Replace constant indices that grow by ``step`` per sample by indices for all new samples; updates get as many rows."""
    indices = node.input(1)
    rows = state.rows_of(numbers, place)
    if rows is None or any(not np.array_equal(row, rows[0] + index * step) for index, row in enumerate(rows)):
        return False
    if not _repeat_updates(state, node, place):
        return False
    new = state.write_counted_rows(numbers, place, step, indices.dtype)
    reason = "the indices count the samples" if step.any() else "the indices get a row for each sample"
    state.add_change(node, f"indices {list(numbers.shape)}", state.text(new.dims), reason)
    state.replace_input(node, 1, new)
    return True


def _repeat_updates(state: RepairState, node: Node, place: BatchAxis) -> bool:
    """Give updates without a batch a row for each sample along axis ``place`` of the indices; False if this is not possible."""
    updates = node.input(2) if len(node.inputs) > 2 else None
    if updates is None or state.carries_any(updates):
        return True
    # In the updates of ScatterUpdate the axes of the indices start at `axis`.
    before = axis_in(node.op.axis, len(node.input(0).dims)) if isinstance(node.op, ScatterUpdate) else 0
    own = BatchAxis(before + place.axis, place.name, place.inner)
    if not is_static(updates.type) or not state.has_old_rows(updates, own) or not state.has_equal_rows(updates, own):
        return False
    new = state.write_rows(updates, own, False)
    state.add_change(node, f"updates {updates.type}", state.text(new.dims), "the updates get a row for each sample")
    state.replace_input(node, 2, new)
    return True
