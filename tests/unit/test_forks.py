"""A process that is forked while its threads load, save, plan and run: the child does all of that too."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder
from dovetail.ir.host import native_core
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.symbolic import algebra
from interruptions import KINDS, forked, version, version_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def net() -> dovetail.ir.graph.Model:
    with Builder() as b:
        x = b.input("x", "f32", ("n", 64))
        y = x
        for index in range(4):
            y = b.Relu(b.MatMul(y, b.constant(np.full((64, 64), 0.01 * index, np.float32))))
        b.output("y", b.Concat(y, x, axis=1))
    return b.model


def rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.ones((count, 64), np.float32)


@contextmanager
def busy(work: Callable[[int], object]) -> Iterator[None]:
    """Do ``work`` over and over in two threads meanwhile."""
    stop, faults = threading.Event(), []

    def loop(number: int) -> None:
        try:
            while not stop.is_set():
                number += 2
                work(number)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert faults == []


def assert_ends_well(work: Callable[[], object]) -> None:
    """``work`` in a forked child ends, with 0. A child that hangs is killed, long after any other would have ended."""
    child = forked(work)
    for _ in range(1200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def check_run(program: dovetail.Program, count: int) -> None:
    found = program(rows(count))["y"]
    assert found.shape == (count, 128) and np.all(found[:, 64:] == 1)


def test_a_child_runs_a_program_that_threads_were_running_and_planning() -> None:
    program = dovetail.compile(net(), threads=2)
    # A plan for each new number of rows, and runs in between.
    with busy(lambda number: check_run(program, 1 + number % 97)):
        for _ in range(15):
            assert_ends_well(lambda: [check_run(program, count) for count in (5, 200, 6)])
    check_run(program, 3)


def test_a_child_compiles_while_threads_compile() -> None:
    with busy(lambda number: check_run(dovetail.compile(net(), threads=2), 3)):
        for _ in range(8):
            assert_ends_well(lambda: check_run(dovetail.compile(net(), threads=2), 4))


@pytest.mark.skipif(not native_core.is_compiled, reason="no native core")
def test_a_child_forked_while_a_plan_is_made_makes_it_itself() -> None:
    """Deterministic: the locks are held at the fork, by threads that the child does not have."""
    program: Any = dovetail.compile(net(), threads=2)
    check_run(program, 2)
    locks = [program._engine._lock, algebra._lock]
    held, go = threading.Semaphore(0), threading.Event()

    def hold(lock: object) -> None:
        with lock:  # type: ignore[attr-defined]
            held.release()
            go.wait()

    threads = [threading.Thread(target=hold, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
        held.acquire()
    assert_ends_well(lambda: [check_run(program, count) for count in (2, 3)])
    go.set()
    for thread in threads:
        thread.join()
    check_run(program, 3)


@pytest.mark.parametrize("name", KINDS)
def test_a_child_saves_and_loads_while_threads_save(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    kind.save(version(1), tmp_path)

    def work() -> None:
        kind.save(version(2), tmp_path)
        assert version_of(tmp_path / kind.file) in (1, 2)

    with busy(lambda number: kind.save(version(1 + number % 2), tmp_path)):
        for _ in range(8):
            assert_ends_well(work)
    assert version_of(tmp_path / kind.file) in (1, 2)


def test_a_child_forked_while_a_thread_loads_has_its_collector_on() -> None:
    inside, go = threading.Event(), threading.Event()

    def load() -> None:
        with pause_gc():
            inside.set()
            go.wait()

    thread = threading.Thread(target=load)
    thread.start()
    inside.wait()

    def work() -> None:
        assert gc.isenabled()

    try:
        assert not gc.isenabled()
        assert_ends_well(work)
    finally:
        go.set()
        thread.join()
    assert gc.isenabled()


def test_threads_that_load_at_the_same_time_leave_the_collector_on() -> None:
    """A thread begins its pause while another one ends its own: whatever is read between must not decide alone."""

    def load(rounds: int) -> None:
        for _ in range(rounds):
            with pause_gc():
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            threads = [threading.Thread(target=load, args=(200,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert gc.isenabled()
    finally:
        sys.setswitchinterval(interval)
        gc.enable()


START = """
import gc, sys
import dovetail
if len(sys.argv) > 2:
    gc.freeze()
frozen = gc.get_freeze_count() if len(sys.argv) > 2 else 0
model = dovetail.load(sys.argv[1])
gc.disable()
node = model.graph.nodes[0]
left = gc.get_freeze_count()
print(any(each is node for each in gc.get_objects(generation=2)), 2 * left > frozen if frozen else left < 2000)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_the_first_model_is_old_and_frozen_objects_stay_frozen(tmp_path: Path, frozen: bool) -> None:
    """Two collections of the first load would traverse all of its objects; those that an application froze are its own."""
    dovetail.save(net(), tmp_path / "net.onnx")
    command = [sys.executable, "-c", START, str(tmp_path / "net.onnx"), *["frozen"] * frozen]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert words[1] == "True" and (frozen or words[0] == "True")
