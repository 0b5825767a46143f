"""Batcher: calls of many threads and asyncio tasks, which run together in batches: ``Program.batcher``."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

import numpy as np

from dovetail.errors import DovetailError, EngineError
from dovetail.ir import symbolic
from dovetail.ir.graph import EXTENSIONS, Model
from dovetail.ir.host.forks import ForkLock, renew_in_child
from dovetail.ir.inputs_outputs import bind_sizes, named_inputs, to_array
from dovetail.ir.results import Results
from dovetail.ir.types import dims_of, dtype_of
from dovetail.runtime.batch_queue import Batch, BatchQueue, Request

if TYPE_CHECKING:
    from dovetail.runtime.program import Program

MODEL_FAULTS = frozenset({"batch.axis", "batch.rows", "program.closed"})
"""The codes of errors of a run that concern the model or the program, so that they are errors of each request."""
MAX_WAIT_MS = 3_600_000
"""The longest wait, an hour in milliseconds."""
MAX_SHAPES = 4096
"""The maximum number of sets of shapes whose check is remembered."""

Call = Callable[..., Results]
Bind = Callable[..., tuple[Any, ...]]
"""A function of the positional and the named arguments of a call; it returns one mapping by name, or the inputs in order."""
RowCheck = Callable[[Call, dict[str, Any], Results, int], None]
"""A function of a program, inputs, results and the number of rows; it raises [batch.rows] for rows that depend on each other."""


class BatcherStatistics(NamedTuple):
    """BatcherStatistics counts the requests of a Batcher.

    - ``requests``: requests that have results or an error of the run
    - ``rows``: the rows of these requests
    - ``runs``: runs of the program
    - ``waiting``: requests that wait now
    - ``rejected``: requests that were refused with [batch.full]
    - ``cancelled``: requests whose task was cancelled, or whose thread was interrupted
    """

    requests: int
    rows: int
    runs: int
    waiting: int
    rejected: int
    cancelled: int


class Batcher:
    """Batcher joins concurrent calls of a program along the batch axis, runs them as one call, and divides the outputs.

    ``batcher(inputs)`` blocks its thread, ``await batcher.call(inputs)`` suspends its task; both take inputs as a Program does,
    of one or more rows, and return the Results of these rows. The arrays must not change before that. Requests run together if
    all sizes except the batch are equal; nothing is padded. The results are views of the outputs of the joint run.

    Wrong inputs are errors of their request before it waits. If a joint run fails, its requests run one by one, so that an error
    of one request is not that of another. The first joint run is checked for rows that depend on each other, [batch.rows].

    ``close``, or the end of a ``with`` block, runs the waiting requests and ends the threads. A forked process starts threads of
    its own. See :meth:`dovetail.Program.batcher` for the options.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> with dovetail.compile(b.model).batcher() as batcher: batcher(x=np.array([[-1, 2]], np.float32))["y"]
    array([[0., 2.]], dtype=float32)
    """

    def __init__(
        self, program: Program, single: Call, streams: int, bind: Bind, *, wait_ms: float, max_batch: int, max_waiting: int
    ) -> None:
        if isinstance(wait_ms, bool) or not isinstance(wait_ms, int | float) or not 0 <= wait_ms <= MAX_WAIT_MS:
            raise EngineError("argument.value", f"wait_ms must be a number from 0 to {MAX_WAIT_MS}, got {wait_ms!r}")
        for name, count in (("max_batch", max_batch), ("max_waiting", max_waiting)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise EngineError("argument.value", f"{name} must be an integer of at least 1, got {count!r}")
        self._model = program.model
        self._bind = bind
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        check: RowCheck = EXTENSIONS.row_check(self._model)
        self._dtypes = {value.name: np.dtype(dtype_of(value.type).numpy) for value in self._model.inputs}
        limits = [high for value in self._model.inputs if (high := symbolic.bounds(dims_of(value.type)[0])[1]) is not None]
        self._queue = BatchQueue(wait_ms / 1000, min([max_batch, *limits]), max_waiting)
        self._threads = _BatchThreads(program, single, streams, check, self._queue)
        self._finalizer = finalize(self, self._threads.close)

    def __call__(self, *inputs: object, **by_name: object) -> Results:
        """Run a request, and block until its results are there.

        Raises EngineError [input.*], [batch.full], [batch.axis], [batch.rows], [program.closed], and the errors of the program.
        """
        request = Request(self._arrays(inputs, by_name), None)
        self._threads.add(request)
        try:
            request.done.acquire()
        except BaseException:
            self._queue.cancel(request)
            raise
        if request.error is not None:
            raise request.error
        assert request.results is not None
        return request.results

    async def call(self, *inputs: object, **by_name: object) -> Results:
        """Run a request, and suspend the task until its results are there. A cancelled task leaves the queue.

        Raises the errors of a blocking call.
        """
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        request = Request(self._arrays(inputs, by_name), future)
        self._threads.add(request)
        try:
            return await future
        except asyncio.CancelledError:
            self._queue.cancel(request)
            raise

    @property
    def statistics(self) -> BatcherStatistics:
        """The numbers of requests, rows and runs."""
        queue = self._queue
        return BatcherStatistics(queue.answered, queue.rows, queue.runs, queue.waiting, queue.rejected, queue.cancelled)

    def close(self) -> None:
        """Run the waiting requests, and end the threads. Later requests raise EngineError [program.closed]."""
        self._threads.close()

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _arrays(self, inputs: tuple[Any, ...], by_name: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
        """Return the inputs of a request in order. Raises EngineError [input.*]."""
        items = self._bind(inputs, by_name)
        given = items[0] if len(items) == 1 and isinstance(items[0], Mapping) else items
        arrays = self._plain_arrays(given)
        if arrays is None:
            named = named_inputs(self._model, given)
            arrays = [to_array(named[value.name], value) for value in self._model.inputs]
        shapes = tuple(array.shape for array in arrays)
        if shapes not in self._shapes:
            bind_sizes(self._model.inputs, arrays)
            if len({shape[0] for shape in shapes}) > 1:
                raise EngineError("input.shape", f"all inputs must have one number of rows, got {[s[0] for s in shapes]}")
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes.add(shapes)
        return arrays

    def _plain_arrays(self, given: Mapping[str, Any] | tuple[Any, ...]) -> list[np.ndarray[Any, Any]] | None:
        """Return the inputs in order if all are arrays of the model's types, which need no conversion; else None."""
        if len(given) != len(self._dtypes):
            return None
        arrays = [given.get(name) for name in self._dtypes] if isinstance(given, Mapping) else list(given)
        for array, dtype in zip(arrays, self._dtypes.values(), strict=True):
            if not isinstance(array, np.ndarray) or array.dtype != dtype or dtype.hasobject:
                return None
        return arrays  # type: ignore[return-value]


