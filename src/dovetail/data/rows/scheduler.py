"""The scheduler of a job: it assigns parts to workers, and reassigns the parts of lost workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from dovetail.data.rows.part_runner import Failure, PartSummary
from dovetail.data.rows.rows import RowFault
from dovetail.errors import EngineError

IN_FLIGHT = 2
"""The number of parts that a worker has at a time: one part is computed while another part is read or written."""
ATTEMPTS = 3
"""The number of workers lost with the same part after which the job fails."""
WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Event:
    """Event reports a change of a worker: ``started``, ``done`` (with the result of a call) or ``lost`` (with the reason)."""

    kind: str
    worker: Hashable
    call: tuple[Any, ...] = ()
    result: Any = None


class Division(Protocol):
    """Division states the sizes into which a job's rows are divided: the rows of a part, and of a block computed at a time."""

    @property
    def part_rows(self) -> int: ...

    @property
    def block_rows(self) -> int: ...

    def range_of(self, part: int) -> range:
        """Return the rows of a part."""


class WorkerPool(Protocol):
    """WorkerPool holds the workers of one engine, each with a PartRunner of the same job.

    The pool or the engine replaces lost workers.
    """

    @property
    def size(self) -> int:
        """The number of workers, including workers that have not started yet."""

    def submit(self, worker: Hashable, call: tuple[Any, ...]) -> None:
        """Start a call (a method of PartRunner and its arguments) on a worker."""

    def wait(self, seconds: float) -> list[Event]:
        """Return the next events, or an empty list after ``seconds``. Raises EngineError if no worker can be waited for."""

    def close(self) -> None:
        """End the workers that the pool has started, and cancel the calls of other workers."""


@dataclass(slots=True)
class MapProgress:
    """MapProgress holds the progress of a running job: numbers of rows, faults, parts and workers, and times."""

    total: int = 0
    """The number of rows of the parts that earlier calls did not write; 0 until it is known."""
    rows: int = 0
    """The number of rows of finished parts, including rows at fault."""
    faults: int = 0
    parts: int = 0
    workers: int = 0
    max_workers: int = 0
    lost: int = 0
    first_fault: RowFault | None = None
    """The first row at fault in the finished parts."""
    begin: float = 0.0
    """The time.monotonic() at which the first part was started; 0 before."""
    end: float = 0.0
    skipped_rows: int = 0
    """The number of rows in parts that earlier calls wrote, including rows at fault."""
    skipped_faults: int = 0
    """The number of rows at fault in parts that earlier calls wrote."""


