"""Files of the exporters of scikit-learn, LightGBM and XGBoost: onnxruntime's results, there and back, and as IR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from cases.linear_models import numbers
from cases.strings import strings
from cases.tree_ensemble_classifier import forest, weights
from oracles import run_onnxruntime

LEARNING, CONTRIB = "ai.onnx.ml", "com.microsoft"
X = np.random.default_rng(8).uniform(0, 6, (20, 5)).astype(np.float32)
Node = tuple[str, str, list[str], list[str], dict[str, Any]]


def learned(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Node:
    return LEARNING, kind, inputs, outputs, attributes


def columns(kind: str, seed: int, trees: int, targets: int, **more: Any) -> dict[str, Any]:
    """Return the attributes of a tree model as lists."""
    found = weights(
        forest(seed, trees, 3, more.pop("modes", ("BRANCH_LEQ",)), more.pop("missing", False)), targets, seed, kind, **more
    )
    return {name: [int(each) if isinstance(each, bool) else each for each in column] for name, column in found.items()}


def one_class(attributes: dict[str, Any]) -> dict[str, Any]:
    return attributes | {"class_ids": [0] * len(attributes["class_ids"])}


LOGISTIC = learned(
    "LinearClassifier", ["scaled"], ["label", "scores"], coefficients=list(numbers(3, 5)), intercepts=[0.5, -0.25, 0.125],
    classlabels_ints=[0, 1, 2], multi_class=1, post_transform="SOFTMAX",
)  # fmt: skip
SCALED = learned("Scaler", ["x"], ["scaled"], offset=[1.0, 2.0, 3.0, 2.5, 0.5], scale=[0.5, 1.5, 1.0, 0.25, 2.0])
NORMED = learned("Normalizer", ["scores"], ["normed"], norm="L1")
ZIPPED = learned("ZipMap", ["normed"], ["maps"], classlabels_int64s=[0, 1, 2])
VECTORS = {
    "support_vectors": list(numbers(9, 5)), "coefficients": list(numbers(2, 9, seed=1)), "rho": list(numbers(3, seed=2)),
    "vectors_per_class": [2, 3, 4], "kernel_type": "RBF", "kernel_params": [0.3125, 0.0, 3.0], "classlabels_ints": [0, 1, 2],
}  # fmt: skip
WORDS = {"max_gram_length": 1, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF", "ngram_counts": [0]}
PIPELINES: dict[str, tuple[list[Node], list[str]]] = {
    "logistic regression with a scaler": ([SCALED, LOGISTIC, NORMED, ZIPPED], ["label", "maps"]),
    "logistic regression": (
        [(*LOGISTIC[:2], ["x"], *LOGISTIC[3:]), NORMED, ("", "Cast", ["label"], ["whole"], {"to": TensorProto.INT64}), ZIPPED],
        ["whole", "maps"],
    ),
    "random forest": (
        [learned("TreeEnsembleClassifier", ["x"], ["label", "scores"], **columns("class", 3, 10, 3, most=3, positive=True),
                 classlabels_int64s=[0, 1, 2], post_transform="NONE")],
        ["label", "scores"],
    ),
    "random forest with maps": (
        [learned("TreeEnsembleClassifier", ["x"], ["label", "normed"], **columns("class", 3, 10, 3, most=3, positive=True),
                 classlabels_strings=["a", "b", "c"], post_transform="NONE"),
         learned("ZipMap", ["normed"], ["maps"], classlabels_strings=["a", "b", "c"])],
        ["label", "maps"],
    ),
    "random forest of two classes": (
        [learned("TreeEnsembleClassifier", ["x"], ["label", "scores"],
                 **one_class(columns("class", 4, 5, 1, positive=True)), classlabels_int64s=[5, 9], post_transform="NONE")],
        ["label", "scores"],
    ),
    "gradient boosting of two classes": (
        [learned("TreeEnsembleClassifier", ["x"], ["label", "scores"], **one_class(columns("class", 4, 5, 1)),
                 classlabels_int64s=[5, 9], base_values=[0.5], post_transform="LOGISTIC")],
        ["label", "scores"],
    ),
    "gradient boosting regressor": (
        [learned("TreeEnsembleRegressor", ["x"], ["y"], **columns("target", 5, 10, 1), n_targets=1, base_values=[0.75],
                 aggregate_function="SUM", post_transform="NONE")],
        ["y"],
    ),
    "LightGBM": (
        [learned("TreeEnsembleClassifier", ["x"], ["label", "scores"], **columns("class", 6, 15, 3),
                 classlabels_int64s=[0, 1, 2], base_values=[0.25, 0.5, -0.5], post_transform="SOFTMAX")],
        ["label", "scores"],
    ),
    "LightGBM regressor": (
        [learned("TreeEnsembleRegressor", ["x"], ["y"], **columns("target", 7, 5, 1), n_targets=1, post_transform="NONE")], ["y"],
    ),
    "XGBoost": (
        [learned("TreeEnsembleClassifier", ["x"], ["label", "scores"],
                 **columns("class", 8, 15, 3, modes=("BRANCH_LT",), missing=True), classlabels_int64s=[0, 1, 2],
                 base_values=[0.5, 0.5, 0.5], post_transform="SOFTMAX")],
        ["label", "scores"],
    ),
    "support vector classifier": (
        [learned("SVMClassifier", ["x"], ["label", "votes"], **VECTORS),
         learned("ArrayFeatureExtractor", ["votes", "first"], ["pair"])],
        ["label", "votes", "pair"],
    ),
    "support vector classifier with probabilities": (
        [learned("SVMClassifier", ["x"], ["label", "scores"], **VECTORS, prob_a=[-1.0, -2.0, -0.5], prob_b=[0.25, 0.0, 0.125])],
        ["label", "scores"],
    ),
    "linear regressor": (
        [learned("LinearRegressor", ["x"], ["y"], coefficients=list(numbers(5)), intercepts=[0.5])], ["y"],
    ),
    "perceptron": (
        [("", "MatMul", ["x", "w"], ["hidden"], {}), ("", "Relu", ["hidden"], ["shown"], {}),
         ("", "Softmax", ["shown"], ["scores"], {"axis": 1}), ("", "ArgMax", ["scores"], ["best"], {"axis": 1}),
         learned("ArrayFeatureExtractor", ["classes", "best"], ["label"])],
        ["label", "scores"],
    ),
    "nearest centre": (
        [("", "ReduceSumSquare", ["x"], ["squares"], {"axes": [1], "keepdims": 1}),
         ("", "MatMul", ["x", "w"], ["products"], {}), ("", "Sub", ["squares", "products"], ["apart"], {}),
         ("", "ArgMin", ["apart"], ["label"], {"axis": 1, "keepdims": 0})],
        ["label", "apart"],
    ),
    "terms": (
        [(CONTRIB, "Tokenizer", ["t"], ["tokens"], {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": "[a-zA-Z0-9_]+"}),
         ("", "Flatten", ["tokens"], ["rows"], {}),
         ("", "TfIdfVectorizer", ["rows"], ["counts"],
          {**WORDS, "ngram_indexes": [0, 1, 2], "pool_strings": ["cat", "dogs", "run"], "weights": [1.0, 1.0, 1.0]}),
         learned("Normalizer", ["counts"], ["y"], norm="L2")],
        ["y"],
    ),
}  # fmt: skip
REFUSED_IN_IR = {
    "logistic regression with a scaler", "logistic regression", "random forest with maps", "terms",
    "support vector classifier with probabilities",
}  # fmt: skip


def write(name: str, path: Path) -> dict[str, Any]:
    """Return the pipeline as a file, and what it is run on."""
    nodes, outputs = PIPELINES[name]
    constants = {
        "w": np.array(numbers(5, 3), np.float32).reshape(5, 3), "classes": np.int64([4, 5, 6]), "first": np.int64([0, 2]),
    }  # fmt: skip
    read = {key for node in nodes for key in node[2]}
    given: dict[str, Any] = {"t": strings("cat run", "dogs", "", shape=(3, 1))} if "t" in read else {"x": X}
    infos = [
        helper.make_tensor_value_info(key, TensorProto.STRING if key == "t" else TensorProto.FLOAT, ["n", x.shape[1]])
        for key, x in given.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, xs, ys, domain=domain, **attributes) for domain, kind, xs, ys, attributes in nodes],
        "pipeline",
        infos,
        [helper.make_empty_tensor_value_info(key) for key in outputs],
        [onnx.numpy_helper.from_array(data, key) for key, data in constants.items() if key in read],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 13), (LEARNING, 1), (CONTRIB, 1))]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return given


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert [list(each) for each in found] == [list(each) for each in expected]
        ours, theirs = ([list(each.values()) for each in maps] for maps in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        return
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    else:
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_give_the_results_of_onnxruntime(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    given = write(name, tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    expected = session.run(None, given)
    loaded = dovetail.load(tmp_path / "a.onnx")
    dovetail.save(loaded, tmp_path / "b.onnx")
    for each in (loaded, dovetail.load(tmp_path / "b.onnx")):
        assert len(each.graph.nodes) == len(loaded.graph.nodes)
        for engine in ("interpreter", "native"):
            for found, wanted in zip(dovetail.compile(each, engine)(given).values(), expected, strict=True):
                assert_close(found, wanted)
    for found, wanted in zip(onnxruntime.InferenceSession(str(tmp_path / "b.onnx")).run(None, given), expected, strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_written_as_ir_or_refused_by_name(name: str, tmp_path: Path) -> None:
    given = write(name, tmp_path / "a.onnx")
    loaded = dovetail.load(tmp_path / "a.onnx")
    if name in REFUSED_IN_IR:
        with pytest.raises(dovetail.UnsupportedError):
            dovetail.save(loaded, tmp_path / "a.xml")
        return
    dovetail.save(loaded, tmp_path / "a.xml")
    expected = dovetail.run(loaded, given)
    for found, wanted in zip(dovetail.run(tmp_path / "a.xml", given).values(), expected.values(), strict=True):
        assert_close(found, wanted)


def test_the_native_engine_walks_the_trees(tmp_path: Path) -> None:
    if not dovetail.ir.host.native_core.is_compiled:
        pytest.skip("the core is not compiled")
    from dovetail.engine.engine import Engine

    write("random forest", tmp_path / "a.onnx")
    plan, _ = Engine(dovetail.load(tmp_path / "a.onnx")).plan({"x": (20, 5)})
    assert {step.kernel for step in plan.steps} >= {"tree_ensemble"}
    assert "interpret" not in {step.kernel for step in plan.steps}


def test_a_table_is_written_in_version_1(tmp_path: Path) -> None:
    """A table of texts and numbers is a CategoryMapper in ai.onnx.ml 1."""
    graph = helper.make_graph(
        [helper.make_node("CategoryMapper", ["x"], ["y"], domain=LEARNING, cats_strings=["a", "b"], cats_int64s=[7, 3])], "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [3])], [helper.make_empty_tensor_value_info("y")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(LEARNING, 1)], ir_version=9)
    onnx.save(model, tmp_path / "a.onnx")
    x = strings("b", "a", "z")
    dovetail.save(dovetail.load(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "b.onnx").graph.node] == ["CategoryMapper"]
    assert dovetail.run(tmp_path / "b.onnx", {"x": x})["y"].tolist() == [3, 7, -1]
    (theirs,) = run_onnxruntime((tmp_path / "b.onnx").read_bytes(), {"x": x})
    assert theirs.tolist() == [3, 7, -1]
