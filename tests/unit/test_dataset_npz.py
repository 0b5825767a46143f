"""Archives of numpy as source and sink, with numpy as the oracle."""

from __future__ import annotations

import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dovetail.data.rows import npz_files
from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.sinks import open_sink
from dovetail.data.rows.sources import open_source
from dovetail.errors import DovetailError, FormatError

REUSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
SAVES = {"stored": np.savez, "deflated": np.savez_compressed}


@pytest.mark.parametrize("save", SAVES)
@REUSED
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    ranges=st.lists(st.tuples(st.integers(0, 48), st.integers(0, 48)), max_size=5),
)
def test_a_range_holds_the_rows_that_numpy_loads(
    tmp_path_factory: pytest.TempPathFactory, save: str, sizes: list[int], ranges: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    total = sum(sizes)
    whole = {
        "x": np.arange(total * 6, dtype=np.float32).reshape(total, 2, 3),
        "order": np.asfortranarray(np.arange(total * 4.0).reshape(total, 4)),
        "big": np.arange(total, dtype=">u2"),
        "file": np.array([f"{row}.png" for row in range(total)] or np.empty(0, "U1")),
        "none": np.zeros((total, 0)),
    }
    start = 0
    for number, size in enumerate(sizes):
        with open(folder / f"{number}.npz", "wb") as stream:
            part = {name: array[start : start + size] for name, array in whole.items()}
            SAVES[save](stream, scale=np.float32(3), **{name: part[name] for name in part if name != "file"}, text=part["file"])
        start += size
    source = pickle.loads(pickle.dumps(open_source(folder, ["x", "order", "big", "none"], keep=["text"])))
    assert source.rows == total and set(source.columns) == {"x", "order", "big", "none", "text"}
    for low, high in [*ranges, (0, total), (0, min(3, total)), (min(3, total), total)]:
        start, stop = sorted((min(low, total), min(high, total)))
        block = source.read(start, stop)
        assert not block.faults and block.rows.tolist() == list(range(start, stop))
        for name in ("x", "order", "big", "none"):
            assert np.array_equal(block.columns[name], whole[name][start:stop]), name
        assert block.kept["text"].tolist() == whole["file"][start:stop].tolist()


@pytest.mark.parametrize("save", SAVES)
def test_memory_is_that_of_the_range(tmp_path: Path, save: str) -> None:
    array = np.zeros((40_000, 100))
    SAVES[save](tmp_path / "x.npz", x=array)
    source = open_source(tmp_path)
    tracemalloc.start()
    try:
        assert source.read(30_000, 30_010).columns["x"].shape == (10, 100)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def hostile(name: str, path: Path) -> None:
    if name == "text":
        path.write_bytes(b"PK nothing")
    elif name == "empty":
        path.write_bytes(b"")
    elif name == "twice":
        with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning):
            archive.writestr("x.npy", b"")
            archive.writestr("x.npy", b"")
    elif name == "bzip2":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("x.npy", b"1" * 100)
    elif name == "objects":
        np.savez(path, x=np.array([{}], object))
    elif name == "lengths":
        np.savez(path, x=np.zeros(3), y=np.zeros(4))
    elif name == "header":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000)}\n"
            archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    elif name == "bomb":
        np.savez_compressed(path, x=np.zeros(1000))
        data = bytearray(path.read_bytes())
        position = data.index(b"PK\x01\x02") + 24
        data[position : position + 4] = (1 << 31).to_bytes(4, "little")
        path.write_bytes(data)


