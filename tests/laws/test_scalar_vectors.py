"""A scalar input of an ONNX file that is written as a vector of one element loads, where onnxruntime takes it too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dovetail
import oracles
from assertions import assert_close
from case_laws import hold, law
from case_runner import answer, feeds, model_of, opsets, skip_where_outside
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx import write
from dovetail.runtime.interpreter.interpret import interpret


@law()
def check_scalars_as_vectors(case: Case) -> str:
    skip_where_outside(case, "onnx")
    skip_where_outside(case, "onnxruntime")
    if not any(x is not None and x.ndim == 0 for x in case.inputs):
        pytest.skip("no scalar among the inputs")
    compared = 0
    for opset in opsets(type(case.op)):
        try:
            data = write.save(model_of(case), None, opset=opset)
        except UnsupportedError:
            continue
        for index in range(len(case.inputs)):
            vectors = _with_vector(onnx.load_from_string(data), index)
            if vectors is None or opset > oracles.RUNTIME_OPSET:
                continue
            values = feeds(case)
            if f"x{index}" in values:
                values[f"x{index}"] = values[f"x{index}"].reshape(1)
            try:
                theirs = oracles.run_onnxruntime(vectors, values)
                for mine, expected in zip(theirs, answer(case), strict=True):
                    assert_close(mine, expected, max(case.tolerance or 0, 1e-5))
            except Exception:  # onnxruntime refuses the vector, by many classes, or takes it for something else
                continue
            ours = interpret(dovetail.load(onnx.load_from_string(vectors)), values)
            for mine, expected in zip(ours.values(), answer(case), strict=True):
                assert_close(np.asarray(mine), expected, case.tolerance, f"opset {opset}, input {index}")
            compared += 1
    if not compared:
        pytest.skip("onnxruntime gives no such vector the meaning of the scalar")
    return "onnxruntime"


def _with_vector(model: onnx.ModelProto, index: int) -> bytes | None:
    """Return the file with the scalar input or constant ``index`` as a vector; None where there is none."""
    for info in model.graph.input:
        if info.name == f"x{index}" and not info.type.tensor_type.shape.dim and info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.dim.add().dim_value = 1
            return model.SerializeToString()
    for tensor in model.graph.initializer:
        if tensor.name == f"c{index}" and not tensor.dims:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).reshape(1), tensor.name))
            return model.SerializeToString()
    return None


test_case = hold(check_scalars_as_vectors)
