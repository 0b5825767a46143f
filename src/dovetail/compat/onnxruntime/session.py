"""InferenceSession: a dovetail Program with the interface of onnxruntime."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from os import PathLike
from typing import Any

import numpy as np

from dovetail.compat.onnxruntime.binding import IOBinding
from dovetail.compat.onnxruntime.errors import Fail, InvalidArgument, load_error, run_error
from dovetail.compat.onnxruntime.model import read_model
from dovetail.compat.onnxruntime.node_args import ModelMetadata, NodeArg
from dovetail.compat.onnxruntime.options import GraphOptimizationLevel, RunOptions, SessionOptions, refused_attribute
from dovetail.compat.onnxruntime.profiling import Profiler
from dovetail.compat.onnxruntime.values import OrtValue, to_onnxruntime
from dovetail.errors import ArgumentTypeError, DovetailError, EngineError, RuleError
from dovetail.formats import save
from dovetail.ir import arrays
from dovetail.ir.arrays import Array
from dovetail.ir.graph import Model
from dovetail.ir.host.forks import ForkLock
from dovetail.ir.results import Results
from dovetail.ir.types import Map, Optional, Sequence as SequenceType, Tensor, Type
from dovetail.passes.simplify import simplify
from dovetail.runtime.compilation import compile
from dovetail.runtime.program import Program

PROVIDERS = ["CPUExecutionProvider"]
Providers = Sequence[str | tuple[str, dict[Any, Any]]]

REFUSED = {
    "get_input_epdevices": "there is no other device than the CPU",
    "get_input_memory_infos": "there is no other memory than that of the CPU",
    "get_output_memory_infos": "there is no other memory than that of the CPU",
    "get_provider_graph_assignment_info": "there is one execution provider",
    "get_tuning_results": "kernels are not tuned",
    "release_captured_graph": "graphs are not captured",
    "run_with_ortvaluevector": "use run_with_ort_values or run_with_iobinding",
    "set_ep_dynamic_options": "the execution provider has no options",
    "set_tuning_results": "kernels are not tuned",
}
"""The refused methods of InferenceSession with the reason."""


class InferenceSession:
    """InferenceSession is a loaded model. It may be called from several threads, pickled, and used in forked processes.

    ``path_or_bytes`` is the path of a model file or the bytes of an ONNX model. The pickle of a session holds the path or the
    bytes, and the options. An execution provider other than CPUExecutionProvider is skipped with a warning. Other keyword
    arguments are ignored, as in onnxruntime.

    Raises the exceptions of :mod:`dovetail.compat.onnxruntime.errors`, and ArgumentTypeError [argument.type], a TypeError, for
    other sources.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.save(b.model, "relu.onnx")
    >>> session = dovetail.compat.onnxruntime.InferenceSession("relu.onnx")
    >>> session.run(None, {"x": np.array([[-1, 2]], np.float32)})
    [array([[0., 2.]], dtype=float32)]
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: object,
    ) -> None:
        self._source = _source_of(path_or_bytes)
        if kwargs.get("read_config_from_model"):
            raise RuleError("argument.value", "read_config_from_model must be 0: the configuration in a model is not read")
        check_providers(providers, provider_options)
        if not isinstance(sess_options, SessionOptions | None):
            raise ArgumentTypeError("argument.type", f"sess_options must be SessionOptions, got {sess_options!r}")
        self._options = SessionOptions() if sess_options is None else copy(sess_options)
        self._load()

    def _load(self) -> None:
        options = self._options
        try:
            found = read_model(self._source, options)
            if options.optimized_model_filepath:
                is_simplified = options.graph_optimization_level > GraphOptimizationLevel.ORT_DISABLE_ALL
                save(simplify(found.model) if is_simplified else found.model, options.optimized_model_filepath)
            self._program: Program | None = None
            self._fault: RuleError | None = None
            try:
                self._program = self._compile(found.model)
            except RuleError as error:
                if not error.code.startswith("shape."):
                    raise
                # onnxruntime has no shape rules for some operators: such a model loads, and is refused by the run.
                self._fault = error.with_traceback(None)
        except DovetailError as error:
            raise load_error(error) from error
        self._model = found.model
        self._inputs, self._outputs, self._optional = found.inputs, found.outputs, found.optional
        self._metadata = found.metadata
        self._types: dict[str, Type] = {value.name: value.type for value in found.model.inputs}
        self._types.update((item.name, found.model.values[item.name].type) for item in found.optional)
        self._known_inputs = self._types.keys()
        self._required = [item.name for item in found.inputs if not item.type.startswith("optional")]
        self._absent = [item.name for item in found.inputs if item.type.startswith("optional")]
        self._output_types = {value.name: value.type for value in found.model.outputs}
        self._open_program: Program | None = None
        self._open_lock = ForkLock()
        self._profiler = Profiler(options.profile_file_prefix) if options.enable_profiling else None

    def _compile(self, model: Model) -> Program:
        threads = self._options.intra_op_num_threads
        return compile(model, threads=threads if threads > 0 else None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, self._options)

    def __getattr__(self, name: str) -> Any:
        raise refused_attribute("InferenceSession", name, REFUSED)

    # Runs

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model, and return the outputs ``output_names``, or all outputs for None or an empty list.

        ``input_feed`` maps names to arrays, OrtValues or nested lists, to lists of arrays for sequences, and to dicts for maps;
        None for an optional input stands for its default value. A result is an array, a list, a dict or None. Raises RuleError
        [input.missing], a ValueError; EngineError [input.type], a RuntimeError, for an object that is no array;
        ArgumentTypeError [argument.type] for names that are no strings; InvalidArgument for unknown names and for arrays of
        other types or shapes; Fail if the run fails.
        """
        results = self._run(output_names, self._feed(input_feed), run_options)
        return [to_onnxruntime(item) for item in results]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on OrtValues, and return OrtValues. Raises the errors of ``run``."""
        feed = {name: value._get_c_value()._data for name, value in input_dict_ort_values.items()}
        results = self._run(output_names, self._feed(feed), run_options)
        return [self._ort_value(name, item) for name, item in zip(output_names or self._output_types, results, strict=True)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: object,
        run_options: RunOptions | None = None,
    ) -> None:
        """Start a run in a new thread, which then calls ``callback(results, user_data, error)``; ``error`` is "" after success.

        Raises InvalidArgument if the session has one thread, as onnxruntime does, and RuleError [input.missing].
        """
        if self._options.intra_op_num_threads == 1:
            raise InvalidArgument("argument.value", "run_async needs intra_op_num_threads other than 1, got 1")
        feed = self._feed(input_feed)

        def work() -> None:
            try:
                results, error = [to_onnxruntime(item) for item in self._run(output_names, feed, run_options)], ""
            except Exception as failure:
                results, error = [], str(failure)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """Return an IOBinding without inputs and outputs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run the model on the bound inputs, and write the outputs into the bound memory.

        Raises RuleError [argument.value], a ValueError, for a binding of another session, and EngineError, a RuntimeError, if no
        output is bound or the run fails.
        """
        if iobinding._session is not self:
            raise RuleError("argument.value", "an IOBinding must be used with the session that created it")
        names = list(iobinding._outputs)
        if not names:
            raise EngineError("output.array", "a run must have at least 1 bound output, got 0")
        out = {name: array for name, array in iobinding._outputs.items() if array is not None}
        try:
            results = self._run(names, dict(iobinding._inputs), run_options, out or None)
        except DovetailError as error:
            raise error.as_kind(EngineError) from error
        iobinding._results = [self._ort_value(name, item) for name, item in zip(names, results, strict=True)]

    def _ort_value(self, name: str, item: Array) -> OrtValue:
        type = self._output_types[name]
        return OrtValue(item, Tensor(type.dtype, item.shape) if isinstance(type, Tensor) else type)

    def _feed(self, input_feed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a call in the forms that a Program takes."""
        missing = [name for name in self._required if name not in input_feed.keys()]
        if missing:
            given = list(input_feed)
            raise RuleError("input.missing", f"required inputs ({missing}) are missing from the input feed ({given})")
        absent = [item.name for item in self._optional if input_feed.get(item.name, item) is None]
        return {name: self._convert(name, item) for name, item in input_feed.items() if name not in absent}

    def _convert(self, name: str, item: Array) -> Any:
        if isinstance(item, OrtValue):
            item = item._data
        type = self._types.get(name)
        if isinstance(type, Optional):
            type = None if item is None else type.element
        if isinstance(item, np.ndarray):
            return _texts(item) if item.dtype == object and isinstance(type, Tensor) and type.dtype == "string" else item
        if isinstance(type, Tensor):
            if isinstance(item, list) and type.dtype is not None:
                try:
                    return np.array(item, type.dtype.numpy)
                except (TypeError, ValueError) as error:
                    raise EngineError("input.type", f"input {name!r} must be an array or a nested list: {error}") from None
            if item is None:
                raise Fail("input.type", f"input {name!r} must be an array, got None")
            if not hasattr(item, "__dlpack__"):
                kind = item.__class__.__name__
                raise EngineError("input.type", f"input {name!r} must be an array, a list or an OrtValue, got {kind}")
            return arrays.to_numpy(item)
        if isinstance(type, SequenceType) and not isinstance(item, list):
            raise EngineError("input.type", f"input {name!r} must be a list of arrays, got {item.__class__.__name__}")
        if isinstance(type, Map) and isinstance(item, Mapping):
            return dict(item)
        return item

    def _run(
        self,
        output_names: Sequence[str] | None,
        feed: dict[str, Any],
        run_options: RunOptions | None,
        out: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        if not isinstance(run_options, RunOptions | None):
            raise ArgumentTypeError("argument.type", f"run_options must be RunOptions, got {run_options!r}")
        if run_options is not None and run_options.terminate:
            raise Fail("run.failed", "the run ends because RunOptions.terminate is set")
        if isinstance(output_names, str) or not all(isinstance(name, str) for name in output_names or ()):
            raise ArgumentTypeError("argument.type", f"output_names must be a list of names, got {output_names!r}")
        if not all(isinstance(name, str) for name in feed):
            raise ArgumentTypeError("argument.type", f"the inputs must be named by strings, got {list(feed)}")
        for name in output_names or ():
            if name not in self._output_types:
                known = ", ".join(map(repr, self._output_types))
                raise InvalidArgument("output.unknown", f"the model has no output {name!r}; it has {known}")
        for name in self._absent:
            feed.setdefault(name, None)
        if self._profiler is not None:
            self._profiler.record(self._model, feed)
        results = self._call(feed, out)
        return [results[name] for name in output_names] if output_names else list(results.values())

    def _call(self, feed: dict[str, Any], out: Mapping[str, Any] | None) -> Results:
        if self._program is None:
            assert self._fault is not None
            raise self._fault.as_kind(InvalidArgument)
        try:
            return self._program(feed, out=out)
        except DovetailError as error:
            # onnxruntime does not compare the sizes of equal names, nor results with their declared types.
            if not self._has_open_sizes(error, feed):
                raise run_error(error) from error
        try:
            return self._open()(feed, out=out)
        except DovetailError as error:
            raise run_error(error) from error

    def _has_open_sizes(self, error: DovetailError, feed: Mapping[str, Any]) -> bool:
        """Return whether a run fails because arrays contradict names of sizes or declared types, but have declared ranks."""
        if error.code not in ("input.shape", "shape.disagree", "run.shape"):
            return False
        return all(_fits(item, np.shape(feed[item.name])) for item in (*self._inputs, *self._optional) if _is_array(feed, item))

    def _open(self) -> Program:
        """Return the program of the model without names of sizes."""
        with self._open_lock:
            if self._open_program is None:
                self._open_program = self._compile(read_model(self._source, self._options, open_sizes=True).model)
            return self._open_program

    # Description

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that a run needs."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the optional inputs, whose default values are initializers."""
        return self._optional

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model."""
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return ``["CPUExecutionProvider"]``."""
        return list(PROVIDERS)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return empty options for CPUExecutionProvider."""
        return {name: {} for name in PROVIDERS}

    def set_providers(self, providers: Providers | None = None, provider_options: Sequence[dict[Any, Any]] | None = None) -> None:
        """Check the providers, and warn of those other than CPUExecutionProvider."""
        check_providers(providers, provider_options)

    def enable_fallback(self) -> None:
        """Do nothing: there is one execution provider."""

    def disable_fallback(self) -> None:
        """Do nothing: there is one execution provider."""

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: object, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return ``OrtValue.ortvalue_from_shape_and_type`` of the arguments."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def end_profiling(self) -> str:
        """Write the profile of the last run's inputs, and return its path; "" if the session was created without profiling.

        The file is a list of events in the Trace Event Format. Raises OSError if it cannot be written.
        """
        return "" if self._profiler is None else self._profiler.write(self._options.intra_op_num_threads)

    def get_profiling_start_time_ns(self) -> int:
        """Return the time of ``time.monotonic_ns`` at the start of profiling, 0 without profiling."""
        return 0 if self._profiler is None else self._profiler.start


def _source_of(item: object) -> str | bytes:
    if not isinstance(item, str | bytes | PathLike):
        raise ArgumentTypeError("argument.type", f"a session must be created from a path or bytes, got {type(item).__name__}")
    return os.fspath(item)


def _texts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of objects with the elements that are no strings converted to strings."""
    texts = np.empty(array.shape, object)
    texts.reshape(-1)[:] = [item if isinstance(item, str | bytes) else str(item) for item in array.flat]
    return texts


def _is_array(feed: Mapping[str, Any], item: NodeArg) -> bool:
    return isinstance(feed.get(item.name), np.ndarray)


def _fits(item: NodeArg, shape: tuple[int, ...]) -> bool:
    """Return whether a shape has the declared rank and the declared integer sizes."""
    if not item.shape:
        return True
    pairs = zip(item.shape, shape, strict=False)
    return len(item.shape) == len(shape) and all(not isinstance(size, int) or size == actual for size, actual in pairs)


def check_providers(providers: Providers | None, provider_options: Sequence[dict[Any, Any]] | None) -> None:
    """Warn of providers other than CPUExecutionProvider, and of options that do not belong to the providers.

    Raises ArgumentTypeError [argument.type] if ``providers`` is no sequence.
    """
    if providers is None:
        return
    if not isinstance(providers, Sequence):
        raise ArgumentTypeError("argument.type", f"providers must be a sequence of names, got {providers!r}")
    if provider_options is not None and len(provider_options) != len(providers):
        warnings.warn("provider_options are ignored: their number is not that of the providers", UserWarning, stacklevel=3)
    for item in providers:
        name = item[0] if isinstance(item, tuple) and item else item
        if name not in PROVIDERS:
            warnings.warn(
                f"the execution provider {name!r} is not available, the session uses {PROVIDERS[0]}", UserWarning, stacklevel=3
            )
