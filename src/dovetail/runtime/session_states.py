"""States that a session keeps: those of the model, and pairs of an input and the output that is its next value.

Pairs are found from the operators of the graph (:func:`cached_ports`) and from the names of inputs and
outputs, such as ``past_key_values.0.key`` and ``present.0.key``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.errors import ArgumentTypeError, EngineError
from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Value
from dovetail.ir.infer import infer_with_equations
from dovetail.ir.inputs_outputs import bind_sizes, to_array, unknown_input, zeros_of
from dovetail.ir.op import Op
from dovetail.ir.state import State
from dovetail.ir.suggestions import closest
from dovetail.ir.types import Size, Tensor
from dovetail.ops.constant import Identity

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

    Raises EngineError [input.unknown], [output.unknown], [argument.conflict], [argument.value], and
    ArgumentTypeError [argument.type].
    """
    if not isinstance(outputs, Mapping) or not all(isinstance(name, str) for pair in outputs.items() for name in pair):
        raise ArgumentTypeError("argument.type", f"states must map names of inputs to names of outputs, got {outputs!r}")
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


def cached_ports(model: Model) -> list[tuple[Value, Value, Op]]:
    """Return each input of a model with the output that an operator defines as its next value, and this operator.

    Each input and output occurs at most once.
    """
    ports: list[tuple[Value, Value, Op]] = []
    for output in model.outputs:
        value = behind_identities(output)
        if value.node is None:
            continue
        for index, number in value.node.op.cache_ports:
            cache = value.node.inputs[index] if number == value.index and index < len(value.node.inputs) else None
            source = None if cache is None else behind_identities(cache)
            if source is not None and source.node is None and all(port[0] is not source for port in ports):
                ports.append((source, output, value.node.op))
    return ports


def behind_identities(value: Value) -> Value:
    while value.node is not None and isinstance(value.node.op, Identity) and value.node.inputs[0] is not None:
        value = value.node.inputs[0]
    return value


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
    """Return the axis of ``past`` whose size is open, and greater in ``present``; None without one such axis.

    It is the only axis whose size in ``present`` follows from another size in ``past``; if there is none, the only axis whose
    size differs, apart from a batch (axis 0) that ``present`` has from another input.
    """
    if past.shape is None or present.shape is None:
        return None
    pairs = list(zip(past.shape, present.shape, strict=True))
    axes = [
        axis for axis, (one, other) in enumerate(pairs) if not isinstance(one, int) and one != other and not _is_broadcast(other)
    ]
    known = [axis for axis in axes if None not in pairs[axis]]
    following = [axis for axis in known if not _symbols(pairs[axis][0]).isdisjoint(_symbols(pairs[axis][1]))]
    if not following:
        following = [axis for axis in axes if axis or axis not in known or symbolic.name_of(pairs[axis][1]) is None]
    return following[0] if len(following) == 1 else None


def _is_broadcast(size: Size | None) -> bool:
    """Return whether a size is that of several axes which are broadcast, and so equal to each of them."""
    atoms = [] if size is None else list(symbolic.atoms(size))
    return len(atoms) == 1 and atoms[0].kind == "broadcast"


def _symbols(size: Size) -> set[str]:
    return {str(symbol) for symbol in symbolic.symbols(size)}


def initial_caches(model: Model, states: Sequence[State], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return initial arrays for ``states``: of size 0 along the growing axis, or zeros for a state that does not grow.

    ``arrays``: the other inputs of the call, which determine open sizes. Raises EngineError [state.first] for an unknown size.
    """
    values = {value.name: value for value in model.inputs}
    shapes = _initial_shapes(model, states, arrays)
    if any(None in shape for shape in shapes):
        # Operators may demand sizes of the states to be sizes of other inputs, such as the batch.
        shapes = _initial_shapes(infer_with_equations(model)[0], states, arrays)
    initial = {}
    for state, shape in zip(states, shapes, strict=True):
        value = values[state.input]
        if None in shape:
            raise EngineError("state.first", f"the cache {value.name!r} of type {value.type} has no known initial value")
        initial[value.name] = zeros_of(value, [size for size in shape if size is not None])
    return initial


def _initial_shapes(model: Model, states: Sequence[State], arrays: Mapping[str, Any]) -> list[list[int | None]]:
    """Return the shapes of the initial values of ``states``; None for a size that the other inputs do not determine."""
    values = {value.name: value for value in (*model.outputs, *model.inputs)}
    known = [value for value in model.inputs if value.name in arrays]
    sizes = bind_sizes(known, [to_array(arrays[value.name], value) for value in known])
    shapes = []
    for state in states:
        past, present = values[state.input], values[state.output]
        shape: list[int | None] = [_size_at(size, sizes) for size in ((None,) if past.shape is None else past.shape)]
        axis = growing_axis(past, present)
        if axis is not None:
            shape[axis] = 0
        if None in shape and present.shape is not None and len(present.shape) == len(shape):
            # A state whose rows the model selects (beam_idx) has an open size in the input, and a known one in the output.
            shape = [_size_at(other, sizes) if size is None else size for size, other in zip(shape, present.shape, strict=True)]
        shapes.append(shape)
    return shapes


def _size_at(size: Size | None, sizes: Mapping[str, int]) -> int | None:
    known = None if size is None else symbolic.substitute(size, sizes)
    return known if isinstance(known, int) else None


def _pairs_by_structure(model: Model) -> Iterator[tuple[str, str]]:
    """Yield the pairs that operators define; a Concat defines one only if the result is longer along an open axis."""
    # Deferred for start-up time, as for all operators but the most frequent ones.
    from dovetail.ops.tensor.concat_split import Concat

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


def names_of_variable(variable: str) -> tuple[str, str] | None:
    """Return the names of the input and the output that a variable's name joins, as OpenVINO does; None if it joins none."""
    for index in range(1, len(variable)):
        before, after = _words(variable[:index], _OLD), _words(variable[index:], _NEW)
        if before.rest == after.rest and _names_a_cache(before, after):
            return variable[:index], variable[index:]
    return None
