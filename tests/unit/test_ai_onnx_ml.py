"""Operators of ai.onnx.ml that are several of ours, and older forms of others: what onnxruntime gives, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail
from assertions import assert_same_bits
from cases.strings import strings
from oracles import run_onnxruntime

X = np.array([[-1, 0, 1], [2, 3, 4]])


def model(kind: str, version: int, *inputs: Any, **attributes: Any) -> Any:
    infos = [
        helper.make_tensor_value_info(f"x{index}", dovetail.ir.dtypes.dtype(x.dtype).onnx, x.shape)
        for index, x in enumerate(inputs)
    ]
    node = helper.make_node(kind, [info.name for info in infos], ["y"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


ASKED: list[tuple[str, int, tuple[Any, ...], dict[str, Any]]] = [
    ("Binarizer", 1, (X.astype(np.float32),), {"threshold": 1.0}),
    ("Binarizer", 1, (np.float32([-0.0, 0.0, 1e-30, -np.inf, np.inf]),), {}),
    ("ArrayFeatureExtractor", 1, (X.astype(np.float32), np.int64([2, 0, 2])), {}),
    ("ArrayFeatureExtractor", 1, (X.astype(np.int64), np.int64([[1, 0]])), {}),
    ("ArrayFeatureExtractor", 1, (X[0].astype(np.float64), np.int64([1, 0])), {}),
    ("ArrayFeatureExtractor", 1, (np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.int64([3])), {}),
    ("ArrayFeatureExtractor", 1, (strings("a", "b", shape=(1, 2)), np.int64([1])), {}),
    ("LabelEncoder", 1, (strings("b", "x", "a"),), {"classes_strings": ["a", "b"], "default_int64": 7}),
    ("LabelEncoder", 1, (np.int64([1, 0, 5]),), {"classes_strings": ["a", "b"], "default_string": "?"}),
    ("LabelEncoder", 2, (np.int64([1, 0, 5]),), {"keys_int64s": [1, 5], "values_strings": ["a", "b"], "default_string": "?"}),
    ("LabelEncoder", 2, (np.int64([1, 0, 5]),), {"keys_int64s": [1, 5], "values_floats": [0.5, 2.0]}),
    ("LabelEncoder", 2, (strings("b", "x"),), {"keys_strings": ["a", "b"], "values_int64s": [5, 6]}),
]
EACH = pytest.mark.parametrize(("kind", "version", "inputs", "attributes"), ASKED)


@EACH
def test_operators_of_ai_onnx_ml_give_the_results_of_onnxruntime(
    kind: str, version: int, inputs: tuple[Any, ...], attributes: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    proto = model(kind, version, *inputs, **attributes)
    onnx.save(proto, tmp_path / "a.onnx")
    given = {f"x{index}": x for index, x in enumerate(inputs)}
    (expected,) = run_onnxruntime(proto.SerializeToString(), given)
    loaded = dovetail.load(tmp_path / "a.onnx")
    dovetail.save(loaded, tmp_path / "b.onnx")
    for each in (loaded, dovetail.load(tmp_path / "b.onnx")):
        for engine in ("interpreter", "native"):
            assert_same_bits(dovetail.compile(each, engine)(given)["y"], expected)
    (again,) = run_onnxruntime((tmp_path / "b.onnx").read_bytes(), given)
    assert_same_bits(again, expected)


def test_an_integer_is_compared_as_it_is(tmp_path: Path) -> None:
    big = np.int64([2**62, 2**62 + 1, -(2**62)])
    for threshold, expected in ((float(2**62), [0, 1, 0]), (1e30, [0, 0, 0]), (-1e30, [1, 1, 1]), (1.5, [1, 1, 0])):
        onnx.save(model("Binarizer", 1, big, threshold=threshold), tmp_path / "a.onnx")
        assert dovetail.run(tmp_path / "a.onnx", [big])["y"].tolist() == expected
    onnx.save(model("Binarizer", 1, np.float64([0]), threshold=0.0), tmp_path / "a.onnx")
    assert dovetail.run(tmp_path / "a.onnx", [np.float64([np.nan])])["y"].tolist() == [0]


def test_a_feature_is_not_counted_from_the_end(tmp_path: Path) -> None:
    onnx.save(model("ArrayFeatureExtractor", 1, X, np.int64([-1])), tmp_path / "a.onnx")
    with pytest.raises(dovetail.DovetailError):
        dovetail.run(tmp_path / "a.onnx", [X, np.int64([-1])])


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"keys_int64s": [1]}, "attribute.conflict"),
        ({"keys_int64s": [1], "keys_strings": ["a"], "values_int64s": [1]}, "attribute.conflict"),
        ({"keys_strings": ["a"], "values_int64s": [1]}, "type.disagree"),
        ({"keys_int64s": [1, 2], "values_int64s": [1]}, "shape.disagree"),
    ],
)
def test_a_table_that_is_wrong_is_refused(attributes: dict[str, Any], code: str, tmp_path: Path) -> None:
    onnx.save(model("LabelEncoder", 2, X, **attributes), tmp_path / "a.onnx")
    (item,) = dovetail.check(tmp_path / "a.onnx")
    assert item.code == code


def test_a_transform_that_no_specification_defines_is_refused(tmp_path: Path) -> None:
    x = np.zeros((1, 1), np.float32)
    columns = {
        name: [0] for name in ("tree_roots", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "leaf_targetids")
    }
    leafs = {"nodes_trueleafs": [1], "nodes_falseleafs": [1], "n_targets": 1}
    tensors = {
        "nodes_modes": helper.make_tensor("m", 2, [1], [0]),
        "nodes_splits": helper.make_tensor("s", 1, [1], [0.0]),
        "leaf_weights": helper.make_tensor("w", 1, [1], [1.0]),
    }
    for transform in (3, 4):
        onnx.save(model("TreeEnsemble", 5, x, **columns, **leafs, **tensors, post_transform=transform), tmp_path / "a.onnx")
        with pytest.raises(dovetail.UnsupportedError) as caught:
            dovetail.load(tmp_path / "a.onnx", strict=True)
        assert caught.value.code == "op.unsupported"
