"""Proof, from a finished plan alone, that no two live tensors overlap and no step overwrites what it still reads.

Nothing is read before it was written, either.

The plan is run with marks in place of elements. A step that computes marks what it writes with a number of its own, a copy
carries marks along, memory begins unmarked. What a step reads, and each result at the end, must carry only the marks of what the
graph says it is made of.
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

CONSTANT = 1


def verify_plan(plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
    """Check a plan where the environment variable DOVETAIL_VERIFY is set."""
    if os.environ.get("DOVETAIL_VERIFY", "") in ("", "0"):
        return
    # A plan whose marks do not fit into memory cannot be run either, and the run says so.
    with suppress(MemoryError):
        check(plan, graph, tensor_map)


def check(plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
    """Raise EngineError [plan.clobbered], [plan.unwritten], [plan.overlap] or [plan.bounds] where a plan does not do what the
    graph says."""
    _Checker(plan, graph, tensor_map).run()


class _Checker:
    def __init__(self, plan: Plan, graph: Graph, tensor_map: TensorMap) -> None:
        self.plan = plan
        self.tensor_map = tensor_map
        self.unit = _granularity(plan)
        self.marks: dict[RunTensor, int] = {}
        self.makers: dict[RunTensor, Value] = {tensor_map.of(y): y for node in graph.nodes for y in node.outputs}
        self.sources_of: dict[RunTensor, frozenset[int]] = {}
        self.names = {0: "nothing", CONSTANT: "a constant"}
        self.memories = [np.zeros(-(-plan.arena_bytes // self.unit), np.int32)]
        for tensor in (*plan.inputs, *plan.outputs):
            self.memories.append(np.zeros(0 if tensor.is_dynamic else -(-tensor.nbytes // self.unit), np.int32))
        for number, tensor in enumerate(plan.inputs, start=1):
            self.marks[tensor] = self._fresh(tensor.name)
            self.memories[number][...] = self.marks[tensor]
        self.computed = {tensor for step in plan.steps if step.call and step.kernel != FILL for tensor in step.call.writes}

    def _fresh(self, name: str) -> int:
        mark = len(self.names)
        self.names[mark] = name
        return mark

    def run(self) -> None:
        for step in self.plan.steps:
            if step.kernel == COPY:
                self._copy(step)
            elif step.kernel == FILL:
                assert step.call is not None
                self._mark(step, step.writes[0], self._mark_of(step.call.writes[0], " (its filling)"))
            else:
                self._compute(step)
        for value, tensor, memory in zip(
            self.plan.results, self.plan.outputs, self.memories[1 + len(self.plan.inputs) :], strict=True
        ):
            if not tensor.is_dynamic and tensor.count:
                self._expect(memory, value, f"the result {tensor.name!r}")

    def _mark_of(self, tensor: RunTensor, more: str = "") -> int:
        if tensor not in self.marks:
            self.marks[tensor] = self._fresh(tensor.name + more)
        return self.marks[tensor]

    def _compute(self, step: Step) -> None:
        assert step.call is not None
        for tensor, operand in zip(step.call.reads, step.reads, strict=True):
            if tensor is not None and operand is not None and operand.data is None and not tensor.is_dynamic and tensor.count:
                self._expect(self._seen(step, operand), tensor, f"{step.label} reads {tensor.name!r}, which")
        for tensor, operand in zip(step.call.writes, step.writes, strict=True):
            if not tensor.is_dynamic and tensor.count:
                self._mark(step, operand, self._mark_of(tensor))
        self._refuse_overlap(step)

    def _refuse_overlap(self, step: Step) -> None:
        """Raise where a step writes memory that it also reads or writes otherwise, unless its kernel declares that it may.

        Called when the results are marked: a read that holds a result's mark, or a result that lacks its own, overlaps.
        """
        declared = overwritable_reads(step.kernel, step.attributes, len(step.reads), len(step.writes))
        for result in step.writes:
            if result.tensor.is_dynamic or 0 in result.sizes:
                continue
            if 1 <= result.buffer <= len(self.plan.inputs):
                raise EngineError("plan.overlap", f"{result.tensor.name!r} overwrites an input", node=step.label)
            if _repeats(result):
                raise EngineError("plan.overlap", f"{result.tensor.name!r} has elements that share memory", node=step.label)
            mark = int(self._seen(step, result).flat[0])
            for other in step.writes:
                if other is not result and _may_meet(result, other) and (self._seen(step, other) == mark).any():
                    names = f"the results {result.tensor.name!r} and {other.tensor.name!r}"
                    raise EngineError("plan.overlap", f"{names} share memory", node=step.label)
            for place, read in enumerate(step.reads):
                if read is None or read.data is not None or read.tensor.is_dynamic or not _may_meet(read, result):
                    continue
                if not (place in declared and _coincide(read, result)) and (self._seen(step, read) == mark).any():
                    names = f"{result.tensor.name!r} overwrites {read.tensor.name!r}"
                    raise EngineError("plan.overlap", f"{names}, which {step.kernel} still reads", node=step.label)

    def _copy(self, step: Step) -> None:
        source, target = step.reads[0], step.writes[0]
        assert source is not None
        if 0 in target.sizes:
            return
        if source.data is None and _may_meet(source, target):
            self._mark(step, target, self._mark_of(target.tensor))
            if (self._seen(step, source) == self._mark_of(target.tensor)).any():
                raise EngineError("plan.overlap", f"the copy of {source.tensor.name!r} overwrites its source", node=step.label)
        into = self._seen(step, target)
        into[...] = CONSTANT if source.data is not None else self._seen(step, source).copy()

    def _mark(self, step: Step, operand: Operand, mark: int) -> None:
        self._seen(step, operand)[...] = mark

    def _seen(self, step: Step, operand: Operand) -> np.ndarray[Any, Any]:
        """The marks of an operand's memory."""
        memory = self.memories[operand.buffer]
        if 1 <= operand.buffer <= len(self.plan.inputs):
            # It lies wherever the caller has it, and is never written: any piece of it carries its mark.
            return np.broadcast_to(memory[:1].reshape((1,) * (len(operand.sizes) + 1)), (*operand.sizes, 1))
        size = operand.tensor.itemsize
        low, high = _extent(operand)
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

    def _expect(self, seen: np.ndarray[Any, Any], tensor: RunTensor, what: str) -> None:
        found = _marks(seen)
        wrong = found - self._sources(tensor)
        if 0 in wrong:
            raise EngineError("plan.unwritten", f"{what} was not written everywhere")
        if wrong:
            raise EngineError("plan.clobbered", f"{what} holds {', '.join(self.names[mark] for mark in sorted(wrong))}")

    def _sources(self, tensor: RunTensor) -> frozenset[int]:
        """The marks that a tensor may carry: its own if some step computes it, else those of what it is moved together from."""
        stack = [tensor]
        while stack:
            current = stack[-1]
            parts = self._moved_from(current)
            missing = [part for part in parts if part not in self.sources_of]
            if current not in self.sources_of and missing:
                stack += missing
                continue
            stack.pop()
            found = [self.sources_of[part] for part in parts]
            if current.data is not None:
                found.append(frozenset((CONSTANT,)))
            elif not parts or current in self.marks:
                # A step computes it, or it was filled before the rest was moved there.
                found.append(frozenset((self._mark_of(current),)))
            # A long chain of moves shares one set.
            self.sources_of[current] = found[0] if len(found) == 1 else frozenset().union(*found)
        return self.sources_of[tensor]

    def _moved_from(self, tensor: RunTensor) -> list[RunTensor]:
        """The inputs of the node that moves a tensor together; none for one that a step computes."""
        if tensor.data is not None or tensor in self.computed or tensor not in self.makers:
            return []
        node = self.makers[tensor].node
        assert node is not None
        return [self.tensor_map.of(x) for x in node.inputs if x is not None]


