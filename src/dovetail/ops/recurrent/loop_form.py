"""A recurrent layer over a number of time steps that only run time knows, as a Loop whose body is one time step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail import dtypes
from dovetail.interpreter.evaluate import constant_value
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Value
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.recurrent.cell_math import Step, through_time

Cell = Callable[..., tuple[Step, Any]]
"""The step of a cell, and a bias, from a medium and the cell's weights in it."""


def through_loop(
    m: Any, cell: Cell, moments: Value, pieces: list[Any], states: tuple[Any, ...], lengths: Any, backwards: bool
) -> tuple[Value, tuple[Value, ...]]:
    """What is put out at each time step, stacked, and the last states: as ``through_time``, where the steps cannot be counted.

    ``moments`` [time steps, batch, gates * hidden] is cut into its time steps; ``pieces`` are the weights, bias and peepholes
    of one direction, which each step reads whole.
    """
    b = m.b
    inside = _Body(type(m))
    inside.b.input("trip", dtypes.i64, ())
    before = tuple(inside.input(state) for state in states)
    now = inside.input(moments, part=True)
    scanned = [moments]
    place = None
    if lengths is not None:
        first = b.Range(b.constant(0), b.Squeeze(shape_value(b, moments, [0]), [0]), b.constant(1))
        scanned.append(b.Cast(first, to=lengths.dtype))
        place = inside.input(scanned[-1], part=True)
        states = tuple(b.Where(m.beyond(lengths, 0), state, state * 0) for state in states)
    held = [inside.captured(piece) for piece in pieces]
    until = inside.captured(lengths)
    with inside.b:
        step, _ = cell(inside.m, *held)
        rows, after = _one_step(inside.m, inside.b.Squeeze(now, [0]), step, before, until, place)
        made = [inside.b.constant(True), *after, inside.b.Unsqueeze(rows, [0])]
    inside.b.graph.outputs = inside.distinct(made)
    count = len(states)
    loop = Loop(
        body=inside.b.graph,
        carried=count,
        scan_inputs=((0, 1, backwards),) * len(scanned),
        scan_outputs=((0, backwards),),
        outputs=count + 1,
    )
    *last, y = b.add(loop, None, None, *states, *scanned, *inside.outer)
    return y, tuple(last)


def _one_step(m: Any, now: Any, step: Step, states: tuple[Any, ...], lengths: Any, place: Any) -> tuple[Any, tuple[Any, ...]]:
    """What one time step puts out, and the states after it. A row whose sequence is over puts 0 out and keeps its states."""
    if lengths is None:
        (row,), after = through_time(m, [now], step, states, None, False)
        return row, after
    new = step(now, *states)
    goes_on = m.beyond(lengths, place)
    after = tuple(m.select(goes_on, each, old) for each, old in zip(new, states, strict=True))
    return m.select(goes_on, new[0], states[0] * 0), after


class _Body:
    """The body while it is written: its Builder, the medium that writes into it, and what it reads from outside."""

    def __init__(self, medium: Any) -> None:
        self.b = Builder("step")
        self.m = medium(self.b)
        self.outer: list[Value] = []

    def input(self, value: Value, part: bool = False) -> Value:
        """An input like ``value``, or like one of its parts along axis 0."""
        shape = value.shape
        sizes = shape if shape is None or not part else (1, *shape[1:])
        return self.b.input(f"x{len(self.b.graph.inputs)}", value.dtype, sizes)

    def captured(self, item: Any) -> Any:
        """What the body reads whole: a constant as its own, anything else through an input. A tuple has members of that kind."""
        if item is None:
            return None
        if isinstance(item, tuple):
            return type(item)(*map(self.captured, item))
        known = constant_value(item)
        if known is not None:
            return self.b.constant(known, item.dtype)
        self.outer.append(item)
        return self.input(item)

    def distinct(self, values: list[Value]) -> list[Value]:
        """The outputs of the body, each a value of its own."""
        found: list[Value] = []
        for value in values:
            is_taken = any(value is other for other in (*found, *self.b.graph.inputs))
            found.append(self.b.Identity(value) if is_taken else value)
        return found


__all__ = ["through_loop"]
