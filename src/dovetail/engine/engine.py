"""A model prepared once and planned for each set of input shapes that comes; what was planned is kept for the next call."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail import native_core
from dovetail.engine.memory.tensor import TensorMap, dense
from dovetail.engine.parametric_plan import ParametricPlan, make_parametric_plan
from dovetail.engine.plan import Plan
from dovetail.engine.plan_log import log_plan
from dovetail.engine.plan_verifier import verify_plan
from dovetail.engine.planner import ELIDE, NonAffineInput, make_plan
from dovetail.engine.rewrite.pipeline import prepare
from dovetail.engine.run.executable import Executable, is_array
from dovetail.engine.run.output_pool import OutputPool
from dovetail.engine.run.subgraphs import compile_subgraphs
from dovetail.engine.shape_specialization import EarlyNodes, specialize, weights_of
from dovetail.errors import EngineError, RuleError
from dovetail.forks import ForkLock
from dovetail.formats import pause_gc
from dovetail.interpreter.interpret import check_inputs, named_inputs, owned, to_array
from dovetail.ir.graph import Graph, Model
from dovetail.ir.types import Tensor
from dovetail.limits import Limits, refuse_memory, within_memory

PLANS = 16
"""How many bound plans a program keeps."""


class Engine:
    """A model prepared once, and bound for each set of input shapes that comes. Calls may come from several threads."""

    def __init__(
        self,
        model: Model,
        threads: int | None = None,
        elide: str = "auto",
        within: Engine | None = None,
    ) -> None:
        if elide not in ELIDE:
            raise EngineError("engine.option", f"elide is one of {', '.join(ELIDE)}, not {elide!r}")
        self.model = model
        self.threads = thread_count(threads)
        self.elide = elide
        self.limits: Limits = within.limits if within else model.limits
        self.graph = prepare(model.graph, file=model.file)
        self._weights = weights_of(self.graph)
        self._early = EarlyNodes(self.graph, self._weights)
        self._executables: OrderedDict[Any, Executable | None] = OrderedDict()
        self._parametric_plans: OrderedDict[Any, ParametricPlan | None] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._lock = ForkLock()
        self._core = native_core.core()
        # A body's program has the threads and the memory of the one around it.
        self._pool: Any = within._pool if within else self._core.Pool(self.threads) if self._core else None
        self._store: Any = within._store if within else self._core.Store() if self._core else None
        self._output_pool = OutputPool()
        if self._core:
            compile_subgraphs(self.graph, lambda body: Engine(body, self.threads, elide, self))

    def bind(self, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Executable, list[Any]]:
        """The bound plan for these inputs, and the inputs as arrays in the model's order."""
        given = named_inputs(self.model, inputs)
        arrays = [to_array(given[value.name], value) for value in self.model.inputs]
        sizes = check_inputs(self.model, arrays)
        with self._lock:
            if self._lock.was_held:
                self._forget()
            try:
                return self._bound_for(arrays, sizes)
            except NonAffineInput:
                return self._bound_for([dense(array) if is_array(array) else array for array in arrays], sizes)

    def _forget(self) -> None:
        """Drop what a thread of this process's parent was planning at a fork."""
        self._lock.was_held = False
        self._executables.clear()
        self._parametric_plans.clear()
        self._sizes = {}
        self._early = EarlyNodes(self.graph, self._weights)

    def _bound_for(self, arrays: list[Any], sizes: dict[str, int]) -> tuple[Executable, list[Any]]:
        strides = [_strides(array) for array in arrays]
        arrays = [
            dense(array) if is_array(array) and stride is None else array for array, stride in zip(arrays, strides, strict=True)
        ]
        key: tuple[Any, ...] = tuple(
            (array.shape, stride) if is_array(array) else None for array, stride in zip(arrays, strides, strict=True)
        )
        if None in key:
            # What is no array may say sizes too.
            key = (*key, *sorted(sizes.items()))
        if key not in self._executables:
            try:
                with within_memory("the plan", self.model.file):
                    self._executables[key] = self._from_template(arrays, sizes) or self._made(arrays, sizes, strides)
            except NonAffineInput:
                self._executables[key] = None
            while len(self._executables) > PLANS:
                self._executables.popitem(last=False)
        self._executables.move_to_end(key)
        found = self._executables[key]
        if found is None:
            raise NonAffineInput
        return found, arrays

    def plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[Plan, TensorMap]:
        """The plan for inputs of these shapes; symbols that nothing is said of are 1."""
        arrays = []
        for value in self.model.inputs:
            if not isinstance(value.type, Tensor) or value.type.shape is None or value.type.dtype is None:
                raise EngineError("input.shape", f"input {value.name!r} is {value.type}: say its shape")
            shape = (shapes or {}).get(value.name) or [size if isinstance(size, int) else 1 for size in value.type.shape]
            arrays.append(np.broadcast_to(np.zeros((), value.type.dtype.numpy), tuple(shape)))
        plan, _, tensor_map = self._planned(arrays, check_inputs(self.model, arrays), [None] * len(arrays))
        return plan, tensor_map

    def _from_template(self, arrays: Sequence[Any], sizes: dict[str, int]) -> Executable | None:
        """The bound plan for a size that changed since the last one and nothing else did, from a template."""
        before, self._sizes = self._sizes, dict(sizes)
        if self._core is None or not all(is_array(array) and array.flags.c_contiguous for array in arrays):
            return None
        changed = [name for name, size in sizes.items() if before.get(name) != size]
        if len(changed) != 1 or before.keys() != sizes.keys() or sizes[changed[0]] < 2:
            return None
        symbol = changed[0]
        key = (symbol, *sorted(item for item in sizes.items() if item[0] != symbol))
        parametric_plan = self._parametric_plans.get(key)
        if key not in self._parametric_plans or (
            parametric_plan is not None and not parametric_plan.first <= sizes[symbol] <= parametric_plan.last
        ):
            parametric_plan = self._parametric_plans[key] = self._template(symbol, sizes)
            while len(self._parametric_plans) > PLANS:
                self._parametric_plans.popitem(last=False)
        if parametric_plan is None:
            return None
        plan, fill = parametric_plan.at(sizes[symbol])
        self._check_memory(plan)
        try:
            tensor_map = TensorMap(self.graph, sizes, [array.shape for array in arrays], self._weights)
            return Executable(plan, tensor_map, arrays, self._core, self._pool, self._store, self._output_pool, fill)
        except ValueError:
            # A kernel that takes the template's sizes and not these: they are planned for themselves.
            return None

    def _template(self, symbol: str, sizes: dict[str, int]) -> ParametricPlan | None:
        try:
            with pause_gc():
                return make_parametric_plan(self.graph, symbol, sizes, self.elide, self._core, self._early)
        except RuleError:
            # A rule that refuses other sizes than those of this run.
            return None

    def _made(self, arrays: Sequence[Any], sizes: dict[str, int], strides: Sequence[Any]) -> Executable:
        plan, graph, tensor_map = self._planned(arrays, sizes, strides)
        self._check_memory(plan)
        verify_plan(plan, graph, tensor_map)
        log_plan(plan, self.model.file, sizes)
        return Executable(plan, tensor_map, arrays, self._core, self._pool, self._store, self._output_pool)

    def _planned(self, arrays: Sequence[Any], sizes: dict[str, int], strides: Sequence[Any]) -> tuple[Plan, Graph, TensorMap]:
        with pause_gc():
            return self._planned_at_once(arrays, sizes, strides)

    def _planned_at_once(
        self, arrays: Sequence[Any], sizes: dict[str, int], strides: Sequence[Any]
    ) -> tuple[Plan, Graph, TensorMap]:
        shapes = [tuple(array.shape) if is_array(array) else None for array in arrays]
        steps = [
            None if stride is None or not is_array(array) or array.flags.c_contiguous else stride
            for array, stride in zip(arrays, strides, strict=True)
        ]
        graph, tensor_map = self.graph, TensorMap(self.graph, sizes, shapes, self._weights)
        if any(tensor_map.of(value).is_dynamic for value in graph.values()):
            graph = specialize(graph, shapes, self._weights)
            tensor_map = TensorMap(graph, {}, shapes, self._weights)
            return make_plan(graph, tensor_map, steps, self.elide), graph, tensor_map
        self._early.evaluate(tensor_map)
        plan = make_plan(graph, tensor_map, steps, self.elide)
        if self._early.lack_kernels(plan):
            tensor_map = TensorMap(graph, sizes, shapes, self._weights)
            self._early.evaluate(tensor_map, all_=True)
            plan = make_plan(graph, tensor_map, steps, self.elide)
        return plan, graph, tensor_map

    def _check_memory(self, plan: Plan) -> None:
        outputs = sum(tensor.nbytes for tensor in plan.outputs if not tensor.is_dynamic)
        most = max(plan.buffers, key=lambda buffer: buffer.nbytes, default=None)
        largest = f"; the largest tensor is {most.root.name!r} with {most.nbytes}" if most else ""
        try:
            refuse_memory(
                self.limits,
                plan.arena_bytes + plan.constant_bytes + outputs,
                f"the run (arena {plan.arena_bytes}, outputs {outputs}, tables {plan.constant_bytes}{largest})",
            )
        except EngineError as error:
            raise error.at(file=self.model.file) from None

    def __call__(self, inputs: Mapping[str, Any] | Sequence[Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        executable, arrays = self.bind(inputs)
        try:
            found = executable(arrays, out, [value.name for value in self.model.outputs])
        except MemoryError:
            needed = executable.plan.arena_bytes + sum(
                tensor.nbytes for tensor in executable.plan.outputs if not tensor.is_dynamic
            )
            raise EngineError("run.memory", f"{needed} bytes cannot be had", file=self.model.file) from None
        written = out or {}
        outputs = zip(found, executable.plan.outputs, strict=True)
        dynamic = {name: found[name] for name, tensor in outputs if tensor.is_dynamic and name not in written}
        return found | owned(dynamic, arrays) if dynamic else found


def thread_count(threads: int | None) -> int:
    """``threads``, else what DOVETAIL_THREADS says, else as many as this process may run on."""
    if threads is None:
        said = os.environ.get("DOVETAIL_THREADS", "")
        if said and not said.isdigit():
            raise EngineError("engine.threads", f"DOVETAIL_THREADS is {said!r}, which is no number")
        threads = int(said) if said else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(threads, int) or threads < 1:
        raise EngineError("engine.threads", f"threads must be an integer of at least 1, got {threads!r}")
    return threads


def _strides(array: Any) -> tuple[int, ...] | None:
    """Strides in elements, where they are whole numbers of elements; () for a dense array."""
    if not is_array(array) or not (flags := array.flags).aligned:
        return None
    if flags.c_contiguous:
        return ()
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        return None
    return tuple(stride // size if length != 1 else 0 for stride, length in zip(array.strides, array.shape, strict=True))
