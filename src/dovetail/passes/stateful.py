"""dovetail.make_stateful and make_stateless: past inputs and present outputs become states of a model, and states become these.

OpenVINO IR holds states as ReadValue and Assign; an ONNX model has inputs and outputs in their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dovetail.compare.verification.conversion import Difference, compare, random_outputs
from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.default_inputs import freeze_defaults
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.edit import copy_model, free_names, inline, remove_dead
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.infer import infer_graph, infer_with_equations
from dovetail.ir.limits import counting
from dovetail.ir.state import State, is_blank, own_inputs, own_outputs
from dovetail.ir.substitution import substitute_type
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Size
from dovetail.ops.shape_values import join_sizes
from dovetail.runtime.compilation import compile
from dovetail.runtime.interpreter.session import initial_part, refuse_states
from dovetail.runtime.random_inputs import random_inputs
from dovetail.runtime.session_states import find_states, growing_axis, names_of_variable, states_of

STEPS = 3
"""The number of steps over which two models with states are proved or verified equal."""


@check_keywords
def make_stateful(model: Model, states: Mapping[str, str] | None = None) -> Model:
    """Return a copy of ``model`` in which past inputs and present outputs are states; its ``report`` lists the new states.

    ``states`` maps inputs to the outputs that are their next values; by default they are found as ``Program.session`` finds them.
    A state that grows begins with the length 0, any other one with zeros; sizes such as the batch are those of the other inputs.
    The name of a variable is the name of its input followed by that of its output, as OpenVINO's stateful models have it.

    Raises RuleError [argument.value] for a model without such inputs and outputs, [state.first] for a size that no other input
    has; EngineError [input.unknown], [output.unknown], [argument.conflict], [argument.value] for ``states`` that do not fit;
    ArgumentTypeError [argument.type].

    >>> with dovetail.Builder() as b:
    ...     past, x = b.input("past", "f32", ("batch", "p", 2)), b.input("x", "f32", ("batch", "t", 2))
    ...     y = b.output("present", b.Concat(past, x, axis=1))
    >>> [state.input for state in dovetail.make_stateful(b.model).states]
    ['past']
    """
    with counting(model.limits):
        new, _, _ = infer_with_equations(freeze_defaults(model))
        known = {state.input for state in new.states}
        found = find_states(new) if states is None else states_of(new, states)
        added = [state for state in found if state.input not in known]
        if not added:
            message = "the model must have an input and an output that is its next value, such as past_0 and present_0, got none"
            raise RuleError("argument.value", message, file=model.file)
        b = Builder(graph=new.graph)
        inputs = {value.name: value for value in new.inputs}
        outputs = {value.name: value for value in new.outputs}
        taken = known | {state.input for state in added}
        own = [value for name, value in inputs.items() if name not in taken]
        new.report = []
        for state in added:
            past, present = inputs[state.input], outputs[state.output]
            initial = _add_initial(b, past, present, own)
            new.report.append(State(state.input + state.output, state.input, state.output, initial))
        new.states += new.report
    return new


def _add_initial(b: Builder, past: Value, present: Value, own: Sequence[Value]) -> str | None:
    """Add an output with the initial value of a state; None if zeros of the input's type are the initial value."""
    if past.shape is None or present.shape is None:
        raise RuleError("state.first", f"the state {past.name!r} must have a known rank, got {past.type}")
    growing = growing_axis(past, present)
    if growing is None and all(isinstance(size, int) for size in past.shape):
        return None
    parts: list[object] = []
    for axis, sizes in enumerate(zip(past.shape, present.shape, strict=True)):
        # The rows of a state that the model selects (beam_idx) may be open in the input, and are known in the output.
        candidates = [0] if axis == growing else [part for size in sizes if (part := _size_part(b, size, own)) is not None]
        if not candidates:
            raise RuleError(
                "state.first", f"the size {sizes[0]} of the state {past.name!r} must be a size of another input, got none"
            )
        parts.append(candidates[0])
    zeros = b.Expand(b.constant(0, past.dtype), join_sizes(b, parts))
    return b.output(b.graph.free_name(f"{past.name}/first"), zeros).name


def _size_part(b: Builder, size: Size | None, own: Sequence[Value]) -> object:
    """Return a size as an integer, or as a vector of one element, the size of an input in ``own``; None if no input has it."""
    if isinstance(size, int):
        return size
    places = [(x, axis) for x in own for axis, other in enumerate(x.shape or ()) if size is not None and other == size]
    return shape_value(b, places[0][0], [places[0][1]]) if places else None


