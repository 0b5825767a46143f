"""Outputs of a Mapper with a map for each row, as ZipMap makes them: one column for each key, with onnxruntime's values."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail
from dovetail.errors import EngineError
from row_models import F32, I64, expected, map_rows, mapper_of, rows_of

KEYS: dict[str, list[Any]] = {
    "classlabels_strings": ["setosa", "", "a/b", "ü", "x.y"],
    "classlabels_int64s": [0, -1, 2**40, 7, 3],
}


def write(folder: Path, attribute: str, keys: list[Any], batch: int | str = "n", other: str = "label") -> str:
    """Return a classifier as skl2onnx writes it: labels, and probabilities by class."""
    weights = np.random.default_rng(0).standard_normal((12, len(keys))).astype("f4")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["p"], axis=1),
        helper.make_node("ArgMax", ["p"], [other], axis=1, keepdims=0),
        helper.make_node("ZipMap", ["p"], ["probability"], domain="ai.onnx.ml", **{attribute: keys}),
    ]
    kind = onnx.TensorProto.STRING if attribute == "classlabels_strings" else I64
    map_type = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(F32, []))
    outputs = [
        helper.make_tensor_value_info(other, I64, [batch]),
        helper.make_value_info("probability", helper.make_sequence_type_proto(map_type)),
    ]
    inputs = [helper.make_tensor_value_info("x", F32, [batch, 12])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(weights, "w")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / f"maps-{batch}.onnx")
    return str(folder / f"maps-{batch}.onnx")


def columns_of(path: str, x: Any) -> dict[str, Any]:
    """Return what onnxruntime computes, as columns."""
    theirs = expected(path, {"x": x})
    maps: Any = theirs["probability"]
    columns = {f"probability.{key}": np.array([row[key] for row in maps], "f4") for key in maps[0]}
    return {"label": theirs["label"], **columns}


def assert_columns(found: Any, theirs: dict[str, Any]) -> None:
    assert set(found.keys()) == set(theirs.keys())
    for name, array in theirs.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attribute", KEYS)
@pytest.mark.parametrize("batch", ["n", 1, 8])
@pytest.mark.parametrize("count", [1, 8, 50])
def test_each_key_is_a_column(tmp_path: Path, attribute: str, batch: Any, count: int) -> None:
    path, x = write(tmp_path, attribute, KEYS[attribute], batch), rows_of(count)
    mapper = pickle.loads(pickle.dumps(mapper_of(path, batch=8)))
    assert [port.name for port in mapper.signature.outputs] == ["label", *(f"probability.{key}" for key in KEYS[attribute])]
    assert_columns(mapper({"x": x}), columns_of(write(tmp_path, attribute, KEYS[attribute]), x))


def test_tables_have_the_columns(tmp_path: Path) -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    path, x = write(tmp_path, "classlabels_strings", ["setosa", "virginica"]), rows_of(9)
    mapper, theirs = mapper_of(path), columns_of(path, x)
    frame = mapper(pd.DataFrame({"x": list(x)}, index=range(3, 12)))
    assert list(frame) == ["label", "probability.setosa", "probability.virginica"] and frame.index[0] == 3
    assert_columns({name: frame[name].to_numpy() for name in frame}, theirs)
    table = mapper(pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 12)}))
    assert_columns({name: table[name].to_numpy() for name in table.column_names}, theirs)
    assert {name: array.shape for name, array in mapper({"x": x[:0]}).items()} == dict.fromkeys(theirs, (0,))


def test_rows_at_fault_have_no_element_in_a_column(tmp_path: Path) -> None:
    path, x = write(tmp_path, "classlabels_int64s", [4, 5]), rows_of(5)
    results = mapper_of(path, batch=2).run_rows({"x": [x[0], None, x[2], x[3][:2], x[4]]}, 5)
    assert [fault.row for fault in results.faults] == [1, 3]
    assert_columns(results.outputs, columns_of(path, x[[0, 2, 4]]))


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_files_have_the_columns(tmp_path: Path, format: str) -> None:
    pq = pytest.importorskip("pyarrow.parquet") if format == "parquet" else None
    path, x = write(tmp_path, "classlabels_strings", ["setosa", "a/b"]), rows_of(40)
    np.save(tmp_path / "x.npy", x)
    map_rows(path, tmp_path / "x.npy", tmp_path / "out", workers=1, batch=8, format=format)
    theirs = columns_of(path, x)
    if pq is not None:
        table = pq.read_table(tmp_path / "out")
        assert_columns({name: table[name].to_numpy() for name in table.column_names if name != "row"}, theirs)
    else:
        found = {
            name: np.concatenate([np.load(part) for part in sorted((tmp_path / "out" / folder).iterdir())])
            for name, folder in (("probability.setosa", "probability.setosa"), ("probability.a/b", "probability.a%2Fb"))
        }
        assert_columns(found, {name: theirs[name] for name in found.keys()})


def test_of_equal_keys_the_last_is_a_column(tmp_path: Path) -> None:
    path, x = write(tmp_path, "classlabels_int64s", [1, 2, 1]), rows_of(6)
    found = mapper_of(path)({"x": x})
    assert list(found.keys()) == ["label", "probability.1", "probability.2"]
    program = dovetail.compile(path)
    assert [row[1] for row in program(x)["probability"]] == pytest.approx(found["probability.1"].tolist())


def test_a_key_with_the_name_of_an_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"batch\.column.*'probability\.1'"):
        mapper_of(write(tmp_path, "classlabels_int64s", [0, 1], other="probability.1"))


def test_a_map_of_a_vector_is_no_row(tmp_path: Path) -> None:
    with dovetail.Builder("vector") as b:
        b.output(
            "y",
            b.ZipMap(
                b.ReduceMean(b.input("x", "f32", ("n", 2)), b.constant(np.array([0])), keepdims=0), classlabels_int64s=(0, 1)
            ),
        )
    with pytest.raises(EngineError, match=r"batch\.axis.*'y'.*as many rows"):
        mapper_of(b.model)
