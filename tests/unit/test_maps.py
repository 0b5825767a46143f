"""Maps: ZipMap, DictVectorizer and CastMap as onnxruntime has them, in values, in types, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.ir.types import Map, Sequence, Tensor

DOMAIN = "ai.onnx.ml"
X = np.float32([[0.25, 0.5, 0.125], [1, 0, -1]])


def model(kind: str, given: Any, **attributes: Any) -> Any:
    """One operator; ``given`` is the type of its input."""
    node = helper.make_node(kind, ["x"], ["y"], domain=DOMAIN, **attributes)
    info = onnx.ValueInfoProto(name="x", type=given)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)], ir_version=9)


def tensor(*shape: Any) -> Any:
    return helper.make_tensor_type_proto(TensorProto.FLOAT, shape)


def mapping(key: int, value: int) -> Any:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


INT, TEXT, FLOAT, DOUBLE = TensorProto.INT64, TensorProto.STRING, TensorProto.FLOAT, TensorProto.DOUBLE
ASKED: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("ZipMap", tensor("n", 3), X, {"classlabels_int64s": [7, -1, 3]}),
    ("ZipMap", tensor("n", 3), X, {"classlabels_strings": ["a", "", "é"]}),
    ("ZipMap", tensor(3), X[0], {"classlabels_strings": ["a", "b", "c"]}),
    ("ZipMap", tensor(0, 3), X[:0], {"classlabels_int64s": [7, 8, 9]}),
    ("DictVectorizer", mapping(TEXT, FLOAT), {"b": 0.5, "z": 2.0}, {"string_vocabulary": ["a", "b"]}),
    ("DictVectorizer", mapping(INT, FLOAT), {3: 0.5, 4: 1.0}, {"int64_vocabulary": [4, 3, 2]}),
    *(("CastMap", mapping(INT, FLOAT), {5: 1.5, 2: -2.25}, {"cast_to": to}) for to in ("TO_FLOAT", "TO_INT64", "TO_STRING")),
    ("CastMap", mapping(INT, FLOAT), {5: 1.5, 2: -2.25}, {"map_form": "SPARSE", "max_map": 4}),
]
_TEXTS = {5: "15", 2: "-2"}
# Maps that onnxruntime takes and its Python does not hand over.
TOLD: list[tuple[str, Any, Any, dict[str, Any], Any]] = [
    ("DictVectorizer", mapping(TEXT, INT), {"b": 5}, {"string_vocabulary": ["b", "a"]}, np.int64([[5, 0]])),
    ("DictVectorizer", mapping(TEXT, DOUBLE), {"b": 0.1}, {"string_vocabulary": ["b", "a"]}, np.float64([[0.1, 0]])),
    ("DictVectorizer", mapping(INT, TEXT), {3: "x"}, {"int64_vocabulary": [4, 3]}, np.array([["", "x"]], object)),
    ("CastMap", mapping(INT, TEXT), _TEXTS, {"cast_to": "TO_FLOAT"}, np.float32([[-2, 15]])),
    ("CastMap", mapping(INT, TEXT), _TEXTS, {"cast_to": "TO_INT64"}, np.int64([[-2, 15]])),
    ("CastMap", mapping(INT, TEXT), _TEXTS, {"cast_to": "TO_STRING"}, np.array([["-2", "15"]], object)),
    ("CastMap", mapping(INT, TEXT), {1: "5"}, {"map_form": "SPARSE", "max_map": 3, "cast_to": "TO_INT64"}, np.int64([[0, 5, 0]])),
]


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert found == expected
    else:
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(("kind", "given", "x", "attributes"), ASKED)
def test_operators_on_maps_give_the_results_of_onnxruntime(
    kind: str, given: Any, x: Any, attributes: dict[str, Any], tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto = model(kind, given, **attributes)
    onnx.save(proto, tmp_path / "a.onnx")
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    loaded = dovetail.load(tmp_path / "a.onnx")
    dovetail.save(loaded, tmp_path / "b.onnx")
    for each in (loaded, dovetail.load(tmp_path / "b.onnx")):
        for engine in ("interpreter", "native"):
            assert_same(dovetail.compile(each, engine)({"x": x})["y"], expected)
    (again,) = onnxruntime.InferenceSession(str(tmp_path / "b.onnx")).run(None, {"x": x})
    assert_same(again, expected)


@pytest.mark.parametrize(("kind", "given", "x", "attributes", "expected"), TOLD)
def test_operators_on_maps_give_the_results_of_the_specification(
    kind: str, given: Any, x: Any, attributes: dict[str, Any], expected: Any, tmp_path: Path
) -> None:
    onnx.save(model(kind, given, **attributes), tmp_path / "a.onnx")
    dovetail.save(dovetail.load(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    for name in ("a.onnx", "b.onnx"):
        assert_same(dovetail.run(tmp_path / name, {"x": x})["y"], expected)


def test_the_type_has_keys_and_values(tmp_path: Path) -> None:
    onnx.save(model("ZipMap", tensor("n", 3), classlabels_strings=["a", "b", "c"]), tmp_path / "a.onnx")
    (y,) = dovetail.load(tmp_path / "a.onnx").outputs
    assert str(y.type) == "sequence(map(string, f32[]); n)"
    element = y.type.element if isinstance(y.type, Sequence) else None
    assert element == Map(dovetail.ir.dtypes.string, Tensor(dovetail.ir.dtypes.f32, ()))
    with pytest.raises(dovetail.UnsupportedError, match="OpenVINO has no maps"):
        dovetail.save(dovetail.load(tmp_path / "a.onnx"), tmp_path / "a.xml")


@pytest.mark.parametrize("x", [[1, 2], {1: 0.5}, {"a": [1.0, 2.0]}, None])
def test_a_map_of_another_type_is_refused(x: Any, tmp_path: Path) -> None:
    onnx.save(model("DictVectorizer", mapping(TEXT, FLOAT), string_vocabulary=["a"]), tmp_path / "a.onnx")
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.run(tmp_path / "a.onnx", {"x": x})
    assert caught.value.code.startswith("input.")


def test_a_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    onnx.save(model("CastMap", mapping(INT, TEXT), cast_to="TO_INT64"), tmp_path / "a.onnx")
    with pytest.raises(dovetail.RuleError) as caught:
        dovetail.run(tmp_path / "a.onnx", {"x": {1: "one"}})
    assert caught.value.code == "array.cast"
