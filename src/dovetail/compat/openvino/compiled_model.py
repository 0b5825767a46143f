"""CompiledModel: a model that is ready to run, with the threads of its requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dovetail.compat.openvino.configuration import Configuration
from dovetail.compat.openvino.errors import Partial, Refusal, runtime_errors
from dovetail.compat.openvino.infer_request import InferRequest, InputsLike, OVDict, VariableState
from dovetail.compat.openvino.model import Model
from dovetail.compat.openvino.nodes import ConstOutput, TensorPort, find_port, ports_text
from dovetail.errors import EngineError
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.runtime.compilation import compile
from dovetail.runtime.program import Program


class Streams:
    """Streams runs requests: as many at a time as there are streams, with no more threads than the configuration allows.

    The threads of asynchronous requests start with the first of them. A forked process starts threads of its own.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._semaphore = threading.Semaphore(self._count)
        self._pool = ThreadPoolExecutor(self._count, "dovetail-stream")

    def _renew(self) -> None:
        # A forked process has none of the threads of its parent, and a semaphore that those may hold.
        if self._process != os.getpid():
            self._start()

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the thread of the caller, once a stream is free."""
        self._renew()
        with self._semaphore:
            work()

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run ``work`` in a thread of its own stream."""
        self._renew()
        return self._pool.submit(work)


class CompiledModel(Partial):
    """CompiledModel is a compiled Model; ``compiled(inputs)`` runs it once and returns the results by port, index and name.

    Its pickle holds the model and the configuration; unpickling compiles again.
    """

    def __init__(self, model: Model, configuration: Configuration | None = None, path: str | None = None) -> None:
        self.configuration = configuration or Configuration({})
        self._model = model.clone()
        self._path = path
        with runtime_errors():
            self.program: Program = self._compile(model, path)
        self.source = self.program.model
        self.layouts = dict(model.layouts)
        self.streams = Streams(self.configuration.streams)
        self._inputs = [ConstOutput(self, True, index) for index in range(len(own_inputs(self.source)))]
        self._outputs = [ConstOutput(self, False, index) for index in range(len(own_outputs(self.source)))]
        self._request: InferRequest | None = None

    def _compile(self, model: Model, path: str | None) -> Program:
        threads, streams = self.configuration.threads, self.configuration.streams
        # Of several calls of a program, one has the workers of its pool; each other one runs in its caller alone.
        threads = threads - streams + 1
        folder, precision = self.configuration.cache_folder, self.configuration.precision
        if folder is not None and path is not None:
            folder.mkdir(parents=True, exist_ok=True)
            return compile(path, threads=threads, cache_dir=folder, precision=precision)
        return compile(model.source, threads=threads, precision=precision)

    @property
    def inputs(self) -> list[ConstOutput]:
        return list(self._inputs)

    @property
    def outputs(self) -> list[ConstOutput]:
        return list(self._outputs)

    def input(self, index: int | str | None = None) -> TensorPort:
        """Return the input with that index or name, or the only input. Raises EngineError [input.unknown], [input.count]."""
        return self._port(self.inputs, index, "Input")

    def output(self, index: int | str | None = None) -> TensorPort:
        """Return the output with that index or name, or the only output. Raises EngineError [input.unknown], [input.count]."""
        return self._port(self.outputs, index, "Output")

    def _port(self, ports: list[ConstOutput], index: int | str | None, kind: str) -> TensorPort:
        try:
            return find_port(ports, index, kind)
        except IndexError as error:
            raise EngineError("input.unknown", f"Cannot get {kind.lower()} for index: {error}") from None

    def create_infer_request(self) -> InferRequest:
        """Return a new request, with tensors of its own."""
        return InferRequest(self)

    def infer_new_request(self, inputs: InputsLike = None) -> OVDict:
        """Run a new request once."""
        return self.create_infer_request().infer(inputs)

    def __call__(
        self,
        inputs: InputsLike = None,
        share_inputs: bool = True,
        share_outputs: bool = False,
        *,
        decode_strings: bool = True,
    ) -> OVDict:
        """Run the request of this object once; see ``InferRequest.infer``."""
        return self._own_request().infer(inputs, share_inputs, share_outputs, decode_strings=decode_strings)

    def _own_request(self) -> InferRequest:
        if self._request is None:
            self._request = self.create_infer_request()
        return self._request

    def query_state(self) -> list[VariableState]:
        """Return the states of the request of this object."""
        return self._own_request().query_state()

    def reset_state(self) -> None:
        """Restore the initial states of the request of this object."""
        self._own_request().reset_state()

    def get_property(self, property: str) -> object:
        """Return a property. Raises EngineError [argument.value] for an unknown one."""
        return self.configuration.get_model_property(str(property), self._model.friendly_name)

    def set_property(self, *property: object, **properties: object) -> None:
        """Raise EngineError [argument.conflict]: the properties of a compiled model are fixed."""
        raise EngineError("argument.conflict", "It's not possible to set property of an already compiled model")

    export_model = Refusal("set the property CACHE_DIR, or save the model with save_model")
    get_runtime_model = Refusal("dovetail.plan shows the steps")

    def release_memory(self) -> None:
        """Do nothing: memory is released with the model."""

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledModel, (self._model, self.configuration, self._path)

    def __repr__(self) -> str:
        return f"<CompiledModel:\n{ports_text(self.inputs, self.outputs)}>"
