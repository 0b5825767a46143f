"""Inputs of any rank are an answer or a RuleError, whatever the other inputs are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from case_laws import hold, law
from case_runner import at_most
from cases import Case
from dovetail.errors import DovetailError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.op import infer_types, infer_values
from dovetail.ir.types import Tensor, View

MOST = 2
"""The most cases of an operator: they differ in attributes, on which few questions about ranks depend."""


def views(case: Case) -> list[View | None]:
    """Return the inputs as inference sees them, with the values of small integers."""
    found: list[View | None] = []
    for x in case.inputs:
        if not isinstance(x, np.ndarray):
            found.append(None)
            continue
        if x.dtype.kind in "OU":
            found.append(View(Tensor(dtypes.string, x.shape)))
            continue
        value = x if x.dtype.kind in "iub" and x.size <= 64 else None
        found.append(View(Tensor(dtypes.dtype(x.dtype), x.shape), value))
    return found


def changed(inputs: list[View | None]) -> Iterator[list[View | None]]:
    """One input of another rank, or all of one rank; of sizes that are known, and that are not."""
    for rank in range(6):
        for size in (1, 2, None):
            shape = tuple(symbolic.symbol(f"d{axis}") if size is None else size for axis in range(rank))
            given = [None if x is None else View(Tensor(x.dtype, shape)) for x in inputs]
            yield given
            for place, x in enumerate(given):
                if x is not None:
                    yield [*inputs[:place], x, *inputs[place + 1 :]]


@law(at_most(MOST))
def check_any_input_rank(case: Case) -> None:
    for inputs in changed(views(case)):
        try:
            infer_values(case.op, tuple(inputs), infer_types(case.op, tuple(inputs)))
        except DovetailError as error:
            assert error.code != "op.failed", [None if x is None else str(x.type) for x in inputs]


test_case = hold(check_any_input_rank)
