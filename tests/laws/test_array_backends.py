"""torch and jax.numpy give numpy's answers, and folding gives those of a run."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from assertions import assert_close, assert_same_bits
from case_runner import CASES, answer, every_case, feeds, model_of, skip_where_outside, sound, write
from cases import Case
from dovetail import arrays, dtypes
from dovetail.errors import UnsupportedError
from dovetail.interpreter.interpret import interpret
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model
from dovetail.ir.types import is_static
from dovetail.passes.fold import fold
from dovetail.program import compile

STANDARD = [
    (family, case)
    for family, case in CASES
    if all(x is None or dtypes.dtype(x.dtype).standard for x in (*case.inputs, *answer(case)))
]
MOST_IN_JAX = 1
"""Cases of one operator. JAX compiles each operation for each shape, which takes longer than all the rest of the law."""


def chosen() -> list[Any]:
    """For each operator, attributes and shapes one case, in torch; the first of each operator in JAX too."""
    found = []
    seen: set[Any] = set()
    counts: Counter[type] = Counter()
    for family, case in STANDARD:
        key = repr(case.op), tuple(None if x is None else x.shape for x in case.inputs)
        if key in seen:
            continue
        seen.add(key)
        counts[type(case.op)] += 1
        found.append(pytest.param(case, "torch", id=f"{family}: {case}: torch"))
        if counts[type(case.op)] <= MOST_IN_JAX:
            found.append(pytest.param(case, "jax", id=f"{family}: {case}: jax"))
    return found


def namespace(name: str) -> Any:
    module = pytest.importorskip(name)
    return module.numpy if name == "jax" else module


@pytest.mark.parametrize(("case", "library"), chosen())
def test_every_library_gives_the_answer_of_numpy(case: Case, library: str) -> None:
    skip_where_outside(case, library)
    xp = namespace(library)
    if library == "jax":
        import jax

        wide: Any = jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()
    else:
        wide = nullcontext()
        if any(x is not None and x.dtype in (np.uint16, np.uint32, np.uint64) for x in (*case.inputs, *answer(case))):
            pytest.skip("torch has only a few functions for unsigned types wider than 8 bits")
    with wide:
        try:
            found = interpret(model_of(case), feeds(case), xp=xp)
        except UnsupportedError as refusal:
            pytest.skip(f"refused: {refusal.message}")
        theirs = [arrays.to_numpy(y) for y in found.values()]
    for index, (mine, other) in enumerate(zip(answer(case), theirs, strict=True)):
        assert_close(other, mine, case.tolerance, f"{library}: output {index}")


@every_case
def test_folding_gives_the_value_of_a_run(case: Case) -> None:
    b = Builder()
    for index, y in enumerate(b.add(case.op, *(None if x is None else b.constant(x) for x in case.inputs))):
        b.output(f"y{index}", y)
    folded = copy_model(sound(b.model))
    fold(folded.graph)
    run, kept = compile(b.model)(), compile(sound(folded))()
    assert list(run) == list(kept)
    for name, value in run.items():
        assert_same_bits(kept[name], value, name)
    if all(is_static(y.type) for y in b.model.outputs) and "fold" not in case.skip:
        left = [node for node in folded.graph.nodes if type(node.op).__name__ not in ("Constant", "Identity")]
        assert not left, "all inputs are constant, and this was not folded"


@every_case
def test_a_run_leaves_its_inputs_alone(case: Case) -> None:
    before = [None if x is None else x.copy() for x in case.inputs]
    outputs = compile(model_of(case))(feeds(case))
    for x, old in zip(case.inputs, before, strict=True):
        if x is not None:
            assert_same_bits(x, old)
            assert not any(np.shares_memory(x, y) for y in outputs.values() if y.dtype != object)


def test_a_case_can_be_written_through_the_builder() -> None:
    for _, case in CASES:
        write(Builder(), case, case.inputs)
