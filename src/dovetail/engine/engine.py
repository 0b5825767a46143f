"""Engine rewrites a model once, plans the model for each set of input shapes, and caches the executables."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Protocol

import numpy as np

from dovetail.engine.memory.tensor import TensorMap, as_row_major, is_array
from dovetail.engine.parametric_plan import (
    MAX_PLANS,
    MAX_SYMBOLS,
    NoCommonPlan,
    ParametricPlan,
    count_plans,
    make_parametric_plan,
    ranges_of,
)
from dovetail.engine.parametric_sizes import Follower, SizeRange, followers_of
from dovetail.engine.plan import Plan
from dovetail.engine.plan_log import log_parametric_plan, log_plan
from dovetail.engine.plan_verifier import verify_plan
from dovetail.engine.planner import NonAffineInput, PlanOptions, Strides, check_elide, make_plan
from dovetail.engine.rewrite.data_sizes import partition_at_data_sizes
from dovetail.engine.rewrite.output_conversions import Conversions, convert_outputs, detach_conversions
from dovetail.engine.rewrite.pipeline import rewrite_again, rewrite_for_engine
from dovetail.engine.rewrite.string_inputs import encode_strings
from dovetail.engine.run.executable import CopyCount, Executable, SharedPorts, output_bytes_of
from dovetail.engine.run.executable_cache import ExecutableCache, PlanMemory
from dovetail.engine.run.fast_calls import FastCalls
from dovetail.engine.run.subgraphs import compile_subgraphs, decides_branch, has_branches, inlining_rule
from dovetail.engine.shape_specialization import ShapeTensorNodes, constants_of, specialize
from dovetail.errors import DovetailError, EngineError
from dovetail.ir import symbolic
from dovetail.ir.arrays import Array
from dovetail.ir.evaluate import LARGE
from dovetail.ir.graph import Graph, Model
from dovetail.ir.host import native_core
from dovetail.ir.host.forks import ForkLock
from dovetail.ir.host.gc_pause import pause_gc
from dovetail.ir.host.threads import thread_count
from dovetail.ir.inputs_outputs import check_inputs, copy_shared_outputs, named_inputs, to_array, zeros_of
from dovetail.ir.limits import Limits, machine_memory, refuse_array, refuse_memory, within_memory
from dovetail.ir.types import Tensor, Type
from dovetail.laws.fold import NodeTest

MAX_PARAMETRIC_PLANS = 16
"""The maximum number of parametric plans that an engine caches; beyond it the least recently used plan is dropped."""

RangeKey = tuple[tuple[tuple[str, SizeRange], ...], tuple[tuple[str, int], ...], tuple[tuple[str, Follower], ...]]
"""Key of a parametric plan: the range of each varying symbol, the fixed size of each other symbol, and the followers."""
MAX_COUNTS = 4096
"""The maximum number of RangeKeys for which an engine counts single-size plans; beyond this number all counts return to 0."""
OWN_PLANS = {1: 1, 2: 3, 3: 8, 4: 12}
"""The number of single-size plans that an engine makes before a parametric plan, by the plan's number of varying symbols."""
OWN_PART = 16
"""For each OWN_PART sample plans that a parametric plan needs, one more single-size plan must precede it."""


class PlanRecorder(Protocol):
    """PlanRecorder receives parametric plans and, until the first call returns, executables of an engine and its subgraphs."""

    def record(self, executable: Executable, graph: Graph) -> None:
        """Receive a newly planned executable and the graph for which it was planned."""

    def finish(self, executable: Executable) -> None:
        """Receive the executable of the first call, after the subgraphs that ran were bound."""

    def add_range(self, plan: ParametricPlan) -> None:
        """Receive a parametric plan; calls may create parametric plans at any time."""


