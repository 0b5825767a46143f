"""States that a session keeps: those of the model, and pairs of an input and the output that is its next value.

Pairs are found from the operators of the graph (:func:`~dovetail.runtime.caches.cached_ports`) and from the names of inputs and
outputs, such as ``past_key_values.0.key`` and ``present.0.key``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.errors import EngineError
from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Value
from dovetail.ir.inputs_outputs import bind_sizes, to_array, unknown_input, zeros_of
from dovetail.ir.state import State
from dovetail.ir.suggestions import closest
from dovetail.ir.types import Tensor
from dovetail.ops.tensor.concat_split import Concat
from dovetail.runtime.caches import cached_ports

_WORD = re.compile(r"[hc](?=n\b)|[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
"""A word of a name, in snake case or camel case; ``hn`` and ``cn`` of recurrent layers are two words."""

_OLD = frozenset({"past", "in", "input", "prev", "previous", "old", "before", "last"})
_NEW = frozenset({"present", "out", "output", "next", "new", "updated", "current", "after", "n"})
_CACHE = {"cache", "caches", "state", "states", "memory", "mem", "hidden", "cell", "key", "keys", "value", "values", "kv"}
_CACHE |= {"k", "v", "h", "c", "conv", "ssm", "recurrent"}
_KEY_VALUES = ("key", "values")
"""The words that may follow ``past`` or ``present`` before the number of a layer."""


def find_states(model: Model) -> list[State]:
    """Find the states of a session: the states of the model, and the pairs of its other inputs and outputs."""
    taken = {name for state in model.states for name in (state.input, *state.outputs)}
    pairs = list(model.states)
    for past, present in (*_pairs_by_structure(model), *_pairs_by_name(model)):
        if past not in taken and present not in taken:
            taken |= {past, present}
            pairs.append(State(past, past, present))
    order = {value.name: number for number, value in enumerate(model.inputs)}
    first = len(model.states)
    return pairs[:first] + sorted(pairs[first:], key=lambda state: order[state.input])


def states_of(model: Model, outputs: Mapping[str, str]) -> list[State]:
    """Return the states of a session whose inputs and outputs the caller names.

    Raises EngineError [input.unknown], [output.unknown], [argument.conflict], [argument.value].
    """
    known = {state.input: state for state in model.states}
    values = {value.name: value for value in model.inputs}
    results = {value.name: value for value in model.outputs}
    if unknown := [name for name in outputs if name not in values]:
        raise unknown_input(unknown, list(values))
    states: list[State] = []
    for past, present in outputs.items():
        if present not in results:
            text = f"the model has no output {present!r}; it has {', '.join(map(repr, results))}{closest(present, results)}"
            raise EngineError("output.unknown", text)
        if any(present == state.output for state in states):
            raise EngineError("argument.conflict", f"each state needs an output of its own, got {present!r} twice")
        if not is_pair(values[past], results[present]):
            types = f"got {values[past].type} and {results[present].type}"
            raise EngineError("argument.value", f"the state {past!r} and its next value {present!r} must have one type, {types}")
        state = known.get(past)
        states.append(state if state is not None and state.output == present else State(past, past, present))
    return states


def is_pair(past: Value, present: Value) -> bool:
    """Return whether ``present`` may be the next value of ``past``: one element type, one rank, and no two different numbers."""
    if not isinstance(past.type, Tensor) or not isinstance(present.type, Tensor):
        return False
    if None not in (past.type.dtype, present.type.dtype) and past.type.dtype != present.type.dtype:
        return False
    if past.shape is None or present.shape is None:
        return True
    sizes = list(zip(past.shape, present.shape, strict=False))
    numbers = [(one, other) for one, other in sizes if isinstance(one, int) and isinstance(other, int)]
    return len(past.shape) == len(present.shape) and all(one == other for one, other in numbers)


def growing_axis(past: Value, present: Value) -> int | None:
    """Return the only axis of ``past`` whose size is open and differs from that of ``present``; None without one such axis."""
    if past.shape is None or present.shape is None:
        return None
    sizes = enumerate(zip(past.shape, present.shape, strict=True))
    axes = [axis for axis, (one, other) in sizes if not isinstance(one, int) and one != other]
    return axes[0] if len(axes) == 1 else None


def initial_caches(model: Model, states: Sequence[State], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return initial arrays for ``states``: of size 0 along the growing axis, or zeros for a state that does not grow.

    ``arrays``: the other inputs of the call, which determine open sizes. Raises EngineError [state.first] for an unknown size.
    """
    values = {value.name: value for value in model.inputs}
    results = {value.name: value for value in model.outputs}
    known = [value for name, value in values.items() if name in arrays]
    sizes = bind_sizes(known, [to_array(arrays[value.name], value) for value in known])
    initial = {}
    for state in states:
        value = values[state.input]
        axis = growing_axis(value, results[state.output])
        dims: tuple[Any, ...] = (None,) if value.shape is None else value.shape
        shape: list[Any] = [None if size is None else symbolic.substitute(size, sizes) for size in dims]
        if axis is not None:
            shape[axis] = 0
        if not all(isinstance(size, int) for size in shape):
            raise EngineError("state.first", f"the cache {value.name!r} of type {value.type} has no known initial value")
        initial[value.name] = zeros_of(value, shape)
    return initial


def _pairs_by_structure(model: Model) -> Iterator[tuple[str, str]]:
    """Yield the pairs that operators define; a Concat defines one only if the result is longer along an open axis."""
    for source, output, op in cached_ports(model):
        is_growing = growing_axis(source, output) is not None
        if is_pair(source, output) and (is_growing or not isinstance(op, Concat)):
            yield source.name, output.name


def _pairs_by_name(model: Model) -> Iterator[tuple[str, str]]:
    """Yield the pairs whose names differ only in words such as ``past`` and ``present``, and that have no second candidate."""
    inputs = {value.name: (value, _words(value.name, _OLD)) for value in model.inputs}
    outputs = {value.name: (value, _words(value.name, _NEW)) for value in model.outputs}
    pairs = [
        (past, present)
        for past, (source, before) in inputs.items()
        for present, (output, after) in outputs.items()
        if before.rest == after.rest and _names_a_cache(before, after) and is_pair(source, output)
    ]
    for past, present in pairs:
        if sum(past == one or present == other for one, other in pairs) == 1:
            yield past, present


class _Words(NamedTuple):
    """_Words holds the words of a name: the ``markers``, such as ``past``, and the ``rest``."""

    markers: frozenset[str]
    rest: tuple[str, ...]


def _words(name: str, markers: frozenset[str]) -> _Words:
    words = [word.lower() for word in _WORD.findall(name)]
    for index, word in enumerate(words):
        if word in ("past", "present") and tuple(words[index + 1 : index + 3]) == _KEY_VALUES:
            del words[index + 1 : index + 3]
    return _Words(markers.intersection(words), tuple(word for word in words if word not in markers))


def _names_a_cache(past: _Words, present: _Words) -> bool:
    """Return whether the names of an input and an output with the same other words are those of a cache."""
    markers = past.markers | present.markers
    return bool(markers & {"past", "present"}) or (bool(markers) and not _CACHE.isdisjoint(past.rest))