class _BatchThreads:
    """_BatchThreads runs the batches of a queue in its threads, which start with the first request.

    The threads refer to this object alone, so that a Batcher without users is closed by its finalizer.
    """

    def __init__(self, program: Program, single: Call, streams: int, check: RowCheck, queue: BatchQueue) -> None:
        self._program = program
        self._single = single
        self._streams = streams
        self._model = program.model
        self._check = check
        self._queue = queue
        self._is_checked = False
        self._lock = ForkLock()
        self._started: list[threading.Thread] = []
        renew_in_child(self)

    def renew(self) -> None:
        """Drop threads and requests of the parent of a forked process."""
        self._queue.renew()
        self._started = []

    def add(self, request: Request) -> None:
        """Pass a request to the queue. Raises RuntimeError for a thread that cannot start."""
        self._queue.add(request)
        if not self._started:
            try:
                self._start()
            except BaseException:
                self._queue.remove(request)
                raise

    def _start(self) -> None:
        with self._lock:
            for index in range(len(self._started), self._streams):
                thread = threading.Thread(target=self._work, name=f"dovetail-batcher-{index}", daemon=True)
                thread.start()
                self._started.append(thread)

    def close(self) -> None:
        """Run the waiting requests and end the threads.

        The garbage collector may call this in one of the threads, while that holds the lock of the queue: it waits for none then.
        """
        self._queue.close()
        with self._lock:
            threads = list(self._started)
        if threading.current_thread() not in threads:
            for thread in threads:
                thread.join()

    def _work(self) -> None:
        memory = _JoinMemory(self._model)
        while (batch := self._queue.take()) is not None:
            runs = self._run(batch.requests, self._program if batch.is_alone else self._single, memory)
            # Counted before the answers, since a caller may read the statistics, or call again, at once.
            self._queue.finish(batch, runs)
            _answer(batch)
            del batch

    def _run(self, requests: list[Request], call: Call, memory: _JoinMemory) -> int:
        """Run requests together, and one by one if that fails. Returns the number of runs."""
        try:
            if len(requests) == 1:
                requests[0].results = call(list(requests[0].arrays))
            else:
                self._run_together(requests, call, memory)
            return 1
        except DovetailError as error:
            if len(requests) > 1 and error.code not in MODEL_FAULTS:
                return 1 + sum(self._run([request], call, memory) for request in requests)
            if isinstance(error, EngineError) and error.code in ("batch.axis", "batch.rows"):
                self._queue.fail(error)
            _set_error(requests, error)
        except BaseException as error:
            _set_error(requests, error)
        return 1

    def _run_together(self, requests: list[Request], call: Call, memory: _JoinMemory) -> None:
        rows = sum(request.rows for request in requests)
        inputs = memory.join(requests)
        results = call(inputs)
        for name, output in results.items():
            shape = [len(output)] if isinstance(output, list) else list(output.shape)
            if shape[:1] != [rows]:
                raise EngineError("batch.axis", f"output {name!r} must have {rows} rows, got {shape}")
        if not self._is_checked and rows > 1:
            self._check(call, inputs, results, rows)
            self._is_checked = True
        start = 0
        for request in requests:
            stop = start + request.rows
            request.results = Results({name: output[start:stop] for name, output in results.items()})
            start = stop


