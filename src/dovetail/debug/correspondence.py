"""Values of a second model that correspond to those of a first."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.debug.subject import Subject
from dovetail.errors import RuleError
from dovetail.ir.graph import Model, Value


def names_of_value(value: Value) -> list[str]:
    """Return the names of a value: its own, then those of its port in the file."""
    return list(dict.fromkeys((value.name, *value.names)))


def match_inputs(first: Model, second: Model) -> dict[str, str]:
    """Return the input of the first model for each of the second: by name, else by position.

    Raises RuleError [comparison.inputs] where an input of the second has no counterpart.
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
        raise RuleError("comparison.inputs", f"the second model has inputs that the first one lacks: {names}", file=second.file)
    matched.update(zip(lacking, free, strict=False))
    return matched


def match_values(first: Subject, second: Subject) -> dict[int, Value]:
    """Return the value of the second model for values of the first, by identity: by name; outputs also by
    position."""
    ones = first.values_of(0, len(first.nodes))
    others = second.values_of(0, len(second.nodes))
    by_name = _by_name(others)
    matched: dict[int, Value] = {}
    for value in ones:
        same = next((by_name[name] for name in names_of_value(value) if name in by_name), None)
        if same is not None:
            matched[id(value)] = same
    varying = {id(value) for value in others}
    for one, other in zip(first.model.outputs, second.model.outputs, strict=False):
        if id(one) not in matched and id(other) in varying:
            matched[id(one)] = other
    return matched


def _by_name(values: Iterable[Value]) -> dict[str, Value]:
    """Return values by all their names; a primary name precedes the others."""
    values = list(values)
    found = {value.name: value for value in values}
    for value in values:
        for name in value.names:
            found.setdefault(name, value)
    return found


__all__ = ["match_inputs", "match_values", "names_of_value"]