@check_keywords
def make_stateless(model: Model) -> Model:
    """Return a copy of ``model`` without states: each becomes a past input and a present output, named by its variable.

    The ``report`` of the result lists the former states with their new names. A caller passes the initial states, which must be
    empty or zeros in the model: an array of length 0 along the axis that grows, or zeros.

    Raises RuleError [argument.value] for a model without states, UnsupportedError [state.first] for other initial values.

    >>> with dovetail.Builder() as b:
    ...     past, x = b.input("past", "f32", ("batch", "p", 2)), b.input("x", "f32", ("batch", "t", 2))
    ...     y = b.output("present", b.Concat(past, x, axis=1))
    >>> dovetail.make_stateless(dovetail.make_stateful(b.model)).states
    []
    """
    # Deferred for start-up time: edits import the metadata of OpenVINO IR.
    from dovetail.passes.edit import rename_values

    if not model.states:
        raise RuleError("argument.value", "the model must have states, got none", file=model.file)
    with counting(model.limits):
        new, _, _ = infer_with_equations(model)
    outputs = {value.name: value for value in new.outputs}
    for state in new.states:
        if state.initial is not None and not is_blank(outputs[state.initial]):
            message = f"the initial value of the state {state.input!r} must be empty or zeros, got other elements"
            raise UnsupportedError("state.first", message, file=model.file)
    sizes = _fixed_sizes(new)
    names_of_sizes = _names_of_sizes(new, sizes)
    initial = {state.initial for state in new.states}
    new.graph.outputs = [value for value in new.outputs if value.name not in initial]
    remove_dead(new.graph)
    if sizes or names_of_sizes:
        for value in new.graph.values():
            value.type = substitute_type(substitute_type(value.type, sizes), names_of_sizes)
        infer_graph(new.graph, file=new.file)
    names: dict[str, str] = {}
    for state in new.states:
        past, present = names_of_variable(state.variable) or (state.input, state.output)
        names |= {state.input: past, state.output: present}
    free_names(new.graph, names)
    new = rename_values(new, {old: name for old, name in names.items() if old != name})
    new.report, new.states = list(new.states), []
    return new


def restore_states(model: Model, states: Sequence[State]) -> Model:
    """Return a copy of a model that :func:`make_stateless` gave, with the states of its report and their variables again."""
    new = make_stateful(model, {state.input: state.output for state in states})
    variables = {state.input: state.variable for state in states}
    new.states = [state._replace(variable=variables[state.input]) for state in new.states]
    return new


def _fixed_sizes(model: Model) -> dict[str, Size]:
    """Return the sizes of states that no step changes, as expressions in the sizes of the other inputs, by symbol.

    The variables of IR have symbols of their own: the batch of a state is the batch that its initial value takes from an input.
    """
    values = {value.name: value for value in (*model.inputs, *model.outputs)}
    fixed: dict[str, Size] = {}
    for state in model.states:
        past, present = values[state.input].shape, values[state.output].shape
        first = None if state.initial is None else values[state.initial].shape
        if past is None or present is None or first is None or not len(past) == len(present) == len(first):
            continue
        for before, after, size in zip(past, present, first, strict=True):
            name = None if before is None else symbolic.name_of(before)
            if name is not None and size is not None and after in (before, size) and before != size:
                fixed.setdefault(name, size)
    own = {
        str(symbol) for x in own_inputs(model) for size in x.shape or () if size is not None for symbol in symbolic.symbols(size)
    }
    return {name: size for name, size in fixed.items() if name not in own}


def _names_of_sizes(model: Model, sizes: Mapping[str, Size]) -> dict[str, Size]:
    """Return named symbols for sizes of states that have no name in the file: ONNX loses which sizes without a name are equal."""
    inputs = {value.name: value for value in model.inputs}
    every = {str(symbol) for x in model.inputs for size in x.shape or () if size is not None for symbol in symbolic.symbols(size)}
    named: dict[str, Size] = {}
    for state in model.states:
        for size in inputs[state.input].shape or ():
            for symbol in () if size is None else symbolic.symbols(symbolic.substitute(size, sizes)):
                name = str(symbol)
                text = name.removeprefix("?").replace(".", "_")
                if name.startswith("?") and text not in every:
                    named[name] = symbolic.symbol(text, *symbolic.bounds(symbol))
    return named


# Equality over several steps


class StepsEquality(NamedTuple):
    """StepsEquality is the answer whether two models with states are equal over STEPS steps from their initial states.

    ``verdict`` and ``rewrites`` are those of a proof for all inputs and sizes (:func:`dovetail.prove`). If nothing is proved,
    ``rows`` compares a run of the first model in the interpreter with a run of the second in the native engine.
    """

    verdict: str
    rewrites: list[str]
    rows: list[Difference]

    @property
    def agrees(self) -> bool:
        """True if the models are proved equal, or if no output of the runs differs."""
        return self.verdict in ("bits", "real") or (bool(self.rows) and all(row.agrees for row in self.rows))


def compare_steps(first: Model, second: Model, seed: int = 0) -> StepsEquality:
    """Prove two models with states equal over STEPS steps, each of other lengths; else run these steps on random inputs.

    Raises the errors of :func:`unroll` and of :func:`dovetail.run`.
    """
    # Deferred for start-up time: the rules of proofs import the operators that they rewrite.
    from dovetail.compare.prove.proof import prove

    a, b = unroll(first), unroll(second)
    proof = prove(a, b, real=True, regions=False)
    if proof.is_proved:
        return StepsEquality(proof.verdict, proof.rewrites, [])
    lengths = _lengths_of_steps(first)
    if lengths:
        # Random lengths of sequences would not be valid, so that no sizes would be found at which the steps run.
        sizes = {
            str(symbol): 1 for x in a.inputs for size in x.shape or () if size is not None for symbol in symbolic.symbols(size)
        }
        arrays = random_inputs(a, seed=seed, sizes=sizes)
        arrays |= {name: np.full(arrays[name].shape, number, arrays[name].dtype) for name, number in lengths.items()}
    else:
        arrays = random_inputs(a, seed=seed, distinct=True)
    reference, results = dict(compile(a, "interpreter")(arrays)), dict(compile(b)(arrays))
    drawn = random_outputs(a)
    rows = [row for row in compare(reference, results, random=drawn) if row.output not in drawn]
    return StepsEquality(proof.verdict, [], rows)


