"""The windows of an operator that only moves data tile its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assertions import assert_same_bits
from case_laws import hold, law
from case_runner import CASES, answer, is_constant, write
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.ir.op import Windows, has

MOVEMENT = [(family, case) for family, case in CASES if has(case.op, "windows")]


@law(MOVEMENT)
def check_windows_tile_output(case: Case) -> None:
    try:
        b = Builder()
        write(b, case, case.inputs)
        found = case.op.windows(*b.graph.nodes[-1].inputs)
    except UnsupportedError as refusal:
        assert refusal.code == "constant.needed" and not all(is_constant(case)[1:])
        pytest.skip(refusal.message)
    except NotImplementedError:
        pytest.skip("these attributes do more than move")
    ys = answer(case)
    if any(y.dtype == object for y in ys):
        inputs, ys = as_numbers(case)
    else:
        inputs = case.inputs
    for index, y in enumerate(ys):
        made, covered = copied(found, index, inputs, y)
        assert_same_bits(made, y, f"output {index}", payloads=True)
        assert covered.all() or found.fill is not None, f"output {index}: {int((~covered).sum())} elements are in no window"


def copied(found: Windows, output: int, inputs: tuple[Any, ...], y: Any) -> tuple[Any, Any]:
    """Return an output put together from its windows, and which elements these cover."""
    made = np.empty(y.shape, y.dtype)
    if found.fill is not None:
        made[...] = np.asarray(found.fill).astype(y.dtype)
    else:
        made.reshape(-1).view(np.uint8)[...] = 0xA5
    covered = np.zeros(y.shape, np.uint8)
    for window in found.windows:
        if window.output != output:
            continue
        x = np.ascontiguousarray(inputs[window.input])
        numbers = window.sizes, window.target_offset, window.target_strides, window.source_offset, window.source_strides
        native_core.copy_window(made, x, *numbers, y.dtype.itemsize)
        native_core.copy_window(covered, np.ones(x.shape, np.uint8), *numbers, 1)
    return made, covered.astype(bool)


def as_numbers(case: Case) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Texts have no bytes to copy; numbers in their place are moved alike."""
    texts = sorted({text for x in (*case.inputs, *answer(case)) if x is not None and x.dtype == object for text in x.ravel()})
    place = {text: number for number, text in enumerate(texts)}

    def numbered(x: Any) -> Any:
        if x is None or x.dtype != object:
            return x
        return np.array([place[text] for text in x.ravel()], dtype=np.int64).reshape(x.shape)

    return tuple(map(numbered, case.inputs)), tuple(map(numbered, answer(case)))


test_case = hold(check_windows_tile_output)
