"""AsyncInferQueue: a pool of requests that run one input after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from dovetail.compat.openvino.compiled_model import CompiledModel
from dovetail.compat.openvino.errors import Partial
from dovetail.compat.openvino.infer_request import InferRequest, InputsLike


class AsyncInferQueue(Partial):
    """AsyncInferQueue holds ``jobs`` requests (0: the number of streams); ``start_async`` waits for one that is idle.

    As many requests run at a time as the compiled model has streams. A request must not be started by itself.
    """

    def __init__(self, model: CompiledModel, jobs: int = 0) -> None:
        if not isinstance(model, CompiledModel) or not isinstance(jobs, int) or jobs < 0:
            raise TypeError(f"AsyncInferQueue needs a CompiledModel and a number of jobs from 0, got {model!r} and {jobs!r}")
        count = jobs or model.configuration.streams
        self._requests = [InferRequest(model) for _ in range(count)]
        self._idle = deque(range(count))
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._callback: Callable[[InferRequest, object], object] | None = None
        self.userdata: list[object] = [None] * count
        """The object that was passed with the last start of each request."""

    def set_callback(self, callback: Callable[[InferRequest, object], object]) -> None:
        """Set the function that is called with the request and its userdata after each run."""
        self._callback = callback

    def start_async(self, inputs: InputsLike = None, userdata: object = None, share_inputs: bool = False) -> None:
        """Run the next idle request; wait for one if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle)
            index = self._idle.popleft()
        request = self._requests[index]
        try:
            request.take_inputs(inputs, share_inputs)
            self.userdata[index] = userdata
            request.submit(lambda error: self._finish(index, error), lambda: self._release(index))
        except BaseException:
            self._release(index)
            raise

    def _finish(self, index: int, error: BaseException | None) -> None:
        try:
            if error is None and self._callback is not None:
                self._callback(self._requests[index], self.userdata[index])
        except BaseException as raised:
            error = raised
        if error is not None:
            self._errors.append(error)
        self._release(index)

    def _release(self, index: int) -> None:
        with self._changed:
            self._idle.append(index)
            self._changed.notify_all()

    def wait_all(self) -> None:
        """Wait until all requests are idle. Raises the first error of their runs and callbacks."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._idle) == len(self._requests))
            errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def is_ready(self) -> bool:
        """Return whether a request is idle."""
        with self._changed:
            return bool(self._idle)

    def get_idle_request_id(self) -> int:
        """Return the index of the request that ``start_async`` runs next; wait for one that is idle."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle)
            return self._idle[0]

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, index: int) -> InferRequest:
        return self._requests[index]

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)

    def __repr__(self) -> str:
        return f"<AsyncInferQueue: {len(self)} jobs>"
