"""However much is known when a graph is made, an operator in another form does the same: taken apart, in its canonical form, and
its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from assertions import assert_close
from case_laws import hold, law
from case_runner import CASES, answer, is_constant, skip_where_outside
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import apply, run
from dovetail.ir.graph import Value
from dovetail.ir.op import has, host_inputs
from dovetail.ir.types import Unknown
from dovetail.ops.tensor.depth_to_space import _Blocks

WAYS = ("all known", "open sizes", "late elements", "ranks", "nothing")
"""What a graph tells: everything; elements of shape inputs, with symbols for all other sizes; sizes, but no elements; ranks and
the lengths of shape inputs; nothing."""

APART = [(family, case) for family, case in CASES if has(case.op, "decompose")]


def ways(case: Case) -> tuple[str, ...]:
    """Those that make a difference for it."""
    return WAYS if any(is_constant(case)) else tuple(way for way in WAYS if way not in ("late elements", "ranks"))


def inputs(b: Builder, case: Case, way: str) -> list[Value | None]:
    """Return the case's inputs as graph inputs of which so much is known; constants stay constants where elements are known."""
    found: list[Value | None] = []
    hosts = host_inputs(case.op, len(case.inputs))
    for index, (x, host, constant) in enumerate(zip(case.inputs, hosts, is_constant(case), strict=True)):
        if x is None:
            found.append(None)
        elif constant and way in WAYS[:2]:
            found.append(b.constant(x))
        else:
            is_open = way in ("open sizes", "ranks") and not host
            sizes = [f"n{index}_{axis}" for axis in range(x.ndim)] if is_open else x.shape
            found.append(b.input(f"x{index}", x.dtype, None if way == "nothing" else sizes))
    return found


def evaluated(b: Builder, case: Case, xs: Sequence[Value | None], ys: Sequence[Value]) -> list[Any]:
    b.graph.outputs = list(ys)
    given = [x for x, value in zip(case.inputs, xs, strict=True) if value is not None and value in b.graph.inputs]
    return run(b.graph, given, np)


@law(APART)
def check_decomposition(case: Case) -> None:
    skip_where_outside(case, "apart")
    reasons = []
    for way in ways(case):
        b = Builder()
        xs = inputs(b, case, way)
        try:
            made = case.op.decompose(b, *xs)
        except (UnsupportedError, Unknown, symbolic.Inexact) as reason:
            reasons.append(f"refused: {reason}")
            continue
        if made is None:
            reasons.append("it stays as it is")
            continue
        ys = [made] if isinstance(made, Value) else list(made)
        for mine, theirs in zip(evaluated(b, case, xs, ys), answer(case), strict=True):
            assert_close(np.asarray(mine), theirs, case.tolerance, way)
    if len(reasons) == len(ways(case)):
        pytest.skip("; ".join(reasons))


@law([(family, case) for family, case in APART if isinstance(case.op, _Blocks)])
def check_decomposition_at_any_size(case: Case) -> None:
    for way in ("all known", "open sizes"):
        b = Builder()
        xs = inputs(b, case, way)
        (y,) = evaluated(b, case, xs, [case.op.decompose(b, *xs)])
        assert_close(y, answer(case)[0], None, way)


@law()
def check_canonical_form(case: Case) -> None:
    for way in ways(case):
        xs = inputs(Builder(), case, way)
        plain = case.op.canonical(*xs)
        assert plain.canonical(*xs) == plain, way
        if plain != case.op:
            for mine, theirs in zip(apply(plain, np, case.inputs), answer(case), strict=True):
                assert_close(np.asarray(mine), theirs, case.tolerance, way)


test_case = hold(check_decomposition, check_decomposition_at_any_size, check_canonical_form)
