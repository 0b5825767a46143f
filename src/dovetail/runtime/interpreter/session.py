"""Session: runs a program with states and keeps the states between calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import EngineError, printable
from dovetail.ir.arrays import Array
from dovetail.ir.edit import copy_model, remove_dead
from dovetail.ir.graph import Model, Value
from dovetail.ir.results import Results
from dovetail.ir.state import State, own_inputs
from dovetail.ir.types import Tensor
from dovetail.runtime.interpreter.interpret import interpret

Arrays = dict[str, np.ndarray[Any, Any]]
STATES_SHOWN = 4
"""The maximum number of states in the repr of a Session."""


class InitialStates:
    """InitialStates computes the initial states of a model: from the other inputs if the model has initial values, else zeros."""

    def __init__(self, model: Model) -> None:
        self.states = model.states
        self.values = {value.name: value for value in model.inputs}
        self._part = initial_part(model)

    def __call__(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the initial states. Raises EngineError [state.first] if they depend on a state or are unknown."""
        initial: Arrays = {}
        if self._part is not None:
            needed = [value.name for value in self._part.inputs]
            refuse_states(needed, self.states)
            initial = interpret(self._part, {name: inputs[name] for name in needed if name in inputs})
        return {
            state.input: _zeros(self.values[state.input]) if state.initial is None else initial[state.initial]
            for state in self.states
        }


def initial_part(model: Model) -> Model | None:
    """Return the part of a model that computes the initial values of its states; None if no state has an initial value."""
    names = {state.initial for state in model.states if state.initial is not None}
    if not names:
        return None
    part = copy_model(model)
    part.states = []
    graph = part.graph
    graph.outputs = [value for value in graph.outputs if value.name in names]
    remove_dead(graph)
    read = {id(value) for value in graph.outputs}
    graph.inputs = [value for value in graph.inputs if value.uses or id(value) in read]
    return part


def refuse_states(inputs: Sequence[str], states: Sequence[State]) -> None:
    """Raise EngineError [state.first] if the inputs of an :func:`initial_part` contain a state."""
    wrong = [name for name in inputs if any(name == state.input for state in states)]
    if wrong:
        raise EngineError("state.first", f"an initial state must not depend on a state, got one on {wrong[0]!r}")


def _zeros(value: Value) -> Any:
    type = value.type
    if not isinstance(type, Tensor) or type.shape is None or type.dtype is None:
        raise EngineError("state.first", f"the state {value.name!r} of type {type} has no known initial value")
    return np.zeros([size if isinstance(size, int) else 0 for size in type.shape], type.dtype.numpy)


