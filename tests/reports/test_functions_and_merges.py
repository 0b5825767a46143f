"""Functions with constants of one name, branches that read outer axes, merges of opsets, and metadata that stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dovetail
from report_routes import BOOL, FLOAT, assert_every_way, proto_of, run_onnxruntime

RANDOM = np.random.default_rng(0)
node, info = helper.make_node, helper.make_tensor_value_info


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def function(number: Any, kind: str, name: str = "f") -> onnx.FunctionProto:
    nodes = [node("Constant", [], ["w"], value=numpy_helper.from_array(np.float32(number))), node(kind, ["a", "w"], ["b"])]
    return helper.make_function("local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])


def with_functions(model: onnx.ModelProto, *functions: onnx.FunctionProto) -> onnx.ModelProto:
    model.functions.extend(functions)
    return model


@pytest.mark.parametrize("condition", [True, False])
def test_functions_with_constants_of_one_name_in_branches(condition: bool, tmp_path: Path) -> None:
    branches = [
        helper.make_graph([node(name, ["x"], [f"{name}0"], domain="local")], name, [], [info(f"{name}0", FLOAT, None)])
        for name in "fg"
    ]
    nodes = [
        node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        node("f", ["y"], ["z"], domain="local"),
    ]
    outputs = [(name, FLOAT, ["b", 2]) for name in "yz"]
    proto = proto_of(nodes, [("x", FLOAT, ["b", 2]), ("c", BOOL, [])], outputs, local=1)
    model = with_functions(proto, function([1, 2], "Add"), function([10, 20], "Mul", "g"))
    feeds = {"x": normal(3, 2), "c": np.array(condition)}
    y = feeds["x"] + np.float32([1, 2]) if condition else feeds["x"] * np.float32([10, 20])
    expected = {"y": y, "z": y + np.float32([1, 2])}
    loaded = assert_every_way(model, feeds, expected, tmp_path, tolerance=1e-6, opsets=(13, 21))
    dovetail.save(dovetail.extract(loaded, outputs="y"), tmp_path / "part.onnx")
    np.testing.assert_allclose(run_onnxruntime(tmp_path / "part.onnx", feeds)["y"], y, rtol=1e-6)


def test_models_whose_functions_have_one_name_are_merged(tmp_path: Path) -> None:
    def scaled_by(number: float) -> dovetail.Model:
        nodes = [node("f", ["x"], ["y"], domain="local")]
        proto = proto_of(nodes, [("x", FLOAT, ["b", 2])], [("y", FLOAT, ["b", 2])], local=1)
        return dovetail.load(with_functions(proto, function(number, "Mul")))

    x = normal(3, 2)
    dovetail.save(dovetail.merge(scaled_by(3), scaled_by(5), {"y": "x"}), tmp_path / "merged.onnx")
    np.testing.assert_allclose(run_onnxruntime(tmp_path / "merged.onnx", {"x": x})["y"], 15 * x, rtol=1e-6)


@pytest.mark.parametrize(("size", "declared"), [(1, "k"), (2, "k"), (1, 1)])
def test_squeeze_in_a_branch_by_outer_axes(size: int, declared: Any, tmp_path: Path) -> None:
    """The branches have different ranks; IR has no such If where the condition is open."""
    then = helper.make_graph([node("Squeeze", ["x", "axes"], ["t"])], "t", [], [info("t", FLOAT, None)])
    other = helper.make_graph([node("Identity", ["x"], ["e"])], "e", [], [info("e", FLOAT, None)])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["d"], axis=0),
        node("Equal", ["d", "one"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    constants = {"axes": np.array([1]), "one": np.array(1)}
    model = proto_of(nodes, [("x", FLOAT, ["b", declared, 3])], [("y", FLOAT, None)], constants)
    feeds = {"x": normal(2, size, 3)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path, ir=declared == 1)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_and_outputs_that_fold_to_constants(condition: bool, tmp_path: Path) -> None:
    ones = node("Constant", [], ["t"], value=numpy_helper.from_array(np.ones((2, 3), np.float32)))
    then = helper.make_graph([ones], "t", [], [info("t", FLOAT, [2, 3])])
    other = helper.make_graph([node("ConstantOfShape", ["s"], ["e"])], "e", [], [info("e", FLOAT, [2, 3])])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other), node("ConstantOfShape", ["s"], ["k"])]
    model = proto_of(nodes, [("c", BOOL, [])], [("y", FLOAT, None), ("k", FLOAT, None)], {"s": np.array([2, 3])})
    feeds = {"c": np.array(condition)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path)


def test_a_scan_over_other_axes_and_directions_with_more_outputs_than_inputs(tmp_path: Path) -> None:
    steps = [node("Add", ["s", "a"], ["s1"]), node("Mul", ["s1", "b"], ["o1"])]
    steps += [node("Sub", ["a", "b"], ["o2"]), node("Neg", ["s1"], ["o3"])]
    results = [info(name, FLOAT, [3]) for name in ("s1", "o1", "o2", "o3")]
    body = helper.make_graph(steps, "b", [info(name, FLOAT, [3]) for name in "sab"], results)
    scan = node(
        "Scan", ["s0", "A", "B"], ["S", "O1", "O2", "O3"], body=body, num_scan_inputs=2, scan_input_axes=[0, 1],
        scan_input_directions=[1, 0], scan_output_axes=[1, 0, -1], scan_output_directions=[0, 1, 1],
    )  # fmt: skip
    inputs = [("s0", FLOAT, [3]), ("A", FLOAT, ["t", 3]), ("B", FLOAT, [3, "t"])]
    model = proto_of([scan], inputs, [(name, FLOAT, None) for name in ("S", "O1", "O2", "O3")])
    feeds = {"s0": normal(3), "A": normal(5, 3), "B": normal(3, 5)}
    assert_every_way(model, feeds, run_onnxruntime(model, feeds), tmp_path, tolerance=1e-6)


def test_models_of_opsets_whose_softmax_differ_are_merged(tmp_path: Path) -> None:
    """They also have inner values of one name."""
    first = proto_of([node("Softmax", ["x"], ["y"], axis=1)], [("x", FLOAT, ["b", 3, 4])], [("y", FLOAT, ["b", 3, 4])], opset=11)
    nodes = [node("ReduceSum", ["x", "axes"], ["r"], keepdims=0), node("Softmax", ["r"], ["y"], axis=1)]
    second = proto_of(nodes, [("x", FLOAT, ["n", 3, 4])], [("y", FLOAT, None)], {"axes": np.array([2])}, opset=18)
    x = normal(2, 3, 4)
    dovetail.save(dovetail.merge(dovetail.load(first), dovetail.load(second), {"y": "x"}), tmp_path / "merged.onnx")
    expected = run_onnxruntime(second, {"x": run_onnxruntime(first, {"x": x})["y"]})["y"]
    np.testing.assert_allclose(run_onnxruntime(tmp_path / "merged.onnx", {"x": x})["y"], expected, atol=1e-6)


CHANGES: dict[str, Callable[[dovetail.Model], dovetail.Model]] = {
    "opset": lambda model: model,
    "simplify": lambda model: dovetail.simplify(model),
    "extract": lambda model: dovetail.extract(model, outputs="a"),
    "rebatch": lambda model: dovetail.rebatch(model, {"0": "n"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_metadata_survives(change: str, tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"], name="first"), node("Neg", ["a"], ["y"])]
    model = proto_of(nodes, [("x", FLOAT, ["b", 3])], [("y", FLOAT, ["b", 3])])
    helper.set_model_props(model, {"names": "cat"})
    model.graph.node[0].metadata_props.add(key="k", value="v")
    model.graph.metadata_props.add(key="g", value="w")
    model.producer_name, model.doc_string = "p", "d"
    dovetail.save(CHANGES[change](dovetail.load(model)), tmp_path / "model.onnx", opset=21)
    written = onnx.load(tmp_path / "model.onnx")
    assert {item.key: item.value for item in written.metadata_props} == {"names": "cat"}
    assert [item.value for item in written.graph.node[0].metadata_props] == ["v"]
    assert [item.value for item in written.graph.metadata_props] == ["w"]
    assert (written.producer_name, written.doc_string) == ("p", "d")