HOSTILE = {
    "text": "dataset.unreadable",
    "empty": "dataset.unreadable",
    "twice": "dataset.unreadable",
    "bzip2": "dataset.unreadable",
    "objects": "dataset.type",
    "lengths": "dataset.schema",
    "header": "dataset.unreadable",
    "bomb": "file.size",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(tmp_path: Path, name: str) -> None:
    hostile(name, tmp_path / "x.npz")
    with pytest.raises(DovetailError) as caught:
        open_source(tmp_path)
    assert caught.value.code == HOSTILE[name]


@pytest.mark.parametrize("save", SAVES)
def test_mutated_archives_raise_or_give_faults(tmp_path: Path, save: str) -> None:
    path = tmp_path / "x.npz"
    SAVES[save](path, x=np.arange(200.0), y=np.arange(400).reshape(200, 2))
    data = path.read_bytes()
    rng = np.random.default_rng(2)
    for _ in range(150):
        changed = bytearray(data)
        for offset in rng.integers(0, len(data), 2):
            changed[offset] = rng.integers(0, 256)
        path.write_bytes(changed[: rng.integers(1, len(data) + 1)] if rng.random() < 0.2 else changed)
        try:
            source = open_source(path)
            count = min(source.rows, 1000)
            block = source.read(0, count)
        except DovetailError as error:
            assert error.code.startswith(("dataset.", "file.size", "array.file"))
        else:
            assert sorted([*block.rows.tolist(), *(fault.row for fault in block.faults)]) == list(range(count))


def test_damaged_data_is_a_fault_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "1.npz"
    np.savez_compressed(tmp_path / "0.npz", x=np.arange(5))
    np.savez_compressed(path, x=np.random.default_rng(0).integers(0, 1 << 60, 5000))
    data = bytearray(path.read_bytes())
    data[5000:6000] = bytes(1000)
    path.write_bytes(data)
    source = open_source(tmp_path)
    block = source.read(0, 5005)
    assert block.rows.tolist() == list(range(5)) and len(block.faults) == 5000
    assert {(fault.code, fault.file) for fault in block.faults} == {("dataset.unreadable", "1.npz")}


def test_a_compressed_array_in_fortran_order_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.asfortranarray(np.arange(40.0).reshape(10, 4))
    np.savez_compressed(tmp_path / "x.npz", x=array)
    size = 128 + array.nbytes
    monkeypatch.setattr(npz_files, "_MAX_FORTRAN_BYTES", size)
    assert np.array_equal(open_source(tmp_path).read(3, 7).columns["x"], array[3:7])
    monkeypatch.setattr(npz_files, "_MAX_FORTRAN_BYTES", size - 1)
    block = open_source(tmp_path).read(3, 7)
    assert [(fault.row, fault.code) for fault in block.faults] == [(row, "file.size") for row in range(3, 7)]


def test_files_without_a_column_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "0.npz", x=np.zeros(2), y=np.zeros(2))
    np.savez(tmp_path / "1.npz", y=np.zeros(2))
    np.savez(tmp_path / "2.npz", x=np.zeros(2, int))
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path, ["x"])
    assert caught.value.code == "dataset.schema" and caught.value.diagnostics[0].file == "1.npz"
    (tmp_path / "1.npz").unlink()
    with pytest.raises(FormatError) as caught:
        open_source(tmp_path, ["x"])
    assert caught.value.code == "dataset.schema" and caught.value.diagnostics[0].file == "2.npz"


def test_results_are_read_again(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out", "npz", rows=4, part_rows=2)
    sink.prepare()
    columns: dict[str, Any] = {"file": np.array(["a", "bc"], object), "y/z:0": np.arange(4.0).reshape(2, 2)}
    sink.write(0, np.array([0, 1]), columns, [])
    first = (tmp_path / "out" / "part-00000.npz").read_bytes()
    sink.write(1, np.array([3]), {name: values[1:] for name, values in columns.items()}, [RowFault(2, "a.b", "text")])
    sink.write(0, np.array([0, 1]), columns, [])
    assert (tmp_path / "out" / "part-00000.npz").read_bytes() == first
    sink.finish()
    with np.load(tmp_path / "out" / "part-00001.npz") as loaded:
        assert {name: loaded[name].tolist() for name in loaded} == {"row": [3], "file": ["bc"], "y/z:0": [[2.0, 3.0]]}
    block = open_source(tmp_path / "out", ["y/z:0"], keep=["row", "file"]).read(0, 3)
    assert block.kept["row"].tolist() == [0, 1, 3] and block.kept["file"].tolist() == ["a", "bc", "bc"]
    sink.remove()
    assert list((tmp_path / "out").iterdir()) == []
