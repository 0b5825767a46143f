"""Eliminate sequences and optional values whose elements are known: replace them with tensors.

An operator that makes a sequence outside a subgraph is copied into the subgraph that reads it. A sequence that a Loop appends to
becomes a scan output; one of a known number of elements becomes as many tensors, carried by Loop or selected by If.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, disconnect, remove_dead, replace_uses
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import bodies
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Sequence, Tensor, axis_in, dtype_in
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.sequence.optional import Optional
from dovetail.ops.sequence.sequence import (
    ConcatFromSequence,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SplitToSequence,
    parts_of,
    unlisted,
)

MAKERS = (Optional, SequenceConstruct, SequenceEmpty, SequenceErase, SequenceInsert, SplitToSequence)


def eliminate_sequences(graph: Graph) -> int:
    """Eliminate the sequences of ``graph`` and of its subgraphs. Returns the number of nodes that changed."""
    changed = 0
    if any(not isinstance(value.type, Tensor) for value in graph.values()):
        while count := rewrite(graph, _eliminate):
            changed += count + remove_dead(graph)
    return changed + sum(eliminate_sequences(body) for node in graph.nodes for _, body in bodies(node.op))


def _eliminate(b: Builder, node: Node) -> Any:
    mark = len(b.graph.nodes)
    made = unlisted_body(b, node) or unlisted(b, node)
    if isinstance(made, Value) and made.node not in b.graph.nodes[mark:]:
        # What it is called stays.
        return b.apply("Identity", made)
    return made


def unlisted_body(b: Builder, node: Node) -> list[Value] | None:
    """The outputs of If or Loop with a list less, written through ``b``; None where there is none that can go."""
    rules: tuple[Callable[..., list[Value] | None], ...] = ()
    if isinstance(node.op, If):
        rules = (_made_inside, _chosen)
    elif isinstance(node.op, Loop):
        rules = (_made_inside, _laid_up, _carried)
    return next((made for rule in rules if (made := rule(b, node.op, node)) is not None), None)


def _made_inside(b: Builder, op: Any, node: Node) -> list[Value] | None:
    """The first list that comes in and whose maker is known is made by the bodies themselves."""
    start = 1 if isinstance(op, If) else 2 + op.carried + len(op.scan_inputs)
    for place, x in enumerate(node.inputs[start:], start):
        if x is None or isinstance(x.type, Tensor) or x.node is None or not isinstance(x.node.op, MAKERS):
            continue
        maker = x.node
        names = ("then_branch", "else_branch") if isinstance(op, If) else ("body",)
        changed = {name: copy_graph(getattr(op, name)) for name in names}
        for body in changed.values():
            _make(body, place - 1, maker)
        captures = [each for each in maker.inputs if each is not None and each.constant is None]
        return b.add(op.with_(**changed), *node.inputs[:place], *captures, *node.inputs[place + 1 :])
    return None


def _make(body: Graph, place: int, maker: Node) -> None:
    """Let a body do what ``maker`` does for its input at ``place``, which the maker's inputs take the place of."""
    nodes, body.nodes = body.nodes, []
    b = Builder(graph=body)
    xs = [_inside(b, x) for x in maker.inputs]
    made = b.add(maker.op, *xs)[0]
    body.nodes += nodes
    replace_uses(body, body.inputs[place], made)
    body.inputs[place : place + 1] = [x for x in xs if x is not None and x.node is None]


def _inside(b: Builder, x: Value | None) -> Value | None:
    """What stands for an outer value in a body: a constant, or an input."""
    if x is None:
        return None
    if x.constant is not None:
        return b.constant(x.constant, x.dtype, x.name)
    found = Value(b.graph.claim(x.name), x.type)
    found.value = x.value
    return found


def _chosen(b: Builder, op: If, node: Node) -> list[Value] | None:
    """A list of which both branches know as many elements."""
    for place, y in enumerate(node.outputs):
        pair = [parts_of(branch.outputs[place]) for branch in (op.then_branch, op.else_branch)]
        if not isinstance(y.type, Sequence) or pair[0] is None or pair[1] is None or len(pair[0]) != len(pair[1]):
            continue
        count = len(pair[0])
        branches = [copy_graph(branch) for branch in (op.then_branch, op.else_branch)]
        for branch in branches:
            branch.outputs[place : place + 1] = parts_of(branch.outputs[place]) or []
        outputs = op.outputs - 1 + count
        if not outputs:
            return [_listed(b, [], y)]
        chosen = op.with_(then_branch=branches[0], else_branch=branches[1], outputs=outputs)
        made = list(b.add(chosen, *node.inputs))
        return [*made[:place], _listed(b, made[place : place + count], y), *made[place + count :]]
    return None


