"""Models in which a rule once ended in an exception of Python: each is read, refused, or written by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.errors import RuleError

_HUGE = 2**32 + 1


def saved(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: tuple[Any, ...] = ()) -> Path:
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(np.array(x), name) for name, x in constants]
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("ai.onnx.preview", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def value(name: str, kind: int, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("ArgMin", ["x"], ["y"], axis=0, select_last_index=1),
        helper.make_node("EyeLike", ["x"], ["y"], dtype=TensorProto.DOUBLE),
        helper.make_node("Trilu", ["x"], ["y"]),
    ],
    ids=lambda node: node.op_type,
)
def test_decompositions_have_no_constant_as_long_as_their_data(node: Any, tmp_path: Path) -> None:
    y = helper.make_empty_tensor_value_info("y")
    path = saved(tmp_path / "model.onnx", [node], [value("x", TensorProto.FLOAT, _HUGE, 4)], [y])
    dovetail.save(dovetail.load(path), tmp_path / "model.xml")
    assert (tmp_path / "model.bin").stat().st_size < 4096


def test_an_affine_grid_of_an_open_rank_is_written(tmp_path: Path) -> None:
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"])
    inputs = [value("theta", TensorProto.FLOAT, 2, 2, 3), value("size", TensorProto.INT64, "n")]
    path = saved(tmp_path / "model.onnx", [node], inputs, [value("y", TensorProto.FLOAT, 2, 5, 6, 2)])
    model = dovetail.load(path)
    dovetail.save(model, tmp_path / "model.xml")
    feeds = {"theta": np.arange(12, dtype=np.float32).reshape(2, 2, 3), "size": np.array([2, 1, 5, 6])}
    np.testing.assert_allclose(dovetail.run(tmp_path / "model.xml", feeds)["y"], dovetail.run(model, feeds)["y"], atol=1e-5)


def test_too_many_inputs_of_an_optional_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("Optional", ["x", "x"], ["y"])
    y = helper.make_value_info("y", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))
    path = saved(tmp_path / "model.onnx", [node], [value("x", TensorProto.FLOAT, 2)], [y])
    with pytest.raises(RuleError) as caught:
        dovetail.load(path, strict=True)
    assert caught.value.code == "node.inputs"


def test_sizes_of_interpolate_that_are_no_vector_are_refused(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        x, sizes = b.input("x", "f32", (1, 1, 2, 2)), b.input("sizes", "i64", (2,))
        b.output("y", b.Resize(x, sizes, axes=(3, 2)))
    path = tmp_path / "model.xml"
    dovetail.save(b.model, path)
    text = path.read_text()
    assert text.count('shape="2" element_type="i64"') == 1
    path.write_text(text.replace('shape="2" element_type="i64"', 'shape="" element_type="i64"'))
    with pytest.raises(RuleError) as caught:
        dovetail.load(path, strict=True)
    assert caught.value.code == "shape.rank"


def scores(*nodes: Any) -> Any:
    return helper.make_graph(
        list(nodes),
        "scores",
        [value("s", TensorProto.FLOAT, 1, 2, 4, 4)],
        [value("t", TensorProto.FLOAT, 1, 2, 4, 4)],
        [onnx.numpy_helper.from_array(np.array(9), "nine")],
    )


_FAULTY = (
    helper.make_node("Gather", ["s", "nine"], ["u"], axis=3),
    helper.make_node("Reshape", ["u", "nine"], ["v"]),
    helper.make_node("Add", ["s", "v"], ["t"]),
)


def test_a_graph_in_an_attribute_that_breaks_rules_is_refused_with_its_faults(tmp_path: Path) -> None:
    node = helper.make_node("FlexAttention", ["q", "q", "q"], ["y"], domain="ai.onnx.preview", score_mod=scores(*_FAULTY))
    shape = (1, 2, 4, 8)
    path = saved(
        tmp_path / "model.onnx", [node], [value("q", TensorProto.FLOAT, *shape)], [value("y", TensorProto.FLOAT, *shape)]
    )
    with pytest.raises(RuleError) as caught:
        dovetail.load(path, strict=True)
    assert caught.value.diagnostics[0].code == "index.range"


def test_the_only_branch_that_can_run_is_refused_with_its_faults(tmp_path: Path) -> None:
    """Both branches break rules, and the condition is known."""
    branch = helper.make_graph(
        [helper.make_node("Gather", ["x", "nine"], ["u"], axis=0), helper.make_node("Abs", ["u"], ["t"])],
        "branch",
        [],
        [value("t", TensorProto.FLOAT)],
    )
    for condition in (True, False):
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        path = saved(
            tmp_path / "model.onnx",
            [node],
            [value("x", TensorProto.FLOAT, 3)],
            [value("y", TensorProto.FLOAT)],
            (("c", condition), ("nine", 9)),
        )
        with pytest.raises(RuleError) as caught:
            dovetail.compile(path)
        assert caught.value.diagnostics[0].code == "index.range"
