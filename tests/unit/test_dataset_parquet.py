"""Parquet as source and sink, with pyarrow and pandas as the oracles."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dovetail.data.rows import parquet_files
from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.sinks import open_sink
from dovetail.data.rows.sources import open_source
from dovetail.errors import DovetailError, EngineError, FormatError, UnsupportedError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

REUSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)


def write_files(folder: Path, table: Any, sizes: list[int], group: int, **options: Any) -> None:
    start = 0
    for number, size in enumerate(sizes):
        pq.write_table(table.slice(start, size), folder / f"{number:03}.parquet", row_group_size=group, **options)
        start += size


@REUSED
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    group=st.integers(1, 17),
    ranges=st.lists(st.tuples(st.integers(0, 160), st.integers(0, 160)), max_size=6),
)
def test_a_range_holds_the_rows_that_pyarrow_reads(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], group: int, ranges: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    total = sum(sizes)
    rng = np.random.default_rng(total)
    table = pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(total * 3, np.float32)), 3),
            "n": pa.array(np.arange(total), mask=rng.random(total) < 0.2),
            "text": pa.array([str(row) for row in range(total)]).dictionary_encode(),
        }
    )
    write_files(folder, table, sizes, group)
    source = open_source(folder, ["x", "n"], keep=["text"])
    assert source.rows == total
    expected = pq.read_table(folder).to_pylist()
    for low, high in [*ranges, (0, total)]:
        start, stop = sorted((min(low, total), min(high, total)))
        block = source.read(start, stop)
        good = [row for row in range(start, stop) if expected[row]["n"] is not None]
        assert block.rows.tolist() == good
        assert [fault.row for fault in block.faults] == [row for row in range(start, stop) if row not in good]
        assert all(fault.code == "batch.missing" and fault.file == source.file_of(fault.row) for fault in block.faults)
        if good:
            assert block.columns["x"].dtype == np.float32
            assert block.columns["x"].tolist() == [expected[row]["x"] for row in good]
            assert block.columns["n"].tolist() == [expected[row]["n"] for row in good]
            assert block.kept["text"].to_pylist() == [expected[row]["text"] for row in good]


COLUMNS = {
    "numbers": (pa.array([1, 2, 3], pa.int16()), [1, 2, 3]),
    "booleans": (pa.array([True, False, True]), [True, False, True]),
    "half precision": (pa.array(np.array([1, 2, 3], np.float16)), [1, 2, 3]),
    "unsigned": (pa.array([1, 2, 2**64 - 1], pa.uint64()), [1, 2, 2**64 - 1]),
    "strings": (pa.array(["a", "ä", ""]), ["a", "ä", ""]),
    "dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    "lists": (pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), [[1, 2], [3, 4], [5, 6]]),
    "large lists": (pa.array([[1, 2], [3, 4], [5, 6]], pa.large_list(pa.int8())), [[1, 2], [3, 4], [5, 6]]),
    "list views": (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_view(pa.int8())), [[1, 2], [3, 4], [5, 6]]),
    "nested lists": (pa.array([[[1], [2]], [[3], [4]], [[5], [6]]]), [[[1], [2]], [[3], [4]], [[5], [6]]]),
    "lists of strings": (pa.array([["a"], ["b"], ["a"]]), [["a"], ["b"], ["a"]]),
    "ragged": (pa.array([[1.0, 2.0], [3.0], []]), [[1, 2], [3], []]),
    "ragged, nested": (pa.array([[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]]), [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]]),
    "tensors": (
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2)),
        np.arange(12.0).reshape(3, 2, 2).tolist(),
    ),
    "transposed tensors": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0]), pa.array([list(range(6))] * 3, pa.list_(pa.int32(), 6))
        ),
        [np.arange(6).reshape(2, 3).T.tolist()] * 3,
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_any_type_becomes_arrays(tmp_path: Path, name: str) -> None:
    array, expected = COLUMNS[name]
    pq.write_table(pa.table({"x": array}), tmp_path / "x.parquet")
    values = open_source(tmp_path / "x.parquet", ["x"]).read(0, 3).columns["x"]
    assert isinstance(values, list) == ("ragged" in name)
    assert [np.asarray(row).tolist() for row in values] == expected


def test_faults_of_nested_lists_are_of_their_rows(tmp_path: Path) -> None:
    array = pa.array([[[1, 2], [3, 4]], [[1], [2, 3]], None, [[1, None]], [None], [[5, 6]]])
    pq.write_table(pa.table({"x": array}), tmp_path / "x.parquet")
    block = open_source(tmp_path, ["x"]).read(0, 6)
    assert block.rows.tolist() == [0, 5]
    codes = {fault.row: fault.code for fault in block.faults}
    assert codes == {1: "batch.shape", 2: "batch.missing", 3: "batch.missing", 4: "batch.missing"}


def test_files_of_pandas_are_read(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, 2.5], "b": pandas.Categorical(["x", "y"]), "c": [[1, 2], [3, 4]]}, index=[7, 9])
    frame.to_parquet(tmp_path / "frame.parquet")
    block = open_source(tmp_path, ["a", "c"], keep=["b"]).read(0, 2)
    assert block.columns["a"].tolist() == [1.5, 2.5] and block.columns["c"].tolist() == [[1, 2], [3, 4]]
    assert block.kept["b"].to_pylist() == ["x", "y"]


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_files_of_other_writers_are_read(tmp_path: Path, version: str, compression: str) -> None:
    table = pa.table({"x": np.arange(1000) // 7, "y": [[i, i] for i in range(1000)]})
    options = {"version": version, "compression": compression, "data_page_version": "2.0", "store_schema": False}
    pq.write_table(table, tmp_path / "x.pq", **options)
    block = open_source(tmp_path).read(123, 456)
    assert block.columns["x"].tolist() == (np.arange(123, 456) // 7).tolist()
    assert block.columns["y"].tolist() == [[i, i] for i in range(123, 456)]


def test_only_the_batches_of_the_range_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, pa.table({"x": np.arange(1000), "other": np.arange(1000)}), [500, 500], 100)
    source = open_source(tmp_path, ["x"])
    groups: list[Any] = []
    iterate = pq.ParquetFile.iter_batches

    def record(self: Any, *args: Any, **options: Any) -> Any:
        groups.append((options["row_groups"], options["columns"]))
        return iterate(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", record)
    assert source.read(250, 420).columns["x"].tolist() == list(range(250, 420))
    assert groups == [([2], ["x"]), ([3], ["x"]), ([4], ["x"])]
    # The next range goes on in the same row group.
    assert source.read(420, 480).columns["x"].tolist() == list(range(420, 480))
    assert len(groups) == 3
    assert source.chunk_rows == 100


def test_a_source_is_pickled_without_open_files(tmp_path: Path) -> None:
    write_files(tmp_path, pa.table({"x": np.arange(10)}), [4, 6], 3)
    source = open_source(tmp_path)
    source.read(0, 3)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(2, 9).columns["x"].tolist() == list(range(2, 9))
    assert copy.fingerprint() == source.fingerprint() == open_source(tmp_path).fingerprint()


def test_types_that_are_no_arrays_are_kept_and_not_read(tmp_path: Path) -> None:
    table = pa.table({"when": pa.array([1, None], pa.timestamp("us")), "tree": [{"a": 1}, {"a": 2}], "x": [1, 2]})
    pq.write_table(table, tmp_path / "x.parquet")
    source = open_source(tmp_path, keep=["when", "tree"])
    assert source.selected == ("x",) and source.columns == ("when", "tree", "x")
    assert pa.table(source.read(0, 2).kept).to_pylist() == table.select(["when", "tree"]).to_pylist()
    with pytest.raises(UnsupportedError) as caught:
        open_source(tmp_path, ["when"])
    assert caught.value.code == "dataset.type"


def test_files_that_differ_are_listed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": [1]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"x": pa.array([None], pa.null())}), tmp_path / "3.parquet")
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path)
    assert [(item.code, item.file) for item in caught.value.diagnostics] == [
        ("dataset.schema", "1.parquet"),
        ("dataset.schema", "2.parquet"),
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_of_nulls_alone_fits_any_type(tmp_path: Path, is_first: bool) -> None:
    names = ["nulls", "numbers"] if is_first else ["numbers", "nulls"]
    columns = {"nulls": pa.array([None], pa.null()), "numbers": pa.array([5])}
    for number, name in enumerate(names):
        pq.write_table(pa.table({"x": columns[name]}), tmp_path / f"{number}.parquet")
    block = open_source(tmp_path, ["x"]).read(0, 2)
    assert block.rows.tolist() == [names.index("numbers")] and np.asarray(block.columns["x"]).tolist() == [5]
    assert [(fault.row, fault.code) for fault in block.faults] == [(names.index("nulls"), "batch.missing")]


def test_unreadable_files_are_listed_before_the_run(tmp_path: Path) -> None:
    write_files(tmp_path, pa.table({"x": np.arange(10)}), [5, 5], 5)
    (tmp_path / "0-bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    (tmp_path / "1-bad.parquet").write_bytes(b"")
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path)
    assert {item.file for item in caught.value.diagnostics} == {"0-bad.parquet", "1-bad.parquet"}
    assert {item.code for item in caught.value.diagnostics} == {"dataset.unreadable"}


def test_damaged_pages_are_faults_of_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    values = np.random.default_rng(0).random(4000)
    options = {"row_group_size": 1000, "use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(pa.table({"x": values}), path, **options)
    data = bytearray(path.read_bytes())
    offset = data.index(values[1500:1510].tobytes())
    data[offset] ^= 255
    path.write_bytes(data)
    source = open_source(path)
    block = source.read(0, 4000)
    assert block.rows.tolist() == [*range(1000), *range(2000, 4000)]
    assert [fault.row for fault in block.faults] == list(range(1000, 2000))
    assert {(fault.code, fault.file) for fault in block.faults} == {("dataset.unreadable", "x.parquet")}
    assert block.columns["x"].tolist() == values[block.rows].tolist()
    assert source.read(1400, 1600).rows.tolist() == [] and source.read(2000, 2001).rows.tolist() == [2000]


def test_mutated_files_raise_or_give_faults(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"x": np.arange(200), "y": [[1.0, 2.0]] * 200, "s": ["a", "b"] * 100})
    pq.write_table(table, path, row_group_size=50)
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(150):
        changed = bytearray(data)
        for offset in rng.integers(0, len(data), 3):
            changed[offset] = rng.integers(0, 256)
        path.write_bytes(changed)
        try:
            source = open_source(path)
            count = min(source.rows, 1000)
            block = source.read(0, count)
        except DovetailError as error:
            assert error.code.startswith(("dataset.", "file."))
        else:
            assert sorted([*block.rows.tolist(), *(fault.row for fault in block.faults)]) == list(range(count))
            assert all(len(values) == len(block.rows) for values in block.columns.values())


def test_a_footer_with_an_absurd_number_of_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.arange(3)}), path)
    data = path.read_bytes()
    (length,) = struct.unpack("<i", data[-8:-4])
    footer = data[-8 - length : -8]
    # Field 3 of the footer, the number of rows, is a zigzag varint.
    assert footer.count(b"\x16\x06") >= 1
    position = footer.rindex(b"\x16\x06") if footer.count(b"\x16\x06") == 1 else footer.index(b"\x16\x06")
    absurd = footer[:position] + b"\x16\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + footer[position + 2 :]
    path.write_bytes(data[: -8 - length] + absurd + struct.pack("<i", len(absurd)) + b"PAR1")
    with pytest.raises(FormatError) as caught:
        open_source(path)
    assert caught.value.code in ("dataset.unreadable", "file.size")


@pytest.mark.parametrize("keep", [(), ("s",)])
def test_a_dictionary_that_decodes_to_too_much_is_a_fault(tmp_path: Path, keep: tuple[str, ...]) -> None:
    texts = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["x" * 1_000_000])
    pq.write_table(pa.table({"s": texts, "n": np.arange(20_000)}), tmp_path / "x.parquet", compression="zstd")
    source = open_source(tmp_path, ["n"] if keep else ["s"], keep=keep)
    assert {fault.code for fault in source.read(0, 20_000).faults} == {"file.size"}
    block = source.read(10_000, 10_002)
    assert [len(text) for text in (block.kept["s"].to_pylist() if keep else block.columns["s"])] == [1_000_000] * 2


def test_lists_that_decode_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A dictionary and run lengths: 1 million numbers in a few hundred bytes.
    lists = pa.ListArray.from_arrays(np.array([0, 1, 1_000_001], np.int32), np.zeros(1_000_001))
    pq.write_table(pa.table({"x": lists}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 1000
    assert open_source(tmp_path).row_bytes > 4_000_000
    monkeypatch.setattr(parquet_files, "MAX_LIST_BYTES", 1 << 20)
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path)
    assert caught.value.code == "file.size"


def test_a_file_that_changed_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    source = open_source(path)
    pq.write_table(pa.table({"x": [1, 2], "other": [3, 4]}), path)
    with pytest.raises(EngineError) as caught:
        source.read(0, 1)
    assert caught.value.code == "file.changed"


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5),
        np.arange(10, dtype=np.float32).reshape(5, 2),
        np.arange(30, dtype=np.float16).reshape(5, 2, 3),
        np.arange(30).reshape(5, 2, 3) % 2 == 0,
        np.zeros((5, 0), np.float32),
        np.zeros((5, 3, 0), np.float32),
        np.array(list("abcde"), object),
        np.array(list("abcdefghij"), object).reshape(5, 2),
    ],
    ids=lambda values: f"{values.dtype}{list(values.shape)}",
)
def test_results_are_read_again(tmp_path: Path, values: Any) -> None:
    sink = open_sink(tmp_path / "out", "parquet", rows=10, part_rows=5)
    sink.prepare()
    sink.write(0, np.array([0, 1, 2, 3, 4]), {"y": values}, [])
    sink.write(1, np.array([6, 7, 8, 9, 10]), {"y": values}, [RowFault(5, "batch.shape", "wrong", "a.parquet")])
    sink.finish()
    table = pq.read_table(tmp_path / "out")
    assert table.column("row").to_pylist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10] and table.column_names == ["row", "y"]
    assert sink.parts() == {0, 1} and list(sink.faults()) == [RowFault(5, "batch.shape", "wrong", "a.parquet")]
    if values.ndim == 3 and values.dtype != bool and values.size:
        assert np.array_equal(table["y"].combine_chunks().to_numpy_ndarray(), np.concatenate([values, values]))
    block = open_source(tmp_path / "out", ["y"], keep=["row"]).read(0, 10)
    assert np.array_equal(block.columns["y"], np.concatenate([values, values])) and block.columns["y"].dtype == values.dtype


def test_results_of_unequal_shapes_are_lists(tmp_path: Path) -> None:
    rows = [np.ones(2, np.float32), np.zeros(0, np.float32), np.ones(3, np.float32)]
    objects = np.empty(3, object)
    objects[:] = rows
    sink = open_sink(tmp_path, "parquet", rows=6, part_rows=3)
    sink.write(0, np.arange(3), {"y": objects, "z": [np.ones((1, row.size), np.int8) for row in rows]}, [])
    sink.write(1, np.arange(3, 6), {"y": rows, "z": np.ones((3, 2, 2), np.int8)}, [])
    block = open_source(tmp_path / "part-00000.parquet", ["y", "z"]).read(0, 3)
    assert [row.tolist() for row in block.columns["y"]] == [row.tolist() for row in rows]
    assert [row.shape for row in block.columns["z"]] == [(1, 2), (1, 0), (1, 3)]
    assert block.columns["y"][0].dtype == np.float32 and block.columns["z"][0].dtype == np.int8
    with pytest.raises(EngineError) as caught:
        open_sink(tmp_path, "npy", rows=3, part_rows=3).write(0, np.arange(3), {"y": objects}, [])
    assert caught.value.code == "dataset.output"


def test_results_of_narrow_types_are_widened_exactly(tmp_path: Path) -> None:
    import ml_dtypes

    sink = open_sink(tmp_path, "parquet", rows=2, part_rows=2)
    sink.write(0, np.arange(2), {"y": np.array([0.1, 3e38], ml_dtypes.bfloat16)}, [])
    table = pq.read_table(tmp_path)
    assert table["y"].type == pa.float32()
    assert table["y"].to_numpy().tolist() == np.array([0.1, 3e38], ml_dtypes.bfloat16).astype(np.float32).tolist()
    with pytest.raises(EngineError) as caught:
        sink.write(1, np.arange(2), {"y": np.zeros(2, np.complex64)}, [])
    assert caught.value.code == "dataset.output" and sink.parts() == {0}
