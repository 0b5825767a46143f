"""A job that is killed before any rename of its files, and then resumed, leaves the folder of a job that nothing interrupts."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Hashable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dovetail
from dovetail.data.rows.engines import EngineOptions
from dovetail.data.rows.job import Job
from dovetail.data.rows.part_runner import PartRunner, call_runner
from dovetail.data.rows.scheduler import Event
from dovetail.data.rows.sinks import FORMATS
from dovetail.data.rows.sources import open_source
from dovetail.storage.lock import LOCK_NAME
from row_models import map_rows

pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
pytest.importorskip("PIL")

ROWS = 19
BATCH = 2
PART_ROWS = 4
PARTS = -(-ROWS // PART_ROWS)
PICTURES = np.random.default_rng(0).integers(0, 256, (7, 3, 2, 3), np.uint8)
# The first row of part 0, all rows of part 1, the first batch of part 2, and the last row of the dataset.
FAULTY = (0, 4, 5, 6, 7, 8, 9, 18)
INDICES = np.array([99 if row in FAULTY else row % 7 for row in range(ROWS)])


class Killed(BaseException):
    """Killed ends a job like a signal: no handler of errors catches it."""


class InlinePool:
    """InlinePool runs the calls of one worker in this process, in order."""

    size = 1

    def __init__(self, job: Job) -> None:
        self._runner = PartRunner(job)
        self._calls: list[tuple[Any, ...]] = []
        self._has_started = False

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        self._calls.append(call)

    def wait(self, seconds: float) -> list[Event]:
        if not self._has_started:
            self._has_started = True
            return [Event("started", 0, ("start",), call_runner(self._runner, "start"))]
        call = self._calls.pop(0)
        return [Event("done", 0, call, call_runner(self._runner, *call))]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run jobs in this process, in blocks of one batch; temporary folders of killed jobs stay in the folder of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(EngineOptions, "start_pool", lambda options, job: InlinePool(job))
    monkeypatch.setattr("dovetail.data.rows.job.BLOCK_BYTES", 1)
    # No test cuts the power, and each flush waits for the disk.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return a folder with a model that maps an index to a picture, and a dataset of three files with two columns."""
    with dovetail.Builder("pictures") as b:
        b.output("y", b.Gather(b.constant(PICTURES), b.input("index", "i64", ("rows",)), axis=0))
    dovetail.save(b.model, tmp_path / "model.onnx")
    for name, values in {"index": INDICES, "id": np.arange(ROWS) * 10}.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        for number, part in enumerate(np.split(values, [3, 3])):
            np.save(tmp_path / "data" / name / f"{number}.npy", part)
    return tmp_path


def run_job(folder: Path, format: str, **options: Any) -> dovetail.MapReport:
    given = {"batch": BATCH, "part_rows": PART_ROWS, "keep": ["id"], "format": format, "workers": 1, **options}
    return map_rows(folder / "model.onnx", folder / "data", folder / "out", **given)


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def results(out: Path, format: str) -> tuple[list[int], list[int], Any]:
    """Return the row numbers, the kept numbers and the pictures of an output folder, in the order of the rows."""
    if format == "images":
        lines = [json.loads(line) for path in sorted((out / "_rows").iterdir()) for line in path.read_text().splitlines()]
        source = open_source(out / "y")
        block = source.read(0, source.rows)
        pictures = dict(zip(block.kept["file"].tolist(), block.columns["image"], strict=True))
        shown = [pictures[name.removeprefix("y/")] for line in lines for name in line["pictures"]]
        return [line["row"] for line in lines], [line["id"] for line in lines], np.stack(shown)
    source = open_source(out, ["row", "id", "y"])
    columns = source.read(0, source.rows).columns
    rows, ids = np.asarray(columns["row"]), np.asarray(columns["id"])
    y = columns["y"]
    pictures = np.array(y.to_pylist(), np.uint8) if hasattr(y, "to_pylist") else y
    good = rows >= 0
    return rows[good].tolist(), ids[good].tolist(), pictures[good]


