"""BatchQueue: requests that wait for a run, grouped by the shapes of their rows, and the choice of the next batch."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir.results import Results

RECENT_BATCHES = 16
"""The number of batches whose numbers of requests tell how many requests to expect."""


class Request:
    """Request is one call of a Batcher: its inputs in the order of the model, and the results or the error that end it.

    ``future`` is the future of an asyncio task; a thread waits for ``done``.
    """

    __slots__ = ("arrays", "deadline", "done", "error", "future", "is_waiting", "key", "results", "rows")

    def __init__(self, arrays: list[np.ndarray[Any, Any]], future: asyncio.Future[Results] | None) -> None:
        self.arrays = arrays
        self.future = future
        self.rows = len(arrays[0])
        self.key = tuple(array.shape[1:] for array in arrays)
        self.deadline = 0.0
        self.is_waiting = True
        self.results: Results | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class Batch(NamedTuple):
    """Batch is some requests that run together. ``is_alone``: no other request waits or runs."""

    requests: list[Request]
    is_alone: bool


class _Group:
    """_Group holds waiting requests whose rows have equal shapes, the oldest first."""

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        self.rows = 0

    @property
    def deadline(self) -> float:
        return self.requests[0].deadline

    def add(self, request: Request) -> None:
        self.requests.append(request)
        self.rows += request.rows

    def remove(self, request: Request) -> None:
        self.requests.remove(request)
        self.rows -= request.rows

    def take(self, max_rows: int) -> list[Request]:
        """Remove and return the oldest requests with up to ``max_rows`` rows together, and at least one request."""
        taken = [self.requests.popleft()]
        rows = taken[0].rows
        while self.requests and rows + self.requests[0].rows <= max_rows:
            taken.append(self.requests.popleft())
            rows += taken[-1].rows
        self.rows -= rows
        return taken


class BatchQueue:
    """BatchQueue passes requests to the threads that run them, each batch of up to ``max_batch`` rows of equal shapes.

    The oldest requests are passed on when they have waited ``wait_seconds``, when their rows fill a batch, or when as many
    requests wait and run as at most in the last batches, so that no other is expected. At most ``max_waiting`` requests wait.
    """

    def __init__(self, wait_seconds: float, max_batch: int, max_waiting: int) -> None:
        self._wait_seconds = wait_seconds
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._fault: EngineError | None = None
        self._is_closed = False
        self.answered = self.rows = self.runs = self.rejected = self.cancelled = 0
        self.renew()

    def renew(self) -> None:
        """Drop all requests. A forked child calls this at its start: the requests are of threads of its parent."""
        # Reentrant: the garbage collector may close a queue in a thread that holds the lock.
        self._changed = threading.Condition()
        self._groups: dict[tuple[tuple[int, ...], ...], _Group] = {}
        self._idle = self._running = self.waiting = 0
        self._recent: deque[float] = deque([inf], RECENT_BATCHES)

    def add(self, request: Request) -> None:
        """Add a request. Raises EngineError [program.closed], [batch.full], and the error of :meth:`fail`."""
        with self._changed:
            if self._is_closed:
                raise EngineError("program.closed", "a batcher must be open to run, got a closed one")
            if self._fault is not None:
                raise EngineError(self._fault.code, self._fault.message)
            if self.waiting >= self._max_waiting:
                self.rejected += 1
                raise EngineError("batch.full", f"at most {self._max_waiting} requests may wait, got one more")
            request.deadline = monotonic() + self._wait_seconds
            group = self._groups.get(request.key)
            if group is None:
                group = self._groups[request.key] = _Group()
            group.add(request)
            self.waiting += 1
            # A thread must know the deadline of a new group; further requests matter once the group runs.
            if self._idle and (len(group.requests) == 1 or group.rows >= self._max_batch or self._is_complete()):
                self._changed.notify()

    def cancel(self, request: Request) -> None:
        """Count a request as cancelled, and remove it if it still waits; the results of a running one are dropped."""
        with self._changed:
            self.cancelled += 1
            self.remove(request)

    def remove(self, request: Request) -> None:
        """Remove a request that still waits."""
        with self._changed:
            group = self._groups.get(request.key)
            # A forked child drops the requests of its parent.
            if request.is_waiting and group is not None and request in group.requests:
                request.is_waiting = False
                group.remove(request)
                self._drop_empty(request.key)
                self.waiting -= 1

    def take(self) -> Batch | None:
        """Wait for the next batch and remove it from the queue; None if the queue is closed and empty."""
        with self._changed:
            while True:
                group, seconds = self._next()
                if group is not None and seconds is not None and seconds <= 0:
                    return self._take(group)
                if group is None and self._is_closed:
                    return None
                self._idle += 1
                try:
                    self._changed.wait(seconds)
                finally:
                    self._idle -= 1

    def finish(self, batch: Batch, runs: int) -> None:
        """Count a batch that has run, in ``runs`` runs of the program."""
        with self._changed:
            self._running -= len(batch.requests)
            self.answered += len(batch.requests)
            self.rows += sum(request.rows for request in batch.requests)
            self.runs += runs

    def fail(self, error: EngineError) -> None:
        """Refuse all later requests with an error."""
        with self._changed:
            self._fault = error

    def close(self) -> None:
        """Refuse later requests; the waiting requests are passed on without further waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_complete(self) -> bool:
        return self.waiting + self._running >= max(self._recent)

    def _next(self) -> tuple[_Group | None, float | None]:
        """Return the group that runs next and the seconds until then; (None, None) for an empty queue."""
        if not self._groups:
            return None, None
        oldest = min(self._groups.values(), key=lambda group: group.deadline)
        seconds = oldest.deadline - monotonic()
        if seconds <= 0 or self._is_closed or self._is_complete():
            return oldest, 0.0
        full = next((group for group in self._groups.values() if group.rows >= self._max_batch), None)
        return (oldest, seconds) if full is None else (full, 0.0)

    def _take(self, group: _Group) -> Batch:
        self._recent.append(self.waiting + self._running)
        key = group.requests[0].key
        is_first = self._running == 0
        requests = group.take(self._max_batch)
        for request in requests:
            request.is_waiting = False
        self.waiting -= len(requests)
        self._running += len(requests)
        self._drop_empty(key)
        if self.waiting and self._idle:
            self._changed.notify()
        return Batch(requests, is_first and not self.waiting)

    def _drop_empty(self, key: tuple[tuple[int, ...], ...]) -> None:
        if not self._groups[key].requests:
            del self._groups[key]
