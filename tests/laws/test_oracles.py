"""evaluate says what onnxruntime (else onnx.reference) and OpenVINO say."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from assertions import assert_close
from case_laws import hold, law
from case_runner import answer, assert_same_answer, feeds, model_of, skip_where_outside
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir.graph import Model


@law()
def check_onnxruntime(case: Case) -> str:
    skip_where_outside(case, "onnxruntime")
    model = model_of(case)
    try:
        data = saved(model, oracles.RUNTIME_OPSET)
    except UnsupportedError as reason:
        pytest.skip(f"ONNX cannot say it: {reason.message}")
    reasons = []
    for name, run in (("onnxruntime", oracles.run_onnxruntime), ("onnx.reference", oracles.run_reference)):
        if name in case.skip:
            reasons.append(case.skip[name])
            continue
        try:
            assert_same_answer(case, run(data, feeds(case)), name)
            return name
        except oracles.Silent as reason:
            reasons.append(str(reason))
    pytest.skip("; ".join(reasons))


def saved(model: Model, opset: int) -> bytes:
    found = onnx_write.save(model, None, opset=opset)
    assert found is not None
    return found


@law()
def check_openvino(case: Case) -> str:
    skip_where_outside(case, "openvino")
    model = model_of(case)
    try:
        theirs = oracles.run_openvino(model, feeds(case))
    except UnsupportedError as reason:
        pytest.skip(f"IR cannot say it: {reason.message}")
    except oracles.Silent as reason:
        pytest.skip(str(reason))
    ours = answer(case)
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.dtype == np.float64:
            tolerance = case.tolerance and max(case.tolerance, 1e-6)
            assert_close(oracles.as_f32(mine), oracles.as_f32(other), tolerance, f"openvino: output {index}")
        else:
            assert_close(mine, other, case.tolerance, f"openvino: output {index}")
    return "openvino"


test_case = hold(check_onnxruntime, check_openvino)
