"""The kernel of recurrent layers against the layers' own rule: cells, directions, batches, lengths, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.engine.engine import Engine
from dovetail.ir.builder import Builder
from dovetail.ir.host import native_core
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, STATE_AXES, X_AXES
from kernel_runner import check, random

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

LAYERS: dict[str, Any] = {
    "lstm": LSTM(),
    "lstm, other gates": LSTM(weights_format="fico", summed_bias=True, direction="bidirectional"),
    "lstm, coupled": LSTM(input_forget=True, direction="reverse"),
    "lstm, batch first": LSTM(layout="batch_first", direction="bidirectional"),
    "lstm, peepholes": LSTM(direction="bidirectional"),
    "lstm, coupled, peepholes": LSTM(input_forget=True, weights_format="fico", layout="batch_first"),
    "gru": GRU(linear_before_reset=True, direction="bidirectional"),
    "gru, summed": GRU(linear_before_reset=True, summed_bias=True, layout="direction_second"),
    "rnn": RNN(direction="bidirectional"),
    "rnn, relu": RNN(activations=("relu",), direction="reverse"),
}


@pytest.mark.parametrize("batch", [1, 3, 13])
@pytest.mark.parametrize("more", ["nothing", "lengths", "states", "weights"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_are_those_of_the_interpreter(name: str, more: str, batch: int) -> None:
    op, hidden, inputs, moments = LAYERS[name], 21, 10, 6
    rows, directions = op.gate_count * hidden, op.directions
    bias_size = op.bias_count * hidden
    order = {"b": batch, "s": moments, "i": inputs, "d": directions, "h": hidden}
    with Builder() as b:
        # The number of time steps is known only when the model runs.
        x = b.input("x", "f32", [order[axis] if axis != "s" else "moments" for axis in X_AXES[op.layout]])
        shapes = {"w": (directions, rows, inputs), "r": (directions, rows, hidden)}
        arrays = {name: random(shape) * np.float32(0.2) for name, shape in shapes.items()}
        weights = [b.input(n, "f32", array.shape) if more == "weights" else b.constant(array) for n, array in arrays.items()]
        bias = b.constant(random((directions, bias_size)) * np.float32(0.1))
        lengths = b.input("lengths", "i64", (batch,)) if more == "lengths" else None
        state = [order[axis] for axis in STATE_AXES[op.layout]]
        states = [b.input(f"state_{i}", "f32", state) if more == "states" else None for i in range(op.state_count)]
        peepholes = [b.constant(random((directions, 3 * hidden)))] if "peepholes" in name else []
        for i, y in enumerate(b.add(op, x, *weights, bias, lengths, *states, *peepholes)):
            b.output(f"y_{i}", y)
    feed: dict[str, Any] = {"x": random([order[axis] for axis in X_AXES[op.layout]])}
    if lengths is not None:
        feed["lengths"] = np.arange(batch) * 5 % (moments + 1)
    feed |= arrays if more == "weights" else {}
    feed |= {f"state_{i}": random(state, seed=i) for i, value in enumerate(states) if value is not None}
    found, expected = (dovetail.compile(b.model, engine=engine, threads=2)(feed) for engine in ("native", "interpreter"))
    for each, array in expected.items():
        check(found[each], array)
    bound, _ = Engine(b.model, threads=1).bind(feed)
    assert any(each.startswith("recurrent") for each in bound.names())


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("kind, zero", [("int8", 0), ("int8", 9), ("uint8", 128), ("uint8", 3)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_quantized_layers(direction: str, kind: str, zero: int, batch: int, tmp_path: Any) -> None:
    directions, hidden, inputs, steps = 1 + (direction == "bidirectional"), 37, 70, 5
    op = DynamicQuantizeLSTM(direction, input_forget=False, weights_format="iofc")
    with Builder() as b:
        x = b.input("x", "f32", ("steps", batch, inputs))
        weights = [random((directions, size, 4 * hidden), kind) for size in (inputs, hidden)]
        scales = [np.linspace(1, 2, directions * 4 * hidden, dtype=np.float32).reshape(directions, -1) / 4000] * 2
        zeros = [np.full((directions, 4 * hidden), zero, kind)] * 2
        state = [b.input(f"state_{i}", "f32", (directions, batch, hidden)) for i in range(2)]
        bias = random((directions, 8 * hidden)) * np.float32(0.1)
        quantization = [value for pair in zip(scales, zeros, strict=True) for value in pair]
        results = b.add(op, x, *map(b.constant, weights), b.constant(bias), None, *state, None, *map(b.constant, quantization))
        for i, y in enumerate(results):
            b.output(f"y_{i}", y)
    feed = {"x": random((steps, batch, inputs))} | {
        f"state_{i}": np.tanh(random((directions, batch, hidden), seed=i)) for i in range(2)
    }
    engine = Engine(b.model, threads=2)
    bound, _ = engine.bind(feed)
    assert not bound.python_steps
    assert any(name.startswith("recurrent") for name in bound.names())
    found, expected = engine(feed), dovetail.compile(b.model, engine="interpreter")(feed)
    for name, array in expected.items():
        check_codes(found[name], array)
    if kind == "int8" and zero:
        return  # onnxruntime refuses it.
    onnxruntime = pytest.importorskip("onnxruntime")
    if kind == "int8":
        oracles.skip_where_bytes_saturate()
    options = onnxruntime.SessionOptions()
    # Several threads quantize parts of the batch by themselves.
    options.intra_op_num_threads = 1
    dovetail.save(b.model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options, providers=["CPUExecutionProvider"])
    for name, array in zip(expected.keys(), session.run(None, feed), strict=True):
        check_codes(found[name], array)


def check_codes(y: Any, expected: Any) -> None:
    """Sigmoids of other engines are rounded otherwise, which moves a code of h here and there."""
    apart = np.abs(y - expected)
    assert np.count_nonzero(apart > 1e-5) <= 0.05 * apart.size
    assert apart.max() < 2e-3


@pytest.mark.parametrize("name", ["lstm", "lstm, other gates", "gru, summed", "rnn, relu", "int8", "uint8"])
@pytest.mark.parametrize("batch, hidden", [(1, 305), (3, 530), (13, 205), (13, 515), (35, 190)])
def test_threads_that_share_a_time_step_give_the_same_bits(name: str, batch: int, hidden: int) -> None:
    op = LAYERS.get(name, DynamicQuantizeLSTM("forward", input_forget=False, weights_format="iofc"))
    size = {"b": batch, "s": 4, "i": 7}
    shape = [size[axis] for axis in ("sbi" if name.endswith("int8") else X_AXES[op.layout])]
    with Builder() as b:
        if name.endswith("int8"):
            weights = [random((1, rows, 4 * hidden), name) for rows in (7, hidden)]
            grid = [np.full((1, 4 * hidden), 1 / 4000, np.float32), np.full((1, 4 * hidden), 3, name)]
            operands = [*map(b.constant, weights), *[None] * 5, *map(b.constant, grid * 2)]
        else:
            rows = op.gate_count * hidden
            shapes = ((op.directions, rows, 7), (op.directions, rows, hidden), (op.directions, op.bias_count * hidden))
            operands = [b.constant(random(each) * np.float32(0.1)) for each in shapes]
        for i, y in enumerate(b.add(op, b.input("x", "f32", shape), *operands)):
            b.output(f"y_{i}", y)
    feed = {"x": random(shape)}
    alone, *shared = (dovetail.compile(b.model, engine="native", threads=threads)(feed) for threads in (1, 2, 3, 5))
    expected = dovetail.compile(b.model, engine="interpreter")(feed)
    for key, array in alone.items():
        assert all(np.array_equal(array, found[key]) for found in shared)
        (check_codes if name.endswith("int8") else check)(array, expected[key])