def _marks(seen: np.ndarray[Any, Any]) -> set[int]:
    """The different marks in an array that is not empty."""
    first = seen.flat[0]
    # Most operands carry one mark, and to compare costs far less than to sort.
    if (seen == first).all():
        return {int(first)}
    # np.unique would import numpy.ma at its first call, and a process may fork meanwhile.
    marks = np.sort(seen, axis=None)
    return {int(marks[0]), *marks[1:][np.diff(marks) != 0].tolist()}


def _extent(operand: Operand) -> tuple[int, int]:
    """The first byte of an operand in its buffer, and the one past its last."""
    reaches = [(size - 1) * stride for size, stride in zip(operand.sizes, operand.strides, strict=True)]
    low = operand.offset + sum(reach for reach in reaches if reach < 0)
    return low, operand.offset + operand.tensor.itemsize + sum(reach for reach in reaches if reach > 0)


def _may_meet(one: Operand, other: Operand) -> bool:
    """Whether the extents of two operands overlap."""
    if one.buffer != other.buffer or 0 in one.sizes or 0 in other.sizes:
        return False
    (low, high), (start, stop) = _extent(one), _extent(other)
    return low < stop and start < high


def _coincide(read: Operand, result: Operand) -> bool:
    """Whether each element of a read has the address of the same element of a result."""
    return (read.offset, read.sizes, read.strides, read.tensor.itemsize) == (
        result.offset, result.sizes, result.strides, result.tensor.itemsize,
    )  # fmt: skip


def _repeats(operand: Operand) -> bool:
    """Whether two elements of an operand share memory."""
    axes = sorted((abs(stride), size) for size, stride in zip(operand.sizes, operand.strides, strict=True) if size != 1)
    span, is_nested = operand.tensor.itemsize, True
    for stride, size in axes:
        is_nested = is_nested and stride >= span
        span += (size - 1) * stride
    if is_nested:
        return False
    # Axes that interleave may still be apart.
    offsets = np.zeros(1, np.int64)
    for stride, size in axes:
        offsets = np.add.outer(offsets, np.arange(size) * stride).reshape(-1)
    return bool((np.diff(np.sort(offsets)) < operand.tensor.itemsize).any())


def _granularity(plan: Plan) -> int:
    """The largest number of bytes that divides every place and step: marks are kept for units of it."""
    unit = 64
    for step in plan.steps:
        for operand in (*step.reads, *step.writes):
            if operand is not None and _is_kept(plan, operand) and 0 not in operand.sizes:
                steps = (stride for size, stride in zip(operand.sizes, operand.strides, strict=True) if size > 1)
                unit = gcd(unit, operand.offset, operand.tensor.itemsize, *steps)
    return max(unit, 1)


def _is_kept(plan: Plan, operand: Operand) -> bool:
    """Whether an operand lies in the arena or in a result."""
    return operand.buffer == 0 or operand.buffer > len(plan.inputs)
