"""The ways of one model through the project, each compared with the expected outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

import dovetail
import oracles
from assertions import assert_close

Arrays = Mapping[str, Any]
Io = tuple[str, int, Sequence[Any] | None]

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def proto_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Io],
    outputs: Sequence[Io | onnx.ValueInfoProto],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    **domains: int,
) -> onnx.ModelProto:
    """Return an ONNX model of these nodes; ``domains`` are further opset imports, with _ for a dot."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*item) for item in inputs],
        [item if isinstance(item, onnx.ValueInfoProto) else helper.make_tensor_value_info(*item) for item in outputs],
        [
            item if isinstance(item, TensorProto) else numpy_helper.from_array(np.asarray(item), name)
            for name, item in (constants or {}).items()
        ],
    )
    imports = [helper.make_opsetid("", opset)] + [
        helper.make_opsetid(name.replace("_", "."), version) for name, version in domains.items()
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run_onnxruntime(model: onnx.ModelProto | Path, feeds: Arrays) -> dict[str, Any]:
    """Return the outputs by name, without onnxruntime's optimizer."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return dict(zip((y.name for y in session.get_outputs()), session.run(None, dict(feeds)), strict=True))


def run_openvino(path: Path, feeds: Arrays) -> dict[str, Any]:
    """Return the outputs by name, computed in f32."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(dict(feeds))
    return {name: results[port] for port in compiled.outputs for name in port.get_names()}


def run_saved(runtime: str, model: dovetail.Model, feeds: Arrays, folder: Path) -> dict[str, Any]:
    """Save a model in the format of a runtime, "onnxruntime" or "openvino", and return the outputs by name."""
    path = folder / ("model.onnx" if runtime == "onnxruntime" else "model.xml")
    dovetail.save(model, path)
    return run_onnxruntime(path, feeds) if runtime == "onnxruntime" else run_openvino(path, feeds)


def is_sound(proto: onnx.ModelProto) -> bool:
    """Return whether onnx's full checker accepts the model, which demands the rank of every output."""
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def assert_outputs(found: Arrays, expected: Arrays, tolerance: float | None, what: str) -> None:
    for name, array in expected.items():
        assert name in found, f"{what}: no output {name}"
        if isinstance(array, list):
            assert len(found[name]) == len(array), what
            for ours, theirs in zip(found[name], array, strict=True):
                assert_close(ours, theirs, tolerance, what)
        else:
            assert_close(found[name], array, tolerance, what)


def assert_here(model: dovetail.Model, feeds: Arrays, expected: Arrays, tolerance: float | None, what: str) -> None:
    """Both engines, the native one called twice."""
    assert_outputs(dict(dovetail.interpret(model, feeds).items()), expected, tolerance, f"{what}, interpreter")
    with dovetail.compile(model, engine="native") as program:
        for _ in range(2):
            assert_outputs(dict(program(dict(feeds)).items()), expected, tolerance, f"{what}, native")


def assert_every_way(
    proto: onnx.ModelProto,
    feeds: Arrays,
    expected: Arrays,
    folder: Path,
    *,
    tolerance: float | None = None,
    opsets: Sequence[int] = (),
    ir: bool = True,
    in_onnxruntime: bool = True,
    in_openvino: bool = True,
) -> dovetail.Model:
    """Run the model here, simplified with proof, saved as ONNX in each of ``opsets``, as IR, and as ONNX again.

    What is written passes the full checker of onnx where ``proto`` does, and onnxruntime and OpenVINO run it by names.
    OpenVINO makes 0 of -0.
    """
    model = dovetail.load(proto)
    assert dovetail.check(model) == []
    assert_here(model, feeds, expected, tolerance, "as loaded")
    smaller = dovetail.simplify(model, prove=True)
    sound = is_sound(proto)
    files: dict[str, tuple[dovetail.Model, dict[str, Any]]] = {"as loaded": (model, {}), "simplified": (smaller, {})} | {
        f"opset {v}": (model, {"opset": v}) for v in opsets
    }
    for number, (what, (written, options)) in enumerate(files.items()):
        path = folder / f"{number}.onnx"
        dovetail.save(written, path, **options)
        assert not sound or is_sound(onnx.load(path)), what
        assert_here(dovetail.load(path), feeds, expected, tolerance, what)
        if in_onnxruntime and not oracles.sums_saturate(path.read_bytes(), feeds):
            assert_outputs(run_onnxruntime(path, feeds), expected, tolerance, f"{what}, onnxruntime")
    if ir:
        dovetail.save(model, folder / "model.xml")
        converted = dovetail.load(folder / "model.xml")
        assert_here(converted, feeds, expected, tolerance, "IR")
        if in_openvino:
            assert_outputs(run_openvino(folder / "model.xml", feeds), expected, tolerance or 0.0, "IR, OpenVINO")
        dovetail.save(converted, folder / "back.onnx")
        if in_onnxruntime and not oracles.sums_saturate(path.read_bytes(), feeds):
            assert_outputs(run_onnxruntime(folder / "back.onnx", feeds), expected, tolerance, "ONNX of IR, onnxruntime")
    return model
