"""A plan bound to memory and threads: its steps made, natively where a kernel takes them, and run at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap
from dovetail.engine.plan import Plan, Step
from dovetail.engine.run.output_pool import OutputPool
from dovetail.engine.run.python_steps import Find, finder, python_step
from dovetail.engine.run.step_encoding import extent, spec
from dovetail.errors import EngineError
from dovetail.interpreter.interpret import put_into
from dovetail.limits import Usage, active


@dataclass(eq=False, slots=True)
class ExecutionContext:
    """One call: the memory it has, where everything lies in it, and the loose tensors that Python holds.

    ``memory`` is the core's Visit, which runs native steps; where there is no core, an arena and nothing else.
    """

    memory: Any
    addresses: list[int]
    results: list[Any]
    dynamic: dict[RunTensor, Any]
    find: Find


Piece = Callable[["Executable", ExecutionContext], None]
"""A run of native steps, or one step in Python. It does not hold the Bound that it is part of: those of a loop whose sizes grow
would all wait for the collector of cycles."""


class Executable:
    """A plan whose steps are made. Holds the constants that the steps read. ``fill`` gives all steps to the core at once.

    ``arrays``: inputs as those of every call lie in memory.
    """

    def __init__(
        self,
        plan: Plan,
        tensor_map: TensorMap,
        arrays: Sequence[Any],
        core: Any,
        pool: Any,
        store: Any,
        output_pool: OutputPool,
        fill: Callable[[Any], None] | None = None,
    ) -> None:
        self.plan = plan
        self.tensor_map = tensor_map
        self._output_pool = output_pool
        self.native_steps: list[Step] = []
        self.python_steps: list[tuple[Step, str]] = []
        self._core = core
        self._program = core.Program(pool, store, plan.arena_bytes, _extents(plan, arrays)) if core else None
        self._addresses: Callable[[list[Any]], list[int]] = getattr(core, "addresses", _addresses)
        self._pieces: list[Piece] = []
        # The native steps of each piece, from the first to the one after the last; None: a step in Python.
        self._spans: list[tuple[int, int] | None] = []
        if fill is not None:
            fill(self._program)
            self.native_steps = plan.steps
            self._run_until(0)
        else:
            self._build()

    def _build(self) -> None:
        first = 0
        for step in self.plan.steps:
            refusal = self._add(step)
            if not refusal:
                self.native_steps.append(step)
                continue
            self._run_until(first)
            first = len(self.native_steps)
            self.python_steps.append((step, refusal))
            self._pieces.append(self._in_python(step))
            self._spans.append(None)
        self._run_until(first)

    def _add(self, step: Step) -> str:
        """Give a step to the core. Returns why that cannot be."""
        if step.kernel == INTERPRET:
            return step.reason
        if self._program is None:
            return "no native core"
        try:
            self._program.add(*spec(step), self.tensor_map.shares(step.constants()))
        except ValueError as error:
            return str(error)
        return ""

    def _run_until(self, first: int) -> None:
        last = len(self.native_steps)
        if last > first:
            self._pieces.append(lambda executable, context: executable._run_native(context, first, last))
            self._spans.append((first, last))

    def _run_native(self, context: ExecutionContext, first: int, last: int) -> None:
        try:
            context.memory.run(context.addresses, first, last)
        except self._core.StepFailed as failure:
            number, code = failure.args
            step = self.native_steps[number]
            # The operator's own rule knows the reason in full.
            python_step(step, self.tensor_map)(context.find, context.dynamic)
            raise EngineError(code, f"{step.label} failed", node=step.label) from None

    def _in_python(self, step: Step) -> Piece:
        run = python_step(step, self.tensor_map)
        return lambda _, context: run(context.find, context.dynamic)

    def __call__(self, arrays: Sequence[Any], out: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any]:
        usage = active()
        if usage is not None:
            return self._run_within(usage, arrays, out, names)
        context = self.create_context(arrays, out, names)
        for piece in self._pieces:
            piece(self, context)
        return self._results(context, out, names)

    def _run_within(
        self, usage: Usage, arrays: Sequence[Any], out: Mapping[str, Any] | None, names: Sequence[str]
    ) -> dict[str, Any]:
        """A call that looks at the time between steps, and counts its memory beside that of the run it is a part of."""
        before, plan = usage.memory, self.plan
        try:
            usage.hold(
                plan.arena_bytes + plan.constant_bytes + sum(tensor.nbytes for tensor in plan.outputs if not tensor.is_dynamic),
                "the run",
            )
            context = self.create_context(arrays, out, names)
            for piece, span in zip(self._pieces, self._spans, strict=True):
                if span is None:
                    usage.check_time()
                    piece(self, context)
                    continue
                if usage.deadline is None:
                    piece(self, context)
                    continue
                for place in range(*span):
                    usage.check_time()
                    self._run_native(context, place, place + 1)
            usage.check_time()
            return self._results(context, out, names)
        finally:
            usage.memory = before

    def _results(self, context: ExecutionContext, out: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any]:
        return {
            name: self._delivered(tensor, name, result, context.dynamic, out)
            for tensor, name, result in zip(self.plan.outputs, names, context.results, strict=True)
        }

    def create_context(self, arrays: Sequence[Any], out: Mapping[str, Any] | None, names: Sequence[str]) -> ExecutionContext:
        """What a call needs, before any step has run."""
        self._output_pool.begin()
        dynamic = {tensor: array for tensor, array in zip(self.plan.inputs, arrays, strict=True) if tensor.is_dynamic}
        results = [self._result(tensor, name, arrays, out) for tensor, name in zip(self.plan.outputs, names, strict=True)]
        memory = self._core.Visit(self._program) if self._core else _PythonArena(self.plan.arena_bytes)
        addresses = [memory.arena, *self._addresses([*arrays, *results])]
        return ExecutionContext(memory, addresses, results, dynamic, finder(addresses, dynamic))

    def names(self) -> list[str]:
        """What the core calls its steps."""
        return list(self._program.names()) if self._program is not None else []

    def _result(self, tensor: RunTensor, name: str, arrays: Sequence[Any], out: Mapping[str, Any] | None) -> Any:
        if tensor.is_dynamic:
            return None
        assert tensor.dtype is not None
        given = None if out is None else out.get(name)
        if given is None:
            return self._output_pool.array(tensor.sizes, tensor.dtype.numpy)
        if (
            not isinstance(given, np.ndarray)
            or given.dtype != tensor.dtype.numpy
            or given.shape != tensor.sizes
            or not given.flags.writeable
        ):
            raise EngineError(
                "output.array", f"out[{name!r}] should be a writable {tensor.dtype} array of shape {list(tensor.sizes)}"
            )
        direct = given.flags.carray and not any(is_array(each) and np.may_share_memory(given, each) for each in arrays)
        return given if direct else self._output_pool.array(tensor.sizes, tensor.dtype.numpy)

    def _delivered(
        self, tensor: RunTensor, name: str, result: Any, dynamic: dict[RunTensor, Any], out: Mapping[str, Any] | None
    ) -> Any:
        given = None if out is None else out.get(name)
        if tensor.is_dynamic:
            found = dynamic.get(tensor, tensor.data)
            return found if given is None else put_into(given, found, name)
        if given is None or given is result:
            return result
        given[...] = result
        return given


class _PythonArena:
    """An arena where there is no core to keep one."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(max(nbytes, 1), np.uint8)
        self.arena = self._memory.__array_interface__["data"][0]


def _extents(plan: Plan, arrays: Sequence[Any]) -> list[tuple[int, int]]:
    """The bytes of each input and output, counted from the address of its first element."""
    inputs = [extent(array) if is_array(array) else (0, 0) for array in arrays]
    return [*inputs, *((0, 0 if tensor.is_dynamic else tensor.nbytes) for tensor in plan.outputs)]


def _addresses(items: list[Any]) -> list[int]:
    return list(map(_address, items))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else 0


def is_array(item: Any) -> bool:
    """Whether something is an array of plain elements, which kernels read where it lies."""
    return isinstance(item, np.ndarray) and item.dtype.kind != "O"
