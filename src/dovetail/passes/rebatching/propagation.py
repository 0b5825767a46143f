"""Propagation of freed sizes through a graph: each node is inferred with them, compared with its old types, and repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.builder import describe_op
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import faults, infer_types, infer_values
from dovetail.ir.substitution import map_elements, substitute_type
from dovetail.ir.symbolic import Dim, Inexact
from dovetail.ir.types import Size, Tensor, Type, View, axis_in, is_unnamed
from dovetail.ops.tensor.gather import Gather, GatherElements
from dovetail.ops.tensor.reshape import Reshape
from dovetail.passes.rebatching.axes import FreedSize, carries, has_symbol
from dovetail.passes.rebatching.bodies import SubgraphBlocker, repair_bodies
from dovetail.passes.rebatching.operands import repair_operands
from dovetail.passes.rebatching.repairs import COORDINATES, NO_REPAIRS, REPAIRS, Repairs, force_random
from dovetail.passes.rebatching.sizes import carries_size
from dovetail.passes.rebatching.state import RepairState

RESTRICTED = ("Constant", "Foreign")
SIZES_ONLY = ("Shape", "Size")
"""Operators that read only the sizes of their input."""


class Blocker(NamedTuple):
    """Blocker is a node that forbids the change, with its position in the graph and the reason.

    ``is_loss`` means that the result of the node has no batch axis. ``path`` names a node of a subgraph, and ``position`` is then
    the position of the node that contains the subgraph. ``path`` is empty for a node of the graph.
    """

    position: int
    node: Node
    why: str
    is_loss: bool
    path: str = ""


LOSS = "the result has no axis of the new size"


class _Outcome(NamedTuple):
    types: list[Type]
    values: list[Any]
    fault: str = ""


def propagate(state: RepairState) -> list[Blocker]:
    """Infer and repair every node in order. Returns the nodes that forbid the change; nodes that depend on them are skipped."""
    graph = state.graph
    nodes, graph.nodes = graph.nodes, []
    state.dead = {id(node) for node in nodes if not any(y.uses for y in node.outputs)}
    poisoned: set[int] = set()
    blockers: list[Blocker] = []
    try:
        for position, node in enumerate(nodes):
            if any(id(x) in poisoned for x in node.inputs if x is not None):
                poisoned.update(id(y) for y in node.outputs)
            elif found := _visit(state, node):
                blockers += [Blocker(position, item.node, item.why, item.why == LOSS, item.path) for item in found]
                poisoned.update(id(y) for y in node.outputs)
            graph.nodes.append(node)
    except BaseException:
        graph.nodes.extend(nodes[position:])
        raise
    remove_dead(graph, state.dead)
    return blockers


def _visit(state: RepairState, node: Node) -> list[SubgraphBlocker]:
    """Infer a node, with repairs where needed. Returns the nodes that forbid the change: the node, or nodes of its subgraphs."""
    if node.outputs and state.key_of(node) in state.forced:
        force_random(state, node)
    carrying = [freed for freed in state.freed if any(x is not None and carries(x.type, freed.name) for x in node.inputs)]
    if type(node.op).__name__ in RESTRICTED:
        return [SubgraphBlocker(node, "", f"the rules of {node.op} are not known")] if carrying else []
    if carrying and node.op.holds_graphs and (inner := repair_bodies(state, node, propagate)):
        return inner
    fault = _infer_with_repairs(state, node, carrying)
    return [SubgraphBlocker(node, "", fault)] if fault else []


def _infer_with_repairs(state: RepairState, node: Node, carrying: Sequence[FreedSize]) -> str:
    """Infer a node, with repairs where needed. Returns the reason why the node forbids the change, else an empty string."""
    is_sized = any(x is not None and carries_size(state, x) for x in node.inputs)
    if is_sized and (repair := _repairs(node).of_sizes) is not None:
        _try(state, node, lambda state, node, _: repair(state, node), state.freed[0])
    for freed in carrying:
        if is_sized and isinstance(node.op, Reshape):
            continue
        if (rule := _repairs(node).of_meaning) is not None:
            _try(state, node, rule, freed)
    outcome = _infer(state, node, node.inputs)
    for freed in state.freed:
        if not outcome.fault:
            break
        rule = _repairs(node).of_fault
        if rule is not None and freed in carrying and _try(state, node, rule, freed):
            outcome = _infer(state, node, node.inputs)
        if (
            outcome.fault
            and not _has_coordinates(state, node, freed)
            and not (len(state.freed) > 1 and _is_sound(state, node, freed, node.inputs))
            and repair_operands(state, node, freed, partial(_is_sound, state, node, freed))
        ):
            outcome = _infer(state, node, node.inputs)
    if outcome.fault:
        return outcome.fault
    for y, type_, value in zip(node.outputs, outcome.types, outcome.values, strict=True):
        y.type, y.value = type_, value
    _propagate_nesting(state, node)
    _propagate_factors(state, node)
    return ""


def _repairs(node: Node) -> Repairs:
    """Return the repairs of the current operator of a node, which an earlier repair may have replaced."""
    return REPAIRS.get(type(node.op), NO_REPAIRS)


def _is_sound(state: RepairState, node: Node, freed: FreedSize, inputs: Sequence[View | None]) -> bool:
    """Return whether a node infers with ``inputs`` for one freed size, with all other freed sizes at their old values."""
    others: dict[str, Size] = {other.name: other.old for other in state.freed if other is not freed}
    if not others:
        return not _infer(state, node, inputs).fault
    views = [None if x is None else View(substitute_type(x.type, others), _substitute(x.value, others)) for x in inputs]
    return not _infer(state, node, views, [freed]).fault


def _substitute(elements: np.ndarray[Any, Any] | None, values: Mapping[str, Size]) -> Any:
    return map_elements(elements, lambda size: symbolic.substitute(size, values))


def _has_coordinates(state: RepairState, node: Node, freed: FreedSize) -> bool:
    """Return whether the indices of a node select samples of its data; repeated indices would all select the same sample."""
    op = node.op
    if not isinstance(op, COORDINATES) or op.__dict__.get("batch_dims", 0):
        return False
    axes = [place.axis for place in state.axes(node.input(0), freed)]
    return axis_in(op.axis, len(node.input(0).dims)) in axes if isinstance(op, Gather) else bool(axes)


def _try(state: RepairState, node: Node, rule: Callable[..., bool], freed: FreedSize) -> bool:
    """Apply a repair, and return whether it changed the node; a repair that raises an error does not apply."""
    count = len(state.changes)
    try:
        return bool(rule(state, node, freed))
    except (Inexact, DovetailError):
        del state.changes[count:]
        return False


def _infer(state: RepairState, node: Node, inputs: Sequence[View | None], among: Sequence[FreedSize] | None = None) -> _Outcome:
    """Infer the outputs of a node, and check their types against the old types for the freed sizes ``among`` (default: all)."""
    name = node.outputs[0].name if node.outputs else ""
    try:
        types = infer_types(node.op, tuple(inputs), name)
        values = infer_values(node.op, tuple(inputs), types)
    except DovetailError as error:
        return _Outcome([], [], f"with the new sizes, {error.diagnostics[0].message}")
    if node.op.holds_graphs and (fault := next(faults(node.op), None)) is not None:
        return _Outcome(types, values, f"in its subgraph, {fault.diagnostics[0].message}")
    for y, new in zip(node.outputs, types, strict=True):
        if why := _contradiction(state, y, new):
            return _Outcome(types, values, why)
    if why := _partial_read(state, node, inputs, types):
        return _Outcome(types, values, why)
    for freed in state.freed if among is None else among:
        if why := _loss(node, inputs, types, values, freed):
            return _Outcome(types, values, why)
    return _Outcome(types, values)


def _contradiction(state: RepairState, y: Value, new: Type) -> str:
    """Return how a new type, evaluated at the old sizes, contradicts the old type of ``y``; empty if it does not."""
    old = state.old_types[id(y)]
    if not isinstance(old, Tensor) or not isinstance(new, Tensor) or old.shape is None:
        return ""
    if new.shape is None:
        return "the rank of the result depends on the new size"
    if len(new.shape) != len(old.shape):
        return f"the result would have the rank {len(new.shape)} instead of {len(old.shape)}"
    for axis, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)):
        same = state.at_old_sizes(after)
        if isinstance(before, int) and same != before:
            if isinstance(same, Dim) and not is_unnamed(same) and any(has_symbol(after, freed.name) for freed in state.freed):
                continue
            shown = "unknown" if isinstance(same, Dim) else f"{state.at_new_sizes(after)}"
            return f"axis {axis} of the result would change from {before} to {shown}"
    return ""


def _partial_read(state: RepairState, node: Node, inputs: Sequence[View | None], types: Sequence[Type]) -> str:
    """Return a fault if indices read exactly the old number of elements of an axis whose size has changed; else ""."""
    if not isinstance(node.op, Gather | GatherElements):
        return ""
    data, (result,) = inputs[0], types
    old = state.old_shape(node.input(0))
    if data is None or data.shape is None or old is None or not isinstance(result, Tensor) or result.shape is None:
        return ""
    axis = axis_in(node.op.axis, len(data.shape))
    freed = next((each for each in state.freed if not each.is_batch and has_symbol(data.shape[axis], each.name)), None)
    if freed is None or old[axis] in (0, 1) or axis >= len(result.shape) or result.shape[axis] != old[axis]:
        return ""
    new = state.at_new_sizes(data.shape[axis])
    return f"the indices read {old[axis]} elements, the old size of axis {axis}; the new size is {new}"


def _loss(node: Node, inputs: Sequence[View | None], types: Sequence[Type], values: Sequence[Any], freed: FreedSize) -> str:
    """Return LOSS if the outputs lose the batch axis, else "".

    Operators in SIZES_ONLY, and freed sizes that are no batch, never give LOSS.
    """
    if (
        not freed.is_batch
        or type(node.op).__name__ in SIZES_ONLY
        or not any(x is not None and carries(x.type, freed.name) for x in inputs)
    ):
        return ""
    if any(carries(type, freed.name) for type in types) or not types:
        return ""
    if any(not isinstance(type, Tensor) for type in types):
        return ""
    if any(value is not None and any(has_symbol(item, freed.name) for item in np.ravel(value).tolist()) for value in values):
        return ""
    return LOSS


def _propagate_nesting(state: RepairState, node: Node) -> None:
    """Copy the nesting of merged batch axes of inputs to the batch axes of the same sizes in outputs."""
    for freed in state.freed:
        for y in node.outputs:
            own = state.inner.get(id(y), {})
            for place in state.axes(y, freed):
                if (place.axis, freed.name) in own:
                    continue
                size = y.dims[place.axis]
                for x in node.inputs:
                    known = state.inner.get(id(x), {})
                    for (axis, name), inner in known.items():
                        assert x is not None
                        if name == freed.name and x.dims[axis] == size:
                            state.inner.setdefault(id(y), {})[place.axis, name] = inner


def _propagate_factors(state: RepairState, node: Node) -> None:
    """Copy the factors of merged axes of inputs to the axes of the same sizes in outputs."""
    known = {
        x.dims[axis]: factors
        for x in node.inputs
        if x is not None and isinstance(x.type, Tensor) and x.type.shape is not None
        for axis in range(len(x.dims))
        if (factors := state.factors.get((id(x), axis))) is not None
    }
    for y in node.outputs:
        for axis, size in enumerate(y.type.shape or () if known and isinstance(y.type, Tensor) else ()):
            if size in known and (id(y), axis) not in state.factors:
                state.set_factors(y, axis, known[size])


def describe(blocker: Blocker) -> str:
    return describe_op(blocker.node.op, blocker.node.inputs)
