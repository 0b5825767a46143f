"""A constant with several readers is stored once, whatever order of its elements an operator of the other format wants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from case_laws import hold, law
from case_runner import at_most, is_constant
from cases import Case
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats import import_foreign, legalize
from dovetail.formats.onnx.write import to_foreign as to_onnx
from dovetail.formats.openvino.write import to_foreign as to_ir
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model

LEAST = 8
"""Elements of the constants that the law counts: fewer may be an attribute."""
COPIED = {
    "GroupConv": "IR's weights have an axis of groups, which the graph does not have",
    "GroupConvTranspose": "IR's weights have an axis of groups, which the graph does not have",
    "ScaledDotProductAttention": "a mask without -inf, which happens to have the same numbers",
    "NonMaxSuppression": "computed scores, which happen to be the same numbers",
}


@law(at_most(4))
def check_constants_are_stored_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legalize, "COPY_LIMIT", 0)
    try:
        model, shared = _model_with_second_readers(case)
    except DovetailError:
        pytest.skip("the operator's rule needs other inputs")
    compared = 0
    for route in (to_onnx, to_ir, lambda source: to_onnx(import_foreign(to_ir(source)))):
        try:
            foreign = route(model)
        except UnsupportedError:
            continue
        stored = [np.sort(np.ravel(tensor.data)) for tensor in foreign.graph.constants.values()]
        for x in shared:
            copies = [item for item in stored if item.dtype == x.dtype and np.array_equal(item, np.sort(np.ravel(x)))]
            assert len(copies) <= 1 or type(case.op).__name__ in COPIED, f"{len(copies)} copies of {x.dtype}{list(x.shape)}"
            compared += 1
    if not compared:
        pytest.skip("no format has the operator, or no constant is large")


def _model_with_second_readers(case: Case) -> tuple[Model, list[Any]]:
    """Return the case's model with its weights as constants that another operator reads too, and these constants."""
    b = Builder("case")
    inputs: list[Any] = []
    shared: list[Any] = []
    for index, (x, constant) in enumerate(zip(case.inputs, is_constant(case), strict=True)):
        if x is None:
            inputs.append(None)
        elif index and x.dtype.kind == "f" and x.size >= LEAST and len(np.unique(x)) > 4:
            value = b.constant(x, name=f"c{index}")
            inputs.append(value)
            shared.append(x)
            b.output(f"again{index}", b.Add(value, b.input(f"addend{index}", dtypes.dtype(x.dtype), ())))
        elif constant:
            inputs.append(b.constant(x, name=f"c{index}"))
        else:
            inputs.append(b.input(f"x{index}", dtypes.dtype(x.dtype), x.shape))
    if not shared:
        pytest.skip("no weights")
    for index, y in enumerate(b.add(case.op, *inputs)):
        b.output(f"y{index}", y)
    return b.model, shared


test_case = hold(check_constants_are_stored_once)
