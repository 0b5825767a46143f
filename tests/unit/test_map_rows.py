"""``map_rows`` and ``dovetail map``: every row exactly once, whatever is killed, and errors with names."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Hashable
from dataclasses import replace
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

import dovetail
from dovetail.cli import dovetail as command
from dovetail.cli.map import ProgressLines
from dovetail.data.rows.job import MAX_PARTS, Job, choose_block_rows, choose_part_rows, digest_of
from dovetail.data.rows.part_runner import Failure, PartRunner, PartSummary, call_runner
from dovetail.data.rows.scheduler import ATTEMPTS, IN_FLIGHT, Event, MapProgress, Scheduler
from dovetail.data.rows.sources import open_source
from dovetail.errors import EngineError
from dovetail.storage import lock as job_lock
from dovetail.storage.atomic_write import lock_file
from dovetail.storage.lock import LOCK_NAME, FolderLock
from row_models import map_rows

ROWS = 3000
WIDTH = 24
BATCH = 16
PART_ROWS = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and three files of rows."""
    folder = tmp_path_factory.mktemp("map")
    generator = np.random.default_rng(0)
    with dovetail.Builder("scores") as b:
        x = b.input("x", "f32", ("rows", WIDTH))
        hidden = b.Relu(b.MatMul(x, b.constant(generator.standard_normal((WIDTH, 32)).astype("f4"))))
        b.output("y", b.Softmax(b.MatMul(hidden, b.constant(generator.standard_normal((32, 5)).astype("f4"))), axis=1))
    dovetail.save(b.model, folder / "model.onnx")
    (folder / "data").mkdir()
    for number, part in enumerate(np.split(generator.standard_normal((ROWS, WIDTH)).astype("f4"), [700, 701])):
        np.save(folder / "data" / f"{number}.npy", part)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> Any:
    """Return a program's results for each batch of rows, compared with onnxruntime."""
    x = np.concatenate([np.load(path) for path in sorted((folder / "data").iterdir())])
    program = dovetail.compile(folder / "model.onnx", threads=1)
    y = np.concatenate([program(x[start : start + BATCH])["y"] for start in range(0, ROWS, BATCH)])
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-6)
    return y


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    """Return the output folder of a job that has run in two processes; tests copy it or leave it as it is."""
    # On a loaded machine one process may finish all parts before the other one has started.
    for _ in range(5):
        report = run_map(folder, folder / "finished", restart=True)
        if report.workers == 2:
            break
    assert (report.rows, report.faults, report.workers, report.lost_workers) == (ROWS, 0, 2, 0)
    assert report.parts == -(-ROWS // PART_ROWS) and report.rows_per_second > 0
    return folder / "finished"


def run_map(folder: Path, out: Path, **options: Any) -> dovetail.MapReport:
    options = {"workers": 2, "batch": BATCH, "part_rows": PART_ROWS, **options}
    return map_rows(folder / "model.onnx", folder / "data", out, **options)


def assert_exactly_once(out: Path, expected: Any) -> None:
    """Every row is there once, in order, with the bits of a program."""
    row, y = (np.concatenate([np.load(path) for path in sorted((out / name).glob("*.npy"))]) for name in ("row", "y"))
    assert np.array_equal(row, np.arange(len(expected)))
    assert y.tobytes() == expected.tobytes()
    assert not [name for name in os.listdir(out) if name.startswith(".") or name == LOCK_NAME]


def test_a_local_job_gives_the_bits_of_a_program(finished: Path, expected: Any) -> None:
    assert_exactly_once(finished, expected)


def test_blocks_of_a_part_give_the_bits_of_a_program(
    folder: Path, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.data.rows.job.BLOCK_BYTES", 2 * BATCH * WIDTH * 4)
    report = run_map(folder, tmp_path / "out", workers=1, part_rows=1000)
    assert report.parts == 3 and json.loads((tmp_path / "out" / "_job.json").read_text())["block_rows"] == 2 * BATCH
    assert_exactly_once(tmp_path / "out", expected)


def test_faults_in_any_block_of_a_part_are_listed(
    folder: Path, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("dovetail.data.rows.job.BLOCK_BYTES", 2 * BATCH * WIDTH * 4)
    rows = np.load(folder / "data" / "0.npy")[:160]
    faulty = [0, 40, *range(64, 96), 159]
    cells = [None if row in faulty else values for row, values in enumerate(rows.tolist())]
    pq.write_table(
        pa.table({"id": np.arange(160) + 1000, "x": pa.array(cells, pa.list_(pa.float32()))}), tmp_path / "rows.parquet"
    )
    out = tmp_path / "out"
    report = map_rows(folder / "model.onnx", tmp_path / "rows.parquet", out, workers=1, batch=BATCH, part_rows=160, keep=["id"])
    assert (report.parts, report.rows, report.faults) == (1, 160, len(faulty))
    good = np.delete(np.arange(160), faulty)
    table = pq.read_table(out)
    assert table["row"].to_pylist() == good.tolist() and table["id"].to_pylist() == (good + 1000).tolist()
    assert np.array(table["y"].to_pylist(), np.float32).tobytes() == expected[good].tobytes()
    lines = (out / "_errors" / "part-00000.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == faulty


def test_a_finished_job_starts_no_worker(folder: Path, finished: Path) -> None:
    report = run_map(folder, finished)
    assert (report.parts, report.skipped_parts, report.workers) == (0, -(-ROWS // PART_ROWS), 0)


def test_kills_of_workers_and_drivers_lose_and_double_no_row(folder: Path, expected: Any, tmp_path: Path) -> None:
    """A worker is killed at a random moment, then the driver, whose other worker may be writing; the command is repeated."""
    out = tmp_path / "out"
    chance = random.Random(7)
    words = ["map", folder / "model.onnx", folder / "data", "-o", out, "--workers", "2", "--batch", BATCH, "--part-rows", BATCH]
    line = [sys.executable, "-m", "dovetail.cli", *map(str, words)]
    driver = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    wait_for_parts(out, chance.randrange(1, 40))
    os.kill(chance.choice(children_of(driver.pid)), signal.SIGKILL)
    wait_for_parts(out, chance.randrange(50, 120))
    driver.kill()
    driver.wait()
    report = run_map(folder, out)
    assert report.skipped_parts >= 50 and report.parts + report.skipped_parts == -(-ROWS // BATCH)
    assert_exactly_once(out, expected)


def wait_for_parts(out: Path, count: int) -> None:
    end = time.monotonic() + 30
    while len(list((out / "y").glob("part-*"))) < count:
        assert time.monotonic() < end
        time.sleep(0.005)


def children_of(process: int) -> list[int]:
    """Return the child processes, from the fourth field of /proc/*/stat."""
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    return [int(text.split()[0]) for text in stats if int(text[text.rindex(")") + 2 :].split()[1]) == process]


# What may not change before a job resumes


def test_a_job_resumes_only_as_it_was_started(folder: Path, finished: Path, tmp_path: Path) -> None:
    (tmp_path / "_job.json").write_bytes((finished / "_job.json").read_bytes())
    with pytest.raises(EngineError, match=r"option batch 16, now 8") as caught:
        run_map(folder, tmp_path, batch=8)
    assert caught.value.code == "folder.resume"
    with pytest.raises(EngineError, match=r"option format 'npy', now 'parquet'"):
        run_map(folder, tmp_path, format="parquet")
    for name in ("model.onnx", "data"):
        (tmp_path / name).symlink_to(folder / name)
    record = json.loads((tmp_path / "_job.json").read_text())
    record["input"]["files"][1][1] -= 1
    record["model_files"]["model.onnx"] = record["digest"] = "0"
    record["record_digest"] = digest_of(record)
    (tmp_path / "_job.json").write_text(json.dumps(record))
    with pytest.raises(EngineError, match=r"model file model.onnx; .*1\.npy"):
        run_map(folder, tmp_path)
    wrong: list[Any] = [[[3, 4]], [[]], ["1.npy"], {"1.npy": 4}, 7]
    for files in wrong:
        record["input"]["files"] = files
        record["record_digest"] = digest_of(record)
        (tmp_path / "_job.json").write_text(json.dumps(record))
        with pytest.raises(dovetail.FormatError, match=r"\[folder.resume\]"):
            run_map(folder, tmp_path)
    (tmp_path / "_job.json").write_text("{}")
    with pytest.raises(dovetail.FormatError, match=r"\[folder.resume\]"):
        run_map(folder, tmp_path)


def test_restart_removes_the_results_of_a_job_and_nothing_else(folder: Path, expected: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    run_map(folder, out, workers=1)
    (out / "notes.txt").write_text("mine")
    report = run_map(folder, out, workers=1, restart=True, part_rows=1000, format="parquet", keep=["array"])
    assert report.skipped_parts == 0 and (out / "notes.txt").exists() and not (out / "y").exists()
    block = open_source(out, ["row", "array", "y"]).read(0, ROWS)
    assert np.array_equal(block.columns["row"], np.arange(ROWS))
    assert np.asarray(block.columns["y"]).tobytes() == expected.tobytes()
    assert np.array_equal(block.columns["array"][:700], np.load(folder / "data" / "0.npy"))


def test_a_folder_of_something_else_is_no_output(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    places = {tmp_path: "notes.txt", folder / "data" / "out": "outside the input", tmp_path / "notes.txt": "folder"}
    for out, text in places.items():
        with pytest.raises(EngineError, match=text) as caught:
            run_map(folder, out)
        assert caught.value.code == "folder.occupied"
    assert os.listdir(tmp_path) == ["notes.txt"]


# One driver at a time


def test_a_second_driver_is_refused_while_the_first_lives(folder: Path, tmp_path: Path) -> None:
    with FolderLock(str(tmp_path), "a"):
        with pytest.raises(EngineError, match=rf"process {os.getpid()} on ") as caught:
            run_map(folder, tmp_path)
        assert caught.value.code == "folder.locked"
    assert os.listdir(tmp_path) == []


def test_the_lock_of_a_dead_driver_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / LOCK_NAME
    owner = {"host": "elsewhere", "pid": 1, "boot": job_lock.boot_id(), "token": "a"}
    lock.write_text(json.dumps(owner))
    with FolderLock(str(tmp_path), "b"):
        assert job_lock.token_in(str(tmp_path)) == "b"
    # On another host heartbeats decide.
    lock.write_text(json.dumps({**owner, "boot": "other"}))
    with pytest.raises(EngineError, match=r"process 1 on elsewhere .* heartbeat"):
        FolderLock(str(tmp_path), "b").__enter__()
    old = time.time() - 2 * job_lock.STALE_SECONDS
    os.utime(lock, (old, old))
    with FolderLock(str(tmp_path), "b") as taken:
        os.utime(lock, (old, old))
        monkeypatch.setattr(job_lock, "HEARTBEAT_SECONDS", 0)
        taken.beat()
        assert lock.stat().st_mtime > old + 1
    for former in ("damaged", "[]", json.dumps({**owner, "host": "long" * 100}), json.dumps({**owner, "token": 7})):
        lock.write_text(former)
        assert job_lock.token_in(str(tmp_path)) in (None, "a")
        with FolderLock(str(tmp_path), "b"):
            assert job_lock.token_in(str(tmp_path)) == "b"
        assert job_lock.token_in(str(tmp_path)) is None
    assert os.listdir(tmp_path) == []


def test_a_lock_file_that_its_driver_removes_before_the_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def lock(descriptor: int) -> bool:
        calls.append(descriptor)
        if len(calls) == 1:
            (tmp_path / LOCK_NAME).unlink()
        return lock_file(descriptor)

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(job_lock, "lock_file", lock)
        with FolderLock(str(tmp_path), "a"), pytest.raises(EngineError, match="it is running"):
            FolderLock(str(tmp_path), "b").__enter__()
    assert len(calls) == 3 and len(os.listdir("/proc/self/fd")) == before


# Rows at fault


def test_rows_with_errors_are_listed_next_to_the_results(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npy"
    lengths = np.array([1, 2, 99, 3, -1] * 20)
    np.save(data, lengths)
    with dovetail.Builder("gather") as b:
        table = b.constant(np.arange(10, dtype="f4"))
        b.output("y", b.Gather(table, b.input("index", "i64", ("rows",)), axis=0))
    dovetail.save(b.model, tmp_path / "model.onnx")
    line = ["map", str(tmp_path / "model.onnx"), str(data), "-o", str(tmp_path / "out"), "--workers", "1", "--part-rows", "64"]
    done = CliRunner().invoke(command, [*line, "--json"], standalone_mode=False)
    report = json.loads(done.stdout)
    assert (report["rows"], report["faults"], report["parts"]) == (100, 20, 2)
    assert "20 rows have no result" in done.stderr and "row 2: [" in done.stderr
    texts = [path.read_text() for path in sorted((tmp_path / "out" / "_errors").iterdir())]
    faults = [json.loads(line) for text in texts for line in text.splitlines()]
    assert [fault["row"] for fault in faults] == list(range(2, 100, 5))
    assert {fault["file"] for fault in faults} == {"data.npy"} and {fault["code"] for fault in faults} == {"index.range"}
    rows = np.concatenate([np.load(path) for path in sorted((tmp_path / "out" / "row").iterdir())])
    assert rows.tolist() == [row for row in range(100) if row % 5 != 2]
    with pytest.raises(EngineError, match=r"at most 5 rows may be at fault, got \d+; row \d+: ") as caught:
        map_rows(tmp_path / "model.onnx", data, tmp_path / "second", workers=1, max_errors=5)
    assert caught.value.code == "job.errors"
    # Those of parts that are written count too.
    for _ in range(2):
        with pytest.raises(EngineError, match=r"at most 5 rows may be at fault"):
            map_rows(tmp_path / "model.onnx", data, tmp_path / "third", workers=1, max_errors=5, part_rows=64)


def test_a_dataset_without_rows_gives_no_part(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((0, WIDTH), np.float32))
    for _ in range(2):
        report = map_rows(folder / "model.onnx", tmp_path / "rows.npy", tmp_path / "out", workers=1)
        assert (report.rows, report.parts, report.skipped_parts) == (0, 0, 0)


# What a worker checks


@pytest.fixture
def job(folder: Path, tmp_path: Path) -> Job:
    """Return a job whose files are copies."""
    (tmp_path / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    np.save(tmp_path / "data.npy", np.load(folder / "data" / "0.npy"))
    mapper = dovetail.Mapper(tmp_path / "model.onnx", columns={"x": "array"}, batch=BATCH, cache_dir=None)
    return Job(mapper, open_source(tmp_path / "data.npy"), "npy", str(tmp_path / "out"), "token", PART_ROWS)


def failure_of(job: Job, method: str, *arguments: Any) -> str:
    result = call_runner(PartRunner(job), method, *arguments)
    assert isinstance(result, Failure)
    assert str(os.getpid()) in result.error.message
    return str(result.error)


def test_a_worker_names_an_unreachable_path(job: Job, tmp_path: Path) -> None:
    text = failure_of(job, "start")
    assert "[job.worker-path]" in text and "is no folder" in text
    (tmp_path / "out").mkdir()
    text = failure_of(job, "start")
    assert "[job.worker-path]" in text and "is another folder" in text
    # A program of its own: the process keeps those of other tests.
    job.mapper.threads = 3
    with FolderLock(job.output, "token"):
        data = (tmp_path / "data.npy").rename(tmp_path / "moved.npy")
        text = failure_of(job, "start")
        assert "[job.worker-path]" in text and "read the input" in text and "data.npy" in text
        data.rename(tmp_path / "data.npy")
        for change in (lambda path: path.write_bytes(b"other"), lambda path: path.unlink()):
            change(tmp_path / "model.onnx")
            text = failure_of(job, "start")
            assert "[job.worker-path]" in text and "open the model" in text and "model.onnx" in text


def test_a_disk_that_refuses_ends_the_job_with_its_worker_and_part(job: Job, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "y").write_text("not a folder")
    text = failure_of(job, "run", 1, PART_ROWS, PART_ROWS)
    assert "[folder.unwritable]" in text and "part 1 (rows 32 to 63)" in text


def test_a_part_runs_again_with_equal_files(job: Job, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    contents = []
    for _ in range(2):
        summary = call_runner(PartRunner(job), "run", 2, PART_ROWS, PART_ROWS)
        assert summary == PartSummary(2, PART_ROWS, 0)
        contents.append({path: path.read_bytes() for path in (tmp_path / "out").rglob("*.npy")})
    assert contents[0] == contents[1] and len(contents[0]) == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine": "cloud"}, "engine must be one of"),
        ({"workers": 0}, "workers must be"),
        ({"threads": True}, "threads must be"),
        ({"address": "tcp://x:1"}, "address needs the engine"),
        ({"part_rows": 0}, "part_rows must be"),
    ],
)
def test_options_of_engines_are_checked(folder: Path, tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(EngineError, match=text) as caught:
        run_map(folder, tmp_path, **options)
    assert caught.value.code == "argument.value"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (np.array(["a"] * 5), "batch.dtype"),
        (np.zeros((5, WIDTH + 1), "f4"), "batch.shape"),
        (np.zeros((5, 2, WIDTH)), "batch.shape"),
    ],
)
def test_a_column_of_which_no_row_fits_is_refused_before_the_job(folder: Path, tmp_path: Path, data: Any, code: str) -> None:
    np.save(tmp_path / "rows.npy", data)
    with pytest.raises(EngineError) as caught:
        map_rows(folder / "model.onnx", tmp_path / "rows.npy", tmp_path / "out", workers=1)
    assert caught.value.code == code
    assert not (tmp_path / "out").exists()


# The schedule, without processes


class Pool:
    """Workers that are lost at random, in the test's process."""

    def __init__(self, workers: int, chance: random.Random, losses: float, poison: int = -1) -> None:
        self.chance, self.losses, self.poison = chance, losses, poison
        self.count = workers
        self.events = [Event("started", worker) for worker in range(workers)]
        self.calls: list[tuple[Hashable, tuple[Any, ...]]] = []
        self.runs: list[int] = []
        self.deepest = 0

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        self.calls.append((worker, call))
        self.deepest = max(self.deepest, len([owner for owner, _ in self.calls if owner == worker]))

    def wait(self, seconds: float) -> list[Event]:
        if self.events or not self.calls:
            events, self.events = self.events, []
            return events
        worker, call = self.chance.choice(self.calls)
        if call[1] == self.poison or self.chance.random() < self.losses:
            self.calls = [each for each in self.calls if each[0] != worker]
            self.count += 1
            return [Event("lost", worker, (), "killed"), Event("started", self.count)]
        self.calls.remove((worker, call))
        self.runs.append(call[1])
        return [Event("done", worker, call, PartSummary(call[1], 10, 0))]

    def close(self) -> None:
        pass


class Rows:
    """A Division into parts of ten rows."""

    part_rows = block_rows = 10

    def range_of(self, part: int) -> range:
        return range(part * 10, part * 10 + 10)


@given(seed=st.integers(0, 2**32), workers=st.integers(1, 5), parts=st.integers(0, 40))
def test_each_part_is_done_once_although_workers_are_lost(seed: int, workers: int, parts: int) -> None:
    pool = Pool(workers, random.Random(seed), losses=0.02)
    states: list[MapProgress] = []
    scheduler = Scheduler(pool, states.append)
    try:
        scheduler.run(range(parts), Rows())
    except EngineError as error:
        assert error.code == "job.worker" and scheduler.progress.lost >= ATTEMPTS
    else:
        assert sorted(pool.runs) == list(range(parts)) and scheduler.progress.rows == 10 * parts
    assert pool.deepest <= IN_FLIGHT


def test_a_part_that_ends_its_workers_is_named() -> None:
    pool = Pool(2, random.Random(0), losses=0, poison=3)
    with pytest.raises(EngineError, match=r"3 workers were lost while they ran part 3 \(rows 30 to 39\)") as caught:
        Scheduler(pool, lambda progress: None).run(range(100), Rows())
    assert caught.value.code == "job.worker"


def test_workers_that_never_start_end_the_job() -> None:
    class Failing(Pool):
        def wait(self, seconds: float) -> list[Event]:
            self.count += 1
            return [Event("lost", self.count, (), "its process ended with exit code 1")]

    with pytest.raises(EngineError, match=r"workers must start, .* exit code 1") as caught:
        Scheduler(Failing(2, random.Random(0), 0), lambda progress: None).first_call("measure", 1)
    assert caught.value.code == "job.worker"


def test_first_rows_that_end_their_workers_end_the_job() -> None:
    pool = Pool(2, random.Random(0), losses=0, poison=1)
    with pytest.raises(EngineError, match=rf"{ATTEMPTS} workers were lost while they ran the first rows; killed") as caught:
        Scheduler(pool, lambda progress: None).first_call("measure", 1)
    assert caught.value.code == "job.worker"
    pool = Pool(2, random.Random(0), losses=0)
    assert Scheduler(pool, lambda progress: None).first_call("measure", 1) == PartSummary(1, 10, 0)


def test_parts_are_of_a_time_and_a_size(job: Job) -> None:
    many = replace(job, source=type("Source", (), {"rows": 10**9, "chunk_rows": None})())
    assert choose_part_rows(many, 1000, 100, 1e-3) == pytest.approx(10_000, rel=0.01)
    assert choose_part_rows(many, 1000, 1 << 20, 1e-3) == BATCH * 2
    assert choose_part_rows(many, 1000, 1 << 30, 1) == BATCH
    assert choose_part_rows(job, 1, 0, 0) == -(-700 // BATCH) * BATCH


@given(st.integers(1, 10**7), st.integers(1, 300), st.floats(0, 1), st.floats(0, 1e8), st.sampled_from([None, 1, 100, 4096]))
def test_parts_are_batches_that_divide_the_rows_evenly(rows: int, workers: int, seconds: float, size: float, chunk: Any) -> None:
    source = type("Source", (), {"rows": rows, "chunk_rows": chunk})()
    job = Job(type("Mapper", (), {"batch": BATCH})(), source, "npy", "out", "token")  # type: ignore[arg-type]
    part_rows = choose_part_rows(job, workers, size, seconds)
    parts = -(-rows // part_rows)
    assert part_rows % BATCH == 0 and part_rows >= BATCH
    assert part_rows <= max(10 / max(seconds, 1e-9), rows / MAX_PARTS, BATCH) + lcm(BATCH, chunk or 1)
    if rows * seconds > workers and rows > 100 * workers * BATCH and chunk is None and size < 1000:
        assert parts >= 2 * workers * 0.9
    block_rows = choose_block_rows(replace(job, part_rows=part_rows), size)
    assert block_rows % BATCH == 0 and BATCH <= block_rows <= part_rows


# Progress


class Lines:
    """Lines collects the lines of progress for the states of a job at the times of a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.texts: list[str] = []
        monkeypatch.setattr("dovetail.cli.map.narrate", self.texts.append)
        self.show = ProgressLines(clock=lambda: self.now)

    def at(self, now: float, progress: MapProgress) -> list[str]:
        self.now = now
        self.texts.clear()
        self.show(progress)
        return list(self.texts)


def test_a_line_of_progress_appears_every_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, progress = Lines(monkeypatch), MapProgress(total=1000, workers=2)
    assert lines.at(129.9, progress) == []
    assert lines.at(130.0, progress) == ["0 of 1,000 rows, 2 workers"]
    progress.begin, progress.rows = 135.0, 300
    assert lines.at(159.0, progress) == []
    assert lines.at(165.0, progress) == ["300 of 1,000 rows, 10 rows/s, 2 workers"]
    progress.skipped_rows, progress.faults, progress.skipped_faults, progress.workers = 5000, 2, 1, 1
    assert lines.at(166.0, progress) == []
    assert lines.at(235.0, progress) == ["5,300 of 6,000 rows (5,000 of earlier calls), 3 at fault, 3 rows/s, 1 worker"]


def test_the_report_of_a_resumed_job_has_totals(folder: Path, expected: Any, tmp_path: Path) -> None:
    """A job is interrupted after its first parts; the command that resumes it prints progress and the rows of both."""

    def interrupt(progress: MapProgress) -> None:
        if progress.parts >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_map(folder, tmp_path / "out", workers=1, on_progress=interrupt)
    words = ["map", *map(str, (folder / "model.onnx", folder / "data")), "-o", str(tmp_path / "out"), "--batch", str(BATCH)]
    words += ["--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.cli.map.LINE_SECONDS", 0.0)
        result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    numbers = {match[1]: int(match[2].replace(",", "")) for match in re.finditer(r"^(\w.*?)  +([\d,]+)$", result.stdout, re.M)}
    assert numbers["rows"] + numbers["rows of earlier calls"] == numbers["rows in all"] == ROWS
    assert numbers["rows of earlier calls"] >= 3 * PART_ROWS and numbers["rows at fault in all"] == 0
    assert re.search(rf"^[\d,]+ of {ROWS:,} rows \([\d,]+ of earlier calls\)", result.stderr, re.M)
    assert_exactly_once(tmp_path / "out", expected)
    report = run_map(folder, tmp_path / "out")
    assert (report.rows, report.skipped_rows, report.total_rows, report.to_json()["total_rows"]) == (0, ROWS, ROWS, ROWS)
    assert "rows in all" not in CliRunner().invoke(command, [*words[:4], str(tmp_path / "new"), *words[5:]]).stdout


def test_faults_of_earlier_calls_count_in_the_totals(folder: Path, tmp_path: Path) -> None:
    """The faults of a part that was interrupted before its results were written count once."""
    rows = np.load(folder / "data" / "0.npy")[:320]
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = [None if row in (1, 100, 319) else values for row, values in enumerate(rows.tolist())]
    pq.write_table(pa.table({"x": pa.array(cells, pa.list_(pa.float32()))}), tmp_path / "rows.parquet")
    arguments: Any = (folder / "model.onnx", tmp_path / "rows.parquet", tmp_path / "out")
    options: Any = {"workers": 1, "batch": BATCH, "part_rows": PART_ROWS}

    def interrupt(progress: MapProgress) -> None:
        if progress.parts >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_rows(*arguments, **options, on_progress=interrupt)
    report = map_rows(*arguments, **options)
    assert (report.total_rows, report.total_faults) == (320, 3) and report.skipped_parts >= 4


# Interruptions


def test_an_interrupted_job_ends_its_workers_and_resumes(folder: Path, expected: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = [sys.executable, "-m", "dovetail.cli", "map", str(folder / "model.onnx"), str(folder / "data"), "-o", str(out)]
    options = ["--workers", "1", "--batch", str(BATCH), "--part-rows", str(BATCH)]
    driver = subprocess.Popen([*line, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_parts(out, 10)
    workers = children_of(driver.pid)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=30)
    assert driver.returncode == 130 and "the same command resumes the job" in errors
    assert workers and not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert run_map(folder, out).skipped_parts > 0
    assert_exactly_once(out, expected)
