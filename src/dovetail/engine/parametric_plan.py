"""Parametric plans: one plan for a range of sizes of one symbol, made from plans for three sizes.

Where every shape is ``a + b * n`` in one symbol ``n`` (decided on the expressions, not on numbers), all offsets, sizes and
strides of a plan are polynomials in ``n``. Polynomials that agree with a linear function at three sizes are that function. The
arena has the offsets of the largest of the three sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dovetail import symbolic
from dovetail.engine.affine_sizes import is_affine, size_expressions
from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap
from dovetail.engine.plan import Plan, Step
from dovetail.engine.plan_verifier import verify_plan
from dovetail.engine.planner import make_plan
from dovetail.engine.run.step_encoding import EncodedStep, OperandRow, encode_step
from dovetail.engine.select.kernel_traits import traits_of
from dovetail.engine.shape_specialization import ShapeTensorNodes
from dovetail.ir.graph import Graph

LinearSizes = Sequence[tuple[int, int]]
"""For each axis the size at ``first``, and its slope."""

MIN_RANGE = 64
"""The least number of sizes in a parametric plan: with doubling from there, a loop of n steps makes log2(n / 64) of them."""


class ParametricPlan:
    """The steps for sizes ``first`` to ``last`` of one symbol: numbers at ``first``, and their slopes in the symbol.

    ``plan`` is the plan at ``first``, ``steps`` the core's template of its steps, ``sizes`` those of its inputs and outputs.
    """

    def __init__(self, first: int, last: int, plan: Plan, steps: Any, sizes: Sequence[LinearSizes], arena_bytes: int) -> None:
        self.first = first
        self.last = last
        self._plan = plan
        self._steps = steps
        self._sizes = sizes
        self._arena_bytes = arena_bytes

    def at(self, size: int) -> tuple[Plan, Callable[[object], None]]:
        """Return the plan for one size, and a function that adds its steps to an empty program of the core.

        The function raises ValueError where a kernel does not take the sizes. The plan's own steps are those for ``first``.
        """
        distance, base = size - self.first, self._plan
        tensors = [
            _resize(tensor, [start + slope * distance for start, slope in sizes])
            for tensor, sizes in zip((*base.inputs, *base.outputs), self._sizes, strict=True)
        ]
        plan = copy(base)
        plan.inputs, plan.outputs = tensors[: len(base.inputs)], tensors[len(base.inputs) :]
        plan.arena_bytes = self._arena_bytes
        return plan, lambda program: self._steps.fill(program, distance)


class _Sample(NamedTuple):
    """The plan for one size, and its steps as the core takes them."""

    plan: Plan
    steps: list[EncodedStep]


def make_parametric_plan(
    graph: Graph, symbol: str, sizes: Mapping[str, int], elide: str, core: ModuleType, shape_nodes: ShapeTensorNodes
) -> ParametricPlan | None:
    """Return a parametric plan from the size of ``symbol`` in ``sizes`` up to twice that; None where the plan is not
    linear in it."""
    others = {name: size for name, size in sizes.items() if name != symbol}
    if not all(is_affine(size, symbol, others) for size in size_expressions(graph)):
        return None

    def sample(size: int, like: Plan | None = None) -> _Sample | None:
        numbers = {**others, symbol: size}
        shapes = [tuple(int(symbolic.substitute(dim, numbers)) for dim in value.dims) for value in graph.inputs]
        tensor_map = TensorMap(graph, numbers, shapes, shape_nodes.shared)
        shape_nodes.evaluate(tensor_map)
        plan = make_plan(graph, tensor_map, (), elide, like)
        if like is not None and _lifetimes_of(plan) != _lifetimes_of(like):
            # The offsets belong to other buffers.
            return None
        verify_plan(plan, graph, tensor_map)
        steps = _encode_steps(plan, tensor_map)
        return None if steps is None else _Sample(plan, steps)

    first = sizes[symbol]
    last = first + max(first, MIN_RANGE)
    at_last = sample(last)
    if at_last is None:
        return None
    at_first, at_next = (sample(size, at_last.plan) for size in (first, first + 1))
    if at_first is None or at_next is None:
        return None
    return _fit(first, last, at_first, at_next, at_last, core)


def _lifetimes_of(plan: Plan) -> list[tuple[str, int, int]]:
    """Return the buffers of a plan by the name of the root, with their lifetimes."""
    return [(buffer.root.name, buffer.first, buffer.last) for buffer in plan.buffers]


def _fit(first: int, last: int, at_first: _Sample, at_next: _Sample, at_last: _Sample, core: ModuleType) -> ParametricPlan | None:
    """Fit linear functions to the numbers of plans for three sizes; None where they do not fit all three."""
    samples = (at_first, at_next, at_last)
    if len({_structure_of(sample.steps) for sample in samples}) != 1 or not _has_same_constants(samples):
        return None
    rows = [np.array([*_sizes_of(sample.plan), *_numbers_of(sample.steps)], np.int64) for sample in samples]
    slopes = rows[1] - rows[0]
    if not np.array_equal(rows[0] + slopes * (last - first), rows[2]):
        return None
    numbers = iter(slopes.tolist())
    plan = at_first.plan
    sizes = [[(size, next(numbers)) for size in tensor.sizes] for tensor in (*plan.inputs, *plan.outputs)]
    steps = core.ParametricProgram(at_first.steps, [_slopes_of(step, numbers) for step in at_first.steps])
    return ParametricPlan(first, last, plan, steps, sizes, at_last.plan.arena_bytes)


# Comparison of plans


def _encode_steps(plan: Plan, tensor_map: TensorMap) -> list[EncodedStep] | None:
    """Return the steps as the core takes them; None where one runs in Python.

    None too where a kernel packs a constant of this plan alone: packed weights of a parametric plan live as long as the model,
    and so must the constants that they are packed from.
    """
    steps = []
    for step in plan.steps:
        packed = step.reads[1] if traits_of(step.kernel).packs_weights else None
        if step.kernel == INTERPRET or (packed is not None and packed.data is not None and not tensor_map.shares([packed.data])):
            return None
        try:
            steps.append(encode_step(step))
        except ValueError:
            return None
    return steps


def _has_same_constants(samples: Sequence[_Sample]) -> bool:
    def constants_of(step: Step) -> list[np.ndarray[Any, Any] | None]:
        return [None if operand is None else operand.data for operand in (*step.reads, *step.writes)]

    for steps in zip(*(sample.plan.steps for sample in samples), strict=True):
        for first, *others in zip(*map(constants_of, steps), strict=True):
            if not all(_is_same_constant(first, other) for other in others):
                return False
    return True


def _is_same_constant(one: np.ndarray[Any, Any] | None, other: np.ndarray[Any, Any] | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _is_integer(value: object) -> bool:
    return isinstance(value, int)


def _is_integers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _structure_of(steps: Sequence[EncodedStep]) -> tuple[object, ...]:
    """Return the steps without their numbers and without the addresses of constants."""
    structure = []
    for kernel, reads, writes, attributes in steps:
        operands = tuple((row[0], row[2], row[3], len(row[4]), bool(row[6])) for row in (*reads, *writes))
        named = tuple(
            (name, len(value) if _is_integers(value) else None if _is_integer(value) else repr(value))
            for name, value in attributes.items()
        )
        structure.append((kernel, len(reads), operands, named))
    return tuple(structure)


def _numbers_of(steps: Sequence[EncodedStep]) -> Iterable[int]:
    for _, reads, writes, attributes in steps:
        for row in (*reads, *writes):
            yield row[1]
            yield from row[4]
            yield from row[5]
        for value in attributes.values():
            if _is_integer(value):
                yield value
            elif _is_integers(value):
                yield from value


def _sizes_of(plan: Plan) -> Iterable[int]:
    for tensor in (*plan.inputs, *plan.outputs):
        yield from tensor.sizes


def _resize(tensor: RunTensor, sizes: Iterable[int]) -> RunTensor:
    return RunTensor(tensor.name, tensor.type, tuple(sizes), tensor.dtype)


# Steps with slopes in place of their numbers


def _slopes_of(step: EncodedStep, slopes: Iterator[int]) -> EncodedStep:
    kernel, reads, writes, attributes = step
    read_slopes, write_slopes = ([_operand_slopes_of(row, slopes) for row in rows] for rows in (reads, writes))
    return kernel, read_slopes, write_slopes, {name: _attribute_slopes_of(value, slopes) for name, value in attributes.items()}


def _operand_slopes_of(row: OperandRow, slopes: Iterator[int]) -> OperandRow:
    buffer, _, dtype, itemsize, sizes, strides, address, low, high = row
    offset = next(slopes)
    return buffer, offset, dtype, itemsize, [next(slopes) for _ in sizes], [next(slopes) for _ in strides], address, low, high


def _attribute_slopes_of(value: Any, slopes: Iterator[int]) -> Any:
    if _is_integer(value):
        return next(slopes)
    return [next(slopes) for _ in value] if _is_integers(value) else value
