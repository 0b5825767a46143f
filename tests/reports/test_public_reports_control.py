"""Public reports of control flow, functions, sequences and names; docs/reports.md lists them by number."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import dovetail
from report_routes import (
    BOOL,
    FLOAT,
    INT64,
    STRING,
    assert_every_way,
    assert_here,
    assert_outputs,
    proto_of,
    run_onnxruntime,
    run_openvino,
)

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
info = helper.make_tensor_value_info
node = helper.make_node
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("opset", [11, 24])
@pytest.mark.parametrize("axis", [0, 1])
def test_01_strings_split_into_single_elements(tmp_path: Path, opset: int, axis: int) -> None:
    x = np.array([["This is a text.", "a"], ["another, longer text", ""]], object)
    output = helper.make_tensor_sequence_value_info("s", STRING, None)
    proto = proto_of(
        [node("SplitToSequence", ["x"], ["s"], axis=axis, keepdims=0)], [("x", STRING, ["n", 2])], [output], opset=opset
    )
    expected = {"s": [np.array(part, object) for part in (x if axis == 0 else x.T)]}
    assert_every_way(proto, {"x": x}, expected, tmp_path, ir=False, in_onnxruntime=False)
    with pytest.raises(dovetail.UnsupportedError, match="SplitToSequence"):
        dovetail.save(dovetail.load(proto), tmp_path / "m.xml")
    # One element of such a sequence is a tensor again.
    one = proto_of(
        [node("SplitToSequence", ["x"], ["s"], axis=axis, keepdims=0), node("SequenceAt", ["s", "i"], ["y"])],
        [("x", STRING, ["n", 2]), ("i", INT64, [])],
        [("y", STRING, None)],
        opset=opset,
    )
    feeds = {"x": x, "i": np.array(-1)}
    assert_every_way(one, feeds, {"y": expected["s"][-1]}, tmp_path, ir=False, in_onnxruntime=False)


@pytest.mark.parametrize("renamed", [False, True])
def test_05_attributes_reach_functions_called_by_functions(tmp_path: Path, renamed: bool) -> None:
    inner = "outer" if not renamed else "inner"
    proto = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (int64[n] x) => (int64[n] y, int64[n] z) {{
            y = local.top <first = 1> (x)
            z = local.top <first = -7> (x)
        }}
        <opset_import: ["" : 17], domain: "local">
        leaf <{inner}> (x) => (y) {{ c = Constant <value_int: int = @{inner}> ()  y = Add (x, c) }}
        <opset_import: ["" : 17, "local" : 1], domain: "local">
        middle <outer> (x) => (y) {{ y = local.leaf <{inner}: int = @outer> (x) }}
        <opset_import: ["" : 17, "local" : 1], domain: "local">
        top <first> (x) => (y) {{ y = local.middle <outer: int = @first> (x) }}
        """
    )
    x = np.array([0, 5, -3])
    assert_every_way(proto, {"x": x}, {"y": x + 1, "z": x - 7}, tmp_path, opsets=(11, 21))


@pytest.mark.parametrize("rows", [2, "n"])
@pytest.mark.parametrize("how", ["trips", "condition"])
def test_10_scan_outputs_of_no_iterations_keep_their_rank(tmp_path: Path, how: str, rows: int | str) -> None:
    body = helper.make_graph(
        [node("Add", ["v", "w"], ["o"]), node("Cast", ["i"], ["f"], to=FLOAT), node("Identity", ["c"], ["co"])],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("v", FLOAT, [rows, 3])],
        [info("co", BOOL, []), info("o", FLOAT, [rows, 3]), info("o2", FLOAT, [rows, 3]), info("f", FLOAT, [])],
    )
    body.node.append(node("Neg", ["o"], ["o2"]))
    proto = proto_of(
        [node("Loop", ["n", "t", "x"], ["last", "all", "counts"], body=body)],
        [("x", FLOAT, [rows, 3]), ("n", INT64, []), ("t", BOOL, [])],
        [("last", FLOAT, None), ("all", FLOAT, None), ("counts", FLOAT, None)],
        {"w": np.float32([1, 2, 3])},
    )
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    feeds = {"x": x, "n": np.array(0 if how == "trips" else 4), "t": np.array(how == "trips")}
    expected = {"last": x, "all": np.zeros((0, 2, 3), np.float32), "counts": np.zeros(0, np.float32)}
    # onnxruntime gives 0 for a symbol of the body's declared shape; the carried value shows its size.
    model = assert_every_way(proto, feeds, expected, tmp_path, opsets=(11, 21), in_onnxruntime=rows == 2, in_openvino=False)
    ranks = {name: array.ndim for name, array in expected.items()}
    assert {name: array.ndim for name, array in run_onnxruntime(tmp_path / "back.onnx", feeds).items()} == ranks
    assert [len(y.type.shape) for y in model.outputs] == [2, 3, 1]
    feeds |= {"n": np.array(3), "t": np.array(True)}
    assert_here(model, feeds, run_onnxruntime(proto, feeds), 1e-6, "three iterations")


