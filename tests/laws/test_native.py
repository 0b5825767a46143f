"""The native engine gives what the interpreter gives: bit for bit where data only moves, within rounding where it is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assertions import assert_close, assert_same_bits
from case_laws import hold, law
from case_runner import CASES, answer, feeds, model_of
from cases import Case
from dovetail.ir import dtypes
from dovetail.ir.graph import Model
from dovetail.ir.op import has
from dovetail.runtime.compilation import compile
from dovetail.runtime.numpy_program import NumpyProgram


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan passes the checker."""
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


@law()
def check_native_engine(case: Case) -> None:
    """Twice, the second time with inputs at odd addresses and into arrays at odd addresses."""
    model = model_of(case)
    program = compile(model, engine="native", threads=2)
    found = program(feeds(case))
    _assert_all_agree(case, model, found)
    out = {name: misaligned(np.zeros_like(y)) for name, y in found.items() if is_plain(y)}
    again = program({name: misaligned(x) if is_plain(x) else x for name, x in feeds(case).items()}, out=out)
    assert all(again[name] is array for name, array in out.items())
    _assert_all_agree(case, model, again)


@law([(family, case) for family, case in CASES if len(case.inputs) > 1])
def check_native_engine_with_constants(case: Case) -> None:
    """All inputs but the first are constants: weights are packed, normalisation goes into them, operators are joined."""
    for inputs in (case.inputs, tuple(misaligned(x) if is_plain(x) else x for x in case.inputs)):
        fixed = replace(case, inputs=inputs, constants=tuple(range(1, len(inputs))))
        model = model_of(fixed)
        _assert_all_agree(case, model, compile(model, engine="native", threads=2)(feeds(fixed)))


@law()
def check_program_without_core(case: Case) -> None:
    """The program of an installation without the core gives what the interpreter gives."""
    for fixed in (case, replace(case, constants=tuple(range(1, len(case.inputs))))):
        model = model_of(fixed)
        _assert_all_agree(case, model, NumpyProgram(model, threads=2)(feeds(fixed)))


def is_plain(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind not in "OUST"


def misaligned(x: Any) -> Any:
    """Return the same elements one byte beyond a multiple of their size, as a view of bytes has them."""
    data = np.zeros(x.nbytes + 64, np.uint8)
    first = 1 - data.ctypes.data % 16
    moved = data[first + 16 :][: x.nbytes].view(x.dtype).reshape(x.shape)
    moved[...] = x
    assert x.itemsize == 1 or not x.size or moved.ctypes.data % x.itemsize
    return moved


def _assert_all_agree(case: Case, model: Model, found: dict[str, Any]) -> None:
    assert list(found.keys()) == [value.name for value in model.outputs]
    # An operator may have more outputs than the model uses.
    wanted = answer(case)[: len(found)]
    for name, want in zip(found.keys(), wanted, strict=True):
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


test_case = hold(check_native_engine, check_native_engine_with_constants, check_program_without_core)
