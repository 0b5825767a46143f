"""The native engine gives what the interpreter gives: bit for bit where data only moves, within rounding where it is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases import Case
from dovetail import dtypes
from dovetail.graph import Model
from dovetail.op import has
from dovetail.program import compile
from rig import CASES, answer, every_case, feeds, model_of, over
from sameness import assert_close, assert_same_bits


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan is held against the checker."""
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


@every_case
def test_the_native_engine_gives_what_the_interpreter_gives(case: Case) -> None:
    model = model_of(case)
    program = compile(model, engine="native", threads=2)
    for _ in range(2):
        _assert_all_agree(case, model, program(feeds(case)))


@over([(family, case) for family, case in CASES if len(case.inputs) > 1])
def test_with_constants_too(case: Case) -> None:
    """All inputs but the first are constants: weights are packed, normalisation goes into them, operators are joined."""
    fixed = replace(case, constants=tuple(range(1, len(case.inputs))))
    model = model_of(fixed)
    _assert_all_agree(case, model, compile(model, engine="native", threads=2)(feeds(fixed)))


def _assert_all_agree(case: Case, model: Model, found: dict[str, Any]) -> None:
    assert list(found) == [value.name for value in model.outputs]
    # An operator may have more outputs than the model asks for.
    wanted = answer(case)[: len(found)]
    for name, want in zip(found, wanted, strict=True):
        _assert_agrees(case, found[name], want, name)


def _assert_agrees(case: Case, found: Any, want: Any, name: str) -> None:
    if isinstance(want, list):
        assert len(found) == len(want)
        for each, other in zip(found, want, strict=True):
            assert_same_bits(each, other, name)
    elif has(case.op, "windows") or not dtypes.dtype(want.dtype).is_float:
        assert_same_bits(found, want, name)
    else:
        assert_close(found, want, max(case.tolerance or 0, 2e-6) if want.dtype != np.float64 else case.tolerance, name)
