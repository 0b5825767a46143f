"""Models with long lists of attributes start without a step of Python for each item of a list. Work is counted, not timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.formats.onnx.protobuf_scan import split_elements
from dovetail.ir.host import native_core
from work_counts import count_lines

KINDS = ("TreeEnsembleRegressor", "TreeEnsembleClassifier")


def forest(kind: str, trees: int, depth: int = 5, *, is_dense: bool = True) -> onnx.ModelProto:
    """Return a forest of complete trees; nodes are numbered from 0 in order, or with gaps from the last tree to the first."""
    rng = np.random.default_rng(0)
    nodes = 2 ** (depth + 1) - 1
    tree, node = np.repeat(np.arange(trees), nodes), np.tile(np.arange(nodes), trees)
    leaf = node >= 2**depth - 1
    tree_ids, node_ids = (lambda ids: ids, lambda ids: ids) if is_dense else (lambda ids: -3 * ids, lambda ids: 1000 - 7 * ids)
    part = "target" if kind == "TreeEnsembleRegressor" else "class"
    attributes: dict[str, Any] = {
        "nodes_treeids": tree_ids(tree).tolist(),
        "nodes_nodeids": node_ids(node).tolist(),
        "nodes_featureids": rng.integers(0, 4, nodes * trees).tolist(),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values": rng.standard_normal(nodes * trees).astype("f4").tolist(),
        "nodes_truenodeids": node_ids(np.where(leaf, 0, 2 * node + 1)).tolist(),
        "nodes_falsenodeids": node_ids(np.where(leaf, 0, 2 * node + 2)).tolist(),
        f"{part}_treeids": tree_ids(tree[leaf]).tolist(),
        f"{part}_nodeids": node_ids(node[leaf]).tolist(),
        f"{part}_ids": rng.integers(0, 3, int(leaf.sum())).tolist(),
        f"{part}_weights": rng.standard_normal(int(leaf.sum())).astype("f4").tolist(),
    }
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if part == "class":
        attributes["classlabels_int64s"] = [0, 1, 2]
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, None))
    else:
        attributes["n_targets"] = 3
    names = [output.name for output in outputs]
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], names, domain="ai.onnx.ml", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        outputs,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
@pytest.mark.parametrize("kind", KINDS)
def test_a_forest_starts_without_a_step_for_each_node(kind: str, tmp_path: Path) -> None:
    """Random forests of hundreds of trees took ages to load."""
    x = np.random.default_rng(1).standard_normal((10, 4)).astype(np.float32)
    lines, sizes = [], []
    for trees in (72, 72, 288):
        model = forest(kind, trees)
        path = tmp_path / f"{trees}.onnx"
        onnx.save(model, path)
        sizes.append(trees * 63)
        lines.append(count_lines(lambda path=path: dovetail.compile(dovetail.load(path))({"x": x})))
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        expected = session.run(None, {"x": x})
        for y, output in zip(expected, session.get_outputs(), strict=True):
            np.testing.assert_allclose(dovetail.run(dovetail.load(path), {"x": x})[output.name], y, rtol=1e-5, atol=1e-5)
    # The first start imports modules.
    assert lines[2] - lines[1] < 0.05 * (sizes[2] - sizes[1]), lines


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_of_any_numbers_are_found(kind: str) -> None:
    data = forest(kind, 5, is_dense=False).SerializeToString()
    x = np.random.default_rng(1).standard_normal((10, 4)).astype(np.float32)
    expected = dovetail.run(dovetail.load(forest(kind, 5).SerializeToString()), {"x": x})
    found = dovetail.run(dovetail.load(data), {"x": x})
    for name, y in expected.items():
        np.testing.assert_array_equal(found[name], y)


def test_the_scan_for_large_tensors_reads_no_list_item_by_item() -> None:
    few, many = (forest(KINDS[0], trees).SerializeToString() for trees in (72, 288))
    counts = [count_lines(lambda data=data: split_elements(data)) for data in (few, few, many)]
    assert counts[2] < 1.2 * counts[1]


def test_tensors_behind_a_list_in_another_order_of_fields_are_read() -> None:
    """Fields may come in any order, and a tensor behind the items of a list is one of protobuf's own."""
    data = np.arange(4096, dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node(
                "Constant", [], ["y"], value=helper.make_tensor("t", TensorProto.FLOAT, [4096], data.tobytes(), raw=True)
            )
        ],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    attribute = model.graph.node[0].attribute[0]
    # An empty list of packed integers, field 8, before the tensor.
    swapped = b"\x42\x00" + attribute.SerializeToString()
    whole, own = model.SerializeToString(), attribute.SerializeToString()
    assert whole.count(own) == 1
    node = model.graph.node[0]
    del node.attribute[:]
    rest = node.SerializeToString()
    node_bytes = rest + b"\x2a" + _varint(len(swapped)) + swapped
    del model.graph.node[:]
    graph_bytes = b"\x0a" + _varint(len(node_bytes)) + node_bytes + model.graph.SerializeToString()
    model.ClearField("graph")
    file = model.SerializeToString() + b"\x3a" + _varint(len(graph_bytes)) + graph_bytes
    assert onnx.load_from_string(file).graph.node[0].attribute[0].t.raw_data == data.tobytes()
    assert np.array_equal(dovetail.run(dovetail.load(file), {})["y"], data)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))
