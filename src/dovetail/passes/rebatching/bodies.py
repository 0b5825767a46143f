"""Repair of constants in the subgraphs of If and Loop nodes whose inputs carry the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dovetail.ir import dtypes
from dovetail.ir.edit import copy_graph
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import bodies
from dovetail.ir.types import Tensor, Type
from dovetail.ops.control_flow.if_op import types_in
from dovetail.ops.control_flow.loop import Loop
from dovetail.passes.rebatching.axes import BatchAxis, axes_of, carries
from dovetail.passes.rebatching.state import RepairState


class SubgraphBlocker(NamedTuple):
    """SubgraphBlocker is a node of a subgraph that forbids the change, with its path from the outermost node and the reason."""

    node: Node
    path: str
    why: str


Propagate = Callable[[RepairState], Sequence[Any]]
"""Function that infers and repairs every node of a graph, and returns the blockers (``node``, ``path``, ``why``)."""


def repair_bodies(state: RepairState, node: Node, propagate: Propagate) -> list[SubgraphBlocker]:
    """Repair the subgraphs of a node whose inputs carry the batch. Returns the nodes of the subgraphs that forbid the change."""
    if any(body.fault is not None for _, body in bodies(node.op)):
        return []
    return _repair_loop(state, node, propagate) if isinstance(node.op, Loop) else _repair_branches(state, node, propagate)


def _repair_loop(state: RepairState, node: Node, propagate: Propagate) -> list[SubgraphBlocker]:
    """Repair the body of a Loop; an initial state gets a row for each sample where the next state carries the batch."""
    op = node.op
    assert isinstance(op, Loop)
    expanded: dict[int, BatchAxis] = {}
    while True:
        types = _input_types(state, node, op, expanded)
        child = _analyze(state, node, op.body, [Tensor(dtypes.i64, ()), *types], [None, *node.inputs[2:]], op.carried + 1)
        blockers = _blockers(child, propagate)
        if blockers:
            return blockers
        found = _states_to_expand(state, node, child, op.carried, expanded)
        if not found:
            break
        expanded.update(found)
    for index in range(op.carried):
        _match_output(child, 1 + index, child.graph.inputs[1 + index])
    for index, place in sorted(expanded.items()):
        value = node.input(2 + index)
        new = state.write_rows(value, place, False)
        state.add_change(node, f"{value.name} {value.type}", state.text(new.dims), "the initial state gets a row for each sample")
        state.replace_input(node, 2 + index, new)
    _install(state, node, {"body": child})
    return []


def _input_types(state: RepairState, node: Node, op: Loop, expanded: dict[int, BatchAxis]) -> list[Type]:
    """Return the types of the inputs of the body, except that of the iteration number."""
    types: list[Type] = []
    for index, x in enumerate(node.inputs[2:]):
        assert x is not None
        type = x.type
        if index in expanded:
            type = Tensor(x.dtype, state.expanded_shape(x, expanded[index], False))
        elif op.carried <= index < op.carried + len(op.scan_inputs) and isinstance(type, Tensor) and type.shape is not None:
            axis, size, _ = op.scan_inputs[index - op.carried]
            type = Tensor(type.dtype, (*type.shape[:axis], size, *type.shape[axis + 1 :]))
        types.append(type)
    return types


def _states_to_expand(
    state: RepairState, node: Node, child: RepairState, carried: int, expanded: dict[int, BatchAxis]
) -> dict[int, BatchAxis]:
    """Return the batch axis, by index, for each initial state without a batch whose next state carries the batch."""
    found: dict[int, BatchAxis] = {}
    for index in range(carried):
        value, after = node.input(2 + index), child.graph.outputs[1 + index]
        for freed in state.freed:
            if index in expanded or carries(value.type, freed.name):
                continue
            for place in child.axes(after, freed):
                if state.has_old_rows(value, place) and state.has_equal_rows(value, place):
                    found[index] = place
    return found


def _repair_branches(state: RepairState, node: Node, propagate: Propagate) -> list[SubgraphBlocker]:
    """Repair the branches of an If; each output of a branch gets the batch axes of the same output of the other branch."""
    types = [x.type for x in node.inputs[1:] if x is not None]
    children = {name: _analyze(state, node, body, types, node.inputs[1:], 0) for name, body in bodies(node.op)}
    blockers = [blocker for child in children.values() for blocker in _blockers(child, propagate)]
    if blockers:
        return blockers
    for index in range(len(node.outputs)):
        for child in children.values():
            for other in children.values():
                if other is not child:
                    _match_output(child, index, other.graph.outputs[index])
    _install(state, node, children)
    return []


def _analyze(
    state: RepairState, node: Node, body: Graph, types: Sequence[Type], outer: Sequence[Value | None], changing: int
) -> RepairState:
    """Copy a subgraph, give its inputs ``types``, and return the RepairState of the copy.

    ``outer`` are the values that the node passes to the inputs. The first ``changing`` inputs differ between iterations, so that
    their elements are unknown.
    """
    graph = copy_graph(body)
    child = RepairState(graph, state.freed, state.choices, state.forced, prefix=f"{state.prefix}{node.outputs[0].name}/")
    child.alternatives = state.alternatives
    for (old, _, _), (new, _, _) in zip(types_in(body), types_in(graph), strict=True):
        child.old_types[id(new)] = state.old_types.get(id(old), old.type)
        child.old_values[id(new)] = state.old_values.get(id(old))
    for index, (x, type, source) in enumerate(zip(graph.inputs, types, outer, strict=True)):
        x.type = type
        x.value = None if index < changing or source is None else source.value
        if source is not None and id(source) in state.inner:
            child.inner[id(x)] = dict(state.inner[id(source)])
    return child


def _blockers(child: RepairState, propagate: Propagate) -> list[SubgraphBlocker]:
    return [SubgraphBlocker(item.node, f"{child.prefix}{item.path or item.node.label}", item.why) for item in propagate(child)]


def _match_output(child: RepairState, index: int, like: Value) -> None:
    """Give a subgraph's output a row for each sample where ``like``, whose type the output must have, carries the batch."""
    y = child.graph.outputs[index]
    for freed in child.freed:
        if carries(y.type, freed.name):
            continue
        for place in axes_of(like.shape, freed, child.inner.get(id(like))):
            if child.has_old_rows(y, place) and child.has_equal_rows(y, place):
                new = child.write_rows(y, place, False)
                assert new.node is not None
                reason = "a result of the subgraph gets a row for each sample"
                child.add_change(y.node or new.node, f"{y.name} {y.type}", child.text(new.dims), reason)
                child.graph.outputs[index] = y = new


def _install(state: RepairState, node: Node, children: dict[str, RepairState]) -> None:
    """Replace the subgraphs of ``node`` by the repaired ones; sizes that the repairs read become captures."""
    sizes = list(dict.fromkeys(name for child in children.values() for name in child.captures))
    for name in sizes:
        value = state.write_size(state.freed_of(name))
        node.inputs.append(value)
        value.uses[node, len(node.inputs) - 1] = None
        for child in children.values():
            child.graph.inputs.append(child.captures.get(name) or child.new_capture(state.freed_of(name)))
    for child in children.values():
        state.changes += [change._replace(node=f"{node.label}/{change.node}") for change in child.changes]
    node.op = node.op.with_(**{name: child.graph for name, child in children.items()})
    child = next(iter(children.values()))
    first = len(child.graph.outputs) - len(node.outputs)
    for y, inner in zip(node.outputs, child.graph.outputs[first:], strict=True):
        if id(inner) in child.inner:
            state.inner[id(y)] = dict(child.inner[id(inner)])