@dataclass(slots=True)
class Scheduler:
    """Scheduler assigns parts to workers, IN_FLIGHT parts for each. Its memory does not depend on the number of parts."""

    pool: WorkerPool
    on_progress: Callable[[MapProgress], None]
    max_errors: int | None = None
    progress: MapProgress = field(default_factory=MapProgress)
    _loads: dict[Hashable, list[tuple[Any, ...]]] = field(default_factory=dict)
    _again: deque[int] = field(default_factory=deque)
    _losses: dict[int, int] = field(default_factory=dict)
    _failed_starts: int = 0
    """The number of workers that were lost before they started, since the latest successful start."""

    def first_call(self, *call: object) -> Any:
        """Run a call on the first worker that starts, and return its result.

        If the worker is lost, another worker runs the call, with up to ATTEMPTS workers in all. Raises EngineError [job.worker].
        """
        losses = 0
        asked: Hashable | None = None
        while True:
            if asked is None and self._loads:
                asked = next(iter(self._loads))
                self.pool.submit(asked, call)
            for event in self._events():
                if event.kind == "done" and event.call == call:
                    return event.result
                if event.kind == "lost":
                    self._loads.pop(event.worker, None)
                if event.kind == "lost" and event.worker == asked:
                    asked, losses = None, losses + 1
                    if losses == ATTEMPTS:
                        raise EngineError(
                            "job.worker", f"{losses} workers were lost while they ran the first rows; {event.result}"
                        )

    def run(self, parts: Iterable[int], job: Division) -> None:
        """Assign ``parts`` to workers until all are written.

        Raises EngineError [job.worker], [job.errors], and the errors of workers.
        """
        new = iter(parts)
        while not self._loads:
            for _ in self._events():
                pass
        self.progress.begin = time.monotonic()
        while self._fill(new, job) or any(self._loads.values()):
            for event in self._events():
                if event.kind == "lost":
                    self._retry(event, job)
                elif event.kind == "done" and isinstance(event.result, PartSummary):
                    self._count(event.result)
        self.progress.end = time.monotonic()
        self.on_progress(self.progress)

    def _events(self) -> Iterator[Event]:
        """Yield the next events, after updating the loads of workers and the progress."""
        self.on_progress(self.progress)
        for event in self.pool.wait(WAIT_SECONDS):
            if isinstance(event.result, Failure):
                raise event.result.error
            if event.kind == "started":
                self._loads[event.worker] = []
                self._failed_starts = 0
            elif event.kind == "done" and event.call in self._loads.get(event.worker, ()):
                self._loads[event.worker].remove(event.call)
            elif event.kind == "lost":
                self.progress.lost += 1
                self._count_start(event)
            self.progress.workers = len(self._loads) - (event.kind == "lost" and event.worker in self._loads)
            self.progress.max_workers = max(self.progress.max_workers, self.progress.workers)
            yield event

    def _count_start(self, event: Event) -> None:
        """Raise EngineError [job.worker] if many successive workers are lost before they start."""
        self._failed_starts += event.worker not in self._loads
        if self._failed_starts > ATTEMPTS * max(self.progress.max_workers, 1):
            message = f"workers must start, but {self._failed_starts} successive workers did not; the last: {event.result}"
            raise EngineError("job.worker", message)

    def _fill(self, new: Iterator[int], job: Division) -> bool:
        """Assign parts to workers, the least loaded workers first. Returns whether a part is left without a worker."""
        for level in range(IN_FLIGHT):
            for worker, load in self._loads.items():
                if len(load) > level:
                    continue
                part = self._again.popleft() if self._again else next(new, None)
                if part is None:
                    return False
                call = ("run", part, job.part_rows, job.block_rows)
                load.append(call)
                self.pool.submit(worker, call)
        part = next(new, None) if not self._again else None
        if part is not None:
            self._again.append(part)
        return bool(self._again)

    def _retry(self, event: Event, job: Division) -> None:
        """Queue the parts of a lost worker again. Raises EngineError [job.worker] for a part that was lost ATTEMPTS times."""
        for _, part, *_ in self._loads.pop(event.worker, ()):
            losses = self._losses[part] = self._losses.get(part, 0) + 1
            if losses == ATTEMPTS:
                rows = job.range_of(part)
                place = f"part {part} (rows {rows.start} to {rows.stop - 1})"
                message = f"{losses} workers were lost while they ran {place}; the last: {event.result}"
                raise EngineError("job.worker", message)
            self._again.append(part)

    def _count(self, summary: PartSummary) -> None:
        progress = self.progress
        self._losses.pop(summary.part, None)
        progress.parts += 1
        progress.rows += summary.rows + summary.faults
        progress.faults += summary.faults
        faults = [fault for fault in (progress.first_fault, summary.first_fault) if fault is not None]
        progress.first_fault = min(faults, key=lambda fault: fault.row, default=None)
        if self.max_errors is not None:
            check_fault_count(progress.skipped_faults + progress.faults, self.max_errors, progress.first_fault)


def check_fault_count(count: int, limit: int, first: RowFault | None) -> None:
    """Raise EngineError [job.errors] if more than ``limit`` rows are at fault."""
    if count > limit:
        raise EngineError("job.errors", f"at most {limit} rows may be at fault, got {count}; {fault_text(first)}")


def fault_text(fault: RowFault | None) -> str:
    """Return the text of a row at fault; "" for None."""
    return "" if fault is None else f"row {fault.row}: [{fault.code}] {fault.message}"


def parts_without(count: int, written: set[int]) -> Iterator[int]:
    """Yield the parts that are not written yet, in order."""
    return (part for part in range(count) if part not in written)
