"""torch and jax.numpy give numpy's answers, and folding gives those of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assertions import assert_close, assert_same_bits
from case_laws import hold, law
from case_runner import CASES, answer, feeds, model_of, skip_where_outside, sound, views, write
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.ir import arrays, dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model
from dovetail.ir.op import infer_types
from dovetail.ir.types import Tensor, is_static
from dovetail.laws.fold import fold
from dovetail.runtime.compilation import compile
from dovetail.runtime.interpreter.interpret import interpret


def is_standard(case: Case) -> bool:
    """Return whether the array API has every type of the case's inputs and outputs."""
    types = [x.dtype for x in case.inputs if x is not None]
    types += [claim.dtype for claim in infer_types(case.op, views(case)) if isinstance(claim, Tensor)]
    return all(dtypes.dtype(kind).standard for kind in types)


def cases_of_torch() -> list[tuple[str, Case]]:
    """One case for each operator, attributes and shapes."""
    distinct: dict[Any, tuple[str, Case]] = {}
    for family, case in filter(lambda row: is_standard(row[1]), CASES):
        distinct.setdefault((repr(case.op), tuple(None if x is None else x.shape for x in case.inputs)), (family, case))
    return list(distinct.values())


IN_TORCH = cases_of_torch()
IN_JAX = list({type(case.op): (family, case) for family, case in reversed(IN_TORCH)}.values())
"""One case for each operator: JAX compiles each operation for each shape, which takes longer than all other laws together."""


def namespace(name: str) -> Any:
    module = pytest.importorskip(name)
    return module.numpy if name == "jax" else module


@law(IN_TORCH)
def check_torch(case: Case) -> str:
    if any(x is not None and x.dtype in (np.uint16, np.uint32, np.uint64) for x in (*case.inputs, *answer(case))):
        pytest.skip("torch has only a few functions for unsigned types wider than 8 bits")
    return compare(case, "torch")


@law(IN_JAX, is_slow=True)
def check_jax(case: Case) -> str:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        return compare(case, "jax")


def compare(case: Case, library: str) -> str:
    """Compare the interpreter over an array library with numpy. Returns the library."""
    skip_where_outside(case, library)
    try:
        outputs = interpret(model_of(case), feeds(case), xp=namespace(library))
    except UnsupportedError as refusal:
        pytest.skip(f"refused: {refusal.message}")
    for index, (mine, other) in enumerate(zip(answer(case), map(arrays.to_numpy, outputs.values()), strict=True)):
        assert_close(other, mine, case.tolerance, f"{library}: output {index}")
    return library


@law()
def check_constant_folding(case: Case) -> None:
    b = Builder()
    for index, y in enumerate(b.add(case.op, *(None if x is None else b.constant(x) for x in case.inputs))):
        b.output(f"y{index}", y)
    folded = copy_model(sound(b.model))
    fold(folded.graph)
    run, kept = compile(b.model)(), compile(sound(folded))()
    assert list(run.keys()) == list(kept.keys())
    for name, value in run.items():
        assert_same_bits(kept[name], value, name)
    if all(is_static(y.type) for y in b.model.outputs) and "fold" not in case.skip:
        left = [node for node in folded.graph.nodes if type(node.op).__name__ not in ("Constant", "Identity")]
        assert not left, "all inputs are constant, and this was not folded"


@law()
def check_inputs_unchanged(case: Case) -> None:
    before = [None if x is None else x.copy() for x in case.inputs]
    outputs = compile(model_of(case))(feeds(case))
    for x, old in zip(case.inputs, before, strict=True):
        if x is not None:
            assert_same_bits(x, old)
            assert not any(np.shares_memory(x, y) for y in outputs.values() if y.dtype != object)


def test_a_case_can_be_written_through_the_builder() -> None:
    for _, case in CASES:
        write(Builder(), case, case.inputs)


test_case = hold(check_torch, check_jax, check_constant_folding, check_inputs_unchanged)
