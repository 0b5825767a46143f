"""Situations that people reported of onnxruntime's sessions: pickles, forks, threads, memory and many processes.

Each runs in a child process with a time limit, so that a hang fails the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail import Builder
from dovetail.ir.host import native_core

SECONDS = 120
LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="reads /proc")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the path of y = Relu(x W) for rows of 64 numbers."""
    with Builder() as b:
        x = b.input("x", "f32", ("n", 64))
        b.output("y", b.Relu(b.MatMul(x, b.constant(np.full((64, 64), 0.5, np.float32)))))
    dovetail.save(b.model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(code: str, folder: Path) -> str:
    """Run a program as a file, and return what it prints. A program that does not end in time fails the test."""
    script = folder / "program.py"
    head = "import multiprocessing, os, pickle, sys, threading\nimport numpy as np\nimport dovetail.compat.onnxruntime as ort\n"
    script.write_text(head + textwrap.dedent(code))
    environment = {name: value for name, value in os.environ.items() if name != "DOVETAIL_THREADS"}
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_session_is_sent_to_the_processes_of_a_pool(method: str, model: Path, tmp_path: Path) -> None:
    """Sessions cannot be pickled: github.com/microsoft/onnxruntime/issues/643, and deepinsight/insightface/pull/1881."""
    code = """
        def work(item):
            session, rows = item
            return float(session.run(None, {"x": np.ones((rows, 64), np.float32)})[0].sum())

        if __name__ == "__main__":
            session = ort.InferenceSession("m.onnx")
            held = ort.InferenceSession(open("m.onnx", "rb").read())
            with multiprocessing.get_context(%r).Pool(2) as pool:
                print(pool.map(work, [(session, 1), (held, 2), (session, 3)]))
    """
    assert run(code % method, tmp_path) == str([64 * 32.0 * rows for rows in (1, 2, 3)])


def test_a_session_runs_in_forked_processes(model: Path, tmp_path: Path) -> None:
    """A program stands still after a fork: github.com/microsoft/onnxruntime/issues/5093, and 9800 under gunicorn."""
    code = """
        options = ort.SessionOptions()
        options.intra_op_num_threads = 4
        options.inter_op_num_threads = 2
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        session = ort.InferenceSession("m.onnx", options)
        feed = {"x": np.ones((256, 64), np.float32)}

        def calls(stop):
            while not stop.is_set():
                session.run(None, feed)

        stop = threading.Event()
        threads = [threading.Thread(target=calls, args=(stop,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        children = []
        for number in range(8):
            child = os.fork()
            if not child:
                found = session.run(None, {"x": np.ones((number + 1, 64), np.float32)})[0]
                done = threading.Event()
                session.run_async(None, feed, lambda results, data, error: done.set(), None)
                ended = done.wait(60)
                del session
                os._exit(0 if ended and found.shape == (number + 1, 64) and found[0, 0] == 32 else 1)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        stop.set()
        for thread in threads:
            thread.join()
        print(codes)
    """
    assert run(code, tmp_path) == str([0] * 8)


@LINUX
@pytest.mark.parametrize("asked", [0, 1, 2, 3])
def test_a_session_has_no_more_threads_than_asked_and_allowed(asked: int, model: Path, tmp_path: Path) -> None:
    """Threads for the processors of the host, and errors of affinity: github.com/microsoft/onnxruntime/issues/8313, 10113."""
    code = """
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        before = len(os.listdir("/proc/self/task"))
        options = ort.SessionOptions()
        options.intra_op_num_threads = %d
        options.inter_op_num_threads = 16
        sessions = [ort.InferenceSession("m.onnx", options) for _ in range(3)]
        for session in sessions:
            for rows in (1, 1000, 5000):
                session.run(None, {"x": np.ones((rows, 64), np.float32)})
        print(len(os.listdir("/proc/self/task")) - before)
    """
    # The calling thread is one of the threads of a run.
    assert int(run(code % asked, tmp_path)) <= 3 * (max(asked, 1) - 1)


@LINUX
def test_memory_does_not_grow_with_the_number_of_shapes(model: Path, tmp_path: Path) -> None:
    """Memory grows with each new shape of an input: github.com/microsoft/onnxruntime/issues/11118, 5796."""
    code = """
        def resident():
            return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024

        session = ort.InferenceSession("m.onnx")
        rng = np.random.default_rng(0)
        def calls(count):
            for rows in rng.integers(1, 4000, count):
                session.run(None, {"x": np.ones((rows, 64), np.float32)})
        calls(100)
        first = resident()
        calls(6000)
        print(resident() - first)
    """
    # About 3,100 shapes hold 3 GiB in all; freed pages return to the system after each 1,024 new shapes.
    assert float(run(code, tmp_path)) < 160


@LINUX
@pytest.mark.skipif(not native_core.is_compiled, reason="packed weights are of the native core")
def test_forked_processes_share_the_weights(tmp_path: Path) -> None:
    """Each worker process holds its copy of the model: github.com/bentoml/BentoML/issues/1866, benoitc/gunicorn/issues/2007."""
    size = 3072
    with Builder() as b:
        x = b.input("x", "f32", ("n", size))
        b.output("y", b.MatMul(x, b.constant(np.random.default_rng(0).random((size, size), np.float32))))
    dovetail.save(b.model, tmp_path / "m.onnx")
    code = """
        def private():
            lines = open("/proc/self/smaps_rollup").read().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024

        session = ort.InferenceSession("m.onnx")
        feed = {"x": np.ones((4, 3072), np.float32)}
        session.run(None, feed)
        found = []
        for _ in range(3):
            read, write = os.pipe()
            child = os.fork()
            if not child:
                session.run(None, feed)
                os.write(write, str(private()).encode())
                os._exit(0)
            os.waitpid(child, 0)
            found.append(float(os.read(read, 100)))
        print(max(found))
    """
    # The weights have 36 MiB.
    assert float(run(code, tmp_path)) < 18
