"""Casts and QuantizeLinear from floats to integers of fewer than 8 bits, and to floats of 4 and 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail
from report_routes import FLOAT, proto_of, run_onnxruntime

X = np.float32([1.9, 2.6, 0.7, -1.8, 5.2, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 7.4, -8.4])
FLOATS = np.float32([0.3, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -5, 17, 18, 19, 448, 463, 464, 2**-10, 2**-9 * 1.5, 2**-9 * 2.5])


def cast(to: str, count: int, opset: int = 25, **attributes: Any) -> Any:
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=getattr(TensorProto, to), **attributes),
        helper.make_node("Cast", ["q"], ["y"], to=FLOAT),
    ]
    return proto_of(nodes, [("x", FLOAT, [count])], [("y", FLOAT, None)], opset=opset)


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize(("to", "opset"), [("INT4", 21), ("INT4", 25), ("UINT4", 21), ("INT2", 25), ("UINT2", 25)])
def test_a_cast_rounds_to_nearest_even(to: str, opset: int, engine: Any) -> None:
    bits, low = int(to[-1]), 0 if to[0] == "U" else -(2 ** (int(to[-1]) - 1))
    model = dovetail.load(cast(to, len(X), opset))
    assert [item.code for item in model.warnings] == ["cast.ties"]
    np.testing.assert_array_equal(dovetail.run(model, {"x": X}, engine)["y"], (np.rint(X) - low) % 2**bits + low)


def test_a_cast_of_integers_has_no_warning() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT4)
    model = dovetail.load(proto_of([node], [("x", TensorProto.INT32, [2])], [("y", TensorProto.INT4, None)], opset=21))
    assert model.warnings == []


@pytest.mark.parametrize("to", ["INT4", "UINT4", "INT2", "UINT2"])
def test_quantization_rounds_to_nearest_even_and_saturates(to: str) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=getattr(TensorProto, to)),
        helper.make_node("Cast", ["q"], ["y"], to=FLOAT),
    ]
    model = proto_of(nodes, [("x", FLOAT, [len(X)])], [("y", FLOAT, None)], {"s": np.float32(1)}, opset=25)
    expected = run_onnxruntime(model, {"x": X})["y"]
    np.testing.assert_array_equal(dovetail.run(model, {"x": X})["y"], expected)
    assert dovetail.load(model).warnings == []


@pytest.mark.parametrize("to", ["FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"])
def test_small_floats_round_to_nearest_even(to: str) -> None:
    """onnxruntime has no FLOAT4E2M1; onnx.reference has."""
    from onnx.reference import ReferenceEvaluator

    model = cast(to, len(FLOATS))
    expected = ReferenceEvaluator(model).run(None, {"x": FLOATS})[0]
    np.testing.assert_array_equal(dovetail.run(model, {"x": FLOATS})["y"], expected)
    if to != "FLOAT4E2M1":
        np.testing.assert_array_equal(run_onnxruntime(model, {"x": FLOATS})["y"], expected)
