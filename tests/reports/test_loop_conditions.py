"""A Loop whose condition or trip count has the shape [1], as converters of other frameworks write it, loads in every runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest

import dovetail
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir.graph import Model
from oracles import check_onnx, run_onnxruntime

SOURCE = """<ir_version: 8, opset_import: ["" : 14]>
g (TRIPS, float[1] x) => (float[1] y) <float[1] one = {1.0}, float[1] limit = {4.0}> {
    c0 = Less (x, limit)
    y = Loop (COUNT, c0, x) <body = b (int64 i, bool[1] c, float[1] s) => (bool[1] c2, float[1] s2) {
        s2 = Add (s, one)
        c2 = Less (s2, limit)
    }>
}"""
FEEDS: dict[str, Any] = {"x": np.array([0.5], np.float32)}


def source(trips: bool) -> onnx.ModelProto:
    text = SOURCE.replace("TRIPS, ", "int64[1] n, " if trips else "").replace("COUNT", "n" if trips else "")
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("trips", [False, True], ids=["condition", "condition and trip count"])
@pytest.mark.parametrize("way", ["saved", "simplified", "through IR", "opset 11", "opset 21"])
def test_a_saved_loop_runs_in_onnxruntime(way: str, trips: bool, tmp_path: Path) -> None:
    feeds = {**FEEDS, **({"n": np.array([2])} if trips else {})}
    onnx.save(source(trips), tmp_path / "m.onnx")
    want = run_onnxruntime((tmp_path / "m.onnx").read_bytes(), feeds)
    model: Model = dovetail.load(tmp_path / "m.onnx")
    if way == "simplified":
        model = dovetail.simplify(model)
    if way == "through IR":
        openvino.save_model(openvino.convert_model(tmp_path / "m.onnx"), tmp_path / "m.xml", compress_to_fp16=False)
        model = dovetail.load(tmp_path / "m.xml")
    data = onnx_write.save(model, None, opset=int(way.split()[1]) if way.startswith("opset") else None)
    assert data is not None
    check_onnx(data)
    np.testing.assert_array_equal(run_onnxruntime(data, feeds), want)


@pytest.mark.parametrize("trips", [False, True], ids=["condition", "condition and trip count"])
def test_the_ir_that_is_written_runs_in_openvino(trips: bool, tmp_path: Path) -> None:
    feeds = {**FEEDS, **({"n": np.array([2])} if trips else {})}
    onnx.save(source(trips), tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "m.xml")
    found = openvino.Core().compile_model(tmp_path / "m.xml", "CPU")(feeds)["y"]
    np.testing.assert_array_equal(found, run_onnxruntime((tmp_path / "m.onnx").read_bytes(), feeds)[0])
