"""Executable: a plan bound to memory and threads. Each call runs the steps, as native kernels where a kernel exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap, is_array
from dovetail.engine.plan import Plan, Step
from dovetail.engine.run.control_flow import ControlStep, control_step
from dovetail.engine.run.python_steps import OperandReader, operand_reader, python_step
from dovetail.engine.run.step_encoding import encode_step, extent_of
from dovetail.engine.run.subgraphs import Subgraph
from dovetail.errors import EngineError
from dovetail.ir.arrays import Array
from dovetail.ir.inputs_outputs import copy_into
from dovetail.ir.limits import DEFAULT, Usage, active
from dovetail.storage.mapped_files import release_pages

RUN_TIME, LOOP_TRIPS = "run.time", "loop.trips"
"""Codes of limits that the core reports."""


@dataclass(eq=False, slots=True)
class ExecutionContext:
    """ExecutionContext is the state of one call: arena, addresses of all buffers, and the dynamic tensors that Python holds.

    ``execution`` is the core's Execution, which runs native steps and owns the arena; without a core, a :class:`_PythonArena`.
    """

    execution: Any
    addresses: list[int]
    results: list[Array]
    dynamic: dict[RunTensor, Array]
    read_operand: OperandReader


class Segment(NamedTuple):
    """Segment is a sequence of native steps (``steps``: first, and one past the last), or one Python step (``steps``: None).

    ``run`` takes the Executable as an argument, because a stored reference would be a cycle. The executables of a loop whose
    sizes grow would then all wait for the cyclic garbage collector.
    """

    run: Callable[[Executable, ExecutionContext], None]
    steps: tuple[int, int] | None


SharedPorts = tuple[int, int, Sequence[int]]
"""The index of an input, the index of an output that may share the input's memory, and a permutation of axes.

The permutation is used if the output is the input extended by further rows: it lists the axes of the caller's array in the order
of the model's axes."""


@dataclass(eq=False, slots=True)
class CopyCount:
    """CopyCount holds the bytes of results copied into arrays that could have received the results in place."""

    nbytes: int = 0


class NeedsOwnPlan(Exception):
    """NeedsOwnPlan reports that a step of a parametric plan failed; only a plan made for the call's sizes shows the reason."""


