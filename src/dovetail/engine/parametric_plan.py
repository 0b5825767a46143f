"""Plans for a size that changes from call to call: what is planned for three sizes holds for all between, without planning again.

Where every shape is ``a + b * n`` in one symbol ``n`` (that is asked of the expressions, not of numbers), all offsets, sizes and
strides of a plan are polynomials in ``n``; where they agree with a straight line at three sizes they are that line. The arena is
laid out once, for the largest of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.engine.affine_sizes import expressions, is_linear
from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap
from dovetail.engine.plan import Plan, Step
from dovetail.engine.plan_verifier import verify_plan
from dovetail.engine.planner import make_plan
from dovetail.engine.run.step_encoding import Row, Spec, spec
from dovetail.engine.shape_specialization import EarlyNodes
from dovetail.ir.graph import Graph

Line = Sequence[tuple[int, int]]

PACKING = ("conv", "conv_transpose", "matmul", "quantized_conv", "recurrent")
"""Kernels that pack their second operand. What the core packs for a template lives as long as the model, and so must that."""
LEAST_ROOM = 64
"""The least number of sizes that a template is made for: doubling from there, a loop of n steps makes log2(n / 64) of them."""


class ParametricPlan:
    """The steps for sizes ``first`` to ``last`` of one symbol, as numbers at ``first`` and what one more adds to each.

    ``plan`` is the plan at ``first``, ``steps`` the core's template of its steps, ``lines`` the sizes of the plan's inputs and
    outputs: each at ``first``, and what one more adds to it.
    """

    def __init__(self, first: int, last: int, plan: Plan, steps: Any, lines: Sequence[Line], arena_bytes: int) -> None:
        self.first = first
        self.last = last
        self._plan = plan
        self._steps = steps
        self._lines = lines
        self._arena_bytes = arena_bytes

    def at(self, size: int) -> tuple[Plan, Callable[[Any], None]]:
        """The plan for one size, and what gives its steps to an empty program of the core (ValueError: no kernel takes them).

        The steps that the plan itself shows are those for ``first``.
        """
        more, known = size - self.first, self._plan
        tensors = [
            _resized(tensor, [start + slope * more for start, slope in line])
            for tensor, line in zip((*known.inputs, *known.outputs), self._lines, strict=True)
        ]
        plan = copy(known)
        plan.inputs, plan.outputs = tensors[: len(known.inputs)], tensors[len(known.inputs) :]
        plan.arena_bytes = self._arena_bytes
        return plan, lambda program: self._steps.fill(program, more)


def make_parametric_plan(
    graph: Graph, symbol: str, sizes: Mapping[str, int], elide: str, core: Any, early: EarlyNodes
) -> ParametricPlan | None:
    """A template for the size of ``symbol`` in ``sizes`` and as many again, or None where the plan is no straight line in it."""
    others = {name: size for name, size in sizes.items() if name != symbol}
    if not all(is_linear(size, symbol, others) for size in expressions(graph)):
        return None

    def planned(size: int, like: Plan | None = None) -> tuple[Plan, list[Spec]] | None:
        numbers = {**others, symbol: size}
        shapes = [tuple(int(symbolic.substitute(each, numbers)) for each in value.dims) for value in graph.inputs]
        tensor_map = TensorMap(graph, numbers, shapes, early.shared)
        early.evaluate(tensor_map)
        plan = make_plan(graph, tensor_map, (), elide, [buffer.offset for buffer in like.buffers] if like else None)
        if like is not None and _lifetimes(plan) != _lifetimes(like):
            # The offsets are those of other buffers.
            return None
        verify_plan(plan, graph, tensor_map)
        specs = _specs(plan, tensor_map)
        return None if specs is None else (plan, specs)

    first = sizes[symbol]
    last = first + max(first, LEAST_ROOM)
    largest = planned(last)
    if largest is None:
        return None
    found = [planned(size, largest[0]) for size in (first, first + 1)]
    if found[0] is None or found[1] is None:
        return None
    return _fitted(first, last, (largest, found[0], found[1]), core)


def _lifetimes(plan: Plan) -> list[tuple[str, int, int]]:
    """What lies in the buffers of a plan, from which step to which."""
    return [(buffer.root.name, buffer.first, buffer.last) for buffer in plan.buffers]


def _fitted(first: int, last: int, found: Sequence[tuple[Plan, list[Spec]]], core: Any) -> ParametricPlan | None:
    (largest, at_last), (plan, at_first), (_, at_next) = found
    if len({_shape_of(specs) for specs in (at_first, at_next, at_last)}) != 1 or not _same_constants([each for each, _ in found]):
        return None
    rows = [np.array([*_sizes(each), *_numbers(specs)], np.int64) for each, specs in (found[1], found[2], found[0])]
    slopes = rows[1] - rows[0]
    if not np.array_equal(rows[0] + slopes * (last - first), rows[2]):
        return None
    numbers = iter(slopes.tolist())
    lines = [[(size, next(numbers)) for size in tensor.sizes] for tensor in (*plan.inputs, *plan.outputs)]
    steps = core.Template(at_first, [_sloped(each, numbers) for each in at_first])
    return ParametricPlan(first, last, plan, steps, lines, largest.arena_bytes)


# Plans side by side


def _specs(plan: Plan, tensor_map: TensorMap) -> list[Spec] | None:
    """The steps as the core takes them; None where one runs in Python, or packs a constant of this plan alone."""
    found = []
    for step in plan.steps:
        packed = step.reads[1] if step.kernel in PACKING else None
        if step.kernel == INTERPRET or (packed is not None and packed.data is not None and not tensor_map.shares([packed.data])):
            return None
        try:
            found.append(spec(step))
        except ValueError:
            return None
    return found


def _same_constants(plans: Sequence[Plan]) -> bool:
    def data(step: Step) -> list[Any]:
        return [None if operand is None else operand.data for operand in (*step.reads, *step.writes)]

    for steps in zip(*(plan.steps for plan in plans), strict=True):
        for first, *rest in zip(*map(data, steps), strict=True):
            if any(first is not each and not np.array_equal(first, each) for each in rest):
                return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) for each in value)


def _shape_of(specs: Sequence[Spec]) -> Any:
    """All of some steps but their numbers (and the addresses of constants)."""
    found = []
    for kernel, reads, writes, attributes in specs:
        rows = tuple((row[0], row[2], row[3], len(row[4]), bool(row[6])) for row in (*reads, *writes))
        named = tuple(
            (name, len(value) if _is_numbers(value) else None if _is_number(value) else repr(value))
            for name, value in attributes.items()
        )
        found.append((kernel, len(reads), rows, named))
    return tuple(found)


def _numbers(specs: Sequence[Spec]) -> Iterable[int]:
    for _, reads, writes, attributes in specs:
        for row in (*reads, *writes):
            yield row[1]
            yield from row[4]
            yield from row[5]
        for value in attributes.values():
            if _is_number(value):
                yield value
            elif _is_numbers(value):
                yield from value


def _sizes(plan: Plan) -> Iterable[int]:
    for tensor in (*plan.inputs, *plan.outputs):
        yield from tensor.sizes


def _resized(tensor: RunTensor, sizes: Iterable[int]) -> RunTensor:
    return RunTensor(tensor.name, tensor.type, tuple(sizes), tensor.dtype)


# Slopes in the places of their numbers


def _sloped(each: Spec, slopes: Iterator[int]) -> Spec:
    kernel, reads, writes, attributes = each
    rows = [[_row(row, slopes) for row in side] for side in (reads, writes)]
    return kernel, rows[0], rows[1], {name: _attribute(value, slopes) for name, value in attributes.items()}


def _row(row: Row, slopes: Iterator[int]) -> Row:
    buffer, _, dtype, itemsize, sizes, strides, address, low, high = row
    offset = next(slopes)
    return buffer, offset, dtype, itemsize, [next(slopes) for _ in sizes], [next(slopes) for _ in strides], address, low, high


def _attribute(value: Any, slopes: Iterator[int]) -> Any:
    if _is_number(value):
        return next(slopes)
    return [next(slopes) for _ in value] if _is_numbers(value) else value