def test_11_inputs_of_a_body_that_have_names_of_outer_values(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", ["a", "b"], ["b2"]), node("Sub", ["a", "b"], ["d"]), node("Identity", ["c"], ["c2"])],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("b", FLOAT, [1])],
        [info("c2", BOOL, []), info("b2", FLOAT, [1]), info("d", FLOAT, [1])],
    )
    proto = proto_of(
        [node("Loop", ["n", "", "b"], ["last", "each"], body=body), node("Mul", ["b", "a"], ["first"])],
        [("a", FLOAT, [1]), ("b", FLOAT, [1]), ("n", INT64, [])],
        [("last", FLOAT, [1]), ("each", FLOAT, None), ("first", FLOAT, [1])],
    )
    a, b = np.float32([3]), np.float32([6])
    expected = {"last": b + 4 * a, "each": np.stack([a - b - k * a for k in range(4)]), "first": a * b}
    assert_every_way(proto, {"a": a, "b": b, "n": np.array(4)}, expected, tmp_path, opsets=(13,))


def test_11_nested_bodies_that_use_one_name(tmp_path: Path) -> None:
    def of(kind: str, name: str) -> onnx.GraphProto:
        return helper.make_graph([node(kind, ["b", "a"], [name])], name, [], [info(name, FLOAT, [1])])

    inner = helper.make_graph(
        [node("Mul", ["b", "a"], ["b4"]), node("Identity", ["c"], ["c4"])],
        "inner",
        [info("k", INT64, []), info("c", BOOL, []), info("b", FLOAT, [1])],
        [info("c4", BOOL, []), info("b4", FLOAT, [1])],
    )
    body = helper.make_graph(
        [
            node("Less", ["b", "limit"], ["small"]),
            node("If", ["small"], ["b2"], then_branch=of("Add", "t"), else_branch=of("Sub", "e")),
            node("Loop", ["two", "", "b2"], ["b3"], body=inner),
            node("Sub", ["b3", "b"], ["d"]),
            node("Identity", ["c"], ["c2"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("b", FLOAT, [1])],
        [info("c2", BOOL, []), info("b3", FLOAT, [1]), info("d", FLOAT, [1])],
    )
    proto = proto_of(
        [
            node("Neg", ["x"], ["b"]),
            node("Loop", ["n", "yes", "b"], ["last", "each"], body=body),
            node("Add", ["b", "last"], ["y"]),
        ],
        [("x", FLOAT, [1]), ("a", FLOAT, [1]), ("n", INT64, []), ("yes", BOOL, [])],
        [("each", FLOAT, None), ("y", FLOAT, [1])],
        {"limit": np.float32([8]), "two": np.array(2)},
    )
    feeds = {"x": np.float32([-1]), "a": np.float32([1.5]), "n": np.array(4), "yes": np.array(True)}
    assert_every_way(proto, feeds, run_onnxruntime(proto, feeds), tmp_path, tolerance=1e-6, opsets=(21,))
    with pytest.raises(dovetail.FormatError, match="must not have the name of a value in an outer graph"):
        dovetail.load(proto, strict=True)


@pytest.mark.parametrize("connected", [True, False])
def test_14_inputs_that_only_a_subgraph_of_the_second_model_reads(tmp_path: Path, connected: bool) -> None:
    first = proto_of(
        [node("Mul", ["inputs", "two"], ["doubled"])],
        [("inputs", FLOAT, ["n"])],
        [("doubled", FLOAT, ["n"])],
        {"two": np.float32(2)},
    )
    body = helper.make_graph(
        [
            node("Gather", ["coords", "i"], ["at"]),
            node("Unsqueeze", ["at", "zero"], ["at1"]),
            node("Add", ["at1", "one"], ["end"]),
            node("Slice", ["base_two", "at1", "end"], ["piece"]),
            node("Identity", ["c"], ["c2"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, [])],
        [info("c2", BOOL, []), info("piece", FLOAT, None)],
    )
    second = proto_of(
        [node("Shape", ["coords"], ["s"]), node("Squeeze", ["s"], ["k"]), node("Loop", ["k", ""], ["pieces"], body=body)],
        [("base_two", FLOAT, ["m"]), ("coords", INT64, ["k"])],
        [("pieces", FLOAT, None)],
        {"zero": np.array([0]), "one": np.array([1])},
    )
    merged = dovetail.merge(dovetail.load(first), dovetail.load(second), {"doubled": "base_two"} if connected else {})
    assert [x.name for x in merged.inputs] == ["inputs"] + ["base_two"] * (not connected) + ["coords"]
    x, other, coords = np.float32([1, 2, 3]), np.float32([7, 8, 9, 10]), np.array([2, 0])
    feeds = {"inputs": x, "coords": coords} | ({} if connected else {"base_two": other})
    expected = {"pieces": (2 * x if connected else other)[coords][:, None]} | ({} if connected else {"doubled": 2 * x})
    dovetail.save(merged, tmp_path / "m.onnx")
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    assert_here(merged, feeds, expected, None, "merged")
    assert_outputs(run_onnxruntime(tmp_path / "m.onnx", feeds), expected, None, "onnxruntime")


@pytest.mark.parametrize("size", [1, 3])
def test_27_branches_of_different_rank(tmp_path: Path, size: int) -> None:
    then = helper.make_graph([node("Squeeze", ["x", "axis"], ["t"])], "then", [], [info("t", FLOAT, None)])
    other = helper.make_graph([node("Identity", ["x"], ["e"])], "else", [], [info("e", FLOAT, None)])
    proto = proto_of(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "axis0"], ["d"]),
            node("Equal", ["d", "one"], ["c"]),
            node("If", ["c"], ["r"], then_branch=then, else_branch=other),
            node("Exp", ["r"], ["y"]),
        ],
        [("x", FLOAT, ["b", "k", 3])],
        [("y", FLOAT, None)],
        {"axis": np.array([1]), "axis0": np.array(1), "one": np.array(1)},
    )
    x = RNG.standard_normal((2, size, 3)).astype(np.float32)
    assert_every_way(proto, {"x": x}, run_onnxruntime(proto, {"x": x}), tmp_path, tolerance=1e-6, opsets=(11, 21), ir=False)
    # OpenVINO has no value of either rank: the file is written where one of the branches is known to run.
    fixed = dovetail.rebatch(dovetail.load(proto), {"k": size})
    dovetail.save(dovetail.simplify(fixed), tmp_path / "m.xml")
    assert_outputs(run_openvino(tmp_path / "m.xml", {"x": x}), run_onnxruntime(proto, {"x": x}), 1e-6, "OpenVINO")


