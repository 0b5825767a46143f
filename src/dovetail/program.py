"""Program, a compiled model, and the functions ``compile``, ``plan`` and ``run``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import native_core
from dovetail.errors import EngineError, printable
from dovetail.gc_pause import pause_gc
from dovetail.interpreter.results import Results
from dovetail.limits import DEFAULT, Limits, active, counting, within_memory
from dovetail.threads import thread_count

# What a program from the cache of plans does not need is imported in functions, for its start-up time.
if TYPE_CHECKING:
    from dovetail.engine.plan_report import PlanReport
    from dovetail.interpreter.session import Session
    from dovetail.ir.graph import Model, Value
    from dovetail.streams import CallTime

LOGGER = logging.getLogger("dovetail")
ENGINES = ("native", "interpreter")
BACKENDS = ("dovetail", "jax", "torch")
PORTS_SHOWN = 4
"""Inputs or outputs that the repr of a Program lists."""


class Program:
    """A compiled model: a callable that takes arrays by name or in order and returns the outputs as numpy arrays.

    ``program(x=array)``, ``program({"x": array})``, ``program(array, ...)`` and ``program([array, ...])`` are the same call; an
    input called ``out`` is passed in a dict. The :class:`Results` are indexed by name or position. ``out``: arrays that receive
    the results, in a dict by name or in a list by position (None: a new array).

    A state that is not passed has its initial value (see ``session``). No result shares memory with an input or another result.
    A Program holds no state and may be called from several threads. Its pickle holds the model and the options; unpickling
    compiles again. ``close``, or the end of a ``with`` block, releases its memory; a later call raises EngineError
    [program.closed].
    """

    _source: Model | None = None
    """The model with its optional inputs, where it has some: ``model`` has them as constants."""
    _call_time: CallTime | None = None
    """The time of a call in one thread, which ``map`` measures."""

    def __init__(self, model: Model, engine: str, **options: Any) -> None:
        from dovetail.formats.default_inputs import freeze_defaults
        from dovetail.interpreter.session import InitialStates
        from dovetail.ir.edit import copy_model
        from dovetail.passes.default_inputs import default_inputs

        if default_inputs(model.graph):
            self._source = copy_model(model)
            self._overriding: dict[tuple[str, ...], Program] = {}
            model = freeze_defaults(self._source)
        _refuse_preserved_nodes(model)
        with pause_gc():
            self.model = copy_model(model)
        self.engine = engine
        self.options = options
        self._is_closed = False
        self._initial_states = InitialStates(self.model) if self.model.states else None
        # Only loops and limits other than the default need a Usage in a run; it costs time in every call.
        self._counts = self.model.limits != DEFAULT or any(_has_subgraphs(node.op) for node in self.model.graph.nodes)
        with pause_gc(), counting(self.model.limits), within_memory("the program", self.model.file):
            self._set_native(_compile_native(self.model, options) if engine == "native" else None)
        self._stream: Program | None = None

    def _set_native(self, native: Any) -> None:
        self._native = native
        self._call_fast = native.fast_calls.call if native is not None and native.fast_calls is not None else None

    @property
    def _runtime(self) -> str:
        """The engine or library and its device, for the repr."""
        return self.engine

    @property
    def inputs(self) -> list[Value]:
        """The inputs, with ``name``, ``dtype`` and ``shape``."""
        return self.model.inputs

    @property
    def outputs(self) -> list[Value]:
        """The outputs, with ``name``, ``dtype`` and ``shape``."""
        return self.model.outputs

    def __call__(self, *inputs: Any, out: Mapping[str, Any] | Sequence[Any] | None = None, **by_name: Any) -> Results:
        if self._call_fast is not None and active() is None:
            results = self._call_fast(inputs, by_name, out)
            if results is not None:
                return results  # type: ignore[no-any-return]
        if not self._counts:
            return self._run(inputs, by_name, out)
        with counting(self.model.limits):
            return self._run(inputs, by_name, out)

    def _run(self, inputs: tuple[Any, ...], by_name: dict[str, Any], out: Mapping[str, Any] | Sequence[Any] | None) -> Results:
        if self._is_closed:
            raise EngineError("program.closed", "a program must be open to run, got a closed one", file=self.model.file)
        inputs = self._positional_inputs(inputs, by_name)
        arrays = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else inputs
        if self._source is not None and isinstance(arrays, Mapping) and not arrays.keys() <= self._own_names():
            return self._run_overriding(arrays, out)
        if self._initial_states is not None:
            arrays = self._with_states(inputs)
        targets = None if out is None else self._check_out(out)
        return Results(self._compute(arrays, targets))

    def _own_names(self) -> set[str]:
        return {name for value in self.model.inputs for name in (value.name, *value.names)}

    def _run_overriding(self, arrays: Mapping[str, Any], out: Mapping[str, Any] | Sequence[Any] | None) -> Results:
        """Run with arrays for optional inputs: in a program that has them as inputs or, where they must be constants, once."""
        from dovetail.errors import DovetailError
        from dovetail.formats.default_inputs import freeze_defaults
        from dovetail.interpreter.interpret import check_defaults
        from dovetail.passes.default_inputs import open_defaults, overridden

        assert self._source is not None
        names = tuple(sorted(overridden(self._source, arrays)))
        if not names:
            raise self._unknown_input(arrays)
        program = self._overriding.get(names)
        if program is None:
            try:
                opened = open_defaults(self._source, names)
                program = Program(opened, self.engine, **self.options)
            except DovetailError:
                data = check_defaults(self._source, arrays)
                program = Program(freeze_defaults(self._source, data), self.engine, **self.options)
                return program({name: array for name, array in arrays.items() if name not in names}, out=out)
            self._overriding[names] = program
        return program(dict(arrays), out=out)

    def _unknown_input(self, arrays: Mapping[str, Any]) -> EngineError:
        from dovetail.passes.default_inputs import default_inputs

        assert self._source is not None
        own = self._own_names()
        unknown = ", ".join(repr(name) for name in arrays if name not in own)
        known = ", ".join(repr(value.name) for value in self.model.inputs)
        optional = ", ".join(map(repr, default_inputs(self._source.graph)))
        return EngineError("input.unknown", f"the model has no input {unknown}; it has {known}, and the optional {optional}")

    def _compute(self, inputs: Any, out: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the outputs for inputs by name or in order, written into the arrays of ``out``."""
        if self._native is not None:
            return self._native(inputs, out)  # type: ignore[no-any-return]
        return write_outputs(self._interpret(inputs), out)

    def _positional_inputs(self, inputs: tuple[Any, ...], by_name: dict[str, Any]) -> tuple[Any, ...]:
        """Return the inputs as positional arguments: one mapping, or one array for each input."""
        if by_name:
            if not inputs:
                return (by_name,)
            if len(inputs) > 1 or not isinstance(inputs[0], Mapping) or any(name in by_name for name in inputs[0]):
                raise EngineError("input.count", "inputs must be passed all in order or all by name, and each once")
            return ({**inputs[0], **by_name},)
        if len(inputs) == 1 and isinstance(inputs[0], list | tuple) and _is_list_of_inputs(self.model, inputs[0]):
            return tuple(inputs[0])
        return inputs

    def close(self) -> None:
        """Release the plans, the workspace and the packed weights. A closed program cannot run."""
        self._is_closed = True
        self._native = self._call_fast = self._stream = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def map(self, items: Iterable[Any], streams: int | str = "auto") -> Iterator[Results]:
        """Yield the Results of each item, in order: ``program(item)``, several items at a time, with the same bits.

        ``streams``: the items that run at a time, each in one thread. "auto" is as many as the program has threads, or one where
        a call is shorter than the start of another thread. Each stream takes two items ahead of the results; an item must not
        change before its result is returned. The error of an item is raised at its place and ends the iteration. Closing
        the iterator ends its threads.

        Raises EngineError [engine.streams], and [program.states] for a model with states, whose calls depend on each other.
        """
        if self.model.states:
            message = "map takes a model without states: call a session() for each item, in order"
            raise EngineError("program.states", message, file=self.model.file)
        # Deferred for start-up time.
        from dovetail.streams import CallTime, map_adaptive, map_concurrently, map_in_order, stream_count

        count = stream_count(streams, self._native.threads if self._native is not None else 1)
        if count == 1 or self._native is None:
            return map_in_order(self, items)
        single = self._call_in_one_thread()
        if streams != "auto":
            return map_concurrently(single, items, count)
        if self._call_time is None:
            self._call_time = CallTime()
        return map_adaptive(single, items, count, self._call_time)

    def _call_in_one_thread(self) -> Callable[[Any], Results]:
        """Return a call of this program in one thread, which shares its graph and its packed weights."""
        if self._native is None or self._native.threads == 1:
            return self
        if self._stream is None:
            stream = object.__new__(Program)
            stream.__dict__.update(self.__dict__)
            stream._set_native(self._native.copy_for_one_thread())
            self._stream = stream
        stream = self._stream
        return lambda item: self(item) if self._is_closed else stream(item)

    def session(self) -> Session:
        """Return a Session, which keeps the states between calls."""
        from dovetail.interpreter.session import Session

        return Session(self)

    def _with_states(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Return the inputs by name, with the initial values of states that are not among them."""
        from dovetail.interpreter.session import inputs_by_name
        from dovetail.ir.state import state_inputs

        arrays = inputs_by_name(self.model, inputs)
        assert self._initial_states is not None
        if all(name in arrays for name in state_inputs(self.model)):
            return arrays
        return {**self._initial_states(arrays), **arrays}

    def _check_out(self, out: Mapping[str, Any] | Sequence[Any]) -> Mapping[str, Any]:
        """Return ``out`` by name. Raises EngineError [output.unknown], [output.array], [output.overlap]."""
        names = [value.name for value in self.model.outputs]
        if not isinstance(out, Mapping):
            if not isinstance(out, list | tuple) or len(out) != len(names):
                size = f"a list of {len(out)}" if isinstance(out, list | tuple) else type(out).__name__
                raise EngineError(
                    "output.array",
                    f"out must be a dict, or a list with an array or None for each of {len(names)} outputs, got {size}",
                )
            out = {name: array for name, array in zip(names, out, strict=True) if array is not None}
        unknown = [name for name in out if name not in names]
        if unknown:
            raise EngineError(
                "output.unknown", f"the model has no output {', '.join(map(repr, unknown))}; it has {', '.join(map(repr, names))}"
            )
        arrays = [(name, array) for name, array in out.items() if isinstance(array, np.ndarray)]
        for (one, first), (other, second) in combinations(arrays, 2):
            if np.may_share_memory(first, second) and np.shares_memory(first, second):
                raise EngineError("output.overlap", f"out[{one!r}] and out[{other!r}] must not share memory")
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._source or self.model, self.engine, self.options)

    def _interpret(self, inputs: Any) -> dict[str, Any]:
        from dovetail.interpreter.interpret import copy_shared_outputs, interpret

        outputs = interpret(self.model, inputs)
        try:
            return copy_shared_outputs(outputs, inputs.values() if isinstance(inputs, Mapping) else inputs)
        except MemoryError as error:
            raise EngineError("run.memory", f"the outputs do not fit into memory: {error}", file=self.model.file) from None

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return printable(f"<Program {self._runtime}{state}: {_ports_text(self.inputs)} -> {_ports_text(self.outputs)}>")


def _ports_text(values: Sequence[Value]) -> str:
    texts = [f"{value.name}: {value.type}" for value in values[:PORTS_SHOWN]]
    more = [f"{len(values) - PORTS_SHOWN} more"] if len(values) > PORTS_SHOWN else []
    return f"({', '.join(texts + more)})"


def _is_list_of_inputs(model: Model, items: Sequence[Any]) -> bool:
    """Return whether a single list argument holds the inputs in order, and not the elements of the only input."""
    from dovetail.ir.types import Optional as OptionalType, Sequence as SequenceType, shape_of

    if len(model.inputs) != 1:
        return True
    if len(items) != 1 or isinstance(model.inputs[0].type, SequenceType | OptionalType):
        return False
    shape = shape_of(model.inputs[0].type)
    return (
        (hasattr(items[0], "__dlpack__") or isinstance(items[0], np.generic))
        if shape is None
        else np.ndim(items[0]) == len(shape)
    )


def _has_subgraphs(op: Any) -> bool:
    from dovetail.ir.op import bodies

    return next(iter(bodies(op)), None) is not None


def _compile_native(model: Model, options: dict[str, Any]) -> Any:
    from dovetail.engine.engine import Engine

    return Engine(model, **options)


def _restore(model: Model, engine: str, options: dict[str, Any]) -> Program:
    return Program(model, engine, **options)


def write_outputs(outputs: dict[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy the outputs that ``out`` names into its arrays, and return all outputs."""
    from dovetail.interpreter.interpret import copy_into

    for name, array in (out or {}).items():
        outputs[name] = copy_into(array, outputs[name], name)
    return outputs


def compile(
    model: Model | str | PathLike[str],
    engine: str = "auto",
    *,
    backend: str = "dovetail",
    device: Any = None,
    results: str = "numpy",
    torch_compile: bool = False,
    mesh: Mapping[str, int] | None = None,
    shardings: Mapping[str, Any] | None = None,
    threads: int | None = None,
    max_memory: int | None = None,
    elide: str = "auto",
    limits: Limits | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> Program:
    """Compile ``model`` (a Model or the path of one) to a Program.

    ``engine``: "native" (planned memory, compiled kernels), "interpreter" (the reference: one operator at a time in numpy),
    or "auto": native where the native core is compiled. Options of the native engine: ``threads``, by default DOVETAIL_THREADS or
    all that this process may use; ``elide``, the elision of operators that only move data: "auto" where that is faster, "all"
    wherever it is possible, "none".

    ``limits``: the limits of compilation and of each run, by default those of the model. ``max_memory`` replaces
    ``limits.memory``, the maximum bytes of one run. The arena, outputs and constant tables are checked against it before they
    are allocated, and the outputs of loops while they grow.

    ``cache_dir``: a folder for plans of model files, by default the variable DOVETAIL_CACHE_DIR; without either nothing is
    written. The first call of a program writes its plan there. A later process, with the same content of the file, options,
    version and processor, starts from it, and loads the model only for other shapes or attributes (docs/howto/start.md).

    ``backend``: "dovetail", or "jax" or "torch", whose library runs the operators on ``device`` (by default the library's own
    choice). ``results="device"`` returns arrays of the library, where they are. These backends take ``limits`` and none of the
    options above (docs/howto/devices.md). ``mesh``: sizes of the axes "data" and "model" of a mesh of devices (JAX), over which
    inputs and weights are split as ``program.shardings`` proposes; ``shardings`` replaces specs by patterns of names.
    ``torch_compile``: compile with torch.compile, for the shapes of each call, instead of running one operator at a time.

    Raises EngineError [engine.unknown], [engine.option], [engine.threads], [cache.folder], [device.unknown], [device.option],
    [sharding.mesh], [sharding.name], [sharding.axis], [sharding.shape],
    UnsupportedError [extra.missing], and the errors of ``load``.
    """
    if backend not in BACKENDS:
        raise EngineError("device.backend", f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    placement = {
        "device": device,
        "results": results,
        "torch_compile": torch_compile,
        "mesh": mesh,
        "shardings": shardings,
    }
    own = {"engine": engine, "threads": threads, "elide": elide, "cache_dir": cache_dir}
    if backend != "dovetail":
        _refuse_options(own, f"backend={backend!r}")
        # Deferred for start-up time.
        from dovetail.devices.compilation import compile_on_device

        return compile_on_device(_load(model, limits, max_memory), backend, **placement)
    _refuse_options(placement, 'backend="dovetail"')
    if engine not in ("auto", *ENGINES):
        raise EngineError("engine.unknown", f"engine must be one of {', '.join(('auto', *ENGINES))}, got {engine!r}")
    folder = cache_dir or os.environ.get("DOVETAIL_CACHE_DIR")
    if folder and isinstance(model, str | PathLike) and engine != "interpreter" and native_core.is_compiled:
        from dovetail.plan_cache.prepared_program import compile_with_cache

        options = {"threads": threads, "elide": elide}
        return compile_with_cache(folder, os.fspath(model), limits, max_memory, options)
    return compile_anew(model, engine, threads, max_memory, elide, limits)


def compile_anew(
    model: Model | str | PathLike[str],
    engine: str,
    threads: int | None,
    max_memory: int | None,
    elide: str,
    limits: Limits | None,
) -> Program:
    """Compile without the cache of plans; the arguments are those of :func:`compile`."""
    loaded = _load(model, limits, max_memory)
    if engine == "interpreter" or (engine == "auto" and not native_core.is_compiled):
        if not native_core.is_compiled:
            native_core.warn_without_core()
        thread_count(threads)
        reason = "as requested" if engine == "interpreter" else "the native core is not compiled"
        LOGGER.info("%s: interpreter engine, %s", printable(loaded.file or "the model"), reason)
        return Program(loaded, "interpreter")
    program = Program(loaded, "native", threads=threads, elide=elide)
    LOGGER.info("%s: native engine, %s", printable(loaded.file or "the model"), native_core.build())
    return program


def _load(model: Model | str | PathLike[str], limits: Limits | None, max_memory: int | None) -> Model:
    """Return the model, or that of a file, with the limits of its runs."""
    from dovetail.formats import load
    from dovetail.formats.mapped_files import check_mapped_files
    from dovetail.ir.edit import copy_model
    from dovetail.ir.graph import Model

    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    check_mapped_files(loaded.graph, loaded.file)
    chosen = loaded.limits if limits is None else limits
    chosen = chosen if max_memory is None else replace(chosen, memory=max_memory)
    if chosen != loaded.limits:
        loaded = copy_model(loaded)
        loaded.limits = chosen
    return loaded


def _refuse_preserved_nodes(model: Model) -> None:
    """Raise the refusal of every preserved node that the outputs depend on."""
    from dovetail.errors import raise_all
    from dovetail.ir.builder import describe_op

    needed = {id(value) for value in model.graph.outputs}
    refusals = []
    for node in reversed(model.graph.nodes):
        if not any(id(y) in needed for y in node.outputs):
            continue
        needed.update(id(x) for x in node.inputs if x is not None)
        if (refusal := getattr(node.op, "refusal", None)) is not None:
            refusals.append(refusal.at(node=node.label, op=describe_op(node.op, node.inputs), file=model.file))
    raise_all(refusals[::-1], f"nodes that cannot run in {model.file or 'the model'}")


def _refuse_options(options: Mapping[str, Any], subject: str) -> None:
    """Raise EngineError [device.option] for an option that differs from its default."""
    defaults = {"engine": "auto", "elide": "auto", "results": "numpy", "torch_compile": False}
    wrong = [name for name, value in options.items() if value != defaults.get(name)]
    if wrong:
        raise EngineError("device.option", f"{subject} does not take {', '.join(wrong)}")


def plan(model: Model | str | PathLike[str], *, limits: Limits | None = None, **options: Any) -> PlanReport:
    """Report the plan of the native engine for ``model``: copies with their reasons, memory over time, and time by kernel.

    ``elide`` and ``threads`` are those of :func:`compile`. The plan is for ``shapes`` of inputs by name, or for ``sizes`` of open
    dimensions by name. ``rounds`` is the number of timed runs, on ``inputs`` by name or on random ones from ``seed``. ``limits``:
    by default those of the model. A notebook shows the report as a figure; its ``html()`` is a standalone page.
    """
    from dovetail.engine.plan_report import report
    from dovetail.formats import load
    from dovetail.ir.edit import copy_model
    from dovetail.ir.graph import Model

    loaded = model if isinstance(model, Model) else load(model, limits=limits)
    if limits is not None:
        loaded = copy_model(loaded)
        loaded.limits = limits
    with counting(loaded.limits), within_memory("the plan", loaded.file):
        return report(loaded, **options)


def run(model: Model | str | PathLike[str], inputs: Mapping[str, Any] | Sequence[Any] | Any, engine: str = "auto") -> Results:
    """Run a model (or the file of one) once. ``inputs``: arrays by name, a list in order, or the only one."""
    return compile(model, engine)(inputs)