def _listed(b: Builder, parts: list[Value], y: Value) -> Value:
    made: Value = b.apply("SequenceConstruct", *parts) if parts else b.apply("SequenceEmpty", dtype=dtype_in(y.type))
    return made


def _laid_up(b: Builder, op: Loop, node: Node) -> list[Value] | None:
    """A list that begins empty, and to which every trip adds an element at the end."""
    for place, y in enumerate(node.outputs[: op.carried]):
        x, old, new = node.inputs[2 + place], op.body.inputs[1 + place], op.body.outputs[1 + place]
        if x is None or not isinstance(y.type, Sequence) or parts_of(x) != [] or not _is_grown(op.body, old, new):
            continue
        axis = _axis_of_readers(b, y)
        element = y.type.element
        is_fixed = isinstance(element, Tensor) and element.shape is not None and None not in element.shape
        body = copy_graph(op.body)
        inserted = body.outputs[1 + place].node
        assert inserted is not None
        part = inserted.inputs[1]
        assert part is not None
        # Parts of other sizes along the axis are what no format's loop lays end to end.
        if not is_fixed and (axis is None or part.shape is None or not isinstance(part.shape[axis], int)):
            continue
        body.outputs.append(Builder(graph=body).apply("Unsqueeze", part, [0]) if is_fixed else part)
        del body.outputs[1 + place]
        body.nodes.remove(inserted)
        disconnect(inserted)
        del body.inputs[1 + place]
        entry = (0 if is_fixed or axis is None else axis, False)
        loop = op.with_(body=body, carried=op.carried - 1, scan_outputs=(*op.scan_outputs, entry))
        made = list(b.add(loop, *node.inputs[: 2 + place], *node.inputs[3 + place :]))
        laid = made.pop()
        listed = b.apply("SplitToSequence", laid, axis=0, keepdims=False) if is_fixed else b.apply("SequenceConstruct", laid)
        return [*made[:place], listed, *made[place:]]
    return None


def _is_grown(body: Graph, old: Value, new: Value) -> bool:
    """Whether ``new`` is ``old`` with an element behind it, and nothing else reads either."""
    node = new.node
    if node is None or not isinstance(node.op, SequenceInsert) or node.inputs[0] is not old or len(node.inputs) > 2:
        return False
    return len(old.uses) == 1 and not new.uses and sum(value is new or value is old for value in body.outputs) == 1


def _axis_of_readers(b: Builder, y: Value) -> int | None:
    """The axis along which all that reads a list lays its elements end to end."""
    element = y.type.element if isinstance(y.type, Sequence) else None
    if not y.uses or any(value is y for value in b.graph.outputs) or not isinstance(element, Tensor) or element.shape is None:
        return None
    axes = set()
    for reader, _ in y.uses:
        if not isinstance(reader.op, ConcatFromSequence) or reader.op.new_axis or not element.shape:
            return None
        axes.add(axis_in(reader.op.axis, len(element.shape)))
    return axes.pop() if len(axes) == 1 else None


def _carried(b: Builder, op: Loop, node: Node) -> list[Value] | None:
    """A list that is carried and has as many known elements after every trip."""
    for place in range(op.carried):
        parts = None if node.inputs[2 + place] is None else parts_of(node.inputs[2 + place])
        if not parts or not isinstance(node.outputs[place].type, Sequence):
            continue
        count, body = len(parts), copy_graph(op.body)
        inner = Builder(graph=body)
        nodes, body.nodes = body.nodes, []
        states = [Value(body.claim(part.name), part.type) for part in parts]
        old = body.inputs[1 + place]
        replace_uses(body, old, inner.apply("SequenceConstruct", *states))
        body.nodes += nodes
        after = parts_of(body.outputs[1 + place])
        if after is None or len(after) != count:
            continue
        body.inputs[1 + place : 2 + place] = states
        body.outputs[1 + place : 2 + place] = after
        outputs = op.outputs - 1 + count
        loop = op.with_(body=body, carried=op.carried - 1 + count, outputs=outputs)
        made = list(b.add(loop, *node.inputs[: 2 + place], *parts, *node.inputs[3 + place :]))
        return [*made[:place], _listed(b, made[place : place + count], node.outputs[place]), *made[place + count :]]
    return None


__all__ = ["eliminate_sequences", "unlisted_body"]