def run_killed(folder: Path, format: str, number: int) -> bool:
    """Run a job that is killed before its rename of that number, so that its lock and its draft stay; return if it was killed."""
    replace, left = os.replace, [number]

    def counting(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            stack.enter_context(mock.patch.object(os, "unlink", mock.Mock(side_effect=OSError)))
            raise Killed
        replace(*arguments, **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(os, "replace", counting))
        try:
            run_job(folder, format)
        except BaseException:
            # Without unlink, a temporary folder raises its own error.
            if left[0] >= 0:
                raise
            return True
    return False


@pytest.mark.parametrize("format", FORMATS)
def test_a_job_killed_at_any_rename_resumes_to_the_folder_of_a_whole_job(
    dataset: Path, format: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = dataset / "out"
    report = run_job(dataset, format)
    assert (report.rows, report.faults, report.parts, report.skipped_parts) == (ROWS, len(FAULTY), PARTS, 0)
    assert report.first_fault.startswith("row 0: [index.range]")
    good = [row for row in range(ROWS) if row not in FAULTY]
    rows, ids, pictures = results(out, format)
    assert rows == good and ids == [row * 10 for row in good]
    assert np.array_equal(pictures, PICTURES[INDICES[good]])
    faults = [json.loads(line) for path in sorted((out / "_errors").iterdir()) for line in path.read_text().splitlines()]
    assert [(fault["row"], fault["file"], fault["code"]) for fault in faults] == [
        (row, f"id/{0 if row < 3 else 2}.npy", "index.range") for row in FAULTY
    ]
    whole = listing(out)
    number, parts = 0, [0]
    out.rename(tmp_path_factory.mktemp("whole") / "out")
    while run_killed(dataset, format, number):
        resumed = run_job(dataset, format)
        assert listing(out) == whole
        assert resumed.parts + resumed.skipped_parts == PARTS
        parts.append(resumed.skipped_parts)
        out.rename(tmp_path_factory.mktemp("resumed") / "out")
        number += 1
    # The kills came after each number of finished parts.
    assert parts == sorted(parts) and set(parts) >= set(range(PARTS))


@pytest.mark.parametrize("format", FORMATS)
def test_a_job_runs_the_parts_that_are_missing_and_no_other(dataset: Path, format: str) -> None:
    run_job(dataset, format)
    whole = listing(dataset / "out")
    names = {name for name in whole if any(f"part-{part:05}" in name for part in range(PARTS))}
    assert names
    for kept in (0, *(1 << part for part in range(PARTS)), *((1 << PARTS) - 1 - (1 << part) for part in range(PARTS))):
        for name in names:
            # The file of a part and its faults go; the pictures and chunks of the part may stay.
            if not kept >> int(name.split("part-")[1][:5]) & 1:
                (dataset / "out" / name).unlink()
        report = run_job(dataset, format)
        assert (report.parts, report.skipped_parts) == (PARTS - kept.bit_count(), kept.bit_count())
        assert listing(dataset / "out") == whole


@pytest.mark.parametrize("format", FORMATS)
def test_a_restart_killed_at_any_removal_loses_no_result_of_the_next_call(dataset: Path, format: str) -> None:
    out = dataset / "out"
    run_job(dataset, format)
    whole = listing(out)
    unlink, rmdir = os.unlink, os.rmdir
    for number in range(0, 1000, 3):
        left = [number]

        def counting(call: Any, left: list[int] = left) -> Any:
            def remove(path: Any, **options: Any) -> None:
                left[0] -= 1
                if left[0] < 0 and path != str(out / LOCK_NAME):
                    raise Killed if left[0] == -1 else OSError
                call(path, **options)

            return remove

        with mock.patch.object(os, "unlink", counting(unlink)), mock.patch.object(os, "rmdir", counting(rmdir)):
            try:
                run_job(dataset, format, restart=True)
            except Killed:
                pass
            else:
                break
        try:
            run_job(dataset, format)
        except dovetail.FormatError as error:
            assert error.code == "folder.resume"
            run_job(dataset, format, restart=True)
        assert listing(out) == whole, number
    assert number > 6


def test_a_file_of_no_part_of_the_job_does_not_count_as_a_part(dataset: Path) -> None:
    run_job(dataset, "npz")
    whole = listing(dataset / "out")
    (dataset / "out" / "part-00002.npz").rename(dataset / "out" / f"part-{PARTS:05}.npz")
    report = run_job(dataset, "npz")
    assert (report.parts, report.skipped_parts) == (1, PARTS - 1)
    assert whole.items() <= listing(dataset / "out").items()


def write_damaged(path: Path, **arrays: Any) -> None:
    """Write a compressed archive in which the checksum of the array ``id`` is wrong."""
    np.savez_compressed(path, **arrays)
    data = bytearray(path.read_bytes())
    # The checksum in the directory of the archive is 30 bytes before the name.
    data[data.rindex(b"id.npy") - 30] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_the_rows_of_a_file_that_cannot_be_decoded_are_faults_of_their_parts(dataset: Path, damaged: int) -> None:
    """Blocks without a good row have no columns; the other blocks of their part have results."""
    (dataset / "arrays").mkdir()
    bounds = [0, 3, 12, ROWS]
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        rows = np.arange(start, stop)
        write = write_damaged if number == damaged else np.savez_compressed
        write(dataset / "arrays" / f"{number}.npz", index=rows % 7, id=np.tile(rows * 10, (4000, 1)).T)
    bad = [*range(bounds[damaged], bounds[damaged + 1])]
    good = [row for row in range(ROWS) if row not in bad]
    report = map_rows(
        dataset / "model.onnx", dataset / "arrays", dataset / "out", batch=BATCH, part_rows=PART_ROWS, keep=["id"], workers=1
    )
    assert (report.rows, report.faults, report.parts) == (ROWS, len(bad), PARTS)
    rows, ids, pictures = results(dataset / "out", "npz")
    assert rows == good and np.array_equal(ids, np.tile(np.array(good) * 10, (4000, 1)).T)
    assert np.array_equal(pictures, PICTURES[np.array(good) % 7])
    files = sorted((dataset / "out" / "_errors").iterdir())
    faults = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(fault["row"], fault["file"], fault["code"]) for fault in faults] == [
        (row, f"{damaged}.npz", "dataset.unreadable") for row in bad
    ]


def test_first_rows_that_cannot_be_decoded_leave_parts_of_a_bounded_size(dataset: Path) -> None:
    rows = np.arange(20_000)
    write_damaged(dataset / "rows.npz", index=rows % 7, id=rows)
    report = map_rows(dataset / "model.onnx", dataset / "rows.npz", dataset / "out", batch=100, keep=["id"], workers=1)
    assert report.faults == len(rows) and report.parts > 10
