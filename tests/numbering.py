"""Joint value numbering of models: equal numbers mean equal values for all inputs."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.prove.real_terms import real_terms
from dovetail.ir.graph import Model, Value


def number_values(models: Iterable[Model], *, real: bool = False) -> list[dict[Value, int]]:
    """Number the values of models jointly: values of equal numbers are equal for all inputs.

    Inputs are paired by name. ``real`` also numbers values equally that are equal over the real numbers, and differ by rounding.
    """
    listed = list(models)
    numbered = number_terms(listed)
    terms = numbered.terms
    if real:
        terms = real_terms(numbered).terms
    numbers: dict[int, int] = {}
    return [
        {value: numbers.setdefault(id(env[id(value)]), len(numbers)) for value in model.graph.values()}
        for model, env in zip(listed, terms, strict=True)
    ]
