"""LSTM with peepholes: a native kernel, and an LSTM again after a format that has no peepholes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from assertions import assert_close
from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core

HIDDEN, INPUTS, STEPS, BATCH = 5, 4, 7, 2


def lstm(direction: str = "forward", *, steps: int | str = "t", outputs: int = 3, states: bool = False, forget: int = 0) -> bytes:
    """Return an ONNX model of one LSTM with peepholes."""
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    shapes = {"W": (4 * HIDDEN, INPUTS), "R": (4 * HIDDEN, HIDDEN), "B": (8 * HIDDEN,), "P": (3 * HIDDEN,)}
    arrays = [
        numpy_helper.from_array((rng.standard_normal((directions, *shape)) * 0.3).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    initial = ["h0", "c0"] if states else ["", ""]
    names = ["y", "y_h", "y_c"][:outputs]
    node = helper.make_node(
        "LSTM", ["x", "W", "R", "B", "", *initial, "P"], names, hidden_size=HIDDEN, direction=direction, input_forget=forget
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, BATCH, INPUTS])]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [directions, BATCH, HIDDEN]) for name in initial if name]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names], arrays
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def feeds(model: dovetail.Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        x.name: rng.standard_normal([size if isinstance(size, int) else STEPS for size in x.shape]).astype(np.float32)
        for x in model.inputs
    }


@pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_an_lstm_with_peepholes_runs_natively(direction: str) -> None:
    """An LSTM with peepholes was a step in Python, 38 times slower than in onnxruntime."""
    data = lstm(direction, states=True)
    model = dovetail.load(data)
    inputs = feeds(model)
    bound, _ = Engine(model, threads=1).bind(inputs)
    assert not bound.python_steps and any(name.startswith("recurrent") for name in bound.names())
    found = dovetail.compile(model, engine="native")(inputs)
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, inputs)
    for y, array in zip(model.outputs, expected, strict=True):
        assert_close(found[y.name], array, 1e-5, y.name)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
def test_an_lstm_with_peepholes_is_restored_from_ir(direction: str, states: bool, tmp_path: Path) -> None:
    """The round trip came back as a Scan, and was not proved."""
    data = lstm(direction, states=states)
    paths = [tmp_path / name for name in ("a.onnx", "b.xml", "c.onnx")]
    paths[0].write_bytes(data)
    for source, target in pairwise(paths):
        dovetail.save(dovetail.load(source), target)
    kinds = [node.op_type for node in onnx.load(paths[2]).graph.node]
    assert "LSTM" in kinds and not {"Scan", "Loop"} & set(kinds)
    onnx.checker.check_model(onnx.load(paths[2]), full_check=True)
    model = dovetail.load(paths[0])
    inputs = feeds(model)
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, inputs)
    again = onnxruntime.InferenceSession(paths[2], providers=["CPUExecutionProvider"]).run(None, inputs)
    for y, array, third in zip(model.outputs, expected, again, strict=True):
        assert_close(third, array, 1e-5, y.name)
    if direction != "bidirectional":
        assert dovetail.prove(paths[0], paths[2], real=True).verdict == "real"
        assert dovetail.prove(paths[0], paths[1], real=True).verdict == "real"


@pytest.mark.parametrize("steps", [1, 3, 40])
def test_a_fixed_number_of_time_steps_is_proved(steps: int, tmp_path: Path) -> None:
    """IR has a loop for these too."""
    paths = [tmp_path / name for name in ("a.onnx", "b.xml", "c.onnx")]
    paths[0].write_bytes(lstm(steps=steps, outputs=1))
    for source, target in pairwise(paths):
        dovetail.save(dovetail.load(source), target)
    assert dovetail.prove(paths[0], paths[2], real=True).verdict == "real"


@pytest.mark.parametrize(
    "old, new", [("Tanh", "Tanh"), ("Tanh", "Sigmoid"), ("Sigmoid", "Tanh"), ("Multiply", "Add"), ("Add", "Multiply")]
)
def test_only_an_lstm_is_recognised(old: str, new: str, tmp_path: Path) -> None:
    """A body that differs in one operator stays a loop."""
    path = tmp_path / "m.xml"
    dovetail.save(dovetail.load(lstm()), path)
    text = path.read_text()
    start = text.index("<body>")
    count = text[start:].count(f'type="{old}"')
    for number in range(count):
        parts = text[start:].split(f'type="{old}"')
        left, right = (f'type="{old}"'.join(each) for each in (parts[: number + 1], parts[number + 1 :]))
        path.write_text(f'{text[:start]}{left}type="{new}"{right}')
        model = dovetail.load(path)
        kinds = {type(node.op).__name__ for node in model.graph.nodes}
        assert ("LSTM" in kinds) == (old == new) == ("Loop" not in kinds)
