"""State of a model between calls, as graph inputs and outputs.

A variable consists of a graph input for its old value, a graph output for its new value and, if it has an initial value, a graph
output for the initial value. A graph is pure and a Program stateless; a
:class:`~dovetail.runtime.interpreter.session.Session` keeps the states of one user.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from dovetail.ir.graph import Graph, Model, Value

PROPERTY = "dovetail.ir.state"
"""The metadata property of an ONNX model that lists its states."""


class State(NamedTuple):
    """State is one variable: its name, and the names of its graph input and outputs.

    ``initial`` None means that the initial value is zeros of the input's type, with unknown sizes set to 0.
    """

    variable: str
    input: str
    output: str
    initial: str | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,) if self.initial is None else (self.output, self.initial)


def state_inputs(model: Model) -> frozenset[str]:
    """Return the names of the graph inputs that are states."""
    return frozenset(state.input for state in model.states)


def state_outputs(model: Model) -> frozenset[str]:
    """Return the names of the graph outputs that are states or initial values."""
    return frozenset(name for state in model.states for name in state.outputs)


def own_inputs(model: Model) -> list[Value]:
    """Return the inputs that a caller passes: the graph inputs that are not states."""
    names = state_inputs(model)
    return [value for value in model.inputs if value.name not in names]


def own_outputs(model: Model) -> list[Value]:
    """Return the outputs that a caller gets: the graph outputs that are neither states nor initial values."""
    names = state_outputs(model)
    return [value for value in model.outputs if value.name not in names]


def as_text(model: Model) -> str:
    """Encode the states of a model as the text of an ONNX metadata property."""
    return json.dumps([list(state) for state in model.states])


def from_text(text: str, graph: Graph) -> list[State]:
    """Decode the states from the text of an ONNX metadata property; a state whose input or outputs the graph lacks is dropped."""
    try:
        rows = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return []
    inputs, outputs = {value.name for value in graph.inputs}, {value.name for value in graph.outputs}
    states = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 4 or not all(isinstance(name, str) for name in row[:3]):
            continue
        state = State(*row)
        is_known = state.input in inputs and set(state.outputs) <= outputs
        if is_known and (state.initial is None or isinstance(state.initial, str)):
            states.append(state)
    return states


def is_blank(value: Value) -> bool:
    """Return whether a value has no elements, or only zeros: a constant of zeros, of which operators move elements."""
    if value.shape is not None and any(isinstance(size, int) and size == 0 for size in value.shape):
        return True
    data = value.constant
    if data is not None:
        return data.dtype.kind in "biuf" and not np.any(data)
    if value.node is None or not value.node.op.moves_elements:
        return False
    # Inputs of other types are shapes and indices.
    parts = [x for x in value.node.inputs if x is not None and x.dtype == value.dtype]
    return bool(parts) and all(map(is_blank, parts))
