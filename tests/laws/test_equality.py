"""Terms of models mean what the models compute: exact terms bit by bit, real ones up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assertions import assert_close, assert_same_bits
from case_laws import hold, law
from case_runner import at_most, feeds, model_of
from cases import Case
from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.prove.real_terms import real_terms
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import DovetailError
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.op import draws
from dovetail.laws.table import LAWS, PARTS
from dovetail.laws.terms.terms import Terms
from numbering import number_values


def run_terms(table: Terms, outputs: list[Value], inputs: dict[str, Any]) -> list[Any]:
    """Run the terms of outputs. Skips where an operator is compared as a whole, which no rule can run."""
    graph = Graph()
    graph.inputs, graph.nodes, graph.outputs = table.graph.inputs, table.graph.nodes, list(dict.fromkeys(outputs))
    try:
        results = run_row_major(Model(graph), inputs)
    except NotImplementedError:
        pytest.skip("an operator is compared as a whole")
    except DovetailError as error:
        if error.code == "op.unknown":
            pytest.skip("an operator is compared as a whole")
        raise
    return [results[y.name] for y in outputs]


def terms_and_arrays(case: Case) -> tuple[Any, dict[str, Any], list[Any], Model]:
    model, arrays = model_of(case), feeds(case)
    if any(draws(node.op, node.inputs) for node in model.graph.nodes):
        pytest.skip("random numbers differ from run to run")
    expected = run_row_major(model, arrays)
    numbered = number_terms([model])
    inputs = {term.name: arrays[numbered.inputs[id(term)]] for term in numbered.table.graph.inputs}
    return numbered, inputs, [expected[y.name] for y in model.outputs], model


@law(at_most(4))
def check_exact_terms(case: Case) -> None:
    numbered, inputs, expected, model = terms_and_arrays(case)
    outputs = [numbered.terms[0][id(y)] for y in model.outputs]
    for ours, theirs in zip(run_terms(numbered.table, outputs, inputs), expected, strict=True):
        assert_same_bits(ours, theirs, "terms")


@law(at_most(4))
def check_real_terms(case: Case) -> None:
    numbered, inputs, expected, model = terms_and_arrays(case)
    over_reals = real_terms(numbered)
    outputs = [over_reals.terms[0][id(y)] for y in model.outputs]
    for ours, theirs in zip(run_terms(over_reals.table, outputs, inputs), expected, strict=True):
        if isinstance(theirs, np.ndarray) and theirs.dtype.kind == "f" and theirs.dtype.itemsize >= 4:
            assert_close(ours, theirs, 1e-3, "terms over the reals")


@law(at_most(2))
def check_parts_are_proved(case: Case) -> None:
    """An operator that is written in parts over the real numbers is proved equal to its decomposition."""
    if not any(rule.over_reals == PARTS and rule.is_about(type(case.op)) for rule in LAWS):
        pytest.skip("no law writes the operator in parts")
    model = model_of(case)
    parts = copy_model(model)
    node = parts.graph.nodes[-1]
    results = case.op.decompose(Builder(graph=parts.graph), *node.inputs)
    if results is None:
        pytest.skip("the operator stays whole for these inputs")
    if any(node.op.holds_graphs for node in parts.graph.nodes):
        pytest.skip("a subgraph that a decomposition builds is equal only to itself")
    by_output = dict(zip(node.outputs, results if isinstance(results, list | tuple) else [results], strict=True))
    first, second = number_values([model, parts], real=True)
    for y, other in zip(model.outputs, parts.outputs, strict=True):
        part = by_output.get(other, other)
        assert part is None or first[y] == second[part]


test_case = hold(check_exact_terms, check_real_terms, check_parts_are_proved)
