"""Datasets and records of ``map`` that lie: small files of many rows or bytes, inputs that change, and edited records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.data.rows.map_rows import open_rows
from dovetail.data.rows.part_runner import PartRunner
from dovetail.errors import DovetailError, EngineError, FormatError
from row_models import map_rows


@pytest.fixture
def model(tmp_path: Path) -> Path:
    with dovetail.Builder("double") as b:
        b.output("y", b.Add(x := b.input("x", "f32", ("rows", 4)), x))
    path = tmp_path / "model.onnx"
    dovetail.save(b.model, path)
    return path


def run(model: Path, data: Path, out: Path, **options: Any) -> dovetail.MapReport:
    return map_rows(model, data, out, workers=1, batch=8, part_rows=16, **options)


def code_of(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(DovetailError) as caught:
        call(*arguments, **options)
    return caught.value.code


def npy_of_shape(path: Path, shape: tuple[int, ...]) -> Path:
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return path


def test_rows_without_bytes_are_counted_before_a_job_starts(model: Path, tmp_path: Path) -> None:
    with dovetail.Builder("empty") as b:
        b.output("y", b.Relu(b.input("x", "f32", ("rows", 0))))
    dovetail.save(b.model, tmp_path / "empty.onnx")
    bomb = npy_of_shape(tmp_path / "bomb.npy", (10**12, 0))
    assert code_of(run, tmp_path / "empty.onnx", bomb, tmp_path / "out") == "file.size"
    few = npy_of_shape(tmp_path / "few.npy", (10, 0))
    assert run(tmp_path / "empty.onnx", few, tmp_path / "out").rows == 10


def test_chunks_that_are_missing_have_no_rows_without_end(model: Path, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "bomb.zarr", shape=(10**12, 4), chunks=(1000, 4), dtype="f4")
    assert code_of(run, model, tmp_path / "bomb.zarr", tmp_path / "out") == "file.size"


def test_a_column_of_another_kind_is_refused_before_it_is_decoded(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from dovetail.data.rows import parquet_files

    parquet.write_table(pa.table({"x": ["a" * 1000] * 3}), tmp_path / "texts.parquet")
    parquet.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "scalars.parquet")
    decoded: list[Any] = []
    monkeypatch.setattr(parquet_files._FileReader, "read", lambda *arguments: decoded.append(arguments))
    assert code_of(run, model, tmp_path / "texts.parquet", tmp_path / "out") == "batch.dtype"
    assert code_of(run, model, tmp_path / "scalars.parquet", tmp_path / "out") == "batch.shape"
    np.save(tmp_path / "wide.npy", np.ones((3, 5), np.float32))
    assert code_of(run, model, tmp_path / "wide.npy", tmp_path / "out") == "batch.shape"
    assert not decoded and not (tmp_path / "out").exists()


def test_a_batch_of_the_dataset_obeys_the_limit_of_memory(tmp_path: Path) -> None:
    with dovetail.Builder("any") as b:
        b.output("y", b.Relu(b.input("x", "f32", ("rows", "n"))))
    dovetail.save(b.model, tmp_path / "any.onnx")
    np.save(tmp_path / "rows.npy", np.ones((8, 1 << 18), np.float32))
    limits = dovetail.Limits(memory=1 << 22)
    assert code_of(run, tmp_path / "any.onnx", tmp_path / "rows.npy", tmp_path / "out", limits=limits) == "run.memory"


@pytest.mark.parametrize("is_restored", [False, True], ids=["written", "time-restored"])
@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr", "npz"])
def test_an_input_that_changes_in_place_ends_the_job(model: Path, tmp_path: Path, kind: str, is_restored: bool) -> None:
    from dovetail.data.rows.job import Job

    rows = np.arange(400, dtype=np.float32).reshape(100, 4)
    data = tmp_path / f"data.{kind}"
    write_rows(data, rows)
    mapper, source = open_rows(dovetail.Mapper(model, batch=8, threads=1), data, dovetail.MapOptions())
    job = Job(mapper, source, "npy", str(tmp_path), "", part_rows=16, block_rows=16)
    source.read(0, 16)
    changed = max((path for path in data.rglob("*") if path.is_file()), key=str) if data.is_dir() else data
    changed = data / "c" / "0" / "0" if data.is_dir() else changed
    status = changed.stat()
    content = bytearray(changed.read_bytes())
    with changed.open("r+b") as stream:
        stream.write(content)
    if is_restored:
        os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    runner = PartRunner(job)
    assert code_of(runner.run, 0, 16, 16) == "file.changed"


def write_rows(path: Path, rows: np.ndarray[Any, Any]) -> None:
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, x=rows)
    elif path.suffix == ".zarr":
        pytest.importorskip("zarr").create_array(path, data=rows, chunks=(100, 4))
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table({"x": rows.tolist()}), path)


def test_an_edited_record_does_not_resume_and_a_restart_replaces_it(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(400, dtype=np.float32).reshape(100, 4))
    out = tmp_path / "out"
    run(model, tmp_path / "rows.npy", out)
    path = out / "_job.json"
    record = json.loads(path.read_text())
    for name, value in (("part_rows", 8), ("block_rows", 1), ("rows", 50)):
        path.write_text(json.dumps({**record, name: value}))
        assert code_of(run, model, tmp_path / "rows.npy", out) == "folder.resume"
    assert run(model, tmp_path / "rows.npy", out, restart=True).rows == 100
    assert run(model, tmp_path / "rows.npy", out).skipped_parts == 7


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{}",
        "[]",
        "null",
        '{"version": 1, "options": []}',
        '{"version": 1, "options": {"format": 3}, "rows": 1}',
        "\xff",
    ],
    ids=["deep", "empty", "list", "null", "options", "format", "encoding"],
)
def test_a_malformed_record_is_an_error_of_the_record(model: Path, tmp_path: Path, text: str) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 4), np.float32))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_job.json").write_bytes(text.encode("latin-1"))
    for restart in (False, True):
        assert code_of(run, model, tmp_path / "rows.npy", tmp_path / "out", restart=restart) == "folder.resume"


def test_the_index_of_pictures_removes_no_file_outside_the_folder(tmp_path: Path) -> None:
    from dovetail.data.rows.image_files import ImageSink

    (tmp_path / "mine.png").write_bytes(b"mine")
    (tmp_path / "out" / "_rows").mkdir(parents=True)
    (tmp_path / "out" / "_rows" / "part-00000.jsonl").write_text('{"pictures": ["../mine.png"]}\n')
    with pytest.raises(FormatError, match=r"\[folder.resume\]"):
        ImageSink(tmp_path / "out", 1, 1).remove()
    assert (tmp_path / "mine.png").read_bytes() == b"mine"


def test_a_malformed_fault_is_an_error_of_the_record(tmp_path: Path) -> None:
    from dovetail.data.rows.numpy_files import NpySink

    (tmp_path / "_errors").mkdir()
    for line in ("[1]\n", '{"row": 1}\n', "[" * 100_000 + "\n"):
        (tmp_path / "_errors" / "part-00000.jsonl").write_text(line)
        with pytest.raises((FormatError, EngineError), match=r"\[folder.resume\]"):
            list(NpySink(tmp_path, 1, 1).faults())
