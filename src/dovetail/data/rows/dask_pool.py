"""Workers in a Dask cluster: one PartRunner in each worker process of the cluster."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from dovetail.data.rows.job import Job
from dovetail.data.rows.part_runner import Failure, PartRunner, call_runner
from dovetail.data.rows.scheduler import Event
from dovetail.errors import EngineError
from dovetail.ir.host.extras import import_extra

START_SECONDS = 120.0
"""Seconds without any worker after which a job fails."""
MAX_RUNNERS = 4
"""The maximum number of jobs whose PartRunners a worker process keeps; killed drivers do not remove their jobs."""
RESULT_SECONDS = 1.0
POLL_SECONDS = 1.0
"""Seconds between two queries of the cluster's workers."""


class DaskPool:
    """DaskPool is a pool of the worker processes of the cluster at ``address``, or of a cluster started on this host.

    Each call is bound to one worker. Dask replaces lost workers if the cluster runs nannies. Workers that join later get parts
    too, up to ``workers`` workers at a time.
    """

    def __init__(self, job: Job, address: str | None, workers: int | None, threads: int | None) -> None:
        self._distributed = distributed = import_extra("distributed", "dask", "the engine dask")
        self._job = job
        self._threads = threads
        self._limit = workers
        self._events: list[Event] = []
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The keys of finished calls."""
        self._calls: dict[str, tuple[Any, str, tuple[Any, ...]]] = {}
        """The future, worker and call of each running call, by key."""
        self._workers: set[str] = set()
        self._polled = 0.0
        self._deadline = time.monotonic() + START_SECONDS
        self._cluster = None
        self._client = None
        try:
            if address is None:
                self._cluster = distributed.LocalCluster(
                    n_workers=workers or 1,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,
                )
            self._client = distributed.Client(address or self._cluster, timeout=START_SECONDS / 4)
        except (OSError, TimeoutError, ValueError) as error:
            self.close()
            place = "on this host" if address is None else f"at {address}"
            raise EngineError("job.address", f"a Dask scheduler must be reachable {place}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _poll(self) -> None:
        """Update the workers of the pool from the workers of the cluster."""
        assert self._client is not None
        self._polled = time.monotonic()
        threads = self._client.nthreads()
        for worker in sorted(self._workers - threads.keys()):
            self._lose(worker, f"the worker {worker} left the cluster")
        for worker in sorted(threads.keys() - self._workers):
            if self._limit is None or len(self._workers) < self._limit:
                self._workers.add(worker)
                count = self._threads or threads[worker]
                self._submit(worker, ("start",), _start, (self._job, count))
        if self._workers:
            self._deadline = time.monotonic() + START_SECONDS
        elif time.monotonic() > self._deadline:
            raise EngineError("job.worker", f"the Dask cluster has had no worker for {START_SECONDS:.0f} s")

    def _lose(self, worker: str, reason: str) -> None:
        self._workers.discard(worker)
        for key in [key for key, (_, owner, _) in self._calls.items() if owner == worker]:
            self._calls.pop(key)[0].cancel()
        self._events.append(Event("lost", worker, (), reason))

    @property
    def size(self) -> int:
        return len(self._workers)

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        self._submit(str(worker), call, _call, (self._job.token, *call))

    def _submit(self, worker: str, call: tuple[Any, ...], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        assert self._client is not None
        future = self._client.submit(
            function, *arguments, workers=[worker], allow_other_workers=False, pure=False, retries=0, priority=_priority(call)
        )
        self._calls[future.key] = (future, worker, call)
        # The callback runs on a thread of the client, which must not wait for a result.
        future.add_done_callback(lambda future: self._done.put(future.key))

    def wait(self, seconds: float) -> list[Event]:
        if time.monotonic() - self._polled >= POLL_SECONDS:
            self._poll()
        late: list[str] = []
        with suppress(queue.Empty):
            self._finish(self._done.get(timeout=0 if self._events else seconds), late)
            while True:
                self._finish(self._done.get_nowait(), late)
        for key in late:
            self._done.put(key)
        events, self._events = self._events, []
        return events

    def _finish(self, key: str, late: list[str]) -> None:
        """Append an event with the result of a finished call.

        If the result does not arrive within RESULT_SECONDS, the key is appended to ``late``, because the worker may be lost.
        """
        if key not in self._calls:
            return
        future, worker, call = self._calls[key]
        try:
            result = future.result(timeout=RESULT_SECONDS)
        except TimeoutError:
            late.append(key)
            return
        except Exception as error:
            message = f"the worker {worker} cannot run a call: {type(error).__name__}: {error}"
            result = Failure(EngineError("job.worker", message))
        del self._calls[key]
        if isinstance(result, _NotStarted):
            self._lose(worker, f"the worker {worker} was restarted")
            return
        is_start = call == ("start",) and not isinstance(result, Failure)
        self._events.append(Event("started" if is_start else "done", worker, call, result))

    def close(self) -> None:
        with suppress(Exception):
            for future, _, _ in self._calls.values():
                future.cancel()
            if self._client is not None and self._cluster is None:
                self._client.run(_stop, self._job.token)
        for part in (self._client, self._cluster):
            if part is not None:
                with suppress(Exception):
                    part.close()


def _priority(call: tuple[Any, ...]) -> int:
    """Return the priority of a call: parts with lower numbers run first."""
    return -int(call[1]) if call[0] == "run" else 0


class _NotStarted:
    """_NotStarted is the result of a call in a process that has no PartRunner for the job."""


_runners: dict[str, PartRunner] = {}


def _start(job: Job, threads: int) -> Any:
    """Create the PartRunner of a job in this worker process."""
    # Deferred: the package is optional, but every Dask worker has it.
    from distributed import secede

    # The process may have one thread for tasks; a part that waits for another part must not occupy this thread.
    secede()  # type: ignore[no-untyped-call]
    while len(_runners) >= MAX_RUNNERS:
        del _runners[next(iter(_runners))]
    job.mapper.threads = threads
    runner = PartRunner(job)
    result = call_runner(runner, "start")
    if not isinstance(result, Failure):
        _runners[job.token] = runner
    return result


def _call(token: str, *call: Any) -> Any:
    from distributed import secede

    secede()  # type: ignore[no-untyped-call]
    runner = _runners.get(token)
    return _NotStarted() if runner is None else call_runner(runner, *call)


def _stop(token: str) -> None:
    _runners.pop(token, None)
