"""Joint value numbering of models: equal numbers mean equal values for all inputs; and runs of terms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.prove.real_terms import real_terms
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.evaluate import evaluate_node
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.types import Size
from dovetail.laws.terms.opaque import KnownIntegers


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


def run_all(graph: Graph, inputs: dict[str, Any]) -> dict[int, Any]:
    """Return the results of all nodes that are defined for the inputs, in row-major order."""
    results: dict[int, Any] = {}
    sizes: dict[str, Size] = {}

    def store(x: Value, array: Any) -> None:
        results[id(x)] = array = np.ascontiguousarray(array).reshape(np.shape(array))
        for size, number in zip(x.shape or (), array.shape, strict=True):
            if (name := symbolic.name_of(size)) is not None:
                sizes[name] = number

    for x in graph.inputs:
        store(x, inputs[x.name])
    for node in graph.nodes:
        if any(x is not None and id(x) not in results for x in node.inputs):
            continue
        if isinstance(node.op, KnownIntegers):
            elements = [symbolic.substitute(each, sizes) for each in node.op.elements]
            store(node.outputs[0], np.array(elements, node.op.dtype.numpy).reshape(node.op.extents))
            continue
        try:
            with np.errstate(all="ignore"):
                ys = evaluate_node(node, np, [None if x is None else results[id(x)] for x in node.inputs])
        except DovetailError:
            continue
        for y, array in zip(node.outputs, ys, strict=True):
            store(y, array)
    return results
