"""A model prepared once and planned for each set of input shapes that comes; what was planned is kept for the next call."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail import native_core
from dovetail.engine.memory.tensor import Scene, dense
from dovetail.engine.parametric_plan import Template, make_template
from dovetail.engine.plan import Plan
from dovetail.engine.plan_verifier import verify_plan
from dovetail.engine.planner import ELIDE, UnevenInput, make_plan
from dovetail.engine.rewrite.pipeline import prepare
from dovetail.engine.run.executable import Bound, is_array
from dovetail.engine.run.output_pool import Shelf
from dovetail.engine.run.subgraphs import plan_bodies
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
        self._bound: OrderedDict[Any, Bound | None] = OrderedDict()
        self._templates: OrderedDict[Any, Template | None] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._lock = ForkLock()
        self._core = native_core.core()
        # A body's program has the threads and the memory of the one around it.
        self._pool: Any = within._pool if within else self._core.Pool(self.threads) if self._core else None
        self._store: Any = within._store if within else self._core.Store() if self._core else None
        self._shelf = Shelf()
        if self._core:
            plan_bodies(self.graph, lambda body: Engine(body, self.threads, elide, self))

    def bind(self, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Bound, list[Any]]:
        """The bound plan for these inputs, and the inputs as arrays in the model's order."""
        given = named_inputs(self.model, inputs)
        arrays = [to_array(given[value.name], value) for value in self.model.inputs]
        sizes = check_inputs(self.model, arrays)
        with self._lock:
            if self._lock.was_held:
                self._forget()
            try:
                return self._bound_for(arrays, sizes)
            except UnevenInput:
                return self._bound_for([dense(array) if is_array(array) else array for array in arrays], sizes)

    def _forget(self) -> None:
        """Drop what a thread of this process's parent was planning at a fork."""
        self._lock.was_held = False
        self._bound.clear()
        self._templates.clear()
        self._sizes = {}
        self._early = EarlyNodes(self.graph, self._weights)

    def _bound_for(self, arrays: list[Any], sizes: dict[str, int]) -> tuple[Bound, list[Any]]:
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
        if key not in self._bound:
            try:
                with within_memory("the plan", self.model.file):
                    self._bound[key] = self._from_template(arrays, sizes) or self._made(arrays, sizes, strides)
            except UnevenInput:
                self._bound[key] = None
            while len(self._bound) > PLANS:
                self._bound.popitem(last=False)
        self._bound.move_to_end(key)
        found = self._bound[key]
        if found is None:
            raise UnevenInput
        return found, arrays

    def plan(self, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[Plan, Scene]:
        """The plan for inputs of these shapes; symbols that nothing is said of are 1."""
        arrays = []
        for value in self.model.inputs:
            if not isinstance(value.type, Tensor) or value.type.shape is None or value.type.dtype is None:
                raise EngineError("input.shape", f"input {value.name!r} is {value.type}: say its shape")
            shape = (shapes or {}).get(value.name) or [size if isinstance(size, int) else 1 for size in value.type.shape]
            arrays.append(np.broadcast_to(np.zeros((), value.type.dtype.numpy), tuple(shape)))
        plan, _, scene = self._planned(arrays, check_inputs(self.model, arrays), [None] * len(arrays))
        return plan, scene

    def _from_template(self, arrays: Sequence[Any], sizes: dict[str, int]) -> Bound | None:
        """The bound plan for a size that changed since the last one and nothing else did, from a template."""
        before, self._sizes = self._sizes, dict(sizes)
        if self._core is None or not all(is_array(array) and array.flags.c_contiguous for array in arrays):
            return None
        changed = [name for name, size in sizes.items() if before.get(name) != size]
        if len(changed) != 1 or before.keys() != sizes.keys() or sizes[changed[0]] < 2:
            return None
        symbol = changed[0]
        key = (symbol, *sorted(item for item in sizes.items() if item[0] != symbol))
        template = self._templates.get(key)
        if key not in self._templates or (template is not None and not template.first <= sizes[symbol] <= template.last):
            template = self._templates[key] = self._template(symbol, sizes)
            while len(self._templates) > PLANS:
                self._templates.popitem(last=False)
        if template is None:
            return None
        plan, fill = template.at(sizes[symbol])
        self._check_memory(plan)
        try:
            scene = Scene(self.graph, sizes, [array.shape for array in arrays], self._weights)
            return Bound(plan, scene, arrays, self._core, self._pool, self._store, self._shelf, fill)
        except ValueError:
            # A kernel that takes the template's sizes and not these: they are planned for themselves.
            return None

    def _template(self, symbol: str, sizes: dict[str, int]) -> Template | None:
        try:
            with pause_gc():
                return make_template(self.graph, symbol, sizes, self.elide, self._core, self._early)
        except RuleError:
            # A rule that refuses other sizes than those of this run.
            return None

    def _made(self, arrays: Sequence[Any], sizes: dict[str, int], strides: Sequence[Any]) -> Bound:
        plan, graph, scene = self._planned(arrays, sizes, strides)
        self._check_memory(plan)
        verify_plan(plan, graph, scene)
        return Bound(plan, scene, arrays, self._core, self._pool, self._store, self._shelf)

    def _planned(self, arrays: Sequence[Any], sizes: dict[str, int], strides: Sequence[Any]) -> tuple[Plan, Graph, Scene]:
        with pause_gc():
            return self._planned_at_once(arrays, sizes, strides)

    def _planned_at_once(self, arrays: Sequence[Any], sizes: dict[str, int], strides: Sequence[Any]) -> tuple[Plan, Graph, Scene]:
        shapes = [tuple(array.shape) if is_array(array) else None for array in arrays]
        steps = [
            None if stride is None or not is_array(array) or array.flags.c_contiguous else stride
            for array, stride in zip(arrays, strides, strict=True)
        ]
        graph, scene = self.graph, Scene(self.graph, sizes, shapes, self._weights)
        if any(scene.tile(value).is_loose for value in graph.values()):
            graph = specialize(graph, shapes, self._weights)
            scene = Scene(graph, {}, shapes, self._weights)
            return make_plan(graph, scene, steps, self.elide), graph, scene
        self._early.evaluate(scene)
        plan = make_plan(graph, scene, steps, self.elide)
        if self._early.lack_kernels(plan):
            scene = Scene(graph, sizes, shapes, self._weights)
            self._early.evaluate(scene, all_=True)
            plan = make_plan(graph, scene, steps, self.elide)
        return plan, graph, scene

    def _check_memory(self, plan: Plan) -> None:
        outputs = sum(tile.nbytes for tile in plan.outputs if not tile.is_loose)
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
        bound, arrays = self.bind(inputs)
        try:
            found = bound(arrays, out, [value.name for value in self.model.outputs])
        except MemoryError:
            needed = bound.plan.arena_bytes + sum(tile.nbytes for tile in bound.plan.outputs if not tile.is_loose)
            raise EngineError("run.memory", f"{needed} bytes cannot be had", file=self.model.file) from None
        written = out or {}
        outputs = zip(found, bound.plan.outputs, strict=True)
        loose = {name: found[name] for name, tile in outputs if tile.is_loose and name not in written}
        return found | owned(loose, arrays) if loose else found


def thread_count(threads: int | None) -> int:
    """``threads``, else what DOVETAIL_THREADS says, else as many as this process may run on."""
    if threads is None:
        said = os.environ.get("DOVETAIL_THREADS", "")
        if said and not said.isdigit():
            raise EngineError("engine.threads", f"DOVETAIL_THREADS is {said!r}, which is no number")
        threads = int(said) if said else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise EngineError("engine.threads", f"{threads} threads; at least one is needed")
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