class _JoinMemory:
    """_JoinMemory holds the joined inputs of one thread's batch, in memory that later batches use again."""

    def __init__(self, model: Model) -> None:
        self._names = [value.name for value in model.inputs]
        self._memory = [np.empty(0, dtype_of(value.type).numpy) for value in model.inputs]

    def join(self, requests: list[Request]) -> dict[str, np.ndarray[Any, Any]]:
        """Write the rows of the requests into one array for each input."""
        rows = sum(request.rows for request in requests)
        joined = {}
        for index, name in enumerate(self._names):
            shape = (rows, *requests[0].arrays[index].shape[1:])
            size = prod(shape)
            if self._memory[index].size < size:
                self._memory[index] = np.empty(size, self._memory[index].dtype)
            array = self._memory[index][:size].reshape(shape)
            joined[name] = np.concatenate([request.arrays[index] for request in requests], out=array)
        return joined


def _set_error(requests: list[Request], error: BaseException) -> None:
    """Set the error of requests: each has a copy, since a raised exception holds the traceback of its thread."""
    for request in requests:
        # Other classes of exceptions need not support copies.
        request.error = copy.copy(error) if len(requests) > 1 and isinstance(error, DovetailError) else error


def _answer(batch: Batch) -> None:
    """Wake the threads and tasks that wait for the requests of a batch; one call for all tasks of an event loop."""
    tasks: dict[asyncio.AbstractEventLoop, list[Request]] = defaultdict(list)
    for request in batch.requests:
        if request.future is None:
            request.done.release()
        else:
            tasks[request.future.get_loop()].append(request)
    for loop, requests in tasks.items():
        try:
            loop.call_soon_threadsafe(_answer_tasks, requests)
        except RuntimeError:
            # The loop was closed: no task waits.
            continue


def _answer_tasks(requests: list[Request]) -> None:
    for request in requests:
        future = request.future
        if future is None or future.done():
            continue
        if request.error is not None:
            future.set_exception(request.error)
        elif request.results is not None:
            future.set_result(request.results)
