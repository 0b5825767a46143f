"""Eliminate sequences and optional values whose elements are known: replace them with tensors.

An operator that creates a sequence outside a subgraph is copied into the subgraph that reads the sequence. A sequence to which a
Loop appends becomes a scan output. A sequence with a known number of elements becomes this number of tensors, which a Loop
carries or an If selects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, disconnect, remove_dead, replace_uses
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import bodies, has
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Sequence, Tensor, Unknown, axis_in, dtype_in
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.sequence.optional import OptionalGetElement
from dovetail.ops.sequence.sequence import ConcatFromSequence, SequenceInsert, SequenceOp, elements_of_sequence


def eliminate_sequences(graph: Graph) -> int:
    """Eliminate the sequences of ``graph`` and of its subgraphs. Returns the number of nodes that changed."""
    changed = 0
    if any(not isinstance(value.type, Tensor) for value in graph.values()):
        while count := rewrite(graph, _eliminate):
            changed += count + remove_dead(graph)
    return changed + sum(eliminate_sequences(body) for node in graph.nodes for _, body in bodies(node.op))


def _eliminate(b: Builder, node: Node) -> Any:
    mark = len(b.graph.nodes)
    results = eliminate_in_subgraphs(b, node) or decompose_sequence_op(b, node)
    if isinstance(results, Value) and results.node not in b.graph.nodes[mark:]:
        # Identity keeps the name of the node's output.
        return b.apply("Identity", results)
    return results


def decompose_sequence_op(b: Builder, node: Node) -> Any:
    """Decompose a reader of sequences or optional values; return None if the elements are unknown."""
    if not isinstance(node.op, SequenceOp) or not has(node.op, "decompose"):
        return None
    try:
        inputs: list[Any] = node.inputs
        return node.op.decompose(b, *inputs)
    except (Unknown, symbolic.Inexact):
        return None


def eliminate_in_subgraphs(b: Builder, node: Node) -> list[Value] | None:
    """Eliminate one sequence from an If or Loop. Returns the new outputs; None if no sequence can be eliminated."""
    rules: tuple[Callable[..., list[Value] | None], ...] = ()
    if isinstance(node.op, If):
        rules = (_move_maker_inside, _split_if_output)
    elif isinstance(node.op, Loop):
        rules = (_move_maker_inside, _append_as_scan_output, _replace_carried_sequence)
    return next((results for rule in rules if (results := rule(b, node.op, node)) is not None), None)


def _move_maker_inside(b: Builder, op: Any, node: Node) -> list[Value] | None:
    """Move the node that produces the first sequence among the captured inputs into the subgraphs."""
    start = 1 if isinstance(op, If) else 2 + op.carried + len(op.scan_inputs)
    for index, x in enumerate(node.inputs[start:], start):
        maker = None if x is None or isinstance(x.type, Tensor) else x.node
        if maker is None or not isinstance(maker.op, SequenceOp) or isinstance(maker.op, OptionalGetElement):
            continue
        names = ("then_branch", "else_branch") if isinstance(op, If) else ("body",)
        changed = {name: copy_graph(getattr(op, name)) for name in names}
        for body in changed.values():
            _insert_maker(body, index - 1, maker)
        captures = [item for item in maker.inputs if item is not None and item.constant is None]
        return b.add(op.with_(**changed), *node.inputs[:index], *captures, *node.inputs[index + 1 :])
    return None


def _insert_maker(body: Graph, index: int, maker: Node) -> None:
    """Insert a copy of the node ``maker`` for input ``index`` of a subgraph; the inputs of ``maker`` replace this input."""
    nodes, body.nodes = body.nodes, []
    b = Builder(graph=body)
    xs = [_value_inside(b, x) for x in maker.inputs]
    results = b.add(maker.op, *xs)[0]
    body.nodes += nodes
    replace_uses(body, body.inputs[index], results)
    body.inputs[index : index + 1] = [x for x in xs if x is not None and x.node is None]


def _value_inside(b: Builder, x: Value | None) -> Value | None:
    """Return the value in a subgraph for an outer value: a constant, or a new value that becomes an input."""
    if x is None:
        return None
    if x.constant is not None:
        return b.constant(x.constant, x.dtype, x.name)
    result = Value(b.graph.claim(x.name), x.type)
    result.value = x.value
    return result


def _split_if_output(b: Builder, op: If, node: Node) -> list[Value] | None:
    """Replace a sequence by its elements if both branches return the same number of known elements."""
    for index, y in enumerate(node.outputs):
        pair = [elements_of_sequence(branch.outputs[index]) for branch in (op.then_branch, op.else_branch)]
        if not isinstance(y.type, Sequence) or pair[0] is None or pair[1] is None or len(pair[0]) != len(pair[1]):
            continue
        count = len(pair[0])
        branches = [copy_graph(branch) for branch in (op.then_branch, op.else_branch)]
        for branch in branches:
            branch.outputs[index : index + 1] = elements_of_sequence(branch.outputs[index]) or []
        outputs = op.outputs - 1 + count
        if not outputs:
            return [_construct_sequence(b, [], y)]
        chosen = op.with_(then_branch=branches[0], else_branch=branches[1], outputs=outputs)
        results = list(b.add(chosen, *node.inputs))
        return [*results[:index], _construct_sequence(b, results[index : index + count], y), *results[index + count :]]
    return None


def _construct_sequence(b: Builder, parts: list[Value], y: Value) -> Value:
    results: Value = b.apply("SequenceConstruct", *parts) if parts else b.apply("SequenceEmpty", dtype=dtype_in(y.type))
    return results


def _append_as_scan_output(b: Builder, op: Loop, node: Node) -> list[Value] | None:
    """Replace a sequence that starts empty and grows by one element per iteration by a scan output."""
    for index, y in enumerate(node.outputs[: op.carried]):
        x, old, new = node.inputs[2 + index], op.body.inputs[1 + index], op.body.outputs[1 + index]
        if x is None or not isinstance(y.type, Sequence) or elements_of_sequence(x) != [] or not _only_appends(op.body, old, new):
            continue
        axis = _axis_of_readers(b, y)
        element = y.type.element
        is_fixed = isinstance(element, Tensor) and element.shape is not None and None not in element.shape
        body = copy_graph(op.body)
        inserted = body.outputs[1 + index].node
        assert inserted is not None
        part = inserted.inputs[1]
        assert part is not None
        # No format's loop concatenates parts of different sizes.
        if not is_fixed and (axis is None or part.shape is None or not isinstance(part.shape[axis], int)):
            continue
        body.outputs.append(Builder(graph=body).apply("Unsqueeze", part, [0]) if is_fixed else part)
        del body.outputs[1 + index]
        body.nodes.remove(inserted)
        disconnect(inserted)
        del body.inputs[1 + index]
        entry = (0 if is_fixed or axis is None else axis, False)
        loop = op.with_(body=body, carried=op.carried - 1, scan_outputs=(*op.scan_outputs, entry))
        results = list(b.add(loop, *node.inputs[: 2 + index], *node.inputs[3 + index :]))
        stacked = results.pop()
        listed = (
            b.apply("SplitToSequence", stacked, axis=0, keepdims=False) if is_fixed else b.apply("SequenceConstruct", stacked)
        )
        return [*results[:index], listed, *results[index:]]
    return None


def _only_appends(body: Graph, old: Value, new: Value) -> bool:
    """Test whether ``new`` is ``old`` with an element appended, and whether nothing else reads ``old`` or ``new``."""
    node = new.node
    if node is None or not isinstance(node.op, SequenceInsert) or node.inputs[0] is not old or len(node.inputs) > 2:
        return False
    return len(old.uses) == 1 and not new.uses and sum(value is new or value is old for value in body.outputs) == 1


def _axis_of_readers(b: Builder, y: Value) -> int | None:
    """Return the axis along which every reader concatenates a sequence; None if the axes differ."""
    element = y.type.element if isinstance(y.type, Sequence) else None
    if not y.uses or any(value is y for value in b.graph.outputs) or not isinstance(element, Tensor) or element.shape is None:
        return None
    axes = set()
    for reader, _ in y.uses:
        if not isinstance(reader.op, ConcatFromSequence) or reader.op.new_axis or not element.shape:
            return None
        axes.add(axis_in(reader.op.axis, len(element.shape)))
    return axes.pop() if len(axes) == 1 else None


def _replace_carried_sequence(b: Builder, op: Loop, node: Node) -> list[Value] | None:
    """Replace a sequence that a Loop carries, with a constant number of known elements, by these elements."""
    for index in range(op.carried):
        parts = None if node.inputs[2 + index] is None else elements_of_sequence(node.inputs[2 + index])
        if not parts or not isinstance(node.outputs[index].type, Sequence):
            continue
        count, body = len(parts), copy_graph(op.body)
        inner = Builder(graph=body)
        nodes, body.nodes = body.nodes, []
        states = [Value(body.claim(part.name), part.type) for part in parts]
        old = body.inputs[1 + index]
        replace_uses(body, old, inner.apply("SequenceConstruct", *states))
        body.nodes += nodes
        after = elements_of_sequence(body.outputs[1 + index])
        if after is None or len(after) != count:
            continue
        body.inputs[1 + index : 2 + index] = states
        body.outputs[1 + index : 2 + index] = after
        outputs = op.outputs - 1 + count
        loop = op.with_(body=body, carried=op.carried - 1 + count, outputs=outputs)
        results = list(b.add(loop, *node.inputs[: 2 + index], *parts, *node.inputs[3 + index :]))
        return [
            *results[:index],
            _construct_sequence(b, results[index : index + count], node.outputs[index]),
            *results[index + count :],
        ]
    return None