class Engine:
    """Engine holds a model, rewritten once, and an executable for each set of input shapes. Several threads may call an Engine.

    ``outer``: the engine of the graph that contains a subgraph; the subgraph's engine uses the limits, threads and packed weights
    of ``outer``. ``precision`` and ``reproducible``: see :func:`dovetail.compile`. ``shared``: pairs of an input and an output
    that may share memory.
    """

    def __init__(
        self,
        model: Model,
        threads: int | None = None,
        elide: str = "auto",
        outer: Engine | None = None,
        shared: Sequence[SharedPorts] = (),
        has_fast_calls: bool = True,
        precision: str | None = None,
        reproducible: bool = False,
    ) -> None:
        check_elide(elide)
        self.model = model
        self.threads = thread_count(threads)
        self.elide = elide
        self.precision: str | None = outer.precision if outer else precision
        self.reproducible: bool = outer.reproducible if outer else reproducible
        self._options = PlanOptions(elide, self.precision, self.reproducible)
        self.shared = tuple(shared)
        self.copies = CopyCount()
        self.limits: Limits = outer.limits if outer else model.limits
        self._is_foldable = _exact_test() if self.reproducible else None
        self.graph = rewrite_for_engine(model.graph, file=model.file, precision=self.precision, is_foldable=self._is_foldable)
        self._conversions: Conversions = detach_conversions(self.graph) if outer is None else {}
        self._is_partitioned = native_core.is_compiled and partition_at_data_sizes(self.graph)
        self._constants = constants_of(self.graph)
        self._shape_nodes = ShapeTensorNodes(self.graph, self._constants, self._is_foldable)
        self._parametric_plans: OrderedDict[RangeKey, ParametricPlan | None] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._changing: set[str] = set()
        self._followers: dict[str, Follower] = {}
        self._plans_in: dict[RangeKey, int] = {}
        self.plan_recorder: PlanRecorder | None = outer.plan_recorder if outer else None
        self.range_recorder: PlanRecorder | None = None
        self._new_ranges: list[ParametricPlan] = []
        self._is_outermost = outer is None
        self._lock = ForkLock()
        self._core = native_core.core()
        self._pool: object = outer._pool if outer else self._core.ThreadPool(self.threads) if self._core else None
        self._weight_cache: Any = outer._weight_cache if outer else self._core.WeightCache() if self._core else None
        self._arena_pool: object = outer._arena_pool if outer else self._core.ArenaPool() if self._core else None
        self.output_pool: Any = self._core.OutputPool() if self._core else None
        self._encoded = encode_strings(model) if self._core and outer is None else None
        self._encoded_engine: Engine | None = None
        self.fast_calls = self._create_fast_calls() if has_fast_calls else None
        self.plan_memory: PlanMemory = outer.plan_memory if outer else PlanMemory()
        if self.fast_calls is not None:
            self.plan_memory.fast_calls.append(self.fast_calls)
        self._executables = ExecutableCache(self.plan_memory, self.fast_calls, model.file)
        if self._core:
            compile_subgraphs(self.graph, lambda body, fast: Engine(body, self.threads, elide, self, has_fast_calls=fast))

    def copy_for_one_thread(self) -> Engine:
        """Return a single-threaded engine with separate plans that shares the graph and the packed weights of this engine."""
        new = copy(self)
        new.threads, new.plan_recorder, new.range_recorder, new._new_ranges = 1, None, None, []
        new._parametric_plans, new._sizes, new._changing, new._plans_in = OrderedDict(), {}, set(), {}
        new._followers = {}
        new._shape_nodes = ShapeTensorNodes(new.graph, new._constants, new._is_foldable)
        new._lock = ForkLock()
        new._pool = self._core.ThreadPool(1) if self._core else None
        new.output_pool = self._core.OutputPool() if self._core else None
        new.fast_calls = new._create_fast_calls()
        new._executables = ExecutableCache(new.plan_memory, new.fast_calls, new.model.file)
        new._encoded_engine = None
        return new

    def _serve_calls_of(self, other: Engine) -> None:
        """Let the fast calls of ``other`` run executables of this engine; the plan memory of ``other`` counts them."""
        self.fast_calls, self.plan_memory = other.fast_calls, other.plan_memory
        self._executables = ExecutableCache(self.plan_memory, self.fast_calls, self.model.file)

    def _create_fast_calls(self) -> FastCalls | None:
        if self._core is None:
            return None
        return FastCalls(
            self._core, self.model, self.graph.outputs, self._conversions, self._encoded, self.output_pool, self.shared
        )

    def _plan_with_codes(self, arrays: Sequence[Array]) -> None:
        """Plan the call with integer codes instead of strings, so that the core serves the next call with these shapes."""
        if self._encoded is None or self.fast_calls is None or self.fast_calls.call is None:
            return
        codes = [array if is_array(array) else self._encoded.encode(array) for array in arrays]
        if any(array is None for array in codes):
            return
        try:
            if self._encoded_engine is None:
                engine = Engine(
                    self._encoded.model, self.threads, self.elide, precision=self.precision, reproducible=self.reproducible
                )
                engine._serve_calls_of(self)
                self._encoded_engine = engine
            self._encoded_engine.bind(codes)
        except DovetailError:
            # The call with the strings themselves reports the error.
            self._encoded = None

    def bind(self, inputs: Mapping[str, Array] | Sequence[Array]) -> tuple[Executable, list[Array]]:
        """Return the executable for these inputs, and the inputs as arrays in the model's order."""
        by_name = named_inputs(self.model, inputs)
        arrays = [to_array(by_name[value.name], value) for value in self.model.inputs]
        sizes = check_inputs(self.model, arrays)
        with self._lock:
            if self._lock.was_held:
                self._reset()
            try:
                return self._executable_for(arrays, sizes)
            except NonAffineInput:
                return self._executable_for([as_row_major(array) if is_array(array) else array for array in arrays], sizes)

    def _reset(self) -> None:
        """Drop the state that a thread of the parent process was changing when the process forked."""
        self._lock.was_held = False
        self._executables.clear()
        self._parametric_plans.clear()
        self._sizes, self._changing, self._followers, self._plans_in = {}, set(), {}, {}
        self._shape_nodes = ShapeTensorNodes(self.graph, self._constants, self._is_foldable)

    def _executable_for(self, arrays: list[Array], sizes: dict[str, int]) -> tuple[Executable, list[Array]]:
        if self._is_partitioned:
            return self._partitioned_executable(), [as_row_major(array) if is_array(array) else array for array in arrays]
        strides = [_element_strides_of(array) for array in arrays]
        arrays = [
            as_row_major(array) if is_array(array) and stride is None else array
            for array, stride in zip(arrays, strides, strict=True)
        ]
        key: tuple[Any, ...] = tuple(
            (array.shape, stride) if is_array(array) else None for array, stride in zip(arrays, strides, strict=True)
        )
        if None in key:
            # A sequence or optional input can determine the size of a symbol too.
            key = (*key, *sorted(sizes.items()))
        if key not in self._executables:
            executable = None
            try:
                with within_memory("the plan", self.model.file):
                    executable = self._from_parametric_plan(arrays, sizes) or self._compile(arrays, sizes, strides)
            except NonAffineInput:
                pass
            self._executables.add(key, executable)
        executable = self._executables.get(key)
        if executable is None:
            raise NonAffineInput
        return executable, arrays

    def _partitioned_executable(self) -> Executable:
        """Return the only executable of a partitioned graph: no step outside of the partitions depends on sizes."""
        if () not in self._executables:
            unknown = [None] * len(self.model.inputs)
            self._executables.add((), self._compile(unknown, {}, unknown))
        executable = self._executables.get(())
        assert executable is not None
        return executable

    @property
    def packed_bytes(self) -> int:
        """The bytes of the packed weights."""
        return int(self._weight_cache.bytes) if self._core else 0

    def plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[Plan, TensorMap]:
        """Return the plan for inputs of these shapes; a symbol without a size is 1."""
        arrays = []
        for value in self.model.inputs:
            if not isinstance(value.type, Tensor) or value.type.shape is None or value.type.dtype is None:
                raise EngineError("input.shape", f"input {value.name!r} must have a known shape and type, got {value.type}")
            shape = (shapes or {}).get(value.name) or [size if isinstance(size, int) else 1 for size in value.type.shape]
            arrays.append(np.broadcast_to(np.zeros((), value.type.dtype.numpy), tuple(shape)))
        plan, _, tensor_map = self._make_plan(arrays, check_inputs(self.model, arrays), [None] * len(arrays))
        return plan, tensor_map

    def plan_at(self, sizes: Mapping[str, int]) -> tuple[Plan, TensorMap]:
        """Return the plan for these sizes of the inputs' symbols. Raises EngineError [argument.value] for other symbols."""
        arrays = inputs_at(self.model, sizes)
        plan, _, tensor_map = self._make_plan(arrays, check_inputs(self.model, arrays), [()] * len(arrays))
        return plan, tensor_map

    def executable_at(self, sizes: Mapping[str, int]) -> Executable:
        """Return an executable with a plan of its own for these sizes, which no cache keeps. Nothing is allocated for a run.

        Raises EngineError [argument.value] where ``sizes`` lacks a symbol of the inputs or names an unknown symbol.
        """
        arrays = inputs_at(self.model, sizes)
        with self._lock:
            if self._is_partitioned:
                return self._partitioned_executable()
            return self._compile(arrays, check_inputs(self.model, arrays), [()] * len(arrays))

    @property
    def is_partitioned(self) -> bool:
        """True if the data of a run decides sizes of tensors, so that plans of parts are made while the model runs."""
        return self._is_partitioned

    def prepare(self, sizes: Sequence[Mapping[str, int]]) -> None:
        """Make plans for sets of symbol sizes, and parametric plans in the symbols whose sizes differ between the sets.

        Raises EngineError [argument.value] where a set lacks a symbol of the inputs or names an unknown symbol.
        """
        sets = [inputs_at(self.model, one) for one in sizes]
        for number, arrays in enumerate(sets):
            executable, _ = self.bind(arrays)
            # Only a run binds the subgraphs of If and Loop, so that an executable with these is not complete yet.
            if number == 0 and self.plan_recorder is not None and not executable.has_control:
                recorder, self.plan_recorder = self.plan_recorder, None
                recorder.finish(executable)
        self._changing |= {name for one in sizes for name, size in one.items() if size != sizes[0][name]}
        if self._changing and not self._is_partitioned:
            with self._lock:
                for one in sizes:
                    # Sets may change together by chance; only where that is no chance they have no plan in all symbols.
                    for self._followers in ({}, followers_of(sizes[0], one)):
                        if next(self._ranges_of(dict(one), is_awaited=True), None) is not None:
                            break
            self._record_ranges()

    def _from_parametric_plan(self, arrays: Sequence[Array], sizes: dict[str, int]) -> Executable | None:
        """Return an executable from a parametric plan in the symbols whose sizes vary between calls; None without such a plan."""
        before, self._sizes = self._sizes, dict(sizes)
        if self._core is None:
            return None
        if not all(is_array(array) and array.flags.c_contiguous for array in arrays):
            return None
        if before.keys() == sizes.keys():
            self._changing |= {name for name, size in sizes.items() if before[name] != size}
            self._followers = followers_of(before, sizes) or self._followers
        for plan in self._ranges_of(sizes):
            executable = self._fill(plan, arrays, sizes)
            if executable is not None:
                return executable
        return None

    def _ranges_of(self, sizes: dict[str, int], *, is_awaited: bool = False) -> Iterator[ParametricPlan]:
        """Yield the parametric plans that may serve ``sizes``; plans with followers, more symbols and wider ranges come first."""
        changing = tuple(sorted(name for name in self._changing if sizes[name] >= 2))
        followers = {name: each for name, each in self._followers.items() if name in changing and each.follows(name, sizes)}
        leading = tuple(name for name in changing if name not in followers)
        choices: list[tuple[tuple[str, ...], dict[str, Follower]]] = [(leading, followers)] if followers else []
        choices += [(changing, {})]
        choices += [((name,), {}) for name in changing if len(changing) > 1]
        for names, led in choices:
            if not 1 <= len(names) <= MAX_SYMBOLS:
                continue
            is_known = True
            for ranges in self._levels(names, sizes, led):
                others = tuple(sorted((name, size) for name, size in sizes.items() if name not in ranges and name not in led))
                key = (tuple(ranges.items()), others, tuple(sorted(led.items())))
                # A single-size plan counts for the ranges of every level, so that narrower ranges need no further plans once the
                # parametric plan for wider ranges was refused.
                is_due = key in self._parametric_plans or self._is_due(key, ranges) or is_awaited
                is_known = is_known and is_due
                if not is_known:
                    continue
                plan = self._parametric_plan(key, ranges)
                if plan is not None:
                    yield plan
            if not is_known and not led:
                break

    def _levels(
        self, names: tuple[str, ...], sizes: dict[str, int], followers: Mapping[str, Follower]
    ) -> Iterator[dict[str, SizeRange]]:
        """Yield dicts that map each symbol to a range around its size, one dict per level of width, the widest ranges first."""
        others = {name: size for name, size in sizes.items() if name not in names and name not in followers}
        of_sizes = {name: ranges_of(sizes[name], self._shape_nodes.pieces_in(name, others, followers)) for name in names}
        depth = max(map(len, of_sizes.values()))
        for level in range(depth):
            # A symbol with fewer ranges keeps a range for several levels: only width or digits change from level to level.
            yield {name: found[level * len(found) // depth] for name, found in of_sizes.items()}

    def _is_due(self, key: RangeKey, ranges: dict[str, SizeRange]) -> bool:
        """Add 1 to the number of single-size plans within ``ranges``; return whether it justifies a parametric plan.

        Also True where the parametric plan would need more than MAX_PLANS sample plans: make_parametric_plan then refuses it.
        """
        if len(self._plans_in) > MAX_COUNTS:
            self._plans_in.clear()
        self._plans_in[key] = count = self._plans_in.get(key, 0) + 1
        plans = count_plans(ranges.values())
        return plans > MAX_PLANS or count > OWN_PLANS[len(ranges)] + plans // OWN_PART

    def _parametric_plan(self, key: RangeKey, ranges: dict[str, SizeRange]) -> ParametricPlan | None:
        """Return the cached or a new parametric plan for ``ranges``; None where their sizes have no common plan."""
        if key not in self._parametric_plans:
            _, others, followers = key
            self._parametric_plans[key] = self._make_parametric_plan(ranges, dict(others), dict(followers))
            self._serve_range(self._parametric_plans[key])
            while len(self._parametric_plans) > MAX_PARAMETRIC_PLANS:
                _, dropped = self._parametric_plans.popitem(last=False)
                if self.fast_calls is not None:
                    self.fast_calls.discard_range(dropped)
        self._parametric_plans.move_to_end(key)
        return self._parametric_plans[key]

    def _serve_range(self, plan: ParametricPlan | None) -> None:
        """Let the fast calls create programs from a parametric plan."""
        if plan is None or self.fast_calls is None:
            return
        limit = self.limits.memory if self.limits.memory is not None else machine_memory()
        self.fast_calls.add_range(plan, self._pool, self._weight_cache, self._arena_pool, limit - plan.constant_bytes)
        if self.range_recorder is not None and plan.places is not None:
            self._new_ranges.append(plan)

    def _record_ranges(self) -> None:
        """Pass new parametric plans to the recorder without holding the lock, because the recorder may write files."""
        while self._new_ranges and self.range_recorder is not None:
            self.range_recorder.add_range(self._new_ranges.pop(0))

    def _make_parametric_plan(
        self, ranges: dict[str, SizeRange], others: dict[str, int], followers: dict[str, Follower]
    ) -> ParametricPlan | None:
        assert self._core is not None
        plan, reason = None, ""
        try:
            with pause_gc():
                plan = make_parametric_plan(self.graph, ranges, others, followers, self._options, self._core, self._shape_nodes)
        except NoCommonPlan as difference:
            reason = str(difference)
        except DovetailError as error:
            # A sample plan was refused; the sizes of the call itself may still be valid.
            reason = error.message
        self.plan_memory.count_range(is_found=plan is not None)
        log_parametric_plan(self.model.file, ranges, reason)
        return plan

    def _fill(self, parametric_plan: ParametricPlan, arrays: Sequence[Array], sizes: dict[str, int]) -> Executable | None:
        """Return the executable of a parametric plan for these sizes; None where the sizes need a separate plan."""
        assert self._core is not None
        plan, fill = parametric_plan.at(sizes)
        try:
            self._check_memory(plan)
            tensor_map = TensorMap(self.graph, sizes, [array.shape for array in arrays], self._constants)
            make_own = partial(self._compile_apart, sizes=dict(sizes))
            return self._create_executable(plan, tensor_map, arrays, fill, make_own)
        except (EngineError, ValueError):
            # These sizes exceed the memory limit, or a kernel refuses these sizes although it takes the sizes of the samples.
            return None

    def _compile_apart(self, arrays: Sequence[Array], sizes: dict[str, int]) -> Executable:
        """Compile a separate executable for dense arrays, which no cache keeps."""
        with self._lock:
            return self._compile(arrays, sizes, [()] * len(arrays))

    def _create_executable(
        self,
        plan: Plan,
        tensor_map: TensorMap,
        arrays: Sequence[Array],
        fill: Callable[[object], None] | None = None,
        make_own: Callable[[Sequence[Array]], Executable] | None = None,
    ) -> Executable:
        executable = Executable(
            plan, tensor_map, arrays, self._core, self._pool, self._weight_cache, self._arena_pool, self.output_pool, fill,
            self.shared, self.copies, make_own,
        )  # fmt: skip
        if self.reproducible:
            # Deferred for start-up time.
            from dovetail.engine.reproducible import refuse_inexact_steps

            refuse_inexact_steps(executable.python_steps, self.model.file)
        return executable

    def _compile(self, arrays: Sequence[Array], sizes: dict[str, int], strides: Strides) -> Executable:
        plan, graph, tensor_map = self._make_plan(arrays, sizes, strides)
        self._check_memory(plan)
        verify_plan(plan, graph, tensor_map)
        log_plan(plan, self.model.file, sizes)
        executable = self._create_executable(plan, tensor_map, arrays)
        if self.plan_recorder is not None:
            self.plan_recorder.record(executable, graph)
        return executable

    def _make_plan(self, arrays: Sequence[Array], sizes: dict[str, int], strides: Strides) -> tuple[Plan, Graph, TensorMap]:
        with pause_gc():
            return self._plan_for(arrays, sizes, strides)

    def _plan_for(self, arrays: Sequence[Array], sizes: dict[str, int], strides: Strides) -> tuple[Plan, Graph, TensorMap]:
        shapes = [tuple(array.shape) if is_array(array) else None for array in arrays]
        input_strides = [
            None if stride is None or not is_array(array) or array.flags.c_contiguous else stride
            for array, stride in zip(arrays, strides, strict=True)
        ]
        graph, tensor_map = self.graph, TensorMap(self.graph, sizes, shapes, self._constants)
        # A partitioned graph needs no plan for these shapes: each Partition plans its body once the shapes are known.
        if not self._is_partitioned and any(tensor_map.of(value).is_dynamic for value in graph.values()):
            return self._plan_for_shapes(shapes, sizes, input_strides)
        # A graph with an If has no parametric plan, and the sizes may decide the condition.
        self._shape_nodes.evaluate(tensor_map, include_parametric=has_branches(graph))
        if decides_branch(graph, tensor_map):
            return self._plan_for_shapes(shapes, sizes, input_strides)
        plan = make_plan(graph, tensor_map, input_strides, self._options)
        if self._shape_nodes.has_interpreted_step(plan):
            tensor_map = TensorMap(graph, sizes, shapes, self._constants)
            self._shape_nodes.evaluate(tensor_map, include_parametric=True)
            plan = make_plan(graph, tensor_map, input_strides, self._options)
        return plan, graph, tensor_map

    def _plan_for_shapes(
        self, shapes: Sequence[tuple[int, ...] | None], sizes: dict[str, int], input_strides: Strides
    ) -> tuple[Plan, Graph, TensorMap]:
        """Plan a copy of the graph specialized to these shapes, with branches inlined whose condition the shapes decide."""
        # A string input has no shape in a plan, but shapes of results may follow from the shape of the input.
        known = [
            _shape_at(value.type, sizes) if shape is None else shape
            for value, shape in zip(self.graph.inputs, shapes, strict=True)
        ]
        graph = specialize(
            self.graph,
            known,
            self._constants,
            inlining_rule(self._constants),
            partial(rewrite_again, is_foldable=self._is_foldable),
            self._is_foldable,
        )
        tensor_map = TensorMap(graph, {}, shapes, self._constants)
        return make_plan(graph, tensor_map, input_strides, self._options), graph, tensor_map

    def _check_memory(self, plan: Plan) -> None:
        outputs = output_bytes_of(plan)
        largest_buffer = max(plan.buffers, key=lambda buffer: buffer.nbytes, default=None)
        largest = f"; the largest tensor is {largest_buffer.root.name!r} with {largest_buffer.nbytes}" if largest_buffer else ""
        try:
            refuse_memory(
                self.limits,
                plan.arena_bytes + plan.constant_bytes + outputs,
                f"the run (arena {plan.arena_bytes}, outputs {outputs}, tables {plan.constant_bytes}{largest})",
            )
            # A view that repeats elements takes no memory, but the step that reads it takes the time of its full size.
            reads = (x for step in plan.steps for x in step.reads if x is not None and 0 in x.strides)
            views = (x.tensor for x in reads if not x.tensor.is_dynamic)
            view = max(views, key=lambda tensor: tensor.nbytes, default=None)
            if view is not None and view.nbytes >= LARGE:
                refuse_memory(self.limits, view.nbytes, f"{view.name!r}")
        except EngineError as error:
            raise error.at(file=self.model.file) from None

    def __call__(self, inputs: Mapping[str, Array] | Sequence[Array], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        executable, arrays = self.bind(inputs)
        if self._new_ranges:
            self._record_ranges()
        names = [value.name for value in self.model.outputs]
        arrays_out = out
        if self._conversions and out is not None:
            arrays_out = {name: array for name, array in out.items() if names.index(name) not in self._conversions}
        try:
            outputs = executable(arrays, arrays_out, names)
        except MemoryError:
            needed = executable.plan.arena_bytes + output_bytes_of(executable.plan)
            raise EngineError("run.memory", f"cannot allocate {needed} bytes", file=self.model.file) from None
        if self.plan_recorder is not None and self._is_outermost:
            recorder, self.plan_recorder = self.plan_recorder, None
            recorder.finish(executable)
        targets = out or {}
        tensors = zip(outputs, executable.plan.outputs, strict=True)
        dynamic = {name: outputs[name] for name, tensor in tensors if tensor.is_dynamic and name not in targets}
        if dynamic:
            outputs |= copy_shared_outputs(dynamic, arrays)
        self._plan_with_codes(arrays)
        return convert_outputs(self._conversions, outputs, names, out) if self._conversions else outputs


def inputs_at(model: Model, sizes: Mapping[str, int]) -> list[Array]:
    """Return arrays of zeros for the inputs at these symbol sizes. Raises EngineError [argument.value], [run.memory]."""
    shapes = [value.shape if isinstance(value.type, Tensor) else None for value in model.inputs]
    names = {str(symbol) for shape in shapes for dim in shape or () if dim is not None for symbol in symbolic.symbols(dim)}
    unknown = [value.name for value, shape in zip(model.inputs, shapes, strict=True) if shape is None or None in shape]
    if unknown:
        text = f"inputs must have known shapes to be planned for sizes, got unknown shapes of {', '.join(map(repr, unknown))}"
        raise EngineError("argument.value", text, file=model.file)
    is_set = isinstance(sizes, Mapping) and sizes.keys() == names
    if not is_set or not all(type(size) is int and size >= 0 for size in sizes.values()):
        wanted = ", ".join(sorted(names)) or "none"
        raise EngineError(
            "argument.value",
            f"sizes must map exactly the input symbols ({wanted}) to integers >= 0, got {sizes!r}",
            file=model.file,
        )
    found = []
    for value, shape in zip(model.inputs, shapes, strict=True):
        assert shape is not None
        known = [symbolic.evaluate(dim, sizes) for dim in shape if dim is not None]
        refuse_array(known, value.dtype.numpy.itemsize, f"the input {value.name!r}")
        with within_memory(f"the input {value.name!r}", model.file):
            found.append(zeros_of(value, known))
    return found


def _shape_at(type: Type, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """Return the shape of a type at these symbol sizes; None where the sizes do not determine the shape."""
    if not isinstance(type, Tensor) or type.shape is None:
        return None
    shape = [size if isinstance(size, int) else sizes.get(str(size)) for size in type.shape]
    return None if None in shape else tuple(size for size in shape if size is not None)


def _element_strides_of(array: Array) -> tuple[int, ...] | None:
    """Return strides in elements: () for a dense array, None for a misaligned array or strides that split elements."""
    if not is_array(array) or not (flags := array.flags).aligned:
        return None
    if flags.c_contiguous:
        return ()
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        return None
    return tuple(stride // size if length != 1 else 0 for stride, length in zip(array.strides, array.shape, strict=True))


def _exact_test() -> NodeTest:
    # Deferred for start-up time.
    from dovetail.engine.reproducible import is_exact

    return is_exact
