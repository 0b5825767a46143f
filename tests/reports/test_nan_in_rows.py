"""ArgMax, ArgMin and Hardmax of rows with NaN, infinities, ties and -0, in every form in which they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dovetail
from report_routes import FLOAT, proto_of, run_onnxruntime

NAN, INF = np.nan, np.inf
ROWS = np.float32(
    [
        [1, NAN, 5, NAN],
        [1, 2, 3, 0],
        [INF, INF, 1, 1],
        [-INF] * 4,
        [INF] * 4,
        [-INF, NAN, -INF, 1],
        [0.0, -0.0, 0.0, -0.0],
        [NAN] * 4,
    ]
)
FIRST = {"ArgMax": [1, 2, 0, 0, 0, 1, 0, 0], "ArgMin": [1, 3, 2, 0, 0, 1, 0, 0]}
LAST = {"ArgMax": [3, 2, 1, 3, 3, 1, 3, 3], "ArgMin": [3, 3, 3, 3, 3, 1, 3, 3]}


def run_openvino(path: Path, x: Any) -> Any:
    openvino = pytest.importorskip("openvino")
    return openvino.Core().compile_model(str(path), "CPU")({"x": x})[0]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_the_index_of_a_row_with_nan_is_within_the_axis(kind: str, last: int, keepdims: int, tmp_path: Path) -> None:
    node = helper.make_node(kind, ["x"], ["y"], axis=1, select_last_index=last, keepdims=keepdims)
    expected = (LAST if last else FIRST)[kind]
    for rows in ("n", len(ROWS)):
        model = dovetail.load(proto_of([node], [("x", FLOAT, [rows, 4])], [("y", 7, None)], opset=13))
        for engine in ("interpreter", "native"):
            assert dovetail.run(model, {"x": ROWS}, engine)["y"].reshape(-1).tolist() == expected, engine
        path = tmp_path / "model.xml"
        dovetail.save(model, path)
        y = run_openvino(path, ROWS)
        assert y.shape == ((len(ROWS), 1) if keepdims else (len(ROWS),)) and y.reshape(-1).tolist() == expected
        assert dovetail.run(path, {"x": ROWS})["y"].reshape(-1).tolist() == expected


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_the_last_index_before_opset_12(kind: str, axis: int, tmp_path: Path) -> None:
    """Opset 11 has no select_last_index; the file says the same in onnxruntime."""
    x = ROWS if axis else np.ascontiguousarray(ROWS.T)
    node = helper.make_node(kind, ["x"], ["y"], axis=axis, select_last_index=1, keepdims=0)
    model = dovetail.load(proto_of([node], [("x", FLOAT, ["n", "m"])], [("y", 7, None)], opset=13))
    dovetail.save(model, tmp_path / "model.onnx", opset=11)
    assert run_onnxruntime(tmp_path / "model.onnx", {"x": x})["y"].tolist() == LAST[kind]


@pytest.mark.parametrize("axis", [0, 1])
def test_one_element_of_each_row_is_hot_in_ir(axis: int, tmp_path: Path) -> None:
    x = ROWS if axis else np.ascontiguousarray(ROWS.T)
    node = helper.make_node("Hardmax", ["x"], ["y"], axis=axis)
    for sizes in (["n", "m"], list(x.shape)):
        dovetail.save(dovetail.load(proto_of([node], [("x", FLOAT, sizes)], [("y", FLOAT, None)])), tmp_path / "model.xml")
        expected = np.eye(4, dtype=np.float32)[FIRST["ArgMax"]]
        np.testing.assert_array_equal(run_openvino(tmp_path / "model.xml", x), expected if axis else expected.T)
