"""Single nodes whose defaults, axes or padding OpenVINO's reader of ONNX took otherwise, in every file that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from report_routes import FLOAT, INT64, assert_every_way, proto_of, run_onnxruntime

RANDOM = np.random.default_rng(0)
KINDS = {"float32": FLOAT, "int64": INT64}


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


# Kind, opset, inputs, constants, names of outputs, attributes.
NODES: dict[str, tuple[str, int, dict[str, Any], dict[str, Any], str, dict[str, Any]]] = {
    "RoiAlign, default coordinates": (
        "RoiAlign", 16,
        {"x": normal(1, 1, 10, 10), "rois": np.float32([[0, 0, 9, 9], [1, 2, 7.5, 4]]), "batch": np.zeros(2, np.int64)},
        {}, "y", {},
    ),
    **{
        f"{kind}, one axis": (kind, 13, {"x": np.abs(normal(2, 3, 4)) + 0.1}, {}, "y", {"axes": [1]})
        for kind in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp")
    },
    "Reshape, allowzero": ("Reshape", 14, {"x": np.zeros((0, 4), np.float32)}, {"s": np.array([0, 2])}, "y", {"allowzero": 1}),
    "ConvTranspose, output_shape": (
        "ConvTranspose", 11, {"x": normal(1, 3, 5, 5)}, {"w": normal(3, 2, 3, 3)}, "y",
        {"output_shape": [9, 12], "strides": [2, 2], "output_padding": [1, 1], "auto_pad": "SAME_LOWER"},
    ),
    "Split, uneven": ("Split", 18, {"x": normal(7, 3)}, {}, "abcd", {"num_outputs": 4}),
    "Unique, unsorted rows": (
        "Unique", 11, {"x": np.float32([[1, 0], [1, 0], [2, 3], [1, 0]])}, {}, "yivc", {"axis": 0, "sorted": 0},
    ),
    "LayerNormalization, one scale": (
        "LayerNormalization", 17, {"x": normal(2, 3, 4)}, {"s": normal(1), "b": normal(1)}, "y", {"axis": -1},
    ),
    "Pow, i64": ("Pow", 17, {"a": np.array([13, 17, 19, 23]), "b": np.array([8, 7, 7, 6])}, {}, "y", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_equivalent_in_every_format(name: str, tmp_path: Path) -> None:
    kind, opset, feeds, constants, outputs, attributes = NODES[name]
    node = helper.make_node(kind, [*feeds, *constants], list(outputs), **attributes)
    inputs = [(key, KINDS[str(x.dtype)], list(x.shape)) for key, x in feeds.items()]
    model = proto_of([node], inputs, [helper.make_empty_tensor_value_info(key) for key in outputs], constants, opset=opset)
    model = onnx.shape_inference.infer_shapes(model)
    expected = run_onnxruntime(model, feeds)
    # OpenVINO's plugin computes powers of i64 in f32.
    assert_every_way(model, feeds, expected, tmp_path, tolerance=1e-5, in_openvino=kind != "Pow")
