"""Files of numpy as source and sink, with numpy as the oracle."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dovetail.data.rows.dataset_files import describe_change
from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.sinks import open_sink
from dovetail.data.rows.sources import open_source
from dovetail.errors import DovetailError, EngineError, FormatError, UnsupportedError
from hostile_models import NPY_FILES

REUSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
ARRAYS = {
    "f32": np.arange(24, dtype=np.float32).reshape(6, 4),
    "big-endian": np.arange(24, dtype=">i4").reshape(6, 2, 2),
    "Fortran order": np.asfortranarray(np.arange(24.0).reshape(6, 2, 2)),
    "vector": np.arange(6, dtype=np.uint8),
    "strings": np.array(list("abcdeä")),
    "empty rows": np.zeros((6, 0, 3)),
    "complex": np.arange(6) * 1j,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_file_is_read_by_ranges(tmp_path: Path, name: str) -> None:
    array = ARRAYS[name]
    np.save(tmp_path / "x.npy", array)
    source = open_source(tmp_path / "x.npy")
    assert (source.kind, source.rows, source.columns) == ("npy", 6, ("array",))
    for start, stop in [(0, 6), (2, 5), (3, 3), (5, 6)]:
        block = source.read(start, stop)
        values = block.columns["array"]
        assert np.array_equal(values, array[start:stop]) and values.dtype.isnative
        assert block.rows.tolist() == list(range(start, stop)) and not block.faults


@REUSED
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5), data=st.data())
def test_rows_are_numbered_over_files(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: Any) -> None:
    folder = tmp_path_factory.mktemp("npy")
    total = sum(sizes)
    for column, width in {"a": 3, "b/c:0": 1}.items():
        array = np.arange(total * width).reshape(total, width)
        path = folder / column.replace("/", "%2F")
        path.mkdir()
        for number, part in enumerate(np.split(array, np.cumsum(sizes)[:-1])):
            np.save(path / f"{number}.npy", part)
    source = pickle.loads(pickle.dumps(open_source(folder)))
    assert source.rows == total and source.columns == ("a", "b/c:0")
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    block = source.read(start, stop)
    assert block.columns["a"].tolist() == np.arange(total * 3).reshape(total, 3)[start:stop].tolist()
    assert block.columns["b/c:0"].tolist() == np.arange(total).reshape(total, 1)[start:stop].tolist()


def test_files_of_other_shapes_are_lists(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros((2, 3)))
    np.save(tmp_path / "1.npy", np.ones((1, 4)))
    values = open_source(tmp_path).read(0, 3).columns["array"]
    assert [value.shape for value in values] == [(3,), (3,), (4,)]


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    np.save(tmp_path / "x.npy", np.array([Evil()], object), allow_pickle=True)
    with pytest.raises(UnsupportedError) as caught:
        open_source(tmp_path)
    assert caught.value.code == "dataset.type" and not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", NPY_FILES)
def test_a_hostile_header_is_refused(tmp_path: Path, name: str) -> None:
    data, code = NPY_FILES[name]
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(DovetailError) as caught:
        open_source(tmp_path)
    assert caught.value.code == code and caught.value.exit_code in (3, 4)


def test_all_unreadable_files_are_listed(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros(3))
    (tmp_path / "1.npy").write_bytes(b"nothing")
    (tmp_path / "2.npy").write_bytes(b"")
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path)
    assert [item.file for item in caught.value.diagnostics] == ["1.npy", "2.npy"]


def test_a_dataset_must_be_of_one_kind_and_schema(tmp_path: Path) -> None:
    def code() -> str:
        with pytest.raises(DovetailError) as caught:
            open_source(tmp_path)
        return caught.value.code

    assert code() == "dataset.kind"
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "0.npy", np.zeros(3))
    assert open_source(tmp_path).columns == ("a",)
    np.save(tmp_path / "0.npy", np.zeros(3))
    assert code() == "dataset.schema"
    (tmp_path / "0.npy").unlink()
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "b" / "0.npy", np.zeros(4))
    assert code() == "dataset.schema"
    np.save(tmp_path / "b" / "0.npy", np.zeros(3))
    np.save(tmp_path / "b" / "1.npy", np.zeros(3, int))
    np.save(tmp_path / "a" / "1.npy", np.zeros(3))
    assert code() == "dataset.schema"
    (tmp_path / "x.parquet").write_bytes(b"")
    assert code() == "dataset.kind"
    with pytest.raises(FileNotFoundError) as missing:
        open_source(tmp_path / "nothing")
    assert getattr(missing.value, "code", None) == "file.missing"


def test_an_unknown_column_and_range_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(EngineError, match="its columns are array") as caught:
        open_source(tmp_path, ["x"])
    assert caught.value.code == "dataset.column"
    for start, stop in [(-1, 2), (2, 1), (0, 4)]:
        with pytest.raises(EngineError) as caught:
            open_source(tmp_path).read(start, stop)
        assert caught.value.code == "argument.value"


def test_links_stay_in_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir(), outside.mkdir()
    np.save(outside / "secret.npy", np.zeros(3))
    np.save(inside / "0.npy", np.arange(3))
    (inside / "1.npy").symlink_to("0.npy")
    assert open_source(inside).read(0, 6).columns["array"].tolist() == [0, 1, 2, 0, 1, 2]
    # The user's own path may be a link.
    (tmp_path / "link").symlink_to("in")
    assert open_source(tmp_path / "link").rows == 6
    (inside / "2.npy").symlink_to("../out/secret.npy")
    (inside / "3.npy").symlink_to("nothing.npy")
    (inside / "4").symlink_to("../out")
    os.mkfifo(inside / "5.npy")
    with pytest.raises(FormatError) as caught:
        open_source(inside)
    assert {item.file: item.code for item in caught.value.diagnostics} == {
        "2.npy": "dataset.link",
        "3.npy": "dataset.unreadable",
        "4": "dataset.link",
        "5.npy": "dataset.unreadable",
    }


def test_a_file_that_becomes_a_link_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    np.save(tmp_path / "secret.npy", np.arange(3))
    np.save(inside / "0.npy", np.zeros(3))
    source = open_source(inside)
    (inside / "0.npy").unlink()
    (inside / "0.npy").symlink_to("../secret.npy")
    block = source.read(0, 3)
    assert not len(block.rows) and {fault.code for fault in block.faults} == {"dataset.link"}


def test_a_file_that_is_gone_or_changed_stops_the_job(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros(3))
    source = open_source(tmp_path)
    np.save(tmp_path / "0.npy", np.zeros(4))
    for _ in range(2):
        with pytest.raises(EngineError) as caught:
            source.read(0, 3)
        assert caught.value.code == "file.changed" and caught.value.file == "0.npy"
        (tmp_path / "0.npy").unlink(missing_ok=True)


def test_changes_of_a_folder_are_named(tmp_path: Path) -> None:
    for number in range(9):
        np.save(tmp_path / f"{number}.npy", np.zeros(3))
    old = open_source(tmp_path).fingerprint()
    assert describe_change(old, open_source(tmp_path).fingerprint()) == ""
    np.save(tmp_path / "new.npy", np.zeros(3))
    np.save(tmp_path / "0.npy", np.zeros(4))
    for number in range(2, 9):
        (tmp_path / f"{number}.npy").unlink()
    change = describe_change(old, open_source(tmp_path).fingerprint())
    assert change == (
        "files of the dataset: 7 removed (2.npy, 3.npy, 4.npy, 5.npy, 6.npy and 2 more), 1 added (new.npy), 1 modified (0.npy)"
    )


def test_results_are_read_again(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out", "npy", rows=10, part_rows=4)
    sink.prepare()
    assert sink.parts() == set()
    values = np.arange(20, dtype=np.float32).reshape(10, 2)
    texts = [f"file{row}" for row in range(10)]
    fault = RowFault(5, "batch.shape", "wrong\nshape", "a.npy")
    sink.write(0, np.arange(4), {"y:0": values[:4], "file": texts[:4]}, [])
    sink.write(1, np.array([4, 6, 7]), {"y:0": values[[4, 6, 7]], "file": texts[4:7]}, [fault])
    sink.write(2, np.empty(0, int), {}, [RowFault(8, "a.b", "x"), RowFault(9, "a.b", "x")])
    assert sink.parts() == {0, 1, 2}
    sink.finish()
    assert [item.row for item in sink.faults()] == [5, 8, 9] and next(sink.faults()) == fault
    source = open_source(tmp_path / "out", ["y:0"], keep=["row", "file"])
    block = source.read(0, 7)
    assert block.kept["row"].tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert np.array_equal(block.columns["y:0"], values[[0, 1, 2, 3, 4, 6, 7]])
    (tmp_path / "out" / "notes.txt").write_text("mine")
    sink.remove()
    assert os.listdir(tmp_path / "out") == ["notes.txt"] and sink.parts() == set()


def test_values_that_one_array_cannot_hold_are_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, "npy", rows=2, part_rows=2)
    for values in ([np.zeros(2), np.zeros(3)], np.array([{}, {}], object), np.array(["a" * 300_000_000, ""], object)):
        with pytest.raises(EngineError) as caught:
            sink.write(0, np.arange(2), {"y": values}, [])
        assert caught.value.code == "dataset.output" and sink.parts() == set()
    with pytest.raises(EngineError) as caught:
        sink.write(0, np.arange(2), {"row": np.arange(2)}, [])
    assert caught.value.code == "dataset.output"
    with pytest.raises(EngineError) as caught:
        open_sink(tmp_path, "csv", rows=2, part_rows=2)
    assert caught.value.code == "argument.value"