class Executable:
    """Executable is a plan with its kernels, and keeps the constants that the steps read alive.

    ``arrays``: example inputs, whose memory layout the inputs of every call have. ``fill`` adds all steps of a parametric plan to
    the core's program; ``make_own`` then returns an executable with a separate plan for the sizes of its argument.

    ``shared``: inputs and outputs that may use the same memory. Where the steps do not allow this, the output is copied into its
    target after the run, and ``copies`` counts the bytes.
    """

    def __init__(
        self,
        plan: Plan,
        tensor_map: TensorMap,
        arrays: Sequence[Array],
        core: ModuleType | None,
        pool: object,
        weight_cache: object,
        arena_pool: object,
        output_pool: Any,
        fill: Callable[[object], None] | None = None,
        shared: Sequence[SharedPorts] = (),
        copies: CopyCount | None = None,
        make_own: Callable[[Sequence[Array]], Executable] | None = None,
    ) -> None:
        self.plan = plan
        self.has_own_plan = fill is None
        self._make_own = make_own
        self.tensor_map = tensor_map
        self._output_pool = output_pool
        self.native_steps: list[Step] = []
        self.python_steps: list[tuple[Step, str]] = []
        self._core = core
        ranges = _extents_of(plan, arrays) if core else []
        self.has_dense_inputs = all(is_array(array) and array.flags.c_contiguous for array in arrays)
        self.program = core.Program(pool, weight_cache, arena_pool, plan.arena_bytes, ranges) if core else None
        self._copies = CopyCount() if copies is None else copies
        if self.program is not None:
            for number, output, _ in shared:
                self.program.ask_sharing(1 + number, 1 + len(plan.inputs) + output)
        self._addresses: Callable[[list[Array]], list[int]] = getattr(core, "addresses", _addresses_of)
        self.subprograms: list[Executable] = []
        self._controls: dict[int, ControlStep] = {}
        if fill is not None:
            fill(self.program)
            self.native_steps = list(plan.steps)
            for step in plan.steps:
                _release_pages_of(step)
            numbers: list[int | None] = list(range(len(plan.steps)))
        else:
            numbers = [self._add_step(step) for step in plan.steps]
        self._numbers = numbers
        self.constants: list[Any] = [data for step in plan.steps for data in step.constants()]
        self.constants += [data for control in self._controls.values() for data in control.constants]
        self._shared_outputs = [plan.outputs[output] for _, output, _ in shared]
        self._shared = {output: number for number, output, _ in shared if self._allows_sharing(number, output)}
        self._segments = self._make_segments()

    def _allows_sharing(self, number: int, output: int) -> bool:
        """Return whether an output may be written into an input's memory without a step reading overwritten input elements."""
        if self.program is None or self.python_steps:
            return False
        sharing: str = self.program.sharing(1 + number, 1 + len(self.plan.inputs) + output)
        return sharing != "none"

    @property
    def is_native(self) -> bool:
        """True if the core runs all steps, including the steps of subgraphs."""
        return self.program is not None and not self.python_steps and all(each.is_native for each in self.subprograms)

    @property
    def has_control(self) -> bool:
        """True if an If or a Loop is a native step."""
        return bool(self._controls)

    @property
    def run_bytes(self) -> int:
        """The bytes of the arena, the tables and the outputs of a run."""
        return self.plan.arena_bytes + self.plan.constant_bytes + output_bytes_of(self.plan)

    def _add_step(self, step: Step) -> int | None:
        """Add a step of the plan; return its index among the native steps, or None for a step in Python."""
        refusal = self._add_native(step)
        if refusal:
            self.python_steps.append((step, refusal))
            return None
        self.native_steps.append(step)
        return len(self.native_steps) - 1

    def numbered_steps(self) -> list[tuple[Step, int | None]]:
        """Return the steps of the plan, each with its index among the native steps, or with None for a step in Python."""
        return list(zip(self.plan.steps, self._numbers, strict=True))

    def _make_segments(self) -> list[Segment]:
        segments: list[Segment] = []
        for is_native, steps in groupby(self.numbered_steps(), lambda row: row[1] is not None):
            rows = list(steps)
            if is_native:
                numbers = [number for _, number in rows if number is not None]
                segments.append(self._native_segment(numbers[0], numbers[-1] + 1))
            else:
                segments += [self._python_segment(step) for step, _ in rows]
        return segments

    def _add_native(self, step: Step) -> str:
        """Add a step to the core's program; return the reason if the core has no kernel for the step, else ""."""
        if self.program is None:
            return step.reason if step.kernel == INTERPRET else "no native core"
        try:
            if step.kernel == INTERPRET:
                control = control_step(len(self.native_steps), step, self.tensor_map, self.program)
                if control is None:
                    return step.reason
                self._controls[control.number] = control
                return ""
            self.program.add(*encode_step(step), self.tensor_map.shares(step.constants()))
        except ValueError as error:
            return str(error)
        _release_pages_of(step)
        return ""

    def _native_segment(self, first: int, last: int) -> Segment:
        return Segment(lambda executable, context: executable._run_native(context, first, last), (first, last))

    def _run_native(self, context: ExecutionContext, first: int, last: int) -> None:
        assert self._core is not None
        while first < last:
            try:
                self._run_steps(context, first, last)
                break
            except self._core.StepFailed as failure:
                number, code = failure.args
                first = self._resume(context, number, code)

    def _run_steps(self, context: ExecutionContext, first: int, last: int) -> None:
        """Run native steps in the core, within the remaining limits."""
        usage = active()
        if usage is None:
            context.execution.run(context.addresses, first, last, DEFAULT.trips, 0)
            return
        deadline = 0 if usage.deadline is None else int(usage.deadline * 1e9)
        usage.trips += context.execution.run(context.addresses, first, last, max(0, usage.limits.trips - usage.trips), deadline)

    def _resume(self, context: ExecutionContext, number: int, code: str) -> int:
        """Continue after a step that failed in the core; return the index of the step at which to continue.

        A kernel reports only a code; the evaluation of the operator in Python raises the complete error.
        """
        usage, step, control = active(), self.native_steps[number], self._controls.get(number)
        limits = DEFAULT if usage is None else usage.limits
        if code == RUN_TIME:
            raise EngineError(code, f"the run takes too long; {limits.describe('seconds')}")
        if control is not None and code == LOOP_TRIPS:
            raise EngineError(
                code, f"the loops of one run make more than {limits.trips} trips; {limits.describe('trips')}", node=step.label
            )
        assert self._core is not None
        is_unbound = control is not None and code == self._core.UNBOUND
        is_bound = control.bind(self, context.read_operand) if control is not None and is_unbound else None
        if is_bound:
            return number
        if not self.has_own_plan:
            # The steps of a parametric plan have the operands of other sizes, so that Python cannot run them.
            raise NeedsOwnPlan
        python_step(step, self.tensor_map)(context.read_operand, context.dynamic)
        if control is None:
            raise EngineError(code, f"{step.label} failed", node=step.label) from None
        if is_unbound and (is_bound is not None or not control.is_native):
            self._leave_to_python(number, step)
        return number + 1

    def _leave_to_python(self, number: int, step: Step) -> None:
        """Run a step in Python from now on. The step's kernel stays in the core's program but no longer runs."""
        if number not in self._numbers:
            # Another thread has already moved the step to Python.
            return
        self._numbers = [None if other == number else other for other in self._numbers]
        self.python_steps.append((step, step.reason))
        self._segments = self._make_segments()

    def _python_segment(self, step: Step) -> Segment:
        run = python_step(step, self.tensor_map)
        return Segment(lambda _, context: run(context.read_operand, context.dynamic), None)

    def __call__(self, arrays: Sequence[Array], out: Mapping[str, Array] | None, names: Sequence[str]) -> dict[str, Array]:
        try:
            return self._call(arrays, out, names)
        except NeedsOwnPlan:
            assert self._make_own is not None
            return self._make_own(arrays)(arrays, out, names)

    def _call(self, arrays: Sequence[Array], out: Mapping[str, Array] | None, names: Sequence[str]) -> dict[str, Array]:
        usage = active()
        if usage is not None:
            return self._run_within_limits(usage, arrays, out, names)
        context = self.create_context(arrays, out, names)
        for segment in self._segments:
            segment.run(self, context)
        return self._outputs_of(context, out, names)

    def _run_within_limits(
        self, usage: Usage, arrays: Sequence[Array], out: Mapping[str, Array] | None, names: Sequence[str]
    ) -> dict[str, Array]:
        """Run within limits: check the time between steps, and add this call's memory to the memory of the enclosing run."""
        before = usage.memory
        try:
            usage.count_memory(self.run_bytes, "the run")
            context = self.create_context(arrays, out, names)
            for segment in self._segments:
                usage.check_time()
                segment.run(self, context)
            usage.check_time()
            return self._outputs_of(context, out, names)
        finally:
            usage.memory = before

    def _outputs_of(self, context: ExecutionContext, out: Mapping[str, Array] | None, names: Sequence[str]) -> dict[str, Array]:
        return {
            name: self._deliver(tensor, name, result, context.dynamic, out)
            for tensor, name, result in zip(self.plan.outputs, names, context.results, strict=True)
        }

    def create_context(self, arrays: Sequence[Array], out: Mapping[str, Array] | None, names: Sequence[str]) -> ExecutionContext:
        """Return the context of a call before its first step: arena, output arrays and addresses."""
        if self._output_pool is not None:
            self._output_pool.begin_call()
        dynamic = {tensor: array for tensor, array in zip(self.plan.inputs, arrays, strict=True) if tensor.is_dynamic}
        results = [
            self._result_array(tensor, name, arrays, out, self._shared.get(index))
            for index, (tensor, name) in enumerate(zip(self.plan.outputs, names, strict=True))
        ]
        execution = self._core.Execution(self.program) if self._core else _PythonArena(self.plan.arena_bytes)
        addresses = [execution.arena, *self._addresses([*arrays, *results])]
        return ExecutionContext(execution, addresses, results, dynamic, operand_reader(addresses, dynamic))

    def outputs_of(self, context: ExecutionContext, names: Sequence[str]) -> dict[str, Array]:
        """Return the outputs of a call after its last step, as separate arrays."""
        return self._outputs_of(context, None, names)

    def native_subgraphs(self) -> Iterator[tuple[Subgraph, Executable]]:
        """Yield the subgraphs of If and Loop among the native steps, with the executables that the core runs for them."""
        for control in self._controls.values():
            yield from control.programs()

    def control_of(self, number: int) -> ControlStep | None:
        """Return the If or Loop that is the native step of index ``number``; None for another step."""
        return self._controls.get(number)

    def multiply_adds(self) -> list[int | None]:
        """Return the multiply-adds that each step performs; None for a step whose operators' definitions give the number."""
        counts = self.program.multiply_adds() if self.program else []
        return [None if number is None or counts[number] < 0 else counts[number] for number in self._numbers]

    def names(self) -> list[str]:
        """Return the names under which the core reports the native steps, in the plan's order."""
        if self.program is None:
            return []
        names = self.program.names()
        return [names[number] for number in self._numbers if number is not None]

    def _result_array(
        self, tensor: RunTensor, name: str, arrays: Sequence[Array], out: Mapping[str, Array] | None, shared: int | None
    ) -> Array:
        """Return the array into which the steps write an output: the caller's if it is contiguous and overlaps no input.

        The caller's array may have the address of the input ``shared``.
        """
        if tensor.is_dynamic:
            return None
        assert tensor.dtype is not None
        target = None if out is None else out.get(name)
        if target is None:
            return self._allocate(tensor)
        if (
            not isinstance(target, np.ndarray)
            or target.dtype != tensor.dtype.numpy
            or target.shape != tensor.sizes
            or not target.flags.writeable
        ):
            raise EngineError(
                "output.array", f"out[{name!r}] must be a writable {tensor.dtype} array of shape {list(tensor.sizes)}"
            )
        is_direct = target.flags.carray and not any(
            is_array(array) and np.may_share_memory(target, array) and not (index == shared and has_same_address(target, array))
            for index, array in enumerate(arrays)
        )
        return target if is_direct else self._allocate(tensor)

    def _allocate(self, tensor: RunTensor) -> Array:
        """Return an uninitialized array, allocated in the core's output pool if the core is compiled."""
        assert tensor.dtype is not None
        if self._output_pool is None:
            return np.empty(tensor.sizes, tensor.dtype.numpy)
        return self._output_pool.allocate(tensor.sizes, tensor.dtype.numpy)

    def _deliver(
        self, tensor: RunTensor, name: str, result: Array, dynamic: dict[RunTensor, Array], out: Mapping[str, Array] | None
    ) -> Array:
        """Return an output for the caller; copy it into the caller's array if the steps did not write into that array."""
        target = None if out is None else out.get(name)
        if tensor.is_dynamic:
            array = dynamic.get(tensor, tensor.data)
            return array if target is None else copy_into(target, array, name)
        if target is None or target is result:
            return result
        target[...] = result
        if tensor in self._shared_outputs:
            self._copies.nbytes += target.nbytes
        return target


