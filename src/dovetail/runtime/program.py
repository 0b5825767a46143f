"""Program, a callable compiled model, and LoadedProgram, the base of programs that hold their model from the start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import DovetailError, EngineError, printable, raise_all
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.limits import DEFAULT, active, counting
from dovetail.ir.results import Results
from dovetail.ir.suggestions import closest

# Modules that a program from the plan cache does not need are imported in functions, for start-up time.
if TYPE_CHECKING:
    from dovetail.ir.graph import Model, Value
    from dovetail.ir.op import Op
    from dovetail.runtime.batcher import Batcher
    from dovetail.runtime.interpreter.session import Session
    from dovetail.runtime.streams import CallTime

Compute = Callable[[Any, Mapping[str, Any] | None], dict[str, Any]]
"""A function that computes the outputs for inputs by name or in order, and writes into the arrays of its second argument."""

PORTS_SHOWN = 4
"""The maximum number of inputs, and of outputs, in the repr of a Program."""


class Statistics(NamedTuple):
    """Statistics counts the plans and bytes of a program; all are 0 if a library or the interpreter runs the program.

    - ``plans``: plans made since compilation, for one set of input sizes or for ranges of sizes
    - ``ranges``: plans for ranges of sizes
    - ``cached_sizes``: sets of sizes with a cached program
    - ``size_bytes``: estimated bytes of these cached programs, without packed weights
    - ``evictions``: cached programs that were dropped for programs of other sizes
    - ``packed_bytes``: bytes of the packed weights, which all cached programs share
    - ``copied_cache_bytes``: bytes of caches that calls with ``reuse_caches`` copied, either into larger memory or because a plan
      does not extend the cache in place
    """

    plans: int = 0
    ranges: int = 0
    cached_sizes: int = 0
    evictions: int = 0
    size_bytes: int = 0
    packed_bytes: int = 0
    copied_cache_bytes: int = 0


class Program(ABC):
    """Program is a compiled model: a callable that takes arrays by name or in order and returns the outputs as numpy arrays.

    ``program(x=array)``, ``program({"x": array})``, ``program(array, ...)`` and ``program([array, ...])`` are the same call; an
    input named ``out`` must be passed in a dict. The call returns :class:`Results`, which are indexed by name or position.
    ``out``: arrays that receive the results, in a dict by name or in a list by position (None: a new array).

    A state that is not passed has its initial value (see ``session``). No result shares memory with an input or another result.
    A Program holds no state and may be called from several threads. The pickle of a Program holds the model and the options;
    unpickling compiles the model again. ``close``, or the end of a ``with`` block, releases the program's memory; a later call
    raises EngineError [program.closed].
    """

    def __init__(self, engine: str, options: Mapping[str, Any]) -> None:
        self.engine = engine
        self.options = dict(options)
        self._is_closed = False
        self._call_fast: Callable[..., Any] | None = None
        self._call_time: CallTime | None = None

    @property
    @abstractmethod
    def model(self) -> Model:
        """The compiled model."""

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Create plans before the first call, for sets of sizes and for the ranges of the sizes that differ between the sets.

        ``sizes`` is a list of sizes by symbol, such as ``[{"batch": 1, "length": 8}, {"batch": 1, "length": 512}]``
        (docs/howto/sizes.md). A program that started from ``cache_dir`` keeps the plans of its entry.

        Raises EngineError [argument.value] for a symbol without a size, [argument.conflict] for engines other than native.
        """
        raise EngineError("argument.conflict", f"prepare needs a program of the engine 'native', got {self.engine!r}")

    @property
    def inputs(self) -> list[Value]:
        """The inputs, with ``name``, ``dtype`` and ``shape``."""
        return self.model.inputs

    @property
    def outputs(self) -> list[Value]:
        """The outputs, with ``name``, ``dtype`` and ``shape``."""
        return self.model.outputs

    @property
    def statistics(self) -> Statistics:
        """The numbers of plans and cached programs, and their bytes."""
        return Statistics()

    def __call__(self, *inputs: Any, out: Mapping[str, Any] | Sequence[Any] | None = None, **by_name: Any) -> Results:
        if self._call_fast is not None and active() is None:
            results = self._call_fast(inputs, by_name, out)
            if results is not None:
                return results  # type: ignore[no-any-return]
        return self._run(inputs, by_name, out)

    def _run(self, inputs: tuple[Any, ...], by_name: dict[str, Any], out: Mapping[str, Any] | Sequence[Any] | None) -> Results:
        """Run a call that the native fast call does not support. Raises EngineError [program.closed]."""
        if self._is_closed:
            raise EngineError("program.closed", "a program must be open to run, got a closed one", file=self.model.file)
        return self._run_open(inputs, by_name, out)

    @abstractmethod
    def _run_open(
        self, inputs: tuple[Any, ...], by_name: dict[str, Any], out: Mapping[str, Any] | Sequence[Any] | None
    ) -> Results:
        """Run a call of an open program."""

    @property
    def _runtime(self) -> str:
        """The name of the engine, or of the library and its device, for the repr."""
        return self.engine

    @property
    def _threads(self) -> int:
        """The number of threads of a call."""
        return 1

    def close(self) -> None:
        """Release the plans, the workspace and the packed weights. A closed program cannot run."""
        self._is_closed = True
        self._call_fast = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def map(self, items: Iterable[Any], streams: int | str = "auto") -> Iterator[Results]:
        """Yield ``program(item)`` for each item in order, bit-identical to single calls; several items run concurrently.

        ``streams``: the number of items that run concurrently, each in one thread. "auto" is the number of threads of the
        program, or 1 if a call is too short to be worth a thread. Up to two items per stream are taken before their results are
        yielded; an item must not change before its result is yielded. The error of an item is raised in place of its result and
        ends the iteration. Closing the iterator ends the threads.

        Raises EngineError [argument.value], and [program.states] for a model with states, whose calls depend on each other.
        """
        if self.model.states:
            message = "map takes a model without states: call a session() for each item, in order"
            raise EngineError("program.states", message, file=self.model.file)
        # Deferred for start-up time.
        from dovetail.runtime.streams import CallTime, map_adaptive, map_concurrently, map_in_order, stream_count

        count = stream_count(streams, self._threads)
        single = self._call_in_one_thread()
        if count == 1 or single is None:
            return map_in_order(self, items)
        if streams != "auto":
            return map_concurrently(single, items, count)
        if self._call_time is None:
            self._call_time = CallTime()
        return map_adaptive(single, items, count, self._call_time)

    def _call_in_one_thread(self) -> Callable[[Any], Results] | None:
        """Return a function that runs a call of this program in one thread; None if calls cannot run concurrently."""
        return None

    def batcher(self, *, wait_ms: float = 2, max_batch: int = 32, max_waiting: int = 1024) -> Batcher:
        """Return a Batcher, which joins calls of threads, ``batcher(inputs)``, and of tasks, ``await batcher.call(inputs)``.

        All inputs and outputs must have the batch as their open leading size. Calls run together if their other sizes are equal.

        - ``wait_ms``: the longest time, in milliseconds, that a call waits for others. It waits less if a batch is full, or if as
          many calls are there as at most in the last 16 batches.
        - ``max_batch``: the largest number of rows of a joint run; a call of more rows runs alone.
        - ``max_waiting``: the largest number of waiting calls; a further one raises EngineError [batch.full].

        Raises EngineError [argument.value], [batch.axis]; UnsupportedError [program.states] for a model with states.
        """
        # Deferred for start-up time.
        from dovetail.runtime.batcher import Batcher

        single = self._call_in_one_thread() if self._threads > 1 else self
        return Batcher(
            self, single or self, self._threads if single is not None else 1, self._positional_inputs,
            wait_ms=wait_ms, max_batch=max_batch, max_waiting=max_waiting,
        )  # fmt: skip

    def session(self, states: Mapping[str, str] | None = None) -> Session:
        """Return a Session, which keeps states between calls: an input becomes the output that is its next value.

        ``states`` maps these inputs to their outputs. The default are the states of the model, the caches that its operators
        define, and the pairs that its names and types show, such as ``past_0`` and ``present_0``. The repr of the session shows
        the pairs.

        Raises EngineError [input.unknown], [output.unknown], [argument.conflict] for an output of two states, [argument.value]
        for a pair of two types; ArgumentTypeError [argument.type].
        """
        from dovetail.runtime.interpreter.session import Session

        return Session(self, states)

    @property
    def _overwritten(self) -> frozenset[str]:
        """The inputs whose arrays the next call of a session overwrites."""
        return frozenset()

    def _call_in_session(
        self, inputs: Mapping[str, Any], kept: dict[str, Any], out: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Run a call of a session, for ``inputs`` and the session's states ``kept``. ``inputs`` may contain states too.

        States that the run overwrites are removed from ``kept`` before the run. ``out`` names no states.
        """
        return self({**kept, **inputs}, out=out)

    def _positional_inputs(self, inputs: tuple[Any, ...], by_name: dict[str, Any]) -> tuple[Any, ...]:
        """Return the inputs of a call as a tuple: either one mapping by name, or one array for each input in order."""
        if by_name:
            if not inputs:
                return (by_name,)
            if len(inputs) > 1 or not isinstance(inputs[0], Mapping) or any(name in by_name for name in inputs[0]):
                raise EngineError("input.count", "inputs must be passed either all in order or all by name, each only once")
            return ({**inputs[0], **by_name},)
        if len(inputs) == 1 and isinstance(inputs[0], list | tuple) and _is_list_of_inputs(self.model, inputs[0]):
            return tuple(inputs[0])
        return inputs

    def _check_out(
        self, out: Mapping[str, Any] | Sequence[Any], names: Sequence[str] | None = None, subject: str = "model"
    ) -> Mapping[str, Any]:
        """Check ``out`` and return it as a mapping by name. Raises EngineError [output.unknown], [output.array].

        ``names``: the outputs that ``out`` may name, by default all. ``subject`` has these outputs.
        """
        names = [value.name for value in self.model.outputs] if names is None else names
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
                "output.unknown",
                f"the {subject} has no output {', '.join(map(repr, unknown))}; it has {', '.join(map(repr, names))}"
                f"{closest(unknown[0], names)}",
            )
        arrays = [(name, array) for name, array in out.items() if isinstance(array, np.ndarray)]
        for (one, first), (other, second) in combinations(arrays, 2):
            if np.may_share_memory(first, second) and np.shares_memory(first, second):
                raise EngineError("output.array", f"out[{one!r}] and out[{other!r}] must not share memory")
        return out

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return printable(f"<Program {self._runtime}{state}: {_ports_text(self.inputs)} -> {_ports_text(self.outputs)}>")


class LoadedProgram(Program):
    """LoadedProgram is a Program that holds its model from the start; a subclass implements ``_compute``."""

    def __init__(self, model: Model, engine: str, options: Mapping[str, Any]) -> None:
        from dovetail.formats.default_inputs import freeze_defaults
        from dovetail.ir.edit import copy_model
        from dovetail.ops.default_inputs import default_inputs
        from dovetail.runtime.interpreter.session import InitialStates

        super().__init__(engine, options)
        self._source: Model | None = None
        """The model before its optional inputs became constants, as they are in ``model``; None without optional inputs."""
        self._overriding: dict[tuple[str, ...], Program] = {}
        if default_inputs(model.graph):
            self._source = copy_model(model)
            model = freeze_defaults(self._source)
        _refuse_preserved_nodes(model)
        with pause_gc():
            self._model = copy_model(model)
        self._initial_states = InitialStates(self._model) if self._model.states else None
        # Only models with subgraphs or non-default limits need a Usage in a run; a Usage costs time in every call.
        self._counts = self._model.limits != DEFAULT or any(_has_subgraphs(node.op) for node in self._model.graph.nodes)

    @property
    def model(self) -> Model:
        return self._model

    @property
    def has_optional_inputs(self) -> bool:
        """True if the model has inputs with default values, which are constants of ``model``."""
        return self._source is not None

    @abstractmethod
    def _compute(self, inputs: Sequence[Any] | Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        """Compute the outputs for inputs by name or in order; outputs that ``out`` names are written into its arrays."""

    def _compile_like(self, model: Model) -> Program:
        """Compile another model with the class and options of this program."""
        return type(self)(model, **self.options)

    def _run_open(
        self, inputs: tuple[Any, ...], by_name: dict[str, Any], out: Mapping[str, Any] | Sequence[Any] | None
    ) -> Results:
        return self._run_with(self._compute, inputs, by_name, out)

    def _run_with(
        self,
        compute: Compute,
        inputs: tuple[Any, ...],
        by_name: dict[str, Any],
        out: Mapping[str, Any] | Sequence[Any] | None,
    ) -> Results:
        # Resources are counted only if a limit or a loop needs the counts.
        with counting(self._model.limits) if self._counts else nullcontext():
            inputs = self._positional_inputs(inputs, by_name)
            arrays = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else inputs
            if self._source is not None and isinstance(arrays, Mapping) and not arrays.keys() <= self._own_names():
                return self._run_overriding(arrays, out)
            if self._initial_states is not None:
                arrays = self._with_states(inputs)
            targets = None if out is None else self._check_out(out)
            return Results(compute(arrays, targets))

    def _own_names(self) -> set[str]:
        return {name for value in self._model.inputs for name in (value.name, *value.names)}

    def _run_overriding(self, arrays: Mapping[str, Any], out: Mapping[str, Any] | Sequence[Any] | None) -> Results:
        """Run the model with the caller's arrays for optional inputs in place of the default values.

        The run uses a cached program in which these inputs are graph inputs. If a node needs them as constants, the program
        serves only this run.
        """
        from dovetail.formats.default_inputs import freeze_defaults
        from dovetail.ops.default_inputs import open_defaults, overridden
        from dovetail.runtime.interpreter.interpret import check_defaults

        assert self._source is not None
        names = tuple(sorted(overridden(self._source, arrays)))
        if not names:
            raise self._unknown_input(arrays)
        program = self._overriding.get(names)
        if program is None:
            try:
                program = self._compile_like(open_defaults(self._source, names))
            except DovetailError:
                data = check_defaults(self._source, arrays)
                program = self._compile_like(freeze_defaults(self._source, data))
                return program({name: array for name, array in arrays.items() if name not in names}, out=out)
            self._overriding[names] = program
        return program(dict(arrays), out=out)

    def _unknown_input(self, arrays: Mapping[str, Any]) -> EngineError:
        from dovetail.ir.inputs_outputs import unknown_input
        from dovetail.ops.default_inputs import default_inputs

        assert self._source is not None
        own = self._own_names()
        unknown = [name for name in arrays if name not in own]
        return unknown_input(unknown, [value.name for value in self._model.inputs], list(default_inputs(self._source.graph)))

    def _with_states(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Return the inputs by name, with initial values for the states that the caller does not pass."""
        from dovetail.ir.state import state_inputs
        from dovetail.runtime.interpreter.session import inputs_by_name

        arrays = inputs_by_name(self._model, inputs)
        assert self._initial_states is not None
        if all(name in arrays for name in state_inputs(self._model)):
            return arrays
        return {**self._initial_states(arrays), **arrays}

    def close(self) -> None:
        super().close()
        for program in self._overriding.values():
            program.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._source or self._model, self.options)


def _restore(kind: type[LoadedProgram], model: Model, options: dict[str, Any]) -> LoadedProgram:
    return kind(model, **options)


def _ports_text(values: Sequence[Value]) -> str:
    texts = [f"{value.name}: {value.type}" for value in values[:PORTS_SHOWN]]
    more = [f"{len(values) - PORTS_SHOWN} more"] if len(values) > PORTS_SHOWN else []
    return f"({', '.join(texts + more)})"


def _is_list_of_inputs(model: Model, items: Sequence[Any]) -> bool:
    """Return whether a single list argument holds the inputs in order; otherwise it holds the elements of the only input."""
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


def _has_subgraphs(op: Op) -> bool:
    from dovetail.ir.op import bodies

    return next(iter(bodies(op)), None) is not None


def _refuse_preserved_nodes(model: Model) -> None:
    """Raise the errors of all preserved nodes that the outputs depend on."""
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


def write_outputs(outputs: dict[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy the outputs that ``out`` names into the arrays of ``out``, and return all outputs."""
    from dovetail.ir.inputs_outputs import copy_into

    for name, array in (out or {}).items():
        outputs[name] = copy_into(array, outputs[name], name)
    return outputs
