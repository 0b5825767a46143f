"""Parts of a job are whole or absent: full disks, killed writers, writers of one part at a time."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.data.rows import part_files
from dovetail.data.rows.rows import RowFault
from dovetail.data.rows.sinks import FORMATS, open_sink
from dovetail.data.rows.sources import open_source
from dovetail.errors import EngineError
from dovetail.storage import atomic_write

pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
pytest.importorskip("PIL")

ROWS = 30
PART_ROWS = 10


def sink_of(folder: Path, format: str) -> Any:
    return open_sink(folder, format, rows=ROWS, part_rows=PART_ROWS)


def write(sink: Any, part: int) -> None:
    """Write a part whose first row is at fault."""
    rows = np.arange(part * PART_ROWS, (part + 1) * PART_ROWS)
    # Random bytes: no format makes them smaller.
    pixels = np.random.default_rng(part).integers(0, 256, (PART_ROWS, 60, 70, 3), np.uint8)
    fault = RowFault(int(rows[0]), "batch.missing", "a value is missing", "x.npy")
    sink.write(part, rows[1:], {"y": pixels[1:]}, [fault])


def assert_whole(sink: Any, parts: set[int]) -> None:
    """Check that exactly ``parts`` are there, each with its rows, results and faults, and no temporary file."""
    assert sink.parts() == parts
    assert {fault.row // PART_ROWS for fault in sink.faults()} >= parts
    assert temporaries(Path(sink.folder)) == []
    for part in parts:
        expected = np.random.default_rng(part).integers(0, 256, (PART_ROWS, 60, 70, 3), np.uint8)[1:]
        assert np.array_equal(read(sink, part), expected)


def read(sink: Any, part: int) -> Any:
    start = part * PART_ROWS + 1
    if sink.format == "images":
        rows = open_source(Path(sink.folder, "y")).read(0, open_source(Path(sink.folder, "y")).rows)
        index = [f"row-{row:012}.png" for row in range(start, start + PART_ROWS - 1)]
        return np.stack([rows.columns["image"][rows.kept["file"].tolist().index(name)] for name in index])
    if sink.format == "zarr":
        return open_source(sink.folder, ["y"]).read(start, start + PART_ROWS - 1).columns["y"]
    suffix = sink.format
    path = Path(sink.folder, "y" if suffix == "npy" else "", f"part-{part:05}.{suffix}")
    source = open_source(path)
    name = "array" if suffix == "npy" else "y"
    return source.read(0, source.rows).columns[name]


def temporaries(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".tmp")]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of 2 MiB, which only root may."""
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of Linux")
@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_loses_no_part_that_was_written(tmp_path: Path, format: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        sink = sink_of(disk / "out", format)
        sink.prepare()
        write(sink, 0)
        space = os.statvfs(disk)
        (disk / "other").write_bytes(bytes(space.f_bavail * space.f_bsize - 40_000))
        for part in (1, 2):
            with pytest.raises(EngineError) as caught:
                write(sink, part)
            assert caught.value.code == "folder.unwritable" and caught.value.file.startswith(str(disk / "out"))
            assert "No space left" in caught.value.message
            assert_whole(sink, {0})
        (disk / "other").unlink()
        write(sink, 1)
        assert_whole(sink, {0, 1})


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_beyond_the_limit_is_removed(tmp_path: Path, format: str) -> None:
    sink = sink_of(tmp_path, format)
    write(sink, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, hard))
    try:
        with pytest.raises(EngineError) as caught:
            write(sink, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == "folder.unwritable"
    assert_whole(sink, {0})


def test_metadata_beyond_the_limit_are_an_error_and_the_parts_stay(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "zarr")
    write(sink, 0)
    before = (tmp_path / "zarr.json").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))
    try:
        with pytest.raises(EngineError) as caught:
            sink.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == "folder.unwritable"
    assert (tmp_path / "zarr.json").read_bytes() == before
    assert_whole(sink, {0})


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, format: str) -> None:
    (tmp_path / "file").write_text("")
    sink = sink_of(tmp_path / "file", format)
    for action in (sink.prepare, lambda: write(sink, 0)):
        with pytest.raises(EngineError) as caught:
            action()
        assert caught.value.code == "folder.unwritable" and caught.value.file.startswith(str(tmp_path / "file"))


def kill_in(folder: Path, format: str, count: int) -> None:
    """Write a part, and kill this process in the middle of its file number ``count``."""
    opened = 0
    original = atomic_write.replace_file

    @contextmanager
    def replace(path: Any, **options: Any) -> Any:
        nonlocal opened
        opened += 1
        with original(path, **options) as stream:
            if opened == count:
                stream.write(b"half a file")
                stream.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            yield stream

    patched: Any = part_files
    patched.replace_file = replace
    write(sink_of(folder, format), 1)


# Python 3.12 warns of a fork in a process with threads, such as zarr's.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("format", FORMATS)
def test_a_killed_writer_leaves_no_part(tmp_path: Path, format: str) -> None:
    sink = sink_of(tmp_path, format)
    sink.prepare()
    write(sink, 0)
    process = multiprocessing.get_context("fork")
    for count in range(1, 20):
        child = process.Process(target=kill_in, args=(tmp_path, format, count))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL and temporaries(tmp_path)
        assert sink.parts() == {0}
        sink.prepare()
        assert_whole(sink, {0})
    # Its last file was written: the part is there.
    assert count > 1 and child.exitcode == 0
    assert_whole(sink, {0, 1})
    sink.remove()
    assert os.listdir(tmp_path) == []


def test_temporary_files_of_living_writers_stay(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "npy")
    with sink.open_file("row/part-00000.npy") as stream:
        stream.write(b"half")
        sink_of(tmp_path, "npy").prepare()
        assert len(temporaries(tmp_path)) == 1 and sink.parts() == set()
    assert temporaries(tmp_path) == [] and sink.parts() == {0}


@pytest.mark.parametrize("format", FORMATS)
def test_two_writers_of_one_part_write_it_once(tmp_path: Path, format: str) -> None:
    sink = sink_of(tmp_path, format)
    sink.prepare()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write(sink_of(tmp_path, format), number % 3), range(12)))
    sink.finish()
    assert_whole(sink, {0, 1, 2})
    assert [fault.row for fault in sink.faults()] == [0, 10, 20]


def test_a_part_without_faults_removes_those_of_a_former_run(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "npy")
    write(sink, 0)
    sink.write(0, np.arange(10), {"y": np.zeros(10)}, [])
    assert list(sink.faults()) == [] and sink.parts() == {0}
