"""check reports what onnx.checker refuses: a declared type that is not the inferred one. Layouts of IR come back from ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import openvino
import openvino.opset13 as ops
import pytest

import dovetail

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
FILES = {
    "output": f"{HEAD} g (float[2, 3] x) => (float[2, 4] y) {{y = Relu (x)}}",
    "rank of an output": f"{HEAD} g (float[2, 3] x) => (float[6] y) {{y = Relu (x)}}",
    "element type of an output": f"{HEAD} g (float[2, 3] x) => (double[2, 3] y) {{y = Relu (x)}}",
    "value between": f"{HEAD} g (float[2, 3] x) => (float[2, 3] y) <float[2, 4] a> {{a = Relu (x) y = Abs (a)}}",
    "condition of a loop": """<ir_version: 8, opset_import: ["" : 14]>
        g (float[1] x) => (float[1] y) <float[1] limit = {4.0}> {
            c0 = Less (x, limit)
            y = Loop (, c0, x) <body = b (int64 i, bool c, float[1] s) => (bool[1] c2, float[1] s2) {
                s2 = Add (s, s)
                c2 = Less (s2, limit)
            }>
        }""",
}


@pytest.mark.parametrize("name", FILES)
def test_check_reports_a_declaration_that_onnx_refuses(name: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(FILES[name])
    with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError)):
        onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, tmp_path / "m.onnx")
    assert [item.code for item in dovetail.check(tmp_path / "m.onnx")] == ["type.declared"]
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "again.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "again.onnx"), full_check=True)
    assert dovetail.check(tmp_path / "again.onnx") == []


def with_layout(path: Path) -> None:
    x = ops.parameter([1, 3, 8, 8], np.float32, "x")
    x.output(0).set_names({"x"})
    x.set_layout(openvino.Layout("NCHW"))
    y = ops.relu(x)
    y.output(0).set_names({"y"})
    result = ops.result(y)
    result.set_layout(openvino.Layout("NC..."))
    openvino.serialize(openvino.Model([result], [x], "m"), path)


def test_layouts_survive_a_conversion_to_onnx_and_back(tmp_path: Path) -> None:
    with_layout(tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "back.xml")
    model = openvino.Core().read_model(tmp_path / "back.xml")
    assert str(model.inputs[0].node.layout) == "[N,C,H,W]" and str(model.outputs[0].node.layout) == "[N,C,...]"
    openvino.set_batch(model, 4)
    assert list(model.inputs[0].shape) == [4, 3, 8, 8]


def test_a_layout_is_dropped_where_the_rank_has_changed(tmp_path: Path) -> None:
    with_layout(tmp_path / "m.xml")
    dovetail.save(dovetail.load(tmp_path / "m.xml"), tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    for value in (proto.graph.input[0], proto.graph.output[0]):
        del value.type.tensor_type.shape.dim[0]
    del proto.graph.value_info[:]
    onnx.save(proto, tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "back.xml")
    assert str(openvino.Core().read_model(tmp_path / "back.xml").inputs[0].node.layout) == "[...]"