@pytest.mark.parametrize("outputs", ["before", "behind", "both"])
@pytest.mark.parametrize(
    "idle",
    [
        node("Concat", ["a"], ["b"], axis=1),
        node("Identity", ["a"], ["b"]),
        node("Cast", ["a"], ["b"], to=FLOAT),
        node("Dropout", ["a"], ["b"]),
        node("Transpose", ["a"], ["b"], perm=[0, 1]),
        node("Reshape", ["a", "shape"], ["b"]),
        node("Slice", ["a", "start", "end"], ["b"]),
        node("Split", ["a"], ["b"], axis=1),
        node("Pad", ["a", "pads"], ["b"]),
        node("Sum", ["a"], ["b"]),
        node("Max", ["a"], ["b"]),
        node("Mean", ["a"], ["b"]),
        node("Mul", ["a", "one"], ["b"]),
    ],
    ids=lambda item: item.op_type,
)
def test_28_operators_without_effect_next_to_outputs(tmp_path: Path, idle: onnx.NodeProto, outputs: str) -> None:
    names = {"before": ["a", "y"], "behind": ["b"], "both": ["b", "a"]}[outputs]
    constants = {
        "shape": np.array([0, 2]),
        "start": np.array([0, 0]),
        "end": np.array([2**63 - 1, 2]),
        "pads": np.zeros(4, np.int64),
        "one": np.float32(1),
    }
    proto = proto_of(
        [node("Relu", ["x"], ["a"]), idle, node("Neg", ["b"], ["y"])],
        [("x", FLOAT, ["n", 2])],
        [(name, FLOAT, ["n", 2]) for name in names],
        {name: array for name, array in constants.items() if name in idle.input},
    )
    x = RNG.standard_normal((3, 2)).astype(np.float32)
    relu = np.maximum(x, 0)
    assert_every_way(proto, {"x": x}, {name: -relu if name == "y" else relu for name in names}, tmp_path)


