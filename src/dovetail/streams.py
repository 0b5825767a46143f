"""Calls of a program on many items, several at a time, with the results in order: ``Program.map``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from dovetail.errors import EngineError
from dovetail.interpreter.results import Results

ITEMS_PER_STREAM = 2
"""Items that are taken from the iterable ahead of the results, for each stream: the next is ready when a stream is."""
MIN_SECONDS = 2e-4
"""The least time of a call for which "auto" uses threads: passing a call to another thread costs about a quarter of it."""

Call = Callable[[Any], Results]


def stream_count(streams: int | str, threads: int) -> int:
    """Return the number of streams, for a program of ``threads``. Raises EngineError [engine.streams]."""
    if streams == "auto":
        return threads
    if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
        raise EngineError("engine.streams", f'streams must be "auto" or an integer of at least 1, got {streams!r}')
    return streams


def map_in_order(call: Call, items: Iterable[Any]) -> Iterator[Results]:
    """Yield the result of each item, in the thread of the caller."""
    for item in items:
        yield call(item)


def map_adaptive(call: Call, items: Iterable[Any], streams: int) -> Iterator[Results]:
    """Yield the results of the first two items in the thread of the caller, and of the others too where a call is short.

    The first call plans; the second one tells the time of a call.
    """
    source = iter(items)
    seconds = 0.0
    for count, item in enumerate(source, 1):
        begin = time.perf_counter()
        result = call(item)
        seconds = time.perf_counter() - begin
        yield result
        if count == 2:
            break
    yield from map_in_order(call, source) if seconds < MIN_SECONDS else map_concurrently(call, source, streams)


def map_concurrently(call: Call, items: Iterable[Any], streams: int) -> Iterator[Results]:
    """Yield the results in the order of the items, of which up to ``streams`` run at a time, each in a thread of its own.

    The items are taken in the thread of the caller, at most ITEMS_PER_STREAM for each stream beyond the result that is due. The
    error of an item, or of the iterable, is raised at its place and ends the iteration. No thread is left when the iterator is
    closed.
    """
    source = iter(items)
    pending: deque[Future[Results]] = deque()
    executor = ThreadPoolExecutor(streams, "dovetail-stream")
    is_open = True
    try:
        while True:
            while is_open and len(pending) < ITEMS_PER_STREAM * streams:
                try:
                    item = next(source)
                except StopIteration:
                    is_open = False
                except BaseException as error:
                    # What comes before it is delivered first.
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
