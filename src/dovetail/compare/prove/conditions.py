"""Conditions under which a certificate says that two models are equal: sizes, ports of states, and rounded constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import FormatError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, free_names, replace_uses, take_name
from dovetail.ir.graph import Model, Value
from dovetail.ir.state import is_blank
from dovetail.ops.constant import Constant

_SAMPLED = 1 << 12
"""The maximum number of elements of a constant by which its rounded form is found."""
Models = tuple[Model, Model]
Array = np.ndarray[Any, Any]


class Rounding(NamedTuple):
    """Rounding says that a constant of the first model is ``value`` of the second one, but for at most ``bound``.

    ``is_transposed``: the last two axes of the value are exchanged. ``bound`` is the largest absolute difference of an element.
    """

    value: str
    is_transposed: bool
    bound: float


class PreparedModels(NamedTuple):
    """PreparedModels holds the models that are proved equal, which conditions make from those of files.

    ``stored``: for each model, names of constants in the file by the ids of their values. ``rounded``: the values that replace
    constants of the first model, by the name of the constant.
    """

    models: Models
    stored: list[dict[int, str]]
    rounded: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions say how two models are compared: at common sizes, in one step of states, and with rounded constants.

    ``fit_sizes``: a size that one model fixes is fixed in the other. ``states``: for each model, its variables that are an input
    and an output of the other model, with the names of these. ``rounded``: the constants of the first model that are rounded.
    """

    fit_sizes: bool = False
    states: tuple[Mapping[str, tuple[str, str]], Mapping[str, tuple[str, str]]] = field(default_factory=lambda: ({}, {}))
    rounded: Mapping[str, Rounding] = field(default_factory=dict)

    def prepare(self, models: Models) -> PreparedModels:
        """Return the models that are equal under these conditions.

        Raises FormatError [certificate.proof] for names that a model does not have, and for constants beyond their bounds.
        """
        pairs = [_one_step(model, states) for model, states in zip(models, self.states, strict=True)]
        first, second = (model for model, _ in pairs)
        stored = [names for _, names in pairs]
        rounded: dict[str, Value] = {}
        if self.rounded:
            first, rounded = _round_constants(first, second, self.rounded)
            own = {y.name for y in constants_of(models[0])}
            stored[0] = {id(y): y.name for y in constants_of(first) if y.name in own and y.name not in rounded}
        return PreparedModels((first, second), stored, rounded)

    def as_data(self, sizes: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        """Return the conditions as JSON data, with the sizes at which the models were compared."""
        data: dict[str, Any] = {}
        if self.fit_sizes and any(sizes):
            data["sizes"] = [dict(each) for each in sizes]
        if any(self.states):
            data["states"] = [{variable: list(ports) for variable, ports in each.items()} for each in self.states]
        if self.rounded:
            data["rounded"] = {name: list(rounding) for name, rounding in self.rounded.items()}
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Conditions:
        """Return the conditions of a certificate. Raises FormatError [certificate.format]."""
        try:
            first, second = (
                {name: (str(past), str(present)) for name, (past, present) in each.items()}
                for each in data.get("states", [{}, {}])
            )
            rounded = {
                name: Rounding(str(value), bool(order), float(bound))
                for name, (value, order, bound) in data.get("rounded", {}).items()
            }
            if not all(0 <= rounding.bound < math.inf for rounding in rounded.values()):
                raise ValueError
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise FormatError(
                "certificate.format", "the conditions of a certificate must be sizes, states and roundings"
            ) from None
        return cls("sizes" in data, (first, second), rounded)


def constants_of(model: Model) -> list[Value]:
    """Return the constants of a model's graph, without those of subgraphs."""
    return [node.outputs[0] for node in model.graph.nodes if isinstance(node.op, Constant)]


# States


def _one_step(model: Model, states: Mapping[str, tuple[str, str]]) -> tuple[Model, dict[int, str]]:
    """Return one step of a model: states are inputs and outputs of the given names, without their initial values."""
    if not states:
        return model, {id(y): y.name for y in constants_of(model)}
    new = copy_model(model)
    known = {state.variable: state for state in model.states}
    if not states.keys() <= known.keys():
        raise FormatError("certificate.proof", "the variables of the conditions must be states of the model", file=model.file)
    dropped = [known[variable] for variable in states]
    outputs = {y.name: y for y in new.graph.outputs}
    for state in dropped:
        if state.initial is not None and not is_blank(outputs[state.initial]):
            raise FormatError(
                "certificate.proof", f"the initial value of the state {state.input!r} must be empty or zeros", file=model.file
            )
    names = {
        name: port for state in dropped for name, port in zip((state.input, state.output), states[state.variable], strict=True)
    }
    initial = {state.initial for state in dropped}
    new.graph.outputs = [y for y in new.graph.outputs if y.name not in initial]
    new.states = [state for state in new.states if state.variable not in states]
    free_names(new.graph, names)
    new = new.rename_values({old: name for old, name in names.items() if old != name})
    return new, {id(copy): y.name for copy, y in zip(constants_of(new), constants_of(model), strict=True)}


# Rounded constants


def find_roundings(models: Models) -> dict[str, Rounding]:
    """Return the float constants of the first model whose elements the second one has rounded.

    Each is paired with a constant value of the second model, a stored one, or one that follows from constants, such as the
    result of DequantizeLinear: one that is read for an output of the same name, and among these the nearest.
    """
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.model_terms import number_terms

    numbered = number_terms(models)
    own, others = numbered.terms
    known = {id(term) for term in others.values()}
    taken = {id(term) for term in own.values()}
    candidates: dict[Any, list[Value]] = {}
    for value in models[1].graph.values():
        term = others[id(value)]
        if term.constant is not None and term.dtype.kind == "float" and id(term) not in taken:
            candidates.setdefault((term.dtype, term.shape), []).append(value)
    found: dict[str, Rounding] = {}
    for value in constants_of(models[0]):
        data = value.constant
        if data is None or value.dtype.kind != "float" or id(own[id(value)]) in known or not data.size:
            continue
        choices = [(other, False) for other in candidates.get((value.dtype, data.shape), ())]
        if data.ndim >= 2:
            shape = (*data.shape[:-2], data.shape[-1], data.shape[-2])
            choices += [(other, True) for other in candidates.get((value.dtype, shape), ())]
        readers = _readers_of(value)
        rows = [
            (readers.isdisjoint(_readers_of(other)), _distance(data, others[id(other)].constant, is_transposed, _SAMPLED), number)
            for number, (other, is_transposed) in enumerate(choices)
        ]
        if rows:
            other, is_transposed = choices[min(rows)[-1]]
            bound = _distance(data, others[id(other)].constant, is_transposed, data.size)
            found[value.name] = Rounding(other.name, is_transposed, bound)
    return {name: rounding for name, rounding in found.items() if np.isfinite(rounding.bound)}


def _readers_of(value: Value) -> set[str]:
    """Return the names of the outputs of all nodes that read a value."""
    return {y.name for node, _ in value.uses for y in node.outputs}


def _distance(data: Array, other: Array | None, is_transposed: bool, count: int) -> float:
    """Return the largest absolute difference of two constants, in about ``count`` elements; infinite for NaN."""
    if other is None:
        return math.inf
    other = np.swapaxes(other, -1, -2) if is_transposed else other
    step = max(1, data.size // count)
    first, second = (np.asarray(each).reshape(-1)[::step].astype(np.float64) for each in (data, other))
    with np.errstate(invalid="ignore"):
        largest = float(np.max(np.abs(first - second)))
    return largest if np.isfinite(largest) else math.inf


def _round_constants(first: Model, second: Model, rounded: Mapping[str, Rounding]) -> tuple[Model, dict[str, Value]]:
    """Return the first model with rounded constants, and the values that replace them by name."""
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.model_terms import number_terms

    terms = number_terms((second,)).terms[0]
    values = {value.name: value for value in second.graph.values()}
    new = copy_model(first)
    old = {y.name: y for y in constants_of(new)}
    if not rounded.keys() <= old.keys():
        raise FormatError("certificate.proof", "the rounded constants must be constants of the first model", file=first.file)
    b = Builder(graph=new.graph, strict=False)
    count = len(new.graph.nodes)
    replaced: dict[str, Value] = {}
    for name, (other, is_transposed, bound) in rounded.items():
        own, data = old[name].constant, terms[id(values[other])].constant if other in values else None
        if own is None or data is None or old[name].dtype.kind != "float" or not own.size or data.ndim != own.ndim:
            raise FormatError("certificate.proof", f"{other!r} must be a constant of the rank of {name!r}", file=first.file)
        axes = list(range(own.ndim))
        if is_transposed and len(axes) >= 2:
            axes[-2:] = axes[:-3:-1]
        if data.dtype != own.dtype or data.transpose(axes).shape != own.shape:
            raise FormatError("certificate.proof", f"{other!r} must have the type of {name!r}", file=first.file)
        if not _distance(own, data, is_transposed, own.size) <= bound:
            raise FormatError("certificate.proof", f"{name!r} must differ from {other!r} by at most {bound:g}", file=first.file)
        # The rounded constant is a transpose, so that its elements follow from those of the second model.
        source = b.constant(data, old[name].dtype)
        value = b.Transpose(source, axes) if is_transposed else source
        replace_uses(new.graph, old[name], value)
        take_name(new.graph, old[name], value)
        replaced[name] = value
    dead = {id(old[name]) for name in rounded}
    nodes = new.graph.nodes
    new.graph.nodes = [*nodes[count:], *(node for node in nodes[:count] if not node.outputs or id(node.outputs[0]) not in dead)]
    return new, replaced
