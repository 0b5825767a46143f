"""A plan bound to memory and threads: its steps made, natively where a kernel takes them, and run at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.engine.memory.tensor import INTERPRET, Scene, Tile
from dovetail.engine.plan import Plan, Step
from dovetail.engine.run.output_pool import Shelf
from dovetail.engine.run.python_steps import Find, finder, python_step
from dovetail.engine.run.step_encoding import extent, spec
from dovetail.errors import EngineError
from dovetail.interpreter.interpret import put_into
from dovetail.limits import Usage, active


@dataclass(eq=False, slots=True)
class Call:
    """One call: the memory it has, where everything lies in it, and the loose tensors that Python holds.

    ``memory`` is the core's Visit, which runs native steps; where there is no core, an arena and nothing else.
    """

    memory: Any
    addresses: list[int]
    results: list[Any]
    loose: dict[Tile, Any]
    find: Find


Piece = Callable[["Bound", Call], None]
"""A run of native steps, or one step in Python. It does not hold the Bound that it is part of: those of a loop whose sizes grow
would all wait for the collector of cycles."""


class Bound:
    """A plan whose steps are made. Holds the constants that the steps read. ``fill`` gives all steps to the core at once.

    ``arrays``: inputs as those of every call lie in memory.
    """

    def __init__(
        self,
        plan: Plan,
        scene: Scene,
        arrays: Sequence[Any],
        core: Any,
        pool: Any,
        store: Any,
        shelf: Shelf,
        fill: Callable[[Any], None] | None = None,
    ) -> None:
        self.plan = plan
        self.scene = scene
        self._shelf = shelf
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
            self._program.add(*spec(step), self.scene.shares(step.constants()))
        except ValueError as error:
            return str(error)
        return ""

    def _run_until(self, first: int) -> None:
        last = len(self.native_steps)
        if last > first:
            self._pieces.append(lambda bound, call: bound._run_native(call, first, last))
            self._spans.append((first, last))

    def _run_native(self, call: Call, first: int, last: int) -> None:
        try:
            call.memory.run(call.addresses, first, last)
        except self._core.StepFailed as failure:
            number, code = failure.args
            step = self.native_steps[number]
            # The operator's own rule knows the reason in full.
            python_step(step, self.scene)(call.find, call.loose)
            raise EngineError(code, f"{step.label} failed", node=step.label) from None

    def _in_python(self, step: Step) -> Piece:
        run = python_step(step, self.scene)
        return lambda _, call: run(call.find, call.loose)

    def __call__(self, arrays: Sequence[Any], out: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any]:
        usage = active()
        if usage is not None:
            return self._run_within(usage, arrays, out, names)
        call = self.call(arrays, out, names)
        for piece in self._pieces:
            piece(self, call)
        return self._results(call, out, names)

    def _run_within(
        self, usage: Usage, arrays: Sequence[Any], out: Mapping[str, Any] | None, names: Sequence[str]
    ) -> dict[str, Any]:
        """A call that looks at the time between steps, and counts its memory beside that of the run it is a part of."""
        before, plan = usage.memory, self.plan
        try:
            usage.hold(
                plan.arena_bytes + plan.constant_bytes + sum(tile.nbytes for tile in plan.outputs if not tile.is_loose), "the run"
            )
            call = self.call(arrays, out, names)
            for piece, span in zip(self._pieces, self._spans, strict=True):
                if span is None:
                    usage.check_time()
                    piece(self, call)
                    continue
                if usage.deadline is None:
                    piece(self, call)
                    continue
                for place in range(*span):
                    usage.check_time()
                    self._run_native(call, place, place + 1)
            usage.check_time()
            return self._results(call, out, names)
        finally:
            usage.memory = before

    def _results(self, call: Call, out: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any]:
        return {
            name: self._delivered(tile, name, result, call.loose, out)
            for tile, name, result in zip(self.plan.outputs, names, call.results, strict=True)
        }

    def call(self, arrays: Sequence[Any], out: Mapping[str, Any] | None, names: Sequence[str]) -> Call:
        """What a call needs, before any step has run."""
        self._shelf.begin()
        loose = {tile: array for tile, array in zip(self.plan.inputs, arrays, strict=True) if tile.is_loose}
        results = [self._result(tile, name, arrays, out) for tile, name in zip(self.plan.outputs, names, strict=True)]
        memory = self._core.Visit(self._program) if self._core else _Room(self.plan.arena_bytes)
        addresses = [memory.arena, *self._addresses([*arrays, *results])]
        return Call(memory, addresses, results, loose, finder(addresses, loose))

    def names(self) -> list[str]:
        """What the core calls its steps."""
        return list(self._program.names()) if self._program is not None else []

    def _result(self, tile: Tile, name: str, arrays: Sequence[Any], out: Mapping[str, Any] | None) -> Any:
        if tile.is_loose:
            return None
        assert tile.dtype is not None
        given = None if out is None else out.get(name)
        if given is None:
            return self._shelf.array(tile.sizes, tile.dtype.numpy)
        if (
            not isinstance(given, np.ndarray)
            or given.dtype != tile.dtype.numpy
            or given.shape != tile.sizes
            or not given.flags.writeable
        ):
            raise EngineError(
                "output.array", f"out[{name!r}] should be a writable {tile.dtype} array of shape {list(tile.sizes)}"
            )
        direct = given.flags.carray and not any(is_array(each) and np.may_share_memory(given, each) for each in arrays)
        return given if direct else self._shelf.array(tile.sizes, tile.dtype.numpy)

    def _delivered(self, tile: Tile, name: str, result: Any, loose: dict[Tile, Any], out: Mapping[str, Any] | None) -> Any:
        given = None if out is None else out.get(name)
        if tile.is_loose:
            found = loose.get(tile, tile.data)
            return found if given is None else put_into(given, found, name)
        if given is None or given is result:
            return result
        given[...] = result
        return given


class _Room:
    """An arena where there is no core to keep one."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(max(nbytes, 1), np.uint8)
        self.arena = self._memory.__array_interface__["data"][0]


def _extents(plan: Plan, arrays: Sequence[Any]) -> list[tuple[int, int]]:
    """The bytes of each input and output, counted from the address of its first element."""
    inputs = [extent(array) if is_array(array) else (0, 0) for array in arrays]
    return [*inputs, *((0, 0 if tile.is_loose else tile.nbytes) for tile in plan.outputs)]


def _addresses(items: list[Any]) -> list[int]:
    return list(map(_address, items))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else 0


def is_array(item: Any) -> bool:
    """Whether something is an array of plain elements, which kernels read where it lies."""
    return isinstance(item, np.ndarray) and item.dtype.kind != "O"
