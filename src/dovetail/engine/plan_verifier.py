"""Verification of a finished plan: live tensors do not overlap, and no step reads what was not written or was overwritten.

The verifier executes the plan on marks in place of elements. A step that computes marks its results with a number of their own, a
copy copies marks, and memory starts unmarked. Each read, and each result at the end, must carry only the marks of the tensors
that the graph composes it of.
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import gcd
from typing import Any

import numpy as np

from dovetail.engine.memory.in_place import overwritable_reads
from dovetail.engine.memory.tensor import RunTensor, TensorMap
from dovetail.engine.plan import COPY, FILL, Operand, Plan, Step
from dovetail.errors import EngineError
from dovetail.ir.graph import Graph, Value

UNWRITTEN, CONSTANT = 0, 1
"""The marks of memory that no step has written, and of constants."""


def verify_plan(plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
    """Verify a plan where the environment variable DOVETAIL_VERIFY is set."""
    if os.environ.get("DOVETAIL_VERIFY", "") in ("", "0"):
        return
    # A plan whose marks exceed the memory cannot run either, and the run reports it.
    with suppress(MemoryError):
        check(plan, graph, tensor_map)


def check(plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
    """Raise EngineError [plan.clobbered], [plan.unwritten], [plan.overlap] or [plan.bounds] for a plan that is wrong."""
    _Verifier(plan, graph, tensor_map).run()


class _Verifier:
    """The marks of all memory while the steps are executed. Marks are kept per unit of :func:`_granularity_of` bytes."""

    def __init__(self, plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
        self.plan = plan
        self.tensor_map = tensor_map
        self.unit = _granularity_of(plan)
        self.marks: dict[RunTensor, int] = {}
        self.values: dict[RunTensor, Value] = {tensor_map.of(y): y for node in graph.nodes for y in node.outputs}
        self.allowed_marks: dict[RunTensor, frozenset[int]] = {}
        self.names = {UNWRITTEN: "nothing", CONSTANT: "a constant"}
        self.memories = [np.zeros(-(-plan.arena_bytes // self.unit), np.int32)]
        for tensor in (*plan.inputs, *plan.outputs):
            self.memories.append(np.zeros(0 if tensor.is_dynamic else -(-tensor.nbytes // self.unit), np.int32))
        for number, tensor in enumerate(plan.inputs, start=1):
            self.marks[tensor] = self._new_mark(tensor.name)
            self.memories[number][...] = self.marks[tensor]
        self.computed = {tensor for step in plan.steps if step.call and step.kernel != FILL for tensor in step.call.writes}

    def run(self) -> None:
        for step in self.plan.steps:
            if step.kernel == COPY:
                self._copy(step)
            elif step.kernel == FILL:
                assert step.call is not None
                self._write_mark(step, step.writes[0], self._mark_of(step.call.writes[0], " (its fill)"))
            else:
                self._compute(step)
        for value, tensor, memory in zip(
            self.plan.results, self.plan.outputs, self.memories[1 + len(self.plan.inputs) :], strict=True
        ):
            if not tensor.is_dynamic and tensor.count:
                self._require(memory, value, f"the result {tensor.name!r}")

    def _new_mark(self, name: str) -> int:
        mark = len(self.names)
        self.names[mark] = name
        return mark

    def _mark_of(self, tensor: RunTensor, suffix: str = "") -> int:
        if tensor not in self.marks:
            self.marks[tensor] = self._new_mark(tensor.name + suffix)
        return self.marks[tensor]

    def _compute(self, step: Step) -> None:
        assert step.call is not None
        for tensor, operand in zip(step.call.reads, step.reads, strict=True):
            if tensor is not None and operand is not None and operand.data is None and not tensor.is_dynamic and tensor.count:
                self._require(self._marks_at(step, operand), tensor, f"{step.label} reads {tensor.name!r}, which")
        for tensor, operand in zip(step.call.writes, step.writes, strict=True):
            if not tensor.is_dynamic and tensor.count:
                self._write_mark(step, operand, self._mark_of(tensor))
        self._refuse_overlap(step)

    def _refuse_overlap(self, step: Step) -> None:
        """Raise where a step writes memory that it also reads or writes otherwise, unless its kernel declares that it may.

        Called when the results are marked: a read that holds a result's mark, or a result that lacks its own, overlaps.
        """
        overwritable = overwritable_reads(step.kernel, step.attributes, len(step.reads), len(step.writes))
        for result in step.writes:
            if result.tensor.is_dynamic or 0 in result.sizes:
                continue
            if 1 <= result.buffer <= len(self.plan.inputs):
                raise EngineError("plan.overlap", f"{result.tensor.name!r} overwrites an input", node=step.label)
            if _has_internal_overlap(result):
                raise EngineError("plan.overlap", f"{result.tensor.name!r} has elements that share memory", node=step.label)
            mark = int(self._marks_at(step, result).flat[0])
            for other in step.writes:
                if other is not result and _extents_overlap(result, other) and (self._marks_at(step, other) == mark).any():
                    names = f"the results {result.tensor.name!r} and {other.tensor.name!r}"
                    raise EngineError("plan.overlap", f"{names} share memory", node=step.label)
            for position, read in enumerate(step.reads):
                if read is None or read.data is not None or read.tensor.is_dynamic or not _extents_overlap(read, result):
                    continue
                is_declared = position in overwritable and _has_same_addresses(read, result)
                if not is_declared and (self._marks_at(step, read) == mark).any():
                    names = f"{result.tensor.name!r} overwrites {read.tensor.name!r}"
                    raise EngineError("plan.overlap", f"{names}, which {step.kernel} still reads", node=step.label)

    def _copy(self, step: Step) -> None:
        source, target = step.reads[0], step.writes[0]
        assert source is not None
        if 0 in target.sizes:
            return
        if source.data is None and _extents_overlap(source, target):
            self._write_mark(step, target, self._mark_of(target.tensor))
            if (self._marks_at(step, source) == self._mark_of(target.tensor)).any():
                raise EngineError("plan.overlap", f"the copy of {source.tensor.name!r} overwrites its source", node=step.label)
        marks = self._marks_at(step, target)
        marks[...] = CONSTANT if source.data is not None else self._marks_at(step, source).copy()

    def _write_mark(self, step: Step, operand: Operand, mark: int) -> None:
        self._marks_at(step, operand)[...] = mark

    def _marks_at(self, step: Step, operand: Operand) -> np.ndarray[Any, Any]:
        """Return the marks of an operand's memory, as a view."""
        memory = self.memories[operand.buffer]
        if 1 <= operand.buffer <= len(self.plan.inputs):
            # An input has the caller's strides and is never written: every element carries its mark.
            return np.broadcast_to(memory[:1].reshape((1,) * (len(operand.sizes) + 1)), (*operand.sizes, 1))
        size = operand.tensor.itemsize
        low, high = _extent_of(operand)
        if low < 0 or high > memory.nbytes // memory.itemsize * self.unit:
            raise EngineError("plan.bounds", f"{operand.tensor} reaches bytes {low} to {high} of a buffer", node=step.label)
        strides = [stride // self.unit * memory.itemsize for stride in operand.strides]
        return np.ndarray(
            (*operand.sizes, size // self.unit),
            memory.dtype,
            memory.data,
            operand.offset // self.unit * 4,
            (*strides, memory.itemsize),
        )

    def _require(self, marks: np.ndarray[Any, Any], tensor: RunTensor, subject: str) -> None:
        """Raise where the memory of a tensor carries other marks than the tensor may."""
        wrong = _distinct(marks) - self._allowed_marks_of(tensor)
        if UNWRITTEN in wrong:
            raise EngineError("plan.unwritten", f"{subject} was not written everywhere")
        if wrong:
            raise EngineError("plan.clobbered", f"{subject} holds {', '.join(self.names[mark] for mark in sorted(wrong))}")

    def _allowed_marks_of(self, tensor: RunTensor) -> frozenset[int]:
        """Return the marks that a tensor may carry: its own if some step computes it, else those of the tensors it is moved
        from."""
        stack = [tensor]
        while stack:
            current = stack[-1]
            sources = self._sources_of(current)
            missing = [source for source in sources if source not in self.allowed_marks]
            if current not in self.allowed_marks and missing:
                stack += missing
                continue
            stack.pop()
            allowed = [self.allowed_marks[source] for source in sources]
            if current.data is not None:
                allowed.append(frozenset((CONSTANT,)))
            elif not sources or current in self.marks:
                # A step computes the tensor, or it was filled before its parts were moved there.
                allowed.append(frozenset((self._mark_of(current),)))
            # A long sequence of moves shares one set.
            self.allowed_marks[current] = allowed[0] if len(allowed) == 1 else frozenset().union(*allowed)
        return self.allowed_marks[tensor]

    def _sources_of(self, tensor: RunTensor) -> list[RunTensor]:
        """Return the inputs of the data movement that a tensor results from; none for one that a step computes."""
        if tensor.data is not None or tensor in self.computed or tensor not in self.values:
            return []
        node = self.values[tensor].node
        assert node is not None
        return [self.tensor_map.of(x) for x in node.inputs if x is not None]


def _distinct(marks: np.ndarray[Any, Any]) -> set[int]:
    """Return the distinct marks in an array that is not empty."""
    first = marks.flat[0]
    # Most operands carry one mark, and a comparison costs far less than a sort.
    if (marks == first).all():
        return {int(first)}
    # np.unique would import numpy.ma at its first call, and a process may fork meanwhile.
    ordered = np.sort(marks, axis=None)
    return {int(ordered[0]), *ordered[1:][np.diff(ordered) != 0].tolist()}


def _extent_of(operand: Operand) -> tuple[int, int]:
    """Return the first byte of an operand in its buffer, and one past its last."""
    reaches = [(size - 1) * stride for size, stride in zip(operand.sizes, operand.strides, strict=True)]
    low = operand.offset + sum(reach for reach in reaches if reach < 0)
    return low, operand.offset + operand.tensor.itemsize + sum(reach for reach in reaches if reach > 0)


def _extents_overlap(one: Operand, other: Operand) -> bool:
    """Return whether the extents of two operands overlap: necessary for shared bytes, not sufficient."""
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
    unit = 64
    for step in plan.steps:
        for operand in (*step.reads, *step.writes):
            if operand is not None and _is_marked(plan, operand) and 0 not in operand.sizes:
                strides = (stride for size, stride in zip(operand.sizes, operand.strides, strict=True) if size > 1)
                unit = gcd(unit, operand.offset, operand.tensor.itemsize, *strides)
    return max(unit, 1)


def _is_marked(plan: Plan, operand: Operand) -> bool:
    """Return whether an operand is in the arena or in an output."""
    return operand.buffer == 0 or operand.buffer > len(plan.inputs)
