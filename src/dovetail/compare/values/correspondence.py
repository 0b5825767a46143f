"""Matching of the values of a second model with the values of a first model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic

from dovetail.compare.diff.interface import pair_ports
from dovetail.compare.diff.node_matches import match_nodes
from dovetail.compare.diff.side import Interner, Side
from dovetail.compare.values.subject import Subject
from dovetail.errors import RuleError
from dovetail.ir.graph import Model, Value

MAX_VALUES = 40_000
"""Maximum number of values of two models that are matched by more than names."""
NUMBERING_SECONDS = 20.0
"""Maximum time in seconds of the value numbering of both models."""


def names_of_value(value: Value) -> list[str]:
    """Return the names of a value: the primary name, then the names of its port in the file."""
    return list(dict.fromkeys((value.name, *value.names)))


def match_inputs(first: Model, second: Model) -> dict[str, str]:
    """Return the name of the first model's input for each input of the second model, matched by name, else by position.

    Raises RuleError [input.unknown] if an input of the second model has no counterpart.
    """
    by_name = _by_name(first.inputs)
    matched: dict[str, str] = {}
    for value in second.inputs:
        same = next((by_name[name] for name in names_of_value(value) if name in by_name), None)
        if same is not None:
            matched[value.name] = same.name
    taken = set(matched.values())
    free = [value.name for value in first.inputs if value.name not in taken]
    lacking = [value.name for value in second.inputs if value.name not in matched]
    if len(lacking) > len(free):
        names = ", ".join(map(repr, lacking))
        raise RuleError("input.unknown", f"the second model has inputs that the first one lacks: {names}", file=second.file)
    matched.update(zip(lacking, free, strict=False))
    return matched


def match_values(first: Subject, second: Subject) -> dict[int, Value]:
    """Return a map from ids of values of the first model to the matching values of the second model.

    Values are matched by name, else by value numbering, else by the content of their neighbourhood; outputs also by position.
    """
    ones = first.values_of(0, len(first.nodes))
    others = second.values_of(0, len(second.nodes))
    by_name = _by_name(others)
    matched: dict[int, Value] = {}
    for value in ones:
        same = next((by_name[name] for name in names_of_value(value) if name in by_name), None)
        if same is not None:
            matched[id(value)] = same
    if len(matched) < len(ones) and len(ones) + len(others) <= MAX_VALUES:
        _match_by_number(first, second, ones, others, matched)
        if len(matched) < len(ones):
            _match_by_content(first, second, ones, others, matched)
    varying = {id(value) for value in others}
    for one, other in zip(first.model.outputs, second.model.outputs, strict=False):
        if id(one) not in matched and id(other) in varying:
            matched[id(one)] = other
    return matched


def _match_by_number(
    first: Subject, second: Subject, ones: Sequence[Value], others: Sequence[Value], matched: dict[int, Value]
) -> None:
    """Match values with equal computations from inputs of equal names, by the joint value numbering of both models."""
    # Deferred for start-up time: the rules of the numbering import the operators.
    from dovetail.compare.prove.model_terms import number_terms
    from dovetail.laws.terms.terms import OutOfTime

    try:
        terms = number_terms([first.model, second.model], deadline=monotonic() + NUMBERING_SECONDS).terms
    except OutOfTime:
        return
    by_term: dict[int, Value] = {}
    for value in others:
        by_term.setdefault(id(terms[1].get(id(value))), value)
    for value in ones:
        term = terms[0].get(id(value))
        if id(value) not in matched and term is not None and id(term) in by_term:
            matched[id(value)] = by_term[id(term)]


def _match_by_content(
    first: Subject, second: Subject, ones: Sequence[Value], others: Sequence[Value], matched: dict[int, Value]
) -> None:
    """Match outputs of equal shape of the nodes that ``match_nodes`` pairs by content."""
    graphs = first.model.graph, second.model.graph
    interner = Interner()
    sides = Side(graphs[0], interner), Side(graphs[1], interner)
    pairs = [pair_ports(*ports) for ports in ((graphs[0].inputs, graphs[1].inputs), (graphs[0].outputs, graphs[1].outputs))]
    matching = match_nodes(sides, *pairs)
    wanted = {id(value) for value in ones} - matched.keys()
    free = {id(value) for value in others} - {id(value) for value in matched.values()}
    for node, partner in enumerate(matching.partners[0]):
        if partner < 0:
            continue
        for one, other in zip(sides[0].nodes[node].outputs, sides[1].nodes[partner].outputs, strict=False):
            if id(one) in wanted and id(other) in free and one.shape == other.shape:
                matched[id(one)] = other


def _by_name(values: Iterable[Value]) -> dict[str, Value]:
    """Return a map from all names to their values; primary names take precedence."""
    values = list(values)
    found = {value.name: value for value in values}
    for value in values:
        for name in value.names:
            found.setdefault(name, value)
    return found
