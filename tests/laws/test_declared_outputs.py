"""The declared type of an output changes no result: every operator, with declarations that a run contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from assertions import assert_close
from case_runner import at_most, feeds, model_of, over
from cases import Case
from dovetail.errors import DovetailError, UnsupportedError
from dovetail.ir.graph import Model


def with_open_inputs(proto: onnx.ModelProto) -> list[str]:
    """Name every dimension of the inputs; return the names."""
    names = []
    for x in proto.graph.input:
        for axis, dim in enumerate(x.type.tensor_type.shape.dim):
            dim.dim_param = f"{x.name}_{axis}"
            names.append(dim.dim_param)
    return names


def declare(proto: onnx.ModelProto, lie: str, names: list[str]) -> None:
    for y in proto.graph.output:
        tensor = y.type.tensor_type
        rank = len(tensor.shape.dim)
        if lie == "rank":
            tensor.shape.dim.add().dim_param = "another"
        for axis in range(rank):
            if lie == "number":
                tensor.shape.dim[axis].dim_value = 7
            elif lie == "name":
                tensor.shape.dim[axis].dim_param = names[axis % len(names)]


def with_shapes(model: Model) -> Model:
    """Add the shape of each output as an output."""
    graph = model.graph
    b = dovetail.Builder(graph=graph)
    for y in list(graph.outputs):
        b.output(f"shape of {y.name}", b.Shape(y))
    return model


@pytest.mark.parametrize("lie", ["rank", "number", "name"])
@over(at_most(1))
def test_a_wrong_declaration_changes_no_number(case: Case, lie: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = model_of(case)
    given: dict[str, Any] = feeds(case)
    if not given or any(not isinstance(x, np.ndarray) for x in given.values()):
        pytest.skip("no input has a shape")
    if any(node.op.is_random(*node.inputs) for node in model.graph.nodes):
        pytest.skip("each run draws other numbers")
    try:
        dovetail.save(with_shapes(model), path)
    except UnsupportedError as error:
        pytest.skip(f"ONNX cannot express it: {error.message}")
    proto = onnx.load(path)
    names = with_open_inputs(proto)
    del proto.graph.value_info[:]
    if not names:
        pytest.skip("no input has an axis")
    for y in proto.graph.output:
        y.type.tensor_type.ClearField("shape") if y.name.startswith("shape of") else None
    try:
        expected = dovetail.compile(dovetail.load(proto), "interpreter")(given)
    except DovetailError as error:
        pytest.skip(f"it needs sizes that are known: {error.message}")
    declare(proto, lie, names)
    loaded = dovetail.load(proto)
    for program in (dovetail.compile(loaded), dovetail.compile(dovetail.simplify(loaded))):
        for name, found in program(given).items():
            assert found.shape == expected[name].shape, name
            assert_close(found, expected[name], 1e-4, name)
