"""Verification of a finished plan: live tensors do not overlap, and no step reads unwritten or overwritten memory.

The verifier executes the plan on marks in place of elements. Memory starts unmarked, a step that computes writes a distinct mark
for each element of its results, and a copy copies marks. The windows of the graph's data movement determine the marks of each
tensor, in order. Each read, and each result at the end, must carry these marks. Elements of an input share one mark, and all
constants share one.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from math import gcd
from typing import Any

import numpy as np

from dovetail.engine.memory.in_place import overwritable_reads
from dovetail.engine.memory.tensor import RunTensor, TensorMap
from dovetail.engine.plan import COPY, FILL, Operand, Plan, Step
from dovetail.errors import EngineError
from dovetail.ir.graph import Graph, Value
from dovetail.ir.op import Window, Windows

UNWRITTEN, CONSTANT = 0, 1
"""The marks of memory that no step has written, and of constants."""
MAX_NAMES = 1000
"""The maximum number of wrong marks whose tensors an error names."""

Marks = np.ndarray[Any, np.dtype[np.int64]]


def verify_plan(plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
    """Verify a plan where the environment variable DOVETAIL_VERIFY is set."""
    if os.environ.get("DOVETAIL_VERIFY", "") in ("", "0"):
        return
    # A plan whose marks exceed the memory cannot run either, and the run reports it.
    with suppress(MemoryError):
        check(plan, graph, tensor_map)


def check(plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
    """Raise EngineError [plan.fault] if live tensors overlap or if a step reads unwritten or overwritten memory."""
    _Verifier(plan, graph, tensor_map).run()


class _Verifier:
    """_Verifier holds the marks of all memory during execution, one mark per unit of :func:`_granularity_of` bytes."""

    def __init__(self, plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
        self.plan = plan
        self.tensor_map = tensor_map
        self.unit = _granularity_of(plan)
        self.marks: dict[RunTensor, int] = {}
        """The mark of the first unit of each tensor; the marks of the further units are consecutive."""
        self.values: dict[RunTensor, Value] = {tensor_map.of(y): y for node in graph.nodes for y in node.outputs}
        self.expected: dict[RunTensor, Marks] = {}
        self.names = [(UNWRITTEN, "nothing"), (CONSTANT, "a constant")]
        self.next_mark = CONSTANT + 1
        self.fills: dict[RunTensor, int] = {}
        self.memories = [np.zeros(-(-plan.arena_bytes // self.unit), np.int64)]
        for tensor in (*plan.inputs, *plan.outputs):
            self.memories.append(np.zeros(0 if tensor.is_dynamic else -(-tensor.nbytes // self.unit), np.int64))
        for number, tensor in enumerate(plan.inputs, start=1):
            mark = self.marks[tensor] = self._new_marks(tensor.name, 1)
            self.memories[number][...] = mark
            self.expected[tensor] = np.broadcast_to(np.int64(mark), self._units_of(tensor))
        self.computed = {tensor for step in plan.steps if step.call and step.kernel != FILL for tensor in step.call.writes}

    def run(self) -> None:
        for step in self.plan.steps:
            if step.kernel == COPY:
                self._copy(step)
            elif step.kernel == FILL:
                assert step.call is not None
                self._marks_at(step, step.writes[0])[...] = self._fill_mark_of(step.call.writes[0])
            else:
                self._compute(step)
        for value, tensor, memory in zip(
            self.plan.results, self.plan.outputs, self.memories[1 + len(self.plan.inputs) :], strict=True
        ):
            if not tensor.is_dynamic and tensor.count:
                self._require(memory, value, f"the result {tensor.name!r}")

    # Marks

    def _units_of(self, tensor: RunTensor) -> int:
        return tensor.nbytes // self.unit

    def _new_marks(self, name: str, count: int) -> int:
        mark = self.next_mark
        self.names.append((mark, name))
        self.next_mark += count
        return mark

    def _marks_of(self, tensor: RunTensor) -> Marks:
        """Return the marks of a tensor that a step computes."""
        if tensor not in self.marks:
            self.marks[tensor] = self._new_marks(tensor.name, self._units_of(tensor))
        return np.arange(self.marks[tensor], self.marks[tensor] + self._units_of(tensor))

    def _fill_mark_of(self, tensor: RunTensor) -> int:
        if tensor not in self.fills:
            self.fills[tensor] = self._new_marks(f"{tensor.name} (its fill)", 1)
        return self.fills[tensor]

    def _name_of(self, mark: int) -> str:
        return self.names[bisect_right(self.names, mark, key=lambda row: row[0]) - 1][1]

    # Steps

    def _compute(self, step: Step) -> None:
        assert step.call is not None
        for tensor, operand in zip(step.call.reads, step.reads, strict=True):
            if tensor is not None and operand is not None and operand.data is None and not tensor.is_dynamic and tensor.count:
                self._require(self._marks_at(step, operand), tensor, f"{step.label} reads {tensor.name!r}, which")
        for tensor, operand in zip(step.call.writes, step.writes, strict=True):
            if not tensor.is_dynamic and tensor.count:
                marks = self._marks_at(step, operand)
                marks[...] = self._marks_of(tensor).reshape(marks.shape)
        self._refuse_overlap(step)

    def _refuse_overlap(self, step: Step) -> None:
        """Raise where a result overlaps a read or another result of the step, unless the kernel declares that this is safe.

        The results are already marked: a read or another result overlaps a result if it holds one of that result's marks.
        """
        overwritable = overwritable_reads(step.kernel, step.attributes, len(step.reads), len(step.writes))
        for result in step.writes:
            if result.tensor.is_dynamic or 0 in result.sizes:
                continue
            if 1 <= result.buffer <= len(self.plan.inputs):
                raise EngineError("plan.fault", f"{result.tensor.name!r} overwrites an input", node=step.label)
            if _has_internal_overlap(result):
                raise EngineError("plan.fault", f"{result.tensor.name!r} has elements that share memory", node=step.label)
            own = self._marks_at(step, result)
            first, last = int(own.min()), int(own.max())
            for other in step.writes:
                if other is result or not _extents_overlap(result, other):
                    continue
                if _has_between(self._marks_at(step, other), first, last):
                    names = f"the results {result.tensor.name!r} and {other.tensor.name!r}"
                    raise EngineError("plan.fault", f"{names} share memory", node=step.label)
            for position, read in enumerate(step.reads):
                if read is None or read.data is not None or read.tensor.is_dynamic or not _extents_overlap(read, result):
                    continue
                is_declared = position in overwritable and _has_same_addresses(read, result)
                if not is_declared and _has_between(self._marks_at(step, read), first, last):
                    names = f"{result.tensor.name!r} overwrites {read.tensor.name!r}"
                    raise EngineError("plan.fault", f"{names}, which {step.kernel} still reads", node=step.label)

    def _copy(self, step: Step) -> None:
        source, target = step.reads[0], step.writes[0]
        assert source is not None
        if 0 in target.sizes:
            return
        if source.data is None and _extents_overlap(source, target):
            mark = self._new_marks(target.tensor.name, 1)
            self._marks_at(step, target)[...] = mark
            if (self._marks_at(step, source) == mark).any():
                raise EngineError("plan.fault", f"the copy of {source.tensor.name!r} overwrites its source", node=step.label)
        marks = self._marks_at(step, target)
        marks[...] = CONSTANT if source.data is not None else self._marks_at(step, source).copy()

    def _marks_at(self, step: Step, operand: Operand) -> Marks:
        """Return the marks of an operand's memory, as a view."""
        memory = self.memories[operand.buffer]
        if 1 <= operand.buffer <= len(self.plan.inputs):
            # An input has the caller's strides and is never written: every element carries its mark.
            return np.broadcast_to(memory[0], (*operand.sizes, operand.tensor.itemsize // self.unit))
        size = operand.tensor.itemsize
        low, high = _extent_of(operand)
        if low < 0 or high > memory.nbytes // memory.itemsize * self.unit:
            raise EngineError("plan.fault", f"{operand.tensor} reaches bytes {low} to {high} of a buffer", node=step.label)
        strides = [stride // self.unit * memory.itemsize for stride in operand.strides]
        return np.ndarray(
            (*operand.sizes, size // self.unit),
            memory.dtype,
            memory.data,
            operand.offset // self.unit * memory.itemsize,
            (*strides, memory.itemsize),
        )

    def _require(self, marks: Marks, tensor: RunTensor, subject: str) -> None:
        """Raise EngineError [plan.fault] where the memory of a tensor does not carry the tensor's marks."""
        expected = self._expected_of(tensor).reshape(marks.shape)
        if np.array_equal(marks, expected):
            return
        wrong = marks[marks != expected]
        if (wrong == UNWRITTEN).any():
            raise EngineError("plan.fault", f"{subject} was not written everywhere")
        names = sorted({self._name_of(mark) for mark in wrong[:MAX_NAMES].tolist()})
        raise EngineError("plan.fault", f"{subject} holds other elements, of {', '.join(names)}")

    def _expected_of(self, tensor: RunTensor) -> Marks:
        """Return the marks of a tensor: new marks if some step computes it, else the marks that windows move into it."""
        stack = [tensor]
        while stack:
            current = stack[-1]
            windows, sources = self._movement_of(current)
            missing = [source for source in sources if source not in self.expected]
            if current not in self.expected and missing:
                stack += missing
                continue
            stack.pop()
            if current in self.expected:
                continue
            if current.data is not None:
                marks = np.broadcast_to(np.int64(CONSTANT), self._units_of(current))
            elif windows is None:
                marks = self._marks_of(current)
            else:
                marks = self._moved_marks_of(current, windows)
            self.expected[current] = marks
        return self.expected[tensor]

    def _moved_marks_of(self, tensor: RunTensor, windows: Windows) -> Marks:
        node = self.values[tensor].node
        assert node is not None
        output = next(index for index, y in enumerate(node.outputs) if self.tensor_map.of(y) is tensor)
        rows = [window for window in windows.windows if window.output == output and 0 not in window.sizes]
        per_element = tensor.itemsize // self.unit
        filling = UNWRITTEN if windows.fill is None else self._fill_mark_of(tensor)
        marks = np.full((tensor.count, per_element), filling, np.int64)
        for window in rows:
            value = node.inputs[window.input]
            assert value is not None
            source = self.expected[self.tensor_map.of(value)]
            if _is_whole(window, source.size // per_element, tensor.count):
                # The marks are not copied, so that a long sequence of views shares one array.
                return source
            read = _box(source.reshape(-1, per_element), window.source_offset, window.sizes, window.source_strides)
            _box(marks, window.target_offset, window.sizes, window.target_strides)[...] = read
        return marks.reshape(-1)

    def _movement_of(self, tensor: RunTensor) -> tuple[Windows | None, list[RunTensor]]:
        """Return the windows and inputs of the data movement that results in a tensor; (None, []) for a computed tensor."""
        if tensor.data is not None or tensor in self.computed or tensor not in self.values or tensor in self.expected:
            return None, []
        node = self.values[tensor].node
        assert node is not None
        inputs = [None if x is None else self.tensor_map.of(x) for x in node.inputs]
        windows = node.op.windows(*(None if x is None else x.as_view() for x in inputs))
        sources = [inputs[index] for index in sorted({window.input for window in windows.windows})]
        return windows, [source for source in sources if source is not None]


def _is_whole(window: Window, source: int, target: int) -> bool:
    """Return whether a window maps all elements of the source to all elements of the target in order."""
    return (
        len(window.sizes) == 1 and source == target == window.sizes[0] and window.source_strides == window.target_strides == (1,)
    )


def _box(marks: Marks, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> Marks:
    """Return the rows of marks at the indices of one side of a window, as a view."""
    shape, row = (*sizes, marks.shape[1]), marks.strides[0]
    return np.lib.stride_tricks.as_strided(marks[offset:], shape, (*(stride * row for stride in strides), marks.strides[1]))


def _has_between(marks: Marks, first: int, last: int) -> bool:
    return bool(((marks >= first) & (marks <= last)).any())


def _extent_of(operand: Operand) -> tuple[int, int]:
    """Return the first byte of an operand in its buffer, and the byte after the last."""
    reaches = [(size - 1) * stride for size, stride in zip(operand.sizes, operand.strides, strict=True)]
    low = operand.offset + sum(reach for reach in reaches if reach < 0)
    return low, operand.offset + operand.tensor.itemsize + sum(reach for reach in reaches if reach > 0)


def _extents_overlap(one: Operand, other: Operand) -> bool:
    """Return whether the extents of two operands overlap: a necessary, not sufficient condition for shared bytes."""
    if one.buffer != other.buffer or 0 in one.sizes or 0 in other.sizes:
        return False
    (low, high), (start, stop) = _extent_of(one), _extent_of(other)
    return low < stop and start < high


def _has_same_addresses(read: Operand, result: Operand) -> bool:
    """Return whether each element of a read has the address of the same element of a result."""
    return (read.offset, read.sizes, read.strides, read.tensor.itemsize) == (
        result.offset, result.sizes, result.strides, result.tensor.itemsize,
    )  # fmt: skip


def _has_internal_overlap(operand: Operand) -> bool:
    """Return whether two elements of an operand share memory."""
    axes = sorted((abs(stride), size) for size, stride in zip(operand.sizes, operand.strides, strict=True) if size != 1)
    span, is_nested = operand.tensor.itemsize, True
    for stride, size in axes:
        is_nested = is_nested and stride >= span
        span += (size - 1) * stride
    if is_nested:
        return False
    # Interleaved axes may be disjoint: compare all offsets.
    offsets = np.zeros(1, np.int64)
    for stride, size in axes:
        offsets = np.add.outer(offsets, np.arange(size) * stride).reshape(-1)
    return bool((np.diff(np.sort(offsets)) < operand.tensor.itemsize).any())


def _granularity_of(plan: Plan) -> int:
    """Return the greatest common divisor of all offsets, strides and item sizes in bytes, at most 64."""
    unit = gcd(64, *(tensor.itemsize for tensor in (*plan.inputs, *plan.outputs) if tensor.itemsize))
    for step in plan.steps:
        for operand in (*step.reads, *step.writes):
            if operand is not None and _is_marked(plan, operand) and 0 not in operand.sizes:
                strides = (stride for size, stride in zip(operand.sizes, operand.strides, strict=True) if size > 1)
                unit = gcd(unit, operand.offset, operand.tensor.itemsize, *strides)
    return max(unit, 1)


def _is_marked(plan: Plan, operand: Operand) -> bool:
    """Return whether an operand is in the arena or in an output."""
    return operand.buffer == 0 or operand.buffer > len(plan.inputs)
