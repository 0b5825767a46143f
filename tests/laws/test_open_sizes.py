"""A model that converts with fixed sizes converts when the sizes of its data are open, in each format and from IR to ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from case_laws import hold, law
from case_runner import at_most, is_constant, model_of, opsets
from cases import Case
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.formats import import_foreign
from dovetail.formats.onnx.write import to_foreign as to_onnx
from dovetail.formats.openvino.write import to_foreign as to_ir
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model

ROUTES: dict[str, Callable[[Model], object]] = {
    "onnx": to_onnx,
    "ir": to_ir,
    "onnx from ir": lambda model: to_onnx(import_foreign(to_ir(model))),
}
NEEDS_SIZES = {
    "AveragePool": ("type.unknown", "rounding up is padding that depends on the size"),
    "MaxPool": ("type.unknown", "rounding up is padding that depends on the size"),
    "CTCLoss": ("type.unknown", "one subgraph for each time step"),
    "CumProd": ("op.unsayable", "one product for each element of the axis"),
    "DFT": ("shape.disagree", "real and complex data differ by the last size"),
    "STFT": ("shape.disagree", "real and complex data differ by the last size"),
    "ISTFT": ("type.unknown", "the overlapped frames are added one by one"),
    "DeformConv": ("op.unsayable", "the groups are sizes of the offsets"),
    "Det": ("type.unknown", "one elimination step for each row"),
    "DetectionOutput": ("type.unknown", "boxes are compared one by one"),
    "MatrixNms": ("type.unknown", "boxes are compared one by one"),
    "MulticlassNms": ("type.unknown", "boxes are compared one by one"),
    "GatherBlockQuantized": ("op.unsayable", "the table is a constant"),
    "GatherTree": ("type.unknown", "one step back for each time"),
    "GroupQueryAttention": ("type.unknown", "the number of heads is a size of the data"),
    "PRelu": ("op.unsayable", "the axis of the slopes is known by its size"),
    "NonMaxSuppression": ("op.unsayable", "opset 11 gathers without a batch"),
    "Resize": ("type.unknown", "factors and sizes disagree for some sizes"),
}
"""Operators that need fixed sizes, in one format at least: the code of the refusal, and the reason."""


def open_model(case: Case) -> Model:
    """Return the case's model, whose first input has a symbol for each size; equal sizes have equal symbols."""
    b = Builder("case")
    inputs: list[Any] = []
    for index, (x, constant) in enumerate(zip(case.inputs, is_constant(case), strict=True)):
        if x is None:
            inputs.append(None)
        elif constant:
            inputs.append(b.constant(x, name=f"c{index}"))
        else:
            shape = tuple(f"n{size}" for size in x.shape) if index == 0 else x.shape
            inputs.append(b.input(f"x{index}", dtypes.dtype(x.dtype), shape))
    for index, y in enumerate(b.add(case.op, *inputs)):
        b.output(f"y{index}", y)
    return b.model


@law(at_most(8))
def check_open_sizes(case: Case) -> None:
    try:
        model = open_model(case)
    except DovetailError:
        pytest.skip("the operator's rule needs the sizes")
    converted = 0
    for route, convert in ROUTES.items():
        try:
            convert(model_of(case))
        except UnsupportedError:
            continue
        converted += 1
        try:
            convert(model)
        except UnsupportedError as error:
            code, reason = NEEDS_SIZES.get(type(case.op).__name__, ("", ""))
            assert error.code == code, f"{route}: refused without need: {error}; {reason}"
    if not converted:
        pytest.skip("no format has the operator")


@law(at_most(3))
def check_open_sizes_at_opsets(case: Case) -> None:
    """Each opset from 11 that takes fixed sizes takes open ones; older ones cannot compute them, as they compare no integers."""
    try:
        model = open_model(case)
    except DovetailError:
        pytest.skip("the operator's rule needs the sizes")
    converted = 0
    for opset in (opset for opset in opsets(type(case.op)) if opset >= 11):
        try:
            to_onnx(model_of(case), opset)
        except UnsupportedError:
            continue
        converted += 1
        try:
            to_onnx(model, opset)
        except UnsupportedError as error:
            code, reason = NEEDS_SIZES.get(type(case.op).__name__, ("", ""))
            assert error.code == code, f"opset {opset}: refused without need: {error}; {reason}"
    if not converted:
        pytest.skip("no opset has the operator")


test_case = hold(check_open_sizes, check_open_sizes_at_opsets)
