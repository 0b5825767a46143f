"""Calls of a program on many items, several at a time, with the results in order: ``Program.map``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import chain, islice
from typing import Any

from dovetail.errors import EngineError
from dovetail.ir.results import Results

ITEMS_PER_STREAM = 2
"""The number of items per stream that are read ahead of the yielded results, so that an idle stream has a next item."""
MIN_SECONDS = 2e-4
"""The minimum seconds of a call for which "auto" uses threads; passing a call to another thread costs about a quarter of that."""
UNMEASURED_ITEMS = 15
"""The number of short calls between two measured calls."""

Call = Callable[[Any], Results]


def stream_count(streams: int | str, threads: int) -> int:
    """Return the number of streams for a program of ``threads`` threads. Raises EngineError [argument.value]."""
    if streams == "auto":
        return threads
    if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
        raise EngineError("argument.value", f'streams must be "auto" or an integer of at least 1, got {streams!r}')
    return streams


def map_in_order(call: Call, items: Iterable[Any]) -> Iterator[Results]:
    """Yield the result of each item, computed in the thread of the caller."""
    for item in items:
        yield call(item)


class CallTime:
    """CallTime holds the seconds of a program's latest measured call in one thread; None before the first call.

    A program keeps its CallTime between calls of ``map``.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None

    @property
    def is_short(self) -> bool:
        """True if the latest call took less than MIN_SECONDS."""
        return self.seconds is not None and self.seconds < MIN_SECONDS

    def measure(self, call: Call) -> Call:
        """Return a function that runs ``call`` and stores the time that it takes."""

        def run(item: Any) -> Results:
            begin = time.perf_counter()
            result = call(item)
            self.seconds = time.perf_counter() - begin
            return result

        return run


def map_adaptive(call: Call, items: Iterable[Any], streams: int, call_time: CallTime) -> Iterator[Results]:
    """Yield the results of the items: computed in the thread of the caller while calls are short, and concurrently otherwise.

    The latest measured call decides, which may be a call of an earlier map. The first call of a program makes plans, and is
    never short.
    """
    source, measured = iter(items), call_time.measure(call)
    for item in source:
        if not call_time.is_short:
            yield from map_concurrently(measured, chain((item,), source), streams, until=lambda: call_time.is_short)
            continue
        yield measured(item)
        if call_time.is_short:
            yield from map_in_order(call, islice(source, UNMEASURED_ITEMS))


def map_concurrently(
    call: Call, items: Iterable[Any], streams: int, until: Callable[[], bool] = lambda: False
) -> Iterator[Results]:
    """Yield the results in the order of the items; up to ``streams`` items run concurrently, each in a separate thread.

    After ``until`` returns True no further item is taken; the results of all taken items are still yielded.

    Items are taken in the thread of the caller, at most ITEMS_PER_STREAM per stream before their results are yielded. The error
    of an item or of the iterable is raised in place of its result and ends the iteration. Closing the iterator ends the threads.
    """
    source = iter(items)
    pending: deque[Future[Results]] = deque()
    executor = ThreadPoolExecutor(streams, "dovetail-stream")
    is_open = True
    try:
        while True:
            is_open = is_open and not until()
            while is_open and len(pending) < ITEMS_PER_STREAM * streams:
                try:
                    item = next(source)
                except StopIteration:
                    is_open = False
                except BaseException as error:
                    # The results of earlier items are yielded before the error.
                    failure: Future[Results] = Future()
                    failure.set_exception(error)
                    pending.append(failure)
                    is_open = False
                else:
                    pending.append(executor.submit(copy_context().run, call, item))
                    del item
            if not pending:
                return
            yield pending.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
