"""Random graphs of moves: evaluated, written, read back and run elsewhere, they give what numpy's own moves give."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
from hypothesis import assume, given, settings, strategies as st

import oracles
from assertions import assert_same_bits, assert_same_graph
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec as onnx_codec, write as onnx_write
from dovetail.formats.openvino import codec as openvino_codec, write as openvino_write
from dovetail.ir.builder import Builder
from dovetail.ir.edit import inline
from dovetail.ir.graph import Model
from dovetail.ir.infer import infer
from dovetail.laws.fold import fold
from dovetail.ops.tensor.reshape import Reshape
from dovetail.passes.check import check
from dovetail.runtime.compilation import compile
from strategies import Moved, movements

GRAPHS = settings(max_examples=max(20, settings().max_examples // 2))


def assert_gives(model: Model, moved: Moved, what: str) -> None:
    assert check(model) == []
    found = compile(model)(moved.inputs)
    assert list(found.keys()) == list(moved.outputs)
    for name, array in moved.outputs.items():
        assert_same_bits(found[name], array, f"{what}: {name}")


@given(movements())
def test_a_graph_of_moves_gives_the_results_of_numpy(moved: Moved) -> None:
    assert_gives(moved.model, moved, "evaluated")
    for value, array in zip(moved.model.outputs, moved.outputs.values(), strict=True):
        assert value.shape == array.shape
    assert_same_graph(moved.model, infer(moved.model))


@given(movements())
def test_folding_a_graph_keeps_the_answer(moved: Moved) -> None:
    constants = Builder("constants")
    given = [constants.constant(array) for array in moved.inputs.values()]
    for name, value in zip(moved.outputs, inline(constants, moved.model.graph, given), strict=True):
        constants.output(name, value)
    fold(constants.graph)
    assert {type(node.op).__name__ for node in constants.graph.nodes} <= {"Constant", "Identity"}
    assert_gives(constants.model, Moved(constants.model, {}, moved.outputs), "folded")


@GRAPHS
@given(movements(), st.sampled_from((13, 18, 21, oracles.RUNTIME_OPSET)))
def test_the_onnx_file_of_a_graph_of_moves_is_equivalent(moved: Moved, opset: int) -> None:
    # Reshape could not say a size of 0 before 14.
    assume(opset >= 14 or all(node.op != Reshape(special_zero=False) for node in moved.model.graph.nodes))
    data = onnx_write.save(moved.model, None, opset=opset)
    assert data is not None
    try:
        theirs: list[Any] = oracles.run_onnxruntime(data, moved.inputs)
    except oracles.Silent:
        theirs = oracles.run_reference(data, moved.inputs)
    for (name, array), other in zip(moved.outputs.items(), theirs, strict=True):
        assert_same_bits(np.asarray(other), array, f"onnxruntime: {name}")
    once = import_foreign(onnx_codec.read(data))
    assert_gives(once, moved, "after a trip through ONNX")
    again = onnx_write.save(once, None, opset=opset)
    assert again is not None
    assert_same_graph(once, import_foreign(onnx_codec.read(again)), "after a second trip through ONNX")


@GRAPHS
@given(movements())
def test_the_ir_of_a_graph_of_moves_is_equivalent(moved: Moved) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, "model.xml"), os.path.join(folder, "again.xml")
        openvino_write.save(moved.model, path)
        # OpenVINO's own passes lose track of tensors that hold nothing.
        if all(0 not in value.dims for value in moved.model.graph.values()):
            theirs = oracles.run_openvino_file(path, moved.inputs, list(moved.outputs))
            for (name, array), found in zip(moved.outputs.items(), theirs, strict=True):
                narrow = oracles.as_f32 if array.dtype == np.float64 else np.asarray
                assert_same_bits(narrow(found), narrow(array), f"openvino: {name}")
        once = import_foreign(openvino_codec.read(path))
        assert_gives(once, moved, "after a trip through IR")
        openvino_write.save(once, other)
        assert_same_graph(once, import_foreign(openvino_codec.read(other)), "after a second trip through IR")