class Session:
    """Session runs a program with states: ``session(inputs)`` returns the outputs and keeps the states for the next call.

    The caches of a model are states too: pairs of an input and the output that is its next value (see ``Program.session``). A
    cache that grows has the initial length 0, any other one zeros. A state passed among the inputs replaces the kept state.
    ``states`` holds the states by the names of their inputs, and may be set; ``reset`` restores the initial states. A Session is
    not thread-safe.
    """

    def __init__(self, program: Any, states: Mapping[str, str] | None = None) -> None:
        # Deferred for start-up time: the public functions import this module, and not the operators of caches.
        from dovetail.runtime.session_states import find_states, states_of

        self.program = program
        self._kept: Arrays = {}
        self._is_lost = False
        model = program.model
        pairs = find_states(model) if states is None else states_of(model, states)
        hidden = {name for state in pairs for name in state.outputs}
        self._outputs = [value.name for value in model.outputs if value.name not in hidden]
        self._states = [(state.input, state.output) for state in pairs]
        of_model = {state.input for state in model.states}
        self._caches = [state for state in pairs if state.input not in of_model]
        self._names = {value.name for value in model.inputs}

    def __repr__(self) -> str:
        pairs = [f"{past} -> {present}" for past, present in self._states[:STATES_SHOWN]]
        more = len(self._states) - STATES_SHOWN
        text = ", ".join([*pairs, f"{more} more"] if more > 0 else pairs) or "none"
        return printable(f"<Session of {self.program!r}, states: {text}>")

    @property
    def state_outputs(self) -> dict[str, str]:
        """The output that is the next value of each state, by the name of the state's input."""
        return dict(self._states)

    @property
    def states(self) -> MutableMapping[str, Any]:
        """The states by the names of their inputs. No later call changes these arrays; an assignment replaces a state."""
        return _States(self._kept, self.program._overwritten)

    @states.setter
    def states(self, states: Mapping[str, Array]) -> None:
        self._kept.clear()
        self.states.update(states)
        self._is_lost = False

    def reset(self) -> None:
        """Restore the initial states."""
        self.states = {}

    def __call__(self, *inputs: Array, out: Mapping[str, Any] | Sequence[Any] | None = None, **by_name: Array) -> Results:
        """Run the program once. Takes what a call of the program takes, and returns the outputs without the states.

        In order, the inputs are those that are no states, or all. ``out`` is for the outputs that are no states.

        Raises EngineError [state.first] after a run that failed and has overwritten states, and the errors of the program.
        """
        if self._is_lost:
            message = "a failed run has overwritten states: call reset(), or set states"
            raise EngineError("state.first", message, file=self.program.model.file)
        arrays = self._inputs_by_name(inputs, by_name)
        missing = [state for state in self._caches if state.input not in self._kept and state.input not in arrays]
        if missing:
            # Deferred for start-up time, as in __init__.
            from dovetail.runtime.session_states import initial_caches

            arrays = {**initial_caches(self.program.model, missing, {**self._kept, **arrays}), **arrays}
        targets = None if out is None else self.program._check_out(out, self._outputs, "session")
        before = len(self._kept)
        try:
            results = self.program._call_in_session(arrays, self._kept, targets)
        except BaseException:
            self._is_lost = len(self._kept) < before
            raise
        self._kept.update((name, results[output]) for name, output in self._states)
        return Results({name: results[name] for name in self._outputs})

    def _inputs_by_name(self, inputs: tuple[Array, ...], by_name: dict[str, Array]) -> Mapping[str, Any]:
        # This path is for speed: a call by names that are no aliases needs no conversion.
        only = (inputs[0] if len(inputs) == 1 else None) if not by_name else None if inputs else by_name
        if type(only) is dict and only.keys() <= self._names:
            return only
        inputs = self.program._positional_inputs(inputs, by_name)
        return inputs_by_name(self.program.model, inputs, [name for name, _ in self._states])


class _States(MutableMapping[str, Any]):
    """_States maps the names of a session's states to arrays. Reading or setting a state copies it if a call overwrites it."""

    def __init__(self, kept: Arrays, overwritten: frozenset[str]) -> None:
        self._kept = kept
        self._overwritten = overwritten

    def __getitem__(self, name: str) -> Any:
        array = self._kept[name]
        return array.copy() if name in self._overwritten else array

    def __setitem__(self, name: str, array: Any) -> None:
        self._kept[name] = np.array(array) if name in self._overwritten else array

    def __delitem__(self, name: str) -> None:
        del self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return repr(dict(self))


def inputs_by_name(model: Model, inputs: tuple[Array, ...], states: Sequence[str] | None = None) -> dict[str, Any]:
    """Return inputs by name. ``inputs`` is a mapping, or the arrays of the inputs that are no states, in order.

    ``states``: the names of the inputs that are states, by default the states of the model. Raises EngineError [input.count].
    """
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        by_name: Mapping[str, Array] = inputs[0]
        aliases = {alias: value.name for value in model.inputs for alias in value.names}
        return {aliases.get(name, name): array for name, array in by_name.items()}
    own = own_inputs(model) if states is None else [value for value in model.inputs if value.name not in states]
    names = [value.name for value in (own if len(inputs) != len(model.inputs) else model.inputs)]
    if len(names) != len(inputs):
        raise EngineError(
            "input.count", f"the model takes {len(names)} inputs ({', '.join(map(repr, names))}), got {len(inputs)}"
        )
    return dict(zip(names, inputs, strict=True))
