"""State that a model keeps from one call to the next, made explicit: a graph input with what was kept, a graph output with what
is to be kept, and a graph output with what is there before the first call.

A graph is pure and a Program holds nothing; a :class:`dovetail.interpreter.session.Session` keeps the states of one user.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from dovetail.ir.graph import Graph, Model, Value

PROPERTY = "dovetail.ir.state"
"""The metadata property under which an ONNX model says which inputs and outputs are states."""


class State(NamedTuple):
    """One variable: its name, and the names of the graph input and outputs that stand for it.

    ``initial`` is None where the state begins with zeros of the input's type, an open size being 0.
    """

    variable: str
    input: str
    output: str
    initial: str | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,) if self.initial is None else (self.output, self.initial)


def state_inputs(model: Model) -> frozenset[str]:
    """The names of the graph inputs that are states."""
    return frozenset(state.input for state in model.states)


def state_outputs(model: Model) -> frozenset[str]:
    """The names of the graph outputs that are states, or what states begin with."""
    return frozenset(name for state in model.states for name in state.outputs)


def own_inputs(model: Model) -> list[Value]:
    """The inputs that a caller gives, without the states."""
    names = state_inputs(model)
    return [value for value in model.inputs if value.name not in names]


def own_outputs(model: Model) -> list[Value]:
    """The outputs that a caller wants, without those of states."""
    names = state_outputs(model)
    return [value for value in model.outputs if value.name not in names]


def as_text(model: Model) -> str:
    """The states of a model for an ONNX property."""
    return json.dumps([list(state) for state in model.states])


def from_text(text: Any, graph: Graph) -> list[State]:
    """The states that an ONNX property speaks of; those whose inputs and outputs the graph no longer has are none."""
    try:
        rows = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return []
    inputs, outputs = {value.name for value in graph.inputs}, {value.name for value in graph.outputs}
    found = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 4 or not all(isinstance(name, str) for name in row[:3]):
            continue
        state = State(*row)
        is_known = state.input in inputs and set(state.outputs) <= outputs
        if is_known and (state.initial is None or isinstance(state.initial, str)):
            found.append(state)
    return found