def has_same_address(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Return whether the first elements of two arrays have the same address."""
    first, second = (array.__array_interface__["data"][0] for array in (one, other))
    return bool(first == second)


class _PythonArena:
    """_PythonArena is the arena of an Executable without a native core."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(max(nbytes, 1), np.uint8)
        self.arena = self._memory.__array_interface__["data"][0]


def output_bytes_of(plan: Plan) -> int:
    """Return the bytes of the outputs whose shapes are known."""
    return sum(tensor.nbytes for tensor in plan.outputs if not tensor.is_dynamic)


def _extents_of(plan: Plan, arrays: Sequence[Array]) -> list[tuple[int, int]]:
    """Return the extent in bytes of each input and output, relative to the address of its first element."""
    inputs = [extent_of(array) if is_array(array) else (0, 0) for array in arrays]
    return [*inputs, *((0, 0 if tensor.is_dynamic else tensor.nbytes) for tensor in plan.outputs)]


def _addresses_of(arrays: list[Array]) -> list[int]:
    return list(map(_address_of, arrays))


def _address_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else 0


def _release_pages_of(step: Step) -> None:
    """Return the pages of a file that hold weights of few bits to the system: the core has copied the weights."""
    if step.attributes.get("format"):
        for data in step.constants():
            release_pages(data)
