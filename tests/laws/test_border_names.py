"""Inputs and outputs keep their names in every file that is written, as the runtimes have them after compiling.

To the model of each case are added outputs that are its inputs and its outputs over again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import dovetail
import oracles
from case_laws import hold, law
from case_runner import at_most, skip_where_outside, sound, write
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model


def with_repeated_borders(case: Case) -> Model:
    b = Builder("borders")
    results = write(b, case, case.inputs)
    for index, y in enumerate(results):
        b.output(f"y{index}", y)
    for index, value in enumerate((*b.model.inputs, *results[:1])):
        b.output(f"again{index}", b.Identity(value))
    return sound(b.model)


def names_of(model: Model) -> list[list[str]]:
    return [[value.name for value in side] for side in (model.inputs, model.outputs)]


@law(at_most(1))
def check_ir_border_names(case: Case, tmp_path: Path) -> str:
    skip_where_outside(case, "ir")
    skip_where_outside(case, "openvino")
    model = with_repeated_borders(case)
    try:
        dovetail.save(model, tmp_path / "first.xml")
    except UnsupportedError as reason:
        pytest.skip(f"IR cannot say it: {reason.message}")
    try:
        oracles.check_openvino_names(tmp_path / "first.xml", names_of(model))
        dovetail.save(dovetail.load(tmp_path / "first.xml"), tmp_path / "second.xml")
        oracles.check_openvino_names(tmp_path / "second.xml", names_of(model))
    except oracles.Silent as reason:
        pytest.skip(str(reason))
    return "openvino"


@law(at_most(1))
def check_onnx_border_names(case: Case) -> str:
    skip_where_outside(case, "onnx")
    model = with_repeated_borders(case)
    try:
        file = onnx_write.save(model, None)
        assert file is not None
        assert oracles.onnxruntime_ports(file) == names_of(model)
    except (UnsupportedError, oracles.Silent) as reason:
        pytest.skip(str(reason))
    return "onnxruntime"


test_case = hold(check_ir_border_names, check_onnx_border_names)
