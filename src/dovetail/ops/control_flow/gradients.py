"""Gradients through operators that hold graphs: of a choice by both branches, of a loop by a loop back over what it carried.

Neither keeps what its body computed on the way: the bodies of the gradient compute it again from the body's inputs. What a loop
carries into each trip is therefore laid up by the loop as further outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, grow, inline, remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.types import Tensor, Type
from dovetail.ops.builders import zeros_like

Walk = Callable[[Builder, Sequence[Value], Sequence[Value], Sequence[Value]], list[Value]]
"""``walk(b, outputs, deltas, sources)``: the gradients of outputs with incoming gradients with regard to sources."""
Deltas = Sequence[Value | None]
END = 2**63 - 1


def _refuse_draws(node: Node) -> None:
    if draws(node.op, node.inputs):
        raise UnsupportedError("grad.draws", "the gradient computes the body again, and its random numbers would be others")


def _is_smooth(x: Value | None) -> bool:
    return x is not None and isinstance(x.type, Tensor) and x.type.dtype is not None and x.type.dtype.is_float


def through_if(op: Any, b: Builder, walk: Walk, node: Node, g: Deltas, wanted: Sequence[bool]) -> list[Value | None]:
    """A choice between the gradients of the branches."""
    _refuse_draws(node)
    condition, *captures = node.inputs
    places = [place for place, x in enumerate(captures) if wanted[1 + place] and _is_smooth(x)]
    branches = [_branch(branch, g, places, walk) for branch in (op.then_branch, op.else_branch)]
    chosen = op.with_(then_branch=branches[0], else_branch=branches[1], outputs=len(places))
    made = b.add(chosen, condition, *captures, *(delta for delta in g if delta is not None))
    found = dict(zip(places, made, strict=True))
    return [None, *(found.get(place) for place in range(len(captures)))]


def _branch(branch: Graph, g: Deltas, places: Sequence[int], walk: Walk) -> Graph:
    inner = Builder(f"{branch.name}_gradient")
    xs, ys = _again(inner, branch)
    pairs = [(y, inner.input_of("delta", delta.type)) for y, delta in zip(ys, g, strict=True) if delta is not None]
    inner.graph.outputs = walk(inner, [y for y, _ in pairs], [delta for _, delta in pairs], [xs[place] for place in places])
    remove_dead(inner.graph)
    return inner.graph


def _again(inner: Builder, body: Graph) -> tuple[list[Value], list[Value]]:
    """A body's nodes over inputs like its own. The inputs and the outputs."""
    xs = [inner.input_of(x.name, x.type) for x in body.inputs]
    for x, old in zip(xs, body.inputs, strict=True):
        if old.value is not None:
            x.value = old.value
    return xs, inline(inner, body, xs)


def through_loop(op: Any, b: Builder, walk: Walk, node: Node, g: Deltas, wanted: Sequence[bool]) -> list[Value | None]:
    """A loop from the last trip to the first, which carries the gradients of the states and the sums of those of what is read
    whole, and lays the gradients of parts where the parts were."""
    _refuse_draws(node)
    back = _Back(op, b, node, g, wanted)
    return [*[None] * min(2, len(node.inputs)), *back.gradients(walk)]


