"""Repair of operands that have the old batch: one row is broadcast or repeated, or rows of integers enumerate the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import combinations, product

from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import host_inputs
from dovetail.ir.types import Tensor, View, static
from dovetail.passes.rebatching.axes import BatchAxis, FreedSize
from dovetail.passes.rebatching.state import RepairState, is_plain

MAX_OPERANDS = 8
"""Maximum number of operands of which all subsets are tried; of more operands only the full set is tried."""


class Rows(Enum):
    """Rows is the kind of rows that a repaired operand gets: one row, repeated rows, or rows that enumerate the samples."""

    ONE = "one row is broadcast"
    REPEATED = "its row is repeated for each sample"
    COUNTED = "its rows count the samples"


Option = tuple[int, BatchAxis, Rows]
"""The index of an input, the axis that holds the old batch, and the rows that the operand gets."""


def repair_operands(state: RepairState, node: Node, freed: FreedSize, is_sound: Callable[[list[View | None]], bool]) -> bool:
    """Change operands without a batch so that ``is_sound`` accepts the inputs. Returns whether a change was accepted."""
    for options in _choices(state, node, freed):
        views: list[View | None] = list(node.inputs)
        for index, place, rows in options:
            value = node.input(index)
            assert isinstance(value.type, Tensor)
            views[index] = View(Tensor(value.type.dtype, state.expanded_shape(value, place, rows is Rows.ONE)))
        if is_sound(views):
            for index, place, rows in options:
                value = node.input(index)
                new = _write_operand(state, value, place, rows)
                reason = f"the operand has the old batch; {rows.value}"
                state.add_change(node, f"{value.name} {value.type}", state.text(new.dims), reason)
                state.replace_input(node, index, new)
            return True
    return False


def _write_operand(state: RepairState, value: Value, place: BatchAxis, rows: Rows) -> Value:
    if rows is not Rows.COUNTED:
        return state.write_rows(value, place, rows is Rows.ONE)
    data, step = constant_value(value), state.step_of(value, place)
    assert data is not None and step is not None
    return state.write_counted_rows(data, place, step, value.dtype)


def _choices(state: RepairState, node: Node, freed: FreedSize) -> Iterator[tuple[Option, ...]]:
    """Yield sets of options: smaller sets first, and among these the axes at which other operands have the batch first."""
    rows = [row for row in (_options(state, node, index, freed) for index in _candidates(state, node)) if row]
    counts = range(1, len(rows) + 1) if len(rows) <= MAX_OPERANDS else (len(rows),)
    for count in counts:
        for subset in combinations(rows, count):
            # Equally ranked options first: in most operators, all operands have the batch at the same axis.
            yield from zip(*subset, strict=False)
            if count <= 4:
                yield from product(*subset)


def _candidates(state: RepairState, node: Node) -> list[int]:
    """Return the indices of inputs without a batch that are tensors of static shape, and that no shape rule reads."""
    hosts = host_inputs(node.op, len(node.inputs))
    return [
        index
        for index, (x, host) in enumerate(zip(node.inputs, hosts, strict=True))
        if not host and is_plain(x) and x is not None and x.shape and not state.carries_any(x)
    ]


def _options(state: RepairState, node: Node, index: int, freed: FreedSize) -> list[Option]:
    value = node.input(index)
    shape = static(value.shape)
    places: list[BatchAxis] = []
    for other in node.inputs:
        for place in state.axes(other, freed):
            assert other is not None
            factor = _factor(state, other, place, freed)
            aligned = (place.axis, place.axis - len(other.dims) + len(shape))
            fitting = [
                axis for axis in aligned if factor is not None and 0 <= axis < len(shape) and shape[axis] == freed.old * factor
            ]
            places += [BatchAxis(axis, freed.name, place.inner) for axis in fitting]
    places += [BatchAxis(axis, freed.name, 1) for axis, size in enumerate(shape) if size == freed.old]
    unique = [place for place in dict.fromkeys(places) if isinstance(place.inner, int)]
    equal = [place for place in unique if state.has_equal_rows(value, place)]
    whole = [place for place in equal if freed.old > 1 and shape[place.axis] == freed.old]
    counted = [place for place in unique if place not in equal and state.step_of(value, place) is not None]
    kinds = ((Rows.ONE, whole), (Rows.REPEATED, equal), (Rows.COUNTED, counted))
    return [(index, place, rows) for rows, axes in kinds for place in axes]


def _factor(state: RepairState, value: Value, place: BatchAxis, freed: FreedSize) -> int | None:
    old = state.old_shape(value)
    size = state.at_old_sizes((old or value.dims)[place.axis])
    return size // freed.old if isinstance(size, int) else None
