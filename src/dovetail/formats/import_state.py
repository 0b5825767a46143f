"""Import the variables of a file (OpenVINO ReadValue and Assign) as inputs and outputs of the graph."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.errors import FormatError, UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import rename
from dovetail.ir.graph import Graph, Value
from dovetail.ir.state import State
from dovetail.ir.types import Type


@dataclass(slots=True)
class _Variable:
    """_Variable is one variable: the graph input for its current value, its initial value, and its assigned value."""

    input: Value | None = None
    initial: Value | None = None
    assigned: Value | None = None


class ImportedVariables:
    """ImportedVariables collects the variables of one graph during its import. With ``is_subgraph`` variables are refused."""

    def __init__(self, graph: Graph, *, is_subgraph: bool) -> None:
        self._graph = graph
        self._is_subgraph = is_subgraph
        self._variables: dict[str, _Variable] = {}

    def read(self, name: str, type: Type, initial: Value | None) -> Value:
        """Add a graph input for the value of a variable.

        Raises UnsupportedError [state.variable], FormatError [state.variable].
        """
        variable = self._variable(name)
        if variable.input is not None:
            raise FormatError("state.variable", f"the variable {name!r} must be read by one ReadValue, got two")
        variable.input = Value(self._graph.claim(name), type)
        variable.initial = initial
        self._graph.inputs.append(variable.input)
        return variable.input

    def assign(self, name: str, value: Value) -> None:
        """Record the value that is assigned to a variable. Raises the errors of :meth:`read`."""
        variable = self._variable(name)
        if variable.assigned is not None:
            raise FormatError("state.variable", f"the variable {name!r} must be assigned once, got two Assign nodes")
        variable.assigned = value

    def _variable(self, name: str) -> _Variable:
        if self._is_subgraph:
            raise UnsupportedError("state.variable", f"the variable {name!r} must be in the main graph, got a subgraph")
        return self._variables.setdefault(name, _Variable())

    def add_states(self, b: Builder, file: str | None) -> list[State]:
        """Add graph outputs for all variables, and return their states. Raises FormatError [state.variable]."""
        states = []
        for name, variable in self._variables.items():
            if variable.input is None:
                raise FormatError("state.variable", f"the variable {name!r} must be read, not only assigned", file=file)
            output = self._add_output(b, variable.assigned or variable.input, f"{variable.input.name}/next")
            initial = None if variable.initial is None else self._add_output(b, variable.initial, f"{variable.input.name}/first")
            states.append(State(name, variable.input.name, output, initial))
        return states

    def _add_output(self, b: Builder, value: Value, name: str) -> str:
        outputs = self._graph.outputs
        # In a file that dovetail wrote, the value already has the name of the output.
        has_name = value.name == name and value.node is not None and all(value is not output for output in outputs)
        output: Value = value if has_name else b.apply("Identity", value)
        rename(self._graph, output, name)
        outputs.append(output)
        return output.name
