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
from dovetail.engine.memory.tensor import Scene, Tile
from dovetail.engine.plan import COPY, FILL, Operand, Plan, Step
from dovetail.errors import EngineError
from dovetail.ir.graph import Graph, Value

CONSTANT = 1


def verify_plan(plan: Plan, graph: Graph, scene: Scene) -> None:
    """Check a plan where the environment variable DOVETAIL_VERIFY is set."""
    if os.environ.get("DOVETAIL_VERIFY", "") in ("", "0"):
        return
    # A plan whose marks do not fit into memory cannot be run either, and the run says so.
    with suppress(MemoryError):
        check(plan, graph, scene)


def check(plan: Plan, graph: Graph, scene: Scene) -> None:
    """Raise EngineError [plan.clobbered], [plan.unwritten], [plan.overlap] or [plan.bounds] where a plan does not do what the
    graph says."""
    _Checker(plan, graph, scene).run()


class _Checker:
    def __init__(self, plan: Plan, graph: Graph, scene: Scene) -> None:
        self.plan = plan
        self.scene = scene
        self.unit = _granularity(plan)
        self.marks: dict[Tile, int] = {}
        self.makers: dict[Tile, Value] = {scene.tile(y): y for node in graph.nodes for y in node.outputs}
        self.sources_of: dict[Tile, frozenset[int]] = {}
        self.names = {0: "nothing", CONSTANT: "a constant"}
        self.memories = [np.zeros(-(-plan.arena_bytes // self.unit), np.int32)]
        for tile in (*plan.inputs, *plan.outputs):
            self.memories.append(np.zeros(0 if tile.is_loose else -(-tile.nbytes // self.unit), np.int32))
        for number, tile in enumerate(plan.inputs, start=1):
            self.marks[tile] = self._fresh(tile.name)
            self.memories[number][...] = self.marks[tile]
        self.computed = {tile for step in plan.steps if step.work and step.kernel != FILL for tile in step.work.writes}

    def _fresh(self, name: str) -> int:
        mark = len(self.names)
        self.names[mark] = name
        return mark

    def run(self) -> None:
        for step in self.plan.steps:
            if step.kernel == COPY:
                self._copy(step)
            elif step.kernel == FILL:
                assert step.work is not None
                self._mark(step, step.writes[0], self._mark_of(step.work.writes[0], " (its filling)"))
            else:
                self._compute(step)
        for value, tile, memory in zip(
            self.plan.results, self.plan.outputs, self.memories[1 + len(self.plan.inputs) :], strict=True
        ):
            if not tile.is_loose and tile.count:
                self._expect(memory, value, f"the result {tile.name!r}")

    def _mark_of(self, tile: Tile, more: str = "") -> int:
        if tile not in self.marks:
            self.marks[tile] = self._fresh(tile.name + more)
        return self.marks[tile]

    def _compute(self, step: Step) -> None:
        assert step.work is not None
        for tile, operand in zip(step.work.reads, step.reads, strict=True):
            if tile is not None and operand is not None and operand.data is None and not tile.is_loose and tile.count:
                self._expect(self._seen(step, operand), tile, f"{step.label} reads {tile.name!r}, which")
        for tile, operand in zip(step.work.writes, step.writes, strict=True):
            if not tile.is_loose and tile.count:
                self._mark(step, operand, self._mark_of(tile))
        self._refuse_overlap(step)

    def _refuse_overlap(self, step: Step) -> None:
        """Raise where a step writes memory that it also reads or writes otherwise, unless its kernel declares that it may.

        Called when the results are marked: a read that holds a result's mark, or a result that lacks its own, overlaps.
        """
        declared = overwritable_reads(step.kernel, step.attributes, len(step.reads), len(step.writes))
        for result in step.writes:
            if result.tile.is_loose or 0 in result.sizes:
                continue
            if 1 <= result.buffer <= len(self.plan.inputs):
                raise EngineError("plan.overlap", f"{result.tile.name!r} overwrites an input", node=step.label)
            if _repeats(result):
                raise EngineError("plan.overlap", f"{result.tile.name!r} has elements that share memory", node=step.label)
            mark = int(self._seen(step, result).flat[0])
            for other in step.writes:
                if other is not result and _may_meet(result, other) and (self._seen(step, other) == mark).any():
                    names = f"the results {result.tile.name!r} and {other.tile.name!r}"
                    raise EngineError("plan.overlap", f"{names} share memory", node=step.label)
            for place, read in enumerate(step.reads):
                if read is None or read.data is not None or read.tile.is_loose or not _may_meet(read, result):
                    continue
                if not (place in declared and _coincide(read, result)) and (self._seen(step, read) == mark).any():
                    names = f"{result.tile.name!r} overwrites {read.tile.name!r}"
                    raise EngineError("plan.overlap", f"{names}, which {step.kernel} still reads", node=step.label)

    def _copy(self, step: Step) -> None:
        source, target = step.reads[0], step.writes[0]
        assert source is not None
        if 0 in target.sizes:
            return
        if source.data is None and _may_meet(source, target):
            self._mark(step, target, self._mark_of(target.tile))
            if (self._seen(step, source) == self._mark_of(target.tile)).any():
                raise EngineError("plan.overlap", f"the copy of {source.tile.name!r} overwrites its source", node=step.label)
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
        size = operand.tile.itemsize
        low, high = _extent(operand)
        if low < 0 or high > memory.nbytes // memory.itemsize * self.unit:
            raise EngineError("plan.bounds", f"{operand.tile} reaches bytes {low} to {high} of a buffer", node=step.label)
        strides = [stride // self.unit * memory.itemsize for stride in operand.strides]
        return np.ndarray(
            (*operand.sizes, size // self.unit),
            memory.dtype,
            memory.data,
            operand.offset // self.unit * 4,
            (*strides, memory.itemsize),
        )

    def _expect(self, seen: np.ndarray[Any, Any], tile: Tile, what: str) -> None:
        found = _marks(seen)
        wrong = found - self._sources(tile)
        if 0 in wrong:
            raise EngineError("plan.unwritten", f"{what} was not written everywhere")
        if wrong:
            raise EngineError("plan.clobbered", f"{what} holds {', '.join(self.names[mark] for mark in sorted(wrong))}")

    def _sources(self, tile: Tile) -> frozenset[int]:
        """The marks that a tensor may carry: its own if some step computes it, else those of what it is moved together from."""
        stack = [tile]
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
        return self.sources_of[tile]

    def _moved_from(self, tile: Tile) -> list[Tile]:
        """The inputs of the node that moves a tensor together; none for one that a step computes."""
        if tile.data is not None or tile in self.computed or tile not in self.makers:
            return []
        node = self.makers[tile].node
        assert node is not None
        return [self.scene.tile(x) for x in node.inputs if x is not None]


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
    return low, operand.offset + operand.tile.itemsize + sum(reach for reach in reaches if reach > 0)


def _may_meet(one: Operand, other: Operand) -> bool:
    """Whether the extents of two operands overlap."""
    if one.buffer != other.buffer or 0 in one.sizes or 0 in other.sizes:
        return False
    (low, high), (start, stop) = _extent(one), _extent(other)
    return low < stop and start < high


def _coincide(read: Operand, result: Operand) -> bool:
    """Whether each element of a read has the address of the same element of a result."""
    return (read.offset, read.sizes, read.strides, read.tile.itemsize) == (
        result.offset, result.sizes, result.strides, result.tile.itemsize,
    )  # fmt: skip


def _repeats(operand: Operand) -> bool:
    """Whether two elements of an operand share memory."""
    axes = sorted((abs(stride), size) for size, stride in zip(operand.sizes, operand.strides, strict=True) if size != 1)
    span, is_nested = operand.tile.itemsize, True
    for stride, size in axes:
        is_nested = is_nested and stride >= span
        span += (size - 1) * stride
    if is_nested:
        return False
    # Axes that interleave may still be apart.
    offsets = np.zeros(1, np.int64)
    for stride, size in axes:
        offsets = np.add.outer(offsets, np.arange(size) * stride).reshape(-1)
    return bool((np.diff(np.sort(offsets)) < operand.tile.itemsize).any())


def _granularity(plan: Plan) -> int:
    """The largest number of bytes that divides every place and step: marks are kept for units of it."""
    unit = 64
    for step in plan.steps:
        for operand in (*step.reads, *step.writes):
            if operand is not None and _is_kept(plan, operand) and 0 not in operand.sizes:
                steps = (stride for size, stride in zip(operand.sizes, operand.strides, strict=True) if size > 1)
                unit = gcd(unit, operand.offset, operand.tile.itemsize, *steps)
    return max(unit, 1)


def _is_kept(plan: Plan, operand: Operand) -> bool:
    """Whether an operand lies in the arena or in a result."""
    return operand.buffer == 0 or operand.buffer > len(plan.inputs)
