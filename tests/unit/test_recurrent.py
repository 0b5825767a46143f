"""Refusals of recurrent layers, and the conversion of each format's form to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from onnx import helper
from openvino import opset5

from cases.matmul import floats
from dovetail.errors import DovetailError, EngineError, RuleError, UnsupportedError
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec as onnx_codec, write as onnx_write
from dovetail.formats.openvino import codec as openvino_codec, write as openvino_write
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN
from dovetail.runtime.compilation import run
from dovetail.runtime.interpreter.interpret import interpret

STEPS, BATCH, INPUT, HIDDEN = 3, 2, 4, 5


def made(op: Any, *more: Any, x: Any = (STEPS, BATCH, INPUT), w: Any = None, r: Any = None) -> Model:
    """Return a model of ``op`` on an input and constant weights."""
    b = Builder()
    rows = op.gate_count * HIDDEN
    weights = floats(*(w or (op.directions, rows, INPUT)), seed=1), floats(*(r or (op.directions, rows, HIDDEN)), seed=2)
    ys = b.add(
        op, b.input("x", "f32", x), *map(b.constant, weights), *(None if each is None else b.constant(each) for each in more)
    )
    for index, y in enumerate(ys):
        b.output(f"y{index}", y)
    return b.model


@pytest.mark.parametrize(
    ("make", "error", "code"),
    [
        (lambda: LSTM("backward"), RuleError, "attribute.value"),
        (lambda: LSTM(layout="time_first"), RuleError, "attribute.value"),
        (lambda: LSTM(weights_format="iofz"), RuleError, "attribute.value"),
        (lambda: LSTM(clip=-1.0), RuleError, "attribute.range"),
        (lambda: LSTM(hidden_size=0), RuleError, "attribute.range"),
        (lambda: LSTM(outputs=4), RuleError, "node.outputs"),
        (lambda: RNN(outputs=0), RuleError, "node.outputs"),
        (lambda: GRU(activations=("tanh",)), RuleError, "attribute.length"),
        (lambda: GRU(activations=("tanh",) * 4), RuleError, "attribute.length"),
        (lambda: RNN(activations=("sine",)), RuleError, "attribute.value"),
        (lambda: RNN(activations=("affine",)), RuleError, "attribute.conflict"),
        (lambda: RNN(activations=("scaledtanh",), activation_alpha=(1.0,)), RuleError, "attribute.conflict"),
        (lambda: made(LSTM(), x=(STEPS, BATCH)), RuleError, "shape.rank"),
        (lambda: made(LSTM(), x=(STEPS, BATCH, INPUT + 1)), RuleError, "shape.disagree"),
        (lambda: made(LSTM(), w=(1, 19, INPUT)), RuleError, "shape.disagree"),
        (lambda: made(LSTM(), w=(1, 19, INPUT), r=(1, 19, HIDDEN)), RuleError, "shape.multiple"),
        (lambda: made(LSTM("bidirectional"), w=(1, 20, INPUT)), RuleError, "shape.disagree"),
        (lambda: made(LSTM(hidden_size=4)), RuleError, "shape.disagree"),
        (lambda: made(RNN(), floats(1, 5)), RuleError, "shape.disagree"),
        (lambda: made(RNN(summed_bias=True), floats(1, 10)), RuleError, "shape.disagree"),
        (lambda: made(RNN(), None, np.array([3, 3, 3], np.int32)), RuleError, "shape.disagree"),
        (lambda: made(RNN(), None, np.array([[3, 3]], np.int32)), RuleError, "shape.rank"),
        (lambda: made(RNN(), None, None, floats(1, BATCH, HIDDEN + 1)), RuleError, "shape.disagree"),
        (lambda: made(LSTM(), None, None, None, None, floats(1, 2 * HIDDEN)), RuleError, "shape.disagree"),
    ],
)
def test_operands_that_do_not_fit_are_refused(make: Callable[[], Any], error: type[DovetailError], code: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert caught.value.code == code


def test_a_quantised_layer_of_rows_of_several_lengths_is_refused() -> None:
    codes = [np.zeros((1, size, 4 * HIDDEN), np.int8) for size in (INPUT, HIDDEN)]
    scales = [np.ones(1, np.float32), np.zeros(1, np.int8)] * 2
    b = Builder()
    x = b.input("x", "f32", (STEPS, BATCH, INPUT))
    with pytest.raises(UnsupportedError) as caught:
        b.add(DynamicQuantizeLSTM(), x, *codes, None, np.array([3, 2], np.int32), None, None, None, *scales)
    assert caught.value.code == "op.unsupported"


@pytest.mark.parametrize("lengths", [[4, 1], [-1, 1]])
def test_a_length_outside_of_the_sequence_is_refused(lengths: list[int]) -> None:
    for op in (RNN(), LSTM(), GRU(), GRU(linear_before_reset=True), RNN(layout="batch_first")):
        x = (STEPS, BATCH, INPUT) if op.layout == "sequence_first" else (BATCH, STEPS, INPUT)
        model = made(op, None, np.array(lengths, np.int32), x=x)
        with pytest.raises(EngineError) as caught:
            interpret(model, [floats(*x)])
        assert caught.value.code == "attribute.range"
        with pytest.raises(EngineError) as caught:
            run(model, [floats(*x)], "native")
        assert caught.value.code == "attribute.range"


def onnx_model(kind: str, gates: int, opset: int = 14, **attributes: Any) -> bytes:
    shapes = {"x": (STEPS, BATCH, INPUT), "w": (1, gates * HIDDEN, INPUT), "r": (1, gates * HIDDEN, HIDDEN)}
    node = helper.make_node(kind, list(shapes), ["y"], **attributes)
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()
    return data


def op_of(model: Model) -> Any:
    return next(node.op for node in model.graph.nodes if type(node.op) in (LSTM, GRU, RNN))


def test_names_of_functions_are_read_in_any_case() -> None:
    model = import_foreign(onnx_codec.read(onnx_model("GRU", 3, activations=["sigmoid", "HARDSIGMOID"], direction="REVERSE")))
    assert op_of(model) == GRU("reverse", activations=("sigmoid", "hardsigmoid"), outputs=1)


def test_the_list_of_the_schema_of_rnn_serves_one_direction() -> None:
    model = import_foreign(onnx_codec.read(onnx_model("RNN", 1, activations=["Relu", "Tanh"])))
    assert op_of(model).activations == ("relu",)


def test_a_clip_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_foreign(onnx_codec.read(onnx_model("LSTM", 4, clip=0.0)))
    assert caught.value.code == "attribute.range"


def test_weights_stay_constant_from_format_to_format(tmp_path: Any) -> None:
    model = made(LSTM("bidirectional"), floats(2, 8 * HIDDEN))
    openvino_write.save(model, tmp_path / "m.xml")
    there = import_foreign(openvino_codec.read(tmp_path / "m.xml"))
    data = onnx_write.save(there, None, opset=21)
    assert data is not None
    for changed in (there, import_foreign(onnx_codec.read(data))):
        (node,) = (node for node in changed.graph.nodes if isinstance(node.op, LSTM))
        assert all(x is not None and x.constant is not None for x in node.inputs[1:4])
    assert op_of(import_foreign(onnx_codec.read(data))).layout == "sequence_first"


def test_whole_rows_need_no_lengths_in_onnx(tmp_path: Any) -> None:
    b = Builder()
    x = b.input("x", "f32", ("s", "b", INPUT))
    weights = [b.constant(floats(1, HIDDEN, size, seed=size)) for size in (INPUT, HIDDEN)]
    b.output("y", b.add(RNN(outputs=1), x, *weights)[0])
    openvino_write.save(b.model, tmp_path / "m.xml")
    data = onnx_write.save(import_foreign(openvino_codec.read(tmp_path / "m.xml")), None, opset=21)
    assert data is not None
    (node,) = (node for node in onnx.load_from_string(data).graph.node if node.op_type == "RNN")
    assert not node.input[4]


def test_a_function_that_openvino_does_not_list_is_refused(tmp_path: Any) -> None:
    x = openvino.op.Parameter(openvino.Type.f32, openvino.PartialShape([BATCH, STEPS, INPUT]))
    given = [opset5.constant(floats(BATCH, 1, HIDDEN)), opset5.constant(np.array([3, 3]))]
    weights = [opset5.constant(floats(1, HIDDEN, size)) for size in (INPUT, HIDDEN)]
    node = opset5.rnn_sequence(
        x, *given, *weights, opset5.constant(floats(1, HIDDEN)), HIDDEN, "forward", ["hardsigmoid"], [], []
    )
    openvino.save_model(openvino.Model([node.output(0)], [x], "m"), tmp_path / "m.xml", compress_to_fp16=False)
    with pytest.raises(UnsupportedError) as caught:
        import_foreign(openvino_codec.read(tmp_path / "m.xml"))
    assert caught.value.code == "attribute.value"
