"""Mapper over pandas, Arrow, arrays and iterators: the results of a dict of arrays, in the table that came in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from dovetail.errors import EngineError
from row_models import F16, F32, I64, STRING, classifier, expected, mapper_of, rows_of, write

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

COUNT = 20


def arrow_columns(x: Any) -> dict[str, Any]:
    """Return the same rows in every type of Arrow that has them."""
    flat = pa.array(x.reshape(-1))
    fixed = pa.FixedSizeListArray.from_arrays(flat, 12)
    lists = pa.array(x.tolist(), pa.list_(pa.float32()))
    padded = pa.concat_arrays([pa.array(rows_of(3).tolist(), lists.type), lists, pa.array([None], lists.type)])
    return {
        "list": lists,
        "large list": lists.cast(pa.large_list(pa.float32())),
        "fixed-size list": fixed,
        "a slice": padded.slice(3, COUNT),
        "a slice of fixed size": pa.FixedSizeListArray.from_arrays(pa.array(np.tile(x, (3, 1)).reshape(-1)), 12).slice(
            COUNT, COUNT
        ),
        "chunks": pa.chunked_array([fixed.slice(0, 7), fixed.slice(7)]),
        "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [12]), fixed),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array(range(COUNT), pa.int32()), lists),
        "f64": pa.array(x.astype("f8").tolist()),
    }


@pytest.mark.parametrize("name", arrow_columns(rows_of(COUNT)))
@pytest.mark.parametrize("kind", ["table", "batch", "iterator", "pandas"])
def test_rows_of_arrow_are_those_of_arrays(tmp_path: Path, name: str, kind: str) -> None:
    path, x = classifier(tmp_path), rows_of(COUNT)
    theirs = expected(path, {"x": x})
    table = pa.table({"id": np.arange(COUNT), "x": arrow_columns(x)[name]})
    mapper = mapper_of(path, batch=8, keep=["id"])
    if kind == "iterator":
        found = pa.Table.from_batches(mapper(iter(table.to_batches(max_chunksize=7))))
        assert found.schema.field("scores").type == pa.list_(pa.float32())
    elif kind == "batch":
        found = mapper(table.combine_chunks().to_batches()[0])
        assert isinstance(found, pa.RecordBatch)
    elif kind == "pandas":
        frame = mapper(pd.DataFrame({"id": range(COUNT), "x": table["x"].to_pylist()}, index=range(5, 5 + COUNT)))
        assert frame.index.tolist() == list(range(5, 5 + COUNT)) and frame["scores"].dtype == object
        found = pa.table({"id": frame["id"], "scores": list(frame["scores"]), "label": frame["label"]})
    else:
        found = mapper(table)
        assert isinstance(found, pa.Table) and found.schema.field("scores").type.list_size == 5
    assert found["id"].to_pylist() == list(range(COUNT)) and found["label"].to_pylist() == theirs["label"].tolist()
    np.testing.assert_allclose(np.array(found["scores"].to_pylist()), theirs["scores"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("missing", ["row", "element"])
def test_a_null_is_a_missing_value(tmp_path: Path, missing: str) -> None:
    rows = rows_of(3).tolist()
    rows[1] = None if missing == "row" else [*rows[1][:-1], None]
    mapper = mapper_of(classifier(tmp_path))
    for kind in (pa.list_(pa.float32()), pa.list_(pa.float32(), 12)):
        with pytest.raises(EngineError, match=r"batch\.missing.*row 1"):
            mapper(pa.table({"x": pa.array(rows, kind)}))


def test_lists_of_another_length_are_a_fault_of_their_row(tmp_path: Path) -> None:
    rows = rows_of(3).tolist()
    rows[2] = rows[2][:5]
    with pytest.raises(EngineError, match=r"batch\.shape.*row 2"):
        mapper_of(classifier(tmp_path))(pa.table({"x": rows}))


def test_columns_of_fixed_size_are_read_without_a_copy(tmp_path: Path) -> None:
    from dovetail.data.rows.tables import _arrow_rows

    x = rows_of(COUNT)
    for name in ("fixed-size list", "tensor", "a slice of fixed size"):
        column = arrow_columns(x)[name]
        storage = column.storage if hasattr(column, "storage") else column
        rows = _arrow_rows(column)
        assert np.shares_memory(rows, np.asarray(storage.flatten()))


@pytest.mark.parametrize("table", ["table", "iterator", "pandas", "dict"])
@pytest.mark.parametrize("type", [F16, F32, I64, STRING])
@pytest.mark.parametrize("row", [(), (2,), (2, 3), (2, 3, 4)])
def test_rows_of_each_rank_and_type_survive_the_way(tmp_path: Path, type: int, row: tuple[int, ...], table: str) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    mapper = mapper_of(write(tmp_path / "i.onnx", [node], [("x", type, ["n", *row])], [("y", type, ["n", *row])]), batch=4)
    x = np.arange(6 * int(np.prod(row))).reshape(6, *row).astype(helper.tensor_dtype_to_np_dtype(type))
    x = x.astype(str).astype(object) if type == STRING else x
    if table == "dict":
        found = mapper({"x": x})["y"]
    elif table == "pandas":
        found = np.array(mapper(pd.DataFrame({"x": list(x)}))["y"].tolist())
    else:
        # Two passes: what comes out goes in again.
        first = pa.table({"x": x if row == () else x.tolist()})
        if type == F16 and row:
            first = pa.table({"x": _f16_lists(x)})
        for _ in range(2):
            found = mapper(first) if table == "table" else pa.Table.from_batches(mapper(iter(first.to_batches())))
            first = found.rename_columns(["x"])
        found = np.array([_values(item) for item in found["y"]])
    assert found.shape == x.shape and found.tolist() == x.tolist()


def _f16_lists(x: Any) -> Any:
    column = pa.array(x.reshape(-1))
    for size in reversed(x.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def _values(item: Any) -> Any:
    return item.to_numpy() if hasattr(item, "to_numpy") else np.array(item.as_py())


def test_pandas_types_with_missing_values(tmp_path: Path) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    mapper = mapper_of(write(tmp_path / "neg.onnx", [node], [("x", F32, ["n"])], [("y", F32, ["n"])]))
    for dtype in ("Int64", "Float32", "int64[pyarrow]", "float[pyarrow]", "float64"):
        assert mapper(pd.DataFrame({"x": pd.Series([1, 2], dtype=dtype)}))["y"].tolist() == [-1, -2]
    for dtype in ("Int64", "Float32", "int64[pyarrow]"):
        with pytest.raises(EngineError, match=r"batch\.missing.*row 1"):
            mapper(pd.DataFrame({"x": pd.Series([1, None], dtype=dtype)}))
    assert np.isnan(mapper(pd.DataFrame({"x": [1.0, float("nan")]}))["y"][1])


def test_tables_without_rows_have_the_columns_and_types_of_others(tmp_path: Path) -> None:
    mapper, x = mapper_of(classifier(tmp_path), keep=["id"]), rows_of(4)
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "x": list(x)})
    assert (mapper(frame[:0]).dtypes == mapper(frame).dtypes).all()
    table = pa.table({"id": [1, 2, 3, 4], "x": x.tolist()})
    assert mapper(table[:0]).schema == mapper(table).schema
    assert mapper(pd.DataFrame({"id": [], "x": []})).shape == (0, 3)


def test_rows_of_an_open_size_are_lists(tmp_path: Path) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    mapper = mapper_of(write(tmp_path / "neg.onnx", [node], [("x", F32, ["n", "t"])], [("y", F32, ["n", "t"])]))
    for rows in ([[1.0, 2.0], [3.0]], [[1.0], [2.0]], []):
        found = mapper(pa.table({"x": pa.array(rows, pa.list_(pa.float32()))}))
        assert found["y"].to_pylist() == [[-value for value in row] for row in rows]
        assert found.schema.field("y").type == pa.list_(pa.float32())
    assert [row.tolist() for row in mapper(pd.DataFrame({"x": [[1.0, 2.0], [3.0]]}))["y"]] == [[-1, -2], [-3]]