@pytest.mark.parametrize("chain", [["Identity"], ["Cast"], ["Dropout"], ["Identity", "Cast", "Dropout"]], ids="-".join)
@pytest.mark.parametrize("swapped", [False, True])
def test_06_a_product_with_a_one_that_folds(tmp_path: Path, chain: list[str], swapped: bool) -> None:
    names = ["x", *(f"m{index}" for index in range(len(chain)))]
    nodes = [
        node(kind, [a], [b], **({"to": FLOAT} if kind == "Cast" else {}))
        for kind, a, b in zip(chain, names, names[1:], strict=False)
    ]
    factors = [names[-1], "one"]
    proto = proto_of(
        [
            *nodes,
            node("Div", ["k", "k"], ["one"]),
            node("Mul", factors[::-1] if swapped else factors, ["w"]),
            node("Add", ["w", "zero"], ["y"]),
        ],
        [("x", FLOAT, ["n"])],
        [("y", FLOAT, ["n"])],
        {"k": np.float32(1), "zero": np.float32(0)},
    )
    x = np.float32([1.5, -2, np.inf, np.nan])
    model = assert_every_way(proto, {"x": x}, {"y": x}, tmp_path)
    assert dovetail.simplify(model).report.nodes_after <= 2


def test_30_nodes_out_of_order(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Identity", ["c"], ["c2"]), node("Add", ["u", "v"], ["v2"]), node("Mul", ["h", "scale"], ["u"])],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("v", FLOAT, ["n", 2])],
        [info("c2", BOOL, []), info("v2", FLOAT, ["n", 2])],
    )
    nodes = [
        node("Constant", [], ["scale"], value_float=0.5),
        node("Relu", ["x"], ["h"]),
        node("Exp", ["h"], ["e"]),
        node("Loop", ["n", "", "e"], ["l"], body=body),
        node("Sub", ["l", "h"], ["y"]),
    ]
    x = RNG.standard_normal((3, 2)).astype(np.float32)
    h = np.maximum(x, 0)
    expected = {"y": np.exp(h) + 2 * (h / 2) - h}
    for seed in range(4):
        shuffled = random.Random(seed).sample(nodes, len(nodes))
        proto = proto_of(shuffled, [("x", FLOAT, ["n", 2])], [("y", FLOAT, ["n", 2])], {"n": np.array(2)})
        model = dovetail.load(proto)
        assert_here(model, {"x": x}, expected, 1e-6, "shuffled")
        assert_here(dovetail.simplify(model, prove=True), {"x": x}, expected, 1e-6, "simplified")
        dovetail.save(model, tmp_path / "m.onnx")
        onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
        assert_outputs(run_onnxruntime(tmp_path / "m.onnx", {"x": x}), expected, 1e-6, "onnxruntime")
        dovetail.save(model, tmp_path / "m.xml")
        assert_outputs(run_openvino(tmp_path / "m.xml", {"x": x}), expected, 1e-6, "OpenVINO")
