"""Worker processes on this host."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from dovetail.data.rows.job import Job
from dovetail.data.rows.part_runner import Failure
from dovetail.data.rows.scheduler import Event

END_SECONDS = 2.0
"""Seconds that a worker may take to end before it is killed."""
START = "import sys; sys.path[:] = {path!r}; from dovetail.data.rows.worker_process import main; main()"


class LocalPool:
    """LocalPool is a pool of processes of this Python interpreter on this host; a lost process is replaced.

    The processes do not import the driver's main module.
    """

    def __init__(self, job: Job, workers: int, threads: int) -> None:
        self._job = pickle.dumps(job)
        self._environment = {**os.environ, **_thread_variables(threads)}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._processes: dict[Hashable, subprocess.Popen[bytes]] = {}
        self._listeners: dict[Hashable, threading.Thread] = {}
        self._count = 0
        try:
            for _ in range(workers):
                self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._count += 1
        process = subprocess.Popen(
            [sys.executable, "-c", START.format(path=[os.path.abspath(folder) for folder in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            # Ctrl-C on the terminal is sent only to the driver, which ends its workers.
            start_new_session=True,
        )
        self._processes[self._count] = process
        listener = self._listeners[self._count] = threading.Thread(target=self._listen, args=(self._count, process), daemon=True)
        listener.start()

    def _listen(self, worker: Hashable, process: subprocess.Popen[bytes]) -> None:
        """Send the job to a process, and turn the results that the process writes into events until the process ends."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(self._job)
            process.stdin.flush()
            while True:
                call, result = pickle.load(process.stdout)
                kind = "started" if call == ("start",) and not isinstance(result, Failure) else "done"
                self._events.put(Event(kind, worker, call, result))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            process.kill()
            code = process.wait()
            process.stdout.close()
            with suppress(OSError):
                process.stdin.close()
            self._events.put(Event("lost", worker, (), _end_text(code)))

    @property
    def size(self) -> int:
        return len(self._processes)

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        process = self._processes.get(worker)
        if process is not None and process.stdin is not None:
            # If the process has just ended, its event "lost" is in the queue.
            with suppress(OSError, ValueError):
                process.stdin.write(pickle.dumps(call))
                process.stdin.flush()

    def wait(self, seconds: float) -> list[Event]:
        try:
            events = [self._events.get(timeout=seconds)]
            while not self._events.empty():
                events.append(self._events.get())
        except queue.Empty:
            return []
        for event in events:
            if event.kind == "lost" and self._processes.pop(event.worker, None) is not None:
                self._listeners.pop(event.worker).join()
                self._start()
        return events

    def close(self) -> None:
        """End the processes; parts that are not completely written are lost."""
        for process in self._processes.values():
            with suppress(OSError):
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        for worker in self._processes:
            self._listeners[worker].join()


def _thread_variables(threads: int) -> dict[str, str]:
    """Return environment variables that keep other libraries from starting a thread per core in each worker."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS")
    return {name: str(threads) for name in names if name not in os.environ}


def _end_text(code: int) -> str:
    return f"its process was ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"