def _lengths_of_steps(model: Model) -> dict[str, int]:
    """Return the lengths that a GroupQueryAttention needs in steps of one token, by the names of inputs of :func:`unroll`."""
    # Deferred for start-up time, as for all operators but the most frequent ones.
    from dovetail.ops.attention.group_query_attention import GroupQueryAttention

    lengths: dict[str, int] = {}
    own = {id(x) for x in own_inputs(model)}
    for node in model.graph.nodes:
        if not isinstance(node.op, GroupQueryAttention):
            continue
        for value, offset in ((node.input(5), -1), (node.input(6), 0)):
            if id(value) in own:
                lengths |= {f"{value.name}@{step}": step + offset for step in range(1, STEPS + 1)}
    return lengths


def unroll(model: Model, steps: int = STEPS) -> Model:
    """Return a model without states that computes some steps of ``model`` from its initial states.

    The input or output ``x`` of step 2 is called ``x@2``, and the last value of a variable is an output with the variable's name.
    Symbols of sizes get the number of their step too, apart from those of axes along which a state does not grow.

    Raises EngineError [state.first], and the errors of :func:`dovetail.infer` where sizes of several steps contradict each other.
    """
    model, _, _ = infer_with_equations(freeze_defaults(model))
    values = {value.name: value for value in (*model.inputs, *model.outputs)}
    pairs = [(values[state.input], values[state.output]) for state in model.states]
    growing = {past.name: growing_axis(past, present) for past, present in pairs}
    shared = {
        str(symbol)
        for past, _ in pairs
        for axis, size in enumerate(past.shape or ())
        if axis != growing[past.name] and size is not None
        for symbol in symbolic.symbols(size)
    }
    b = Builder(graph=Graph(model.graph.name))
    kept: dict[str, Value] = {}
    outputs: list[tuple[str, Value]] = []
    for step in range(1, steps + 1):
        sizes = _sizes_of_step(model, step, shared, growing, kept)
        own = {x.name: b.input_of(f"{x.name}@{step}", substitute_type(x.type, sizes)) for x in own_inputs(model)}
        if step == 1:
            kept = _initial_values(b, model, own)
        results = inline(b, model.graph, [own.get(x.name, kept.get(x.name)) for x in model.inputs])
        by_name = dict(zip((y.name for y in model.outputs), results, strict=True))
        outputs += [(f"{y.name}@{step}", by_name[y.name]) for y in own_outputs(model)]
        kept = {state.input: by_name[state.output] for state in model.states}
    outputs += [(f"{state.variable}@{steps}", kept[state.input]) for state in model.states]
    for name, value in outputs:
        b.output(name, value)
    new = copy_model(model, b.graph)
    new.states = []
    return infer_with_equations(new)[0]


def _sizes_of_step(
    model: Model, step: int, shared: set[str], growing: Mapping[str, int | None], kept: Mapping[str, Value]
) -> dict[str, Size]:
    """Return the sizes of a step by symbol: the lengths of the states, symbols of all steps, and symbols of this step."""
    sizes: dict[str, Size] = {}
    for x in own_inputs(model):
        for size in x.shape or ():
            for symbol in () if size is None else symbolic.symbols(size):
                name = str(symbol)
                sizes[name] = symbol if name in shared else symbolic.symbol(f"{name}_{step}", *symbolic.bounds(symbol))
    for x in model.inputs:
        axis = growing.get(x.name)
        length = None if axis is None else symbolic.name_of(x.dims[axis])
        if axis is not None and length is not None and length in sizes:
            sizes[length] = kept[x.name].dims[axis] if kept else 0
    return sizes


def _initial_values(b: Builder, model: Model, own: Mapping[str, Value]) -> dict[str, Value]:
    """Emit the initial values of all states by the names of their inputs."""
    part = initial_part(model)
    refuse_states([] if part is None else [x.name for x in part.inputs], model.states)
    results = [] if part is None else inline(b, part.graph, [own[x.name] for x in part.inputs])
    by_name = {} if part is None else dict(zip((y.name for y in part.outputs), results, strict=True))
    values = {value.name: value for value in model.inputs}
    initial = {}
    for state in model.states:
        if state.initial is not None:
            initial[state.input] = by_name[state.initial]
        else:
            past = values[state.input]
            shape = [size if isinstance(size, int) else 0 for size in past.dims]
            initial[state.input] = b.constant(np.zeros(shape, past.dtype.numpy))
    return initial