class _Back:
    """The loop back over ``node``. Places count the inputs of the loop behind its condition: states, cut ones, whole ones."""

    def __init__(self, op: Any, b: Builder, node: Node, g: Deltas, wanted: Sequence[bool]) -> None:
        self.op, self.b, self.node, self.body = op, b, node, op.body
        self.xs: list[Any] = list(node.inputs[2:])
        self.states, self.cut = range(op.carried), range(op.carried, op.carried + len(op.scan_inputs))
        self.whole = range(self.cut.stop, len(self.xs))
        self.last, self.laid = list(g[: op.carried]), list(g[op.carried :])
        self.sources = self._reached({place for place in range(len(self.xs)) if wanted[2 + place]})
        self.moving = [place for place in self.states if place in self.sources]
        self.summed = [place for place in self.whole if place in self.sources]
        self.parted = [place for place in self.cut if place in self.sources]
        is_free = all(x is None for x in node.inputs[:2])
        self.is_scan = is_free and bool(op.scan_inputs) and _is_endless(self.body)

    def _reached(self, places: set[int]) -> set[int]:
        """Of ``places`` those that are smooth, and the states that come to depend on them."""
        inputs = self.body.inputs[1:]
        found = {place for place in places if _is_smooth(inputs[place])}
        while True:
            reached = {id(inputs[place]) for place in found}
            for inner in self.body.nodes:
                if any(id(x) in reached for x in inner.inputs):
                    reached.update(id(y) for y in inner.outputs if _is_smooth(y))
            more = {place for place in self.states if id(self.body.outputs[1 + place]) in reached and _is_smooth(inputs[place])}
            if more <= found:
                return found
            found |= more

    def gradients(self, walk: Walk) -> list[Value | None]:
        self._are_fixed(self.moving)
        inner = Builder(f"{self.body.name}_gradient")
        trip = inner.input_of("trip", Tensor(dtypes.i64, ()))
        number = inner.input_of("number_part", Tensor(dtypes.i64, (1,)))
        kept = [inner.input_of(f"{self._inside(place).name}_part", self._part(place)) for place in self.states]
        given = [inner.input_of(self._inside(place).name, self._inside(place).type) for place in (*self.cut, *self.whole)]
        for x, place in zip(given, (*self.cut, *self.whole), strict=True):
            if place in self.whole and self._inside(place).value is not None:
                x.value = self._inside(place).value
        xs = [*(inner.apply("Squeeze", part, [0]) if _has_rank(part) else part for part in kept), *given]
        ys = inline(inner, self.body, [inner.apply("Squeeze", number, [0]), *xs])
        moving = [inner.input_of("delta", self._inside(place).type) for place in self.moving]
        sums = [inner.input_of("sum", self.xs[place].type) for place in self.summed]
        laid = [(place, delta) for place, delta in enumerate(self.laid) if delta is not None]
        parts = [inner.input_of("delta_part", ys[1 + len(self.states) + place].type) for place, _ in laid]
        ends = [*(ys[1 + place] for place in self.moving), *(ys[1 + len(self.states) + place] for place, _ in laid)]
        sources = [xs[place] for place in (*self.moving, *self.summed, *self.parted)]
        found = walk(inner, ends, [*moving, *parts], sources)
        moved, added = found[: len(moving)], found[len(moving) : len(moving) + len(sums)]
        added = [inner.apply("Add", total, more) for total, more in zip(sums, added, strict=True)]
        going = inner.constant(np.array(True), dtypes.boolean, "goes_on")
        inner.graph.outputs = [going, *moved, *added, *found[len(moving) + len(sums) :]]
        remove_dead(inner.graph)
        return self._loop(inner.graph, trip, number, kept, given, moving, sums, list(zip(laid, parts, strict=True)))

    def _loop(
        self,
        body: Graph,
        trip: Value,
        number: Value,
        kept: list[Value],
        given: list[Value],
        moving: list[Value],
        sums: list[Value],
        laid: list[tuple[tuple[int, Value], Value]],
    ) -> list[Value | None]:
        """The loop around the body, over what the forward loop lays up for it."""
        saved = [place for place in self.states if _is_read(body, kept[place])]
        numbers, states = self._laid_up(saved, not self.is_scan or _is_read(body, number))
        rows: list[tuple[Value, Value, tuple[int, int, bool]]] = []
        if numbers is not None:
            rows.append((number, numbers, (0, 1, True)))
        rows += [(kept[place], stack, (0, 1, True)) for place, stack in zip(saved, states, strict=True)]
        pieces = {place: self._pieces(place, numbers) for place in self.cut}
        for place in self.cut:
            axis, size, is_reversed = self.op.scan_inputs[place - self.cut.start]
            part = given[place - self.cut.start]
            if _is_read(body, part) or (not rows and not laid and place == self.cut[-1]):
                rows.append((part, pieces[place][0], (axis, size, not is_reversed)))
        for (place, delta), part in laid:
            axis, is_reversed = self.op.scan_outputs[place]
            rows.append((part, delta, (axis, self._length(place, axis), not is_reversed)))
        whole = [place for place in self.whole if _is_read(body, given[place - self.cut.start])]
        body.inputs = [trip, *moving, *sums, *(part for part, _, _ in rows), *(given[place - self.cut.start] for place in whole)]
        first = [self._last(place) for place in self.moving]
        first += [zeros_like(self.b, self.xs[place]) for place in self.summed]
        cuts = [self.op.scan_inputs[place - self.cut.start] for place in self.parted]
        back = self.op.with_(
            body=body, carried=len(first), scan_inputs=tuple(entry for _, _, entry in rows),
            scan_outputs=tuple((axis, not is_reversed) for axis, _, is_reversed in cuts), outputs=len(first) + len(cuts),
        )  # fmt: skip
        # Said even though the parts say it too: not every runtime goes over no parts.
        trips = None if numbers is None else self.b.apply("Squeeze", self.b.apply("Shape", numbers, output_type=dtypes.i64), [0])
        made = self.b.add(back, trips, None, *first, *(x for _, x, _ in rows), *(self.xs[place] for place in whole))
        found = dict(zip((*self.moving, *self.summed, *self.parted), made, strict=True))
        found.update({place: self._with_rest(found[place], place, pieces[place][1]) for place in self.parted})
        return [found.get(place) for place in range(len(self.xs))]

    def _laid_up(self, saved: Sequence[int], is_numbered: bool) -> tuple[Value | None, list[Value]]:
        """The trips' numbers, and the states at the begin of each, as further outputs of the forward loop."""
        if not saved and not is_numbered:
            return None, []
        self._are_fixed(saved)
        body = copy_graph(self.body)
        inner = Builder(graph=body)
        xs = [body.inputs[0]] * is_numbered + [body.inputs[1 + place] for place in saved]
        body.outputs += [inner.apply("Unsqueeze", x, [0]) for x in xs]
        scan_outputs = (*self.op.scan_outputs, *((0, False),) * len(xs))
        op = self.op.with_(body=body, scan_outputs=scan_outputs, outputs=self.op.outputs + len(xs))
        made = grow(self.b.graph, self.node, op, [f"{x.name}_trips" for x in xs])
        return (made[0], made[1:]) if is_numbered else (None, made)

    def _are_fixed(self, places: Sequence[int]) -> None:
        for place in places:
            if not _has_rank(self._inside(place)) or self._inside(place).type != self.xs[place].type:
                what = f"{self._inside(place).name}, {self.xs[place].type} at first, may change its shape from trip to trip"
                raise UnsupportedError("grad.types", f"the state {what}")

    def _pieces(self, place: int, numbers: Value | None) -> tuple[Value, Value | None]:
        """Of a cut input what the trips took, and the rest of it."""
        x = self.xs[place]
        if self.is_scan or numbers is None:
            return x, None
        axis, size, is_reversed = self.op.scan_inputs[place - self.cut.start]
        taken = self.b.apply("Multiply", self.b.apply("Shape", numbers, output_type=dtypes.i64), size)
        if is_reversed:
            length = self.b.apply("Gather", self.b.apply("Shape", x, output_type=dtypes.i64), [axis], axis=0)
            taken = self.b.apply("Subtract", length, taken)
        front = self.b.apply("Slice", x, [0], taken, [axis])
        back = self.b.apply("Slice", x, taken, [END], [axis])
        return (back, front) if is_reversed else (front, back)

    def _with_rest(self, gradient: Value, place: int, rest: Value | None) -> Value:
        if rest is None:
            return gradient
        axis, _, is_reversed = self.op.scan_inputs[place - self.cut.start]
        pair = (gradient, zeros_like(self.b, rest))
        found: Value = self.b.apply("Concat", *(reversed(pair) if is_reversed else pair), axis=axis)
        return found

    def _inside(self, place: int) -> Value:
        found: Value = self.body.inputs[1 + place]
        return found

    def _part(self, place: int) -> Type:
        """A state as it is laid up. It has to be of one shape in all trips."""
        type = self._inside(place).type
        if not isinstance(type, Tensor) or type.shape is None:
            return type
        return Tensor(type.dtype, (1, *type.shape))

    def _last(self, place: int) -> Value:
        """The gradient of a state behind the last trip."""
        delta = self.last[place]
        found: Value = zeros_like(self.b, self.node.outputs[place]) if delta is None else delta
        return found

    def _length(self, place: int, axis: int) -> int:
        size = self.body.outputs[1 + len(self.states) + place].dims[axis]
        if not isinstance(size, int):
            raise UnsupportedError("grad.types", f"parts of {size} along axis {axis} may differ from trip to trip")
        return size


def _has_rank(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.shape is not None


def _is_read(body: Graph, value: Value) -> bool:
    return bool(value.uses) or any(value is output for output in body.outputs)


def _is_endless(body: Graph) -> bool:
    from dovetail.ops.control_flow.loop import is_endless

    return is_endless(body)


__all__ = ["through_if", "through_loop"]
