"""Traits of an operator's class, checked by running it: commutative inputs, movement of elements, rounding that commutes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from assertions import assert_same_bits
from case_laws import hold, law
from case_runner import CASES, answer, feeds, model_of, views
from cases import Case
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import DovetailError
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import apply
from dovetail.ir.op import moves_first_input


def outputs_of(case: Case, *inputs: Any) -> tuple[Any, ...] | None:
    """Return the outputs for other first inputs; None where the operator refuses them."""
    try:
        with np.errstate(all="ignore"):
            return apply(case.op, np, (*inputs, *case.inputs[len(inputs) :]))
    except DovetailError:
        return None


PAIRS = [
    (family, case)
    for family, case in CASES
    if len(case.inputs) > 1
    and all(isinstance(x, np.ndarray) for x in case.inputs[:2])
    and case.inputs[0].dtype == case.inputs[1].dtype
    and not case.op.is_random(*views(case))
]


@law(PAIRS)
def check_commutative_inputs(case: Case) -> None:
    """An operator that claims to commute gives the same bits for exchanged inputs."""
    if not case.op.is_commutative(*views(case)):
        pytest.skip("the operator does not claim to commute for these inputs")
    exchanged = outputs_of(case, *case.inputs[1::-1]) or ()
    for index, (y, other) in enumerate(zip(answer(case), exchanged, strict=True)):
        assert_same_bits(other, y, f"output {index}")


@law()
def check_moved_elements(case: Case) -> None:
    """An operator of movement has no element that is neither one of its inputs nor a fill value.

    One that moves its first input alone has no zero where that input, with ones in place of zeros, has none.
    """
    if not case.op.moves_elements:
        pytest.skip("the operator computes")
    inputs, fills_with_zeros = list(case.inputs), not moves_first_input(case.op)
    if not fills_with_zeros and isinstance(inputs[0], np.ndarray) and inputs[0].dtype != object:
        inputs[0] = np.where(inputs[0] == 0, np.ones_like(inputs[0]), inputs[0])
    arrays = [np.asarray(x) for x in inputs if x is not None and not isinstance(x, list)]
    sources = arrays if fills_with_zeros else arrays[:1]
    for y in outputs_of(case, *inputs) or ():
        if not isinstance(y, np.ndarray) or y.dtype == object or not y.size:
            continue
        known = [x.astype(y.dtype).ravel() for x in sources if x.dtype == y.dtype]
        fills = [np.zeros(1, y.dtype)] if fills_with_zeros else []
        assert {item.tobytes() for item in y.ravel()} <= {item.tobytes() for x in (*known, *fills) for item in x}


@law()
def check_rounding_before_or_after(case: Case) -> None:
    """Rounding the first input to bf16 before gives what rounding the output to bf16 after gives."""
    x = case.inputs[0] if case.inputs else None
    if not case.op.commutes_with_rounding or not isinstance(x, np.ndarray) or x.dtype != np.float32:
        pytest.skip("the operator does not claim it for this type")
    with np.errstate(all="ignore"):
        rounded = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        rest = [y if y is None else y.astype(ml_dtypes.bfloat16).astype(np.float32) for y in case.inputs[1:]]
        before, after = (apply(case.op, np, (first, *rest))[0].astype(ml_dtypes.bfloat16) for first in (rounded, x))
    assert_same_bits(before, after, "rounded before and after")


@law()
def check_composite_parts(case: Case) -> None:
    """An operator that the specification composes of others gives the bits of its decomposition."""
    if not case.op.is_composite:
        pytest.skip("the operator is not composite")
    model, arrays = model_of(case), feeds(case)
    node = model.graph.nodes[-1]
    results = case.op.decompose(Builder(graph=model.graph), *node.inputs)
    model.graph.outputs = results if isinstance(results, list) else [results]
    for part, y in zip(run_row_major(model, arrays).values(), answer(case), strict=True):
        assert_same_bits(part, y, "decomposition")


test_case = hold(check_composite_parts, check_commutative_inputs, check_moved_elements, check_rounding_before_or_after)


def test_an_operator_that_commutes_in_all_its_cases_claims_it() -> None:
    same: defaultdict[str, list[bool]] = defaultdict(list)
    claims: set[str] = set()
    for _, case in PAIRS:
        first, second = case.inputs[:2]
        if first.shape != second.shape or np.array_equal(first, second) or not first.size:
            continue
        if first.dtype.kind == "f":
            # Zeros of both signs are equal, and a result may be either.
            first, second = first.copy(), second.copy()
            first.flat[0], second.flat[0] = 0.0, -0.0
        kind = type(case.op).__name__
        if case.op.is_commutative(*views(case)):
            claims.add(kind)
            continue
        results, exchanged = outputs_of(case, first, second), outputs_of(case, second, first)
        if results is not None and exchanged is not None:
            arrays = [pair for pair in zip(results, exchanged, strict=True) if isinstance(pair[0], np.ndarray)]
            same[kind].append(all(y.tobytes() == other.tobytes() for y, other in arrays))
    assert len(claims) >= 10
    assert sorted(kind for kind, results in same.items() if len(results) > 1 and all(results) and kind not in claims) == []
