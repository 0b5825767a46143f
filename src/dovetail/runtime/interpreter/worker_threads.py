"""WorkerThreads: the threads of a program that computes in numpy, which releases the interpreter lock in its loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dovetail.ir.host.forks import renew_in_child


class WorkerThreads:
    """WorkerThreads runs independent tasks in ``count`` threads, one of which is the caller's."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._executor: ThreadPoolExecutor | None = None
        renew_in_child(self)

    def run(self, tasks: Iterable[Callable[[], object]]) -> None:
        """Run all tasks and return when they have ended. Raises the error of a task; others may then have run or not."""
        remaining = deque(tasks)
        helpers = min(self.count, len(remaining)) - 1
        if helpers < 1:
            for task in remaining:
                task()
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.count - 1, "dovetail")
        futures = [self._executor.submit(_run_each, remaining) for _ in range(helpers)]
        try:
            _run_each(remaining)
        finally:
            # No task may write into an array of this call after the call.
            errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error

    def renew(self) -> None:
        """Forget the threads, which a forked child does not have."""
        self._executor = None

    def close(self) -> None:
        """End the threads."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


def _run_each(tasks: deque[Callable[[], object]]) -> None:
    # Each thread has an error state of numpy of its own. Taking an item of a deque is atomic, also without the interpreter lock.
    with np.errstate(all="ignore"):
        while True:
            try:
                task = tasks.popleft()
            except IndexError:
                return
            task()
