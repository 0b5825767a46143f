"""Parametric plans: one plan for ranges of sizes of a few symbols, fitted to sample plans at some of these sizes.

If every shape is a polynomial in these symbols, so are all offsets, sizes, strides and integer attributes that follow from the
sizes: these are products of a few sizes. The symbolic expressions, not sample values, decide whether a shape is a polynomial. If
shapes contain divisions, as strides of convolutions cause, there are two possibilities. The variables are the digits of a size in
the radices of the divisions, or a plan serves only sizes that are a period apart.

The sample plans at the lowest values of the variables determine polynomials of a total degree up to DEGREE. The degree in the
digits of one size is the lowest for which further samples, in the middle and at the ends of the ranges, agree. The ends are
needed because a product of several sizes that follow from one symbol contains a power of the symbol's last digit. All sample
plans must have the same buffers with the same lifetimes; the core assigns offsets to these buffers at each size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import chain, product, zip_longest
from math import comb, prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.memory.tensor import INTERPRET, RunTensor, TensorMap
from dovetail.engine.parametric_sizes import (
    DEGREE,
    LOWEST,
    Follower,
    Pieces,
    SizeRange,
    is_polynomial,
    size_expressions,
)
from dovetail.engine.plan import Operand, Plan
from dovetail.engine.plan_verifier import verify_plan
from dovetail.engine.planner import PlanOptions, make_plan
from dovetail.engine.run.step_encoding import EncodedStep, encode_step
from dovetail.engine.select.kernel_traits import traits_of
from dovetail.engine.shape_specialization import ShapeTensorNodes
from dovetail.ir import symbolic
from dovetail.ir.graph import Graph

MAX_ELEMENTS = 256
"""The maximum number of elements of an integer constant whose values depend on the sizes of the call."""
MAX_VERIFIED_BYTES = 1 << 24
"""The maximum bytes (arena, inputs and outputs) of a sample plan that is verified element by element."""
WIDE = 4096
"""The widest range of sizes ends before this size."""
SETTLED = 16
"""The first size of a range that is nearly as wide, without the sizes that may have other steps because they are small."""
MIDDLE = 40
"""The middle sample of a range has the maximum of the last digit divided by MIDDLE: about 100 in the widest range."""
MAX_SYMBOLS = 4
"""The maximum number of symbols of a parametric plan: four symbols take 41 sample plans."""
MAX_PLANS = 80
"""The maximum number of sample plans of a parametric plan: 54 for two image sizes that 5 strides of 2 divide."""
MAX_PLANNED_STEPS = 20_000
"""The maximum number of steps of all sample plans, if sizes have digits; planning a step takes about 0.3 ms."""
Index = tuple[int, ...]
"""One integer per digit of each symbol: the order of a difference, or the value of the digit at a sample."""
Polynomial = tuple[int, ...]
"""Newton form of a polynomial: its value at the first sizes of all ranges, and the forward differences there, by ``_orders``."""


class NoCommonPlan(Exception):
    """NoCommonPlan reports that the sizes of a range have no common plan; the message gives the reason."""


def ranges_of(size: int, pieces: Pieces) -> list[SizeRange]:
    """Return the ranges of sizes that may share a plan with ``size``, in decreasing width.

    No range contains the sizes 0 and 1, nor sizes that strides reduce to 0 or 1, since axes of one element are broadcast. Of two
    ranges with the same ends, the range of sizes with digits precedes the range of sizes a period apart.
    """
    power = 1 << (max(size, 2).bit_length() - 1)
    low, high = pieces.around(size)
    narrow = (power, 2 * power - 1) if size >= 8 else (2, 7)
    ends = [narrow]
    if 2 * pieces.period <= size < WIDE:
        ends.insert(0, (2 * pieces.period, WIDE - 1))
        if pieces.period == 1 and size >= SETTLED:
            # At a few elements a tensor may take the place of a larger one, so that the plan has other steps.
            ends.insert(1, (SETTLED, WIDE - 1))
    ends = [(max(first, low), last if high is None else min(last, high)) for first, last in ends]
    found = []
    for first, last in ends:
        if pieces.radices and (digital := _digital_range(size, max(low, LOWEST), last, pieces)) is not None:
            found.append(digital)
        found.append(_range_around(size, first, last, pieces.period))
    return found


def _digital_range(size: int, first: int, last: int, pieces: Pieces) -> SizeRange | None:
    """Return the range, with digits, of the complete periods within [first, last]; None if it does not contain ``size``."""
    first += (pieces.residue - first) % pieces.period
    last -= (last + 1 - pieces.residue) % pieces.period
    return SizeRange(first, last, 1, pieces.radices) if first <= size <= last else None


def _range_around(size: int, first: int, last: int, step: int) -> SizeRange:
    """Return the range of sizes within [first, last] whose distance to ``size`` is a multiple of ``step``."""
    return SizeRange(first + (size - first) % step, last - (last - size) % step, step)


class SymbolPlace(NamedTuple):
    """SymbolPlace is an axis of an input whose size is exactly one symbol."""

    input: int
    axis: int


class EncodedRange(NamedTuple):
    """EncodedRange holds arguments of the core's ParametricProgram. A polynomial is a row of base value and differences."""

    steps: list[EncodedStep]
    orders: list[Index]
    varying: list[tuple[int, list[int]]]
    constants: list[tuple[int, int, list[list[int]]]]
    parts: list[tuple[list[int], int, int]]


class ParametricPlan:
    """ParametricPlan holds the steps for ranges of sizes of some symbols.

    ``plan``: the plan at the first size of every range. ``steps``: the core's ParametricProgram, made from ``encoded``.
    ``sizes``: polynomials of the sizes of the plan's inputs and outputs, with differences in the order of ``orders``. ``places``:
    an input axis for each symbol; None if some symbol is not the exact size of any input axis.
    """

    def __init__(
        self,
        ranges: Mapping[str, SizeRange],
        plan: Plan,
        steps: Any,
        encoded: EncodedRange,
        sizes: Sequence[Sequence[Polynomial]],
        orders: Sequence[Index],
        places: Sequence[SymbolPlace] | None,
    ) -> None:
        self.steps = steps
        self.places = places
        self.constant_bytes = plan.constant_bytes
        self._ranges = ranges
        self._plan = plan
        self.encoded = encoded
        self._sizes = sizes
        self._orders = orders

    @property
    def constants(self) -> list[np.ndarray[Any, Any]]:
        """The constants of the steps, shared by all sizes. These arrays must live as long as the programs of the sizes."""
        return [data for step in self._plan.steps for data in step.constants()]

    @property
    def symbols(self) -> list[tuple[int, int, int, int, int, tuple[int, ...]]]:
        """One row per symbol for the native core: index of an input, axis, first size, last size, step of sizes, radices."""
        return [(*place, *range) for place, range in zip(self.places or (), self._ranges.values(), strict=True)]

    def shapes(self) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
        """Return the shapes of inputs and outputs for the native core. Each size is a row: its base value and its differences."""
        kept = [0, *(self._orders.index(order) for order in self.encoded.orders)]
        rows = [[[size[index] for index in kept] for size in sizes] for sizes in self._sizes]
        return rows[: len(self._plan.inputs)], rows[len(self._plan.inputs) :]

    def at(self, sizes: Mapping[str, int]) -> tuple[Plan, Callable[[object], None]]:
        """Return the plan for some sizes, and a function that adds its steps to an empty program.

        The function raises ValueError where a kernel does not take the sizes. The steps of the returned plan are still the steps
        for the first sizes.
        """
        distance = tuple(digit for name, range in self._ranges.items() for digit in range.digits(sizes[name]))
        powers = [_power(index, distance) for index in self._orders]
        base = self._plan
        tensors = [
            _resize(tensor, [_evaluate(number, powers) for number in own])
            for tensor, own in zip((*base.inputs, *base.outputs), self._sizes, strict=True)
        ]
        plan = copy(base)
        plan.inputs, plan.outputs = tensors[: len(base.inputs)], tensors[len(base.inputs) :]
        plan.arena_bytes = self.steps.arena_bytes(distance)
        return plan, lambda program: self.steps.fill(program, distance)


def _orders(ranges: Iterable[SizeRange], degree: int) -> Sequence[Index]:
    """Return the orders of a polynomial's differences, sorted by total order: the zero order is the first.

    ``degree`` bounds the total order in the digits of a symbol that has radices. The order in a digit is below the digit's radix.
    """
    return _orders_of(tuple(range.radices for range in ranges), degree)


@cache
def _orders_of(radices: tuple[tuple[int, ...], ...], degree: int) -> Sequence[Index]:
    of_symbols = []
    for each in radices:
        digits = product(*(range(min(radix - 1, degree) + 1) for radix in each), range((degree if each else DEGREE) + 1))
        of_symbols.append([index for index in digits if sum(index) <= (degree if each else DEGREE)])
    found = (tuple(chain.from_iterable(parts)) for parts in product(*of_symbols))
    return tuple(sorted((index for index in found if sum(index) <= DEGREE), key=_total))


def count_plans(ranges: Iterable[SizeRange]) -> int:
    """Return the minimum number of sample plans that a parametric plan for these ranges needs."""
    return len(_orders(ranges, 1))


def _total(index: Index) -> tuple[int, Index]:
    return sum(index), index


def _power(index: Index, distance: Index) -> int:
    """Return the product of the binomial coefficients C(distance[i], index[i])."""
    return prod(map(comb, distance, index))


def _evaluate(polynomial: Polynomial, powers: Sequence[int]) -> int:
    return sum(difference * power for difference, power in zip(polynomial, powers, strict=True) if difference)


class _Constant(NamedTuple):
    """_Constant holds the integer elements of a constant as polynomials in the sizes, and the indices of its step and operand."""

    step: int
    operand: int
    elements: list[Polynomial]


class _Sample(NamedTuple):
    """_Sample holds the plan for the sizes at ``distance`` from the first sizes, and its steps encoded for the core."""

    distance: Index
    plan: Plan
    steps: list[EncodedStep]


def make_parametric_plan(
    graph: Graph,
    ranges: Mapping[str, SizeRange],
    others: Mapping[str, int],
    followers: Mapping[str, Follower],
    options: PlanOptions,
    core: ModuleType,
    shape_nodes: ShapeTensorNodes,
) -> ParametricPlan:
    """Return a parametric plan for ``ranges`` of some symbols and their ``followers``, with the other symbols at ``others``.

    Raises NoCommonPlan.
    """
    tops = [range.top for range in ranges.values()]
    if min(top[-1] for top in tops) < DEGREE:
        raise NoCommonPlan("a range has too few sizes")
    if not shape_nodes.are_left_to_kernels(ranges.keys() | followers.keys()):
        raise NoCommonPlan("constants of a plan follow from the sizes")
    if (count := count_plans(ranges.values())) > MAX_PLANS:
        raise NoCommonPlan(f"the divisions of the sizes demand {count} plans")
    for size in size_expressions(graph):
        if not is_polynomial(size, ranges, others, followers):
            raise NoCommonPlan("a shape is unknown" if size is None else f"the size {size} is no polynomial")

    def tensors_at(distance: Index) -> TensorMap:
        rest = iter(distance)
        own = {name: range.size_at([next(rest) for _ in range.top]) for name, range in ranges.items()}
        numbers = {**others, **own, **{name: own[each.leader] + each.offset for name, each in followers.items()}}
        shapes = [tuple(int(symbolic.substitute(dim, numbers)) for dim in value.dims) for value in graph.inputs]
        tensor_map = TensorMap(graph, numbers, shapes, shape_nodes.shared)
        shape_nodes.evaluate(tensor_map)
        return tensor_map

    @cache
    def sample(distance: Index) -> _Sample:
        tensor_map = tensors_at(distance)
        plan = make_plan(graph, tensor_map, (), options, like, apart=True)
        if difference := _first_difference(_lifetimes_of(plan), _lifetimes_of(like)):
            raise NoCommonPlan(f"lifetimes of buffers differ: {difference}")
        if plan.arena_bytes + sum(tensor.nbytes for tensor in (*plan.inputs, *plan.outputs)) <= MAX_VERIFIED_BYTES:
            verify_plan(_in_one_arena(plan), graph, tensor_map)
        return _Sample(distance, plan, _encode_steps(plan, tensor_map))

    def samples(orders: Sequence[Index]) -> Iterator[_Sample]:
        for distance in (*orders, *_single_ends(tops), *_middles(tops), ends):
            found = sample(distance)
            if difference := _first_difference(_structure_of(found.steps), _structure_of(at_last.steps)):
                raise NoCommonPlan(f"steps differ: {difference}")
            yield found

    ends = tuple(chain.from_iterable(tops))
    like = make_plan(graph, tensors_at(ends), (), options)
    at_last = sample(ends)
    places = _places_of(graph, ranges)
    has_digits = any(each.radices for each in ranges.values())
    for degree in range(1, DEGREE + 1):
        orders = _orders(ranges.values(), degree)
        if len(orders) > MAX_PLANS or (has_digits and len(orders) * len(like.steps) > MAX_PLANNED_STEPS):
            raise NoCommonPlan(f"the divisions of the sizes demand {len(orders)} plans")
        plan = _fit(ranges, list(samples(orders)), orders, core, places)
        if plan is not None:
            return plan
        if not has_digits:
            break
    raise NoCommonPlan("the numbers of a step are no polynomials in the sizes")


def _single_ends(tops: Sequence[Index]) -> Iterator[Index]:
    """Yield for each of several symbols the sample at the end of its range, with the other symbols at their first size."""
    for symbol, _ in enumerate(tops if len(tops) > 1 else ()):
        yield tuple(digit if other == symbol else 0 for other, top in enumerate(tops) for digit in top)


def _middles(tops: Sequence[Index]) -> Iterator[Index]:
    """Yield the samples in the middle of all ranges: with even digits at their maximum, then with odd digits at theirs."""
    for parity in (0, 1) if any(len(top) > 1 for top in tops) else (0,):
        yield tuple(
            digit
            for *highest, last in tops
            for digit in (
                *(top * (place % 2 == parity) for place, top in enumerate(highest)),
                min(max(last // MIDDLE, DEGREE + 1), last),
            )
        )


def _places_of(graph: Graph, symbols: Iterable[str]) -> list[SymbolPlace] | None:
    """Return for each symbol an input axis whose size is exactly the symbol; None where a symbol has no such axis."""
    places = {
        str(dim): SymbolPlace(number, axis) for number, value in enumerate(graph.inputs) for axis, dim in enumerate(value.dims)
    }
    return [places[name] for name in symbols] if all(name in places for name in symbols) else None


def _first_difference(one: Sequence[object], other: Sequence[object]) -> str:
    """Return a text with the first pair of items that differ; "" if all are equal."""
    pairs = (f"{a} and {b}" for a, b in zip_longest(one, other) if a != b)
    return next(pairs, "")


def _lifetimes_of(plan: Plan) -> list[tuple[str, int, int]]:
    """Return the root's name, the first step and the last step of each buffer of a plan."""
    return [(buffer.root.name, buffer.first, buffer.last) for buffer in plan.buffers]


def _in_one_arena(plan: Plan) -> Plan:
    """Return a plan whose operands have offsets in the arena, from a plan in which each arena buffer has a separate index."""
    first = 1 + len(plan.inputs) + len(plan.outputs)

    def move(operand: Operand) -> Operand:
        if operand.buffer < first:
            return operand
        return operand._replace(buffer=0, offset=plan.buffers[operand.buffer - first].offset + operand.offset)

    steps = [
        replace(
            step,
            reads=[None if operand is None else move(operand) for operand in step.reads],
            writes=[move(operand) for operand in step.writes],
        )
        for step in plan.steps
    ]
    return replace(plan, steps=steps)


def _fit(
    ranges: Mapping[str, SizeRange],
    samples: Sequence[_Sample],
    orders: Sequence[Index],
    core: ModuleType,
    places: Sequence[SymbolPlace] | None,
) -> ParametricPlan | None:
    """Interpolate the size-dependent integers of the first samples, those at ``orders``; None if another sample disagrees.

    Raises NoCommonPlan where a constant differs between samples and is no polynomial.
    """
    distances = [sample.distance for sample in samples]
    rows = [[*_sizes_of(sample.plan), *_bytes_of(sample.plan), *_numbers_of(sample.steps)] for sample in samples]
    numbers = _polynomials(rows, distances, orders)
    if numbers is None:
        return None
    constants = _varying_constants(samples, orders)
    plan, steps, rest = samples[0].plan, samples[0].steps, iter(numbers)
    sizes = [[next(rest) for _ in tensor.sizes] for tensor in (*plan.inputs, *plan.outputs)]
    nbytes = [next(rest) for _ in plan.buffers]
    polynomials = list(rest)
    elements = [element for constant in constants for element in constant.elements]
    used = [order for order in range(1, len(orders)) if any(number[order] for number in (*numbers, *elements))]

    def row_of(number: Polynomial) -> list[int]:
        return [number[0], *(number[order] for order in used)]

    varying = [(index, row_of(number)[1:]) for index, number in enumerate(polynomials) if any(row_of(number)[1:])]
    elements_by_step = [(constant.step, constant.operand, list(map(row_of, constant.elements))) for constant in constants]
    parts = [(row_of(size), buffer.first, buffer.last) for size, buffer in zip(nbytes, plan.buffers, strict=True)]
    encoded = EncodedRange(steps, [orders[order] for order in used], varying, elements_by_step, parts)
    return ParametricPlan(ranges, _in_one_arena(plan), core.ParametricProgram(*encoded), encoded, sizes, orders, places)


def _polynomials(rows: Sequence[Sequence[int]], distances: Sequence[Index], orders: Sequence[Index]) -> list[Polynomial] | None:
    """Return a polynomial for each column of ``rows``; None if a polynomial does not give the values of all rows.

    The polynomials are interpolated from the first rows, whose ``distances`` are the ``orders``. The other rows are checked.
    """
    rest = [[_power(index, distance) for index in orders] for distance in distances[len(orders) :]]
    found = []
    for values in zip(*rows, strict=True):
        polynomial = _polynomial(values[: len(orders)], orders)
        if any(_evaluate(polynomial, powers) != value for powers, value in zip(rest, values[len(orders) :], strict=True)):
            return None
        found.append(polynomial)
    return found


def _polynomial(values: Sequence[int], orders: Sequence[Index]) -> Polynomial:
    """Return the polynomial with ``values`` at the indices ``orders``, as the forward differences of Newton's form."""
    if all(value == values[0] for value in values):
        return (values[0],) + (0,) * (len(values) - 1)
    found: list[int] = []
    for value, index in zip(values, orders, strict=True):
        # The part of Newton's form before this index: each term of higher order is 0 here.
        known = sum(each * _power(other, index) for each, other in zip(found, orders, strict=False) if each)
        found.append(value - known)
    return tuple(found)


# Comparison of plans


def _encode_steps(plan: Plan, tensor_map: TensorMap) -> list[EncodedStep]:
    """Return the steps encoded for the core. Raises NoCommonPlan where a step runs in Python.

    Also raises NoCommonPlan where a kernel packs a constant that only this plan has. Packed weights of a parametric plan live as
    long as the model, and so must the constants from which these weights are packed.
    """
    steps = []
    for step in plan.steps:
        packed = step.reads[1] if traits_of(step.kernel).packs_weights else None
        if step.kernel == INTERPRET:
            raise NoCommonPlan(f"a step runs in Python: {step.label}: {step.reason}")
        if packed is not None and packed.data is not None and not tensor_map.shares([packed.data]):
            raise NoCommonPlan(f"weights follow from the sizes: {step.label}")
        try:
            steps.append(encode_step(step))
        except ValueError as error:
            raise NoCommonPlan(f"{step.label}: {error}") from None
    return steps


def _varying_constants(samples: Sequence[_Sample], orders: Sequence[Index]) -> list[_Constant]:
    """Return constants that differ between samples. Raises NoCommonPlan where one is no polynomial or is written by a step."""
    found = []
    distances = [sample.distance for sample in samples]
    for index, steps in enumerate(zip(*(sample.plan.steps for sample in samples), strict=True)):
        writes = [[operand.data for operand in step.writes] for step in steps]
        if any(data is not None for row in writes for data in row):
            raise NoCommonPlan(f"a step writes a constant: {steps[0].label}")
        reads = [[operand for operand in step.reads if operand is not None] for step in steps]
        for operand, (one, *others) in enumerate(zip(*reads, strict=True)):
            if all(_is_same_constant(one.data, other.data) for other in others):
                continue
            is_whole = all(each.offset == 0 for each in (one, *others))
            data = [each.data for each in (one, *others)]
            constant = _constant(index, operand, data, distances, orders) if is_whole else None
            if constant is None:
                raise NoCommonPlan(f"the elements of a constant of {steps[0].label} are no polynomials in the sizes")
            found.append(constant)
    return found


def _constant(
    step: int,
    operand: int,
    values: Sequence[np.ndarray[Any, Any] | None],
    distances: Sequence[Index],
    orders: Sequence[Index],
) -> _Constant | None:
    """Fit polynomials to the elements of a constant; None unless all samples have up to MAX_ELEMENTS integers in one shape."""
    arrays = [value for value in values if value is not None]
    first = arrays[0] if len(arrays) == len(values) else None
    if first is None or first.dtype.kind not in "iuf" or first.size > MAX_ELEMENTS:
        return None
    rows = []
    for array in arrays:
        if array.shape != first.shape or array.dtype != first.dtype or not array.flags.c_contiguous:
            return None
        elements = array.ravel().tolist()
        if array.dtype.kind == "f" and (np.signbit(array) & (array == 0)).any():
            return None
        if any(element != element or abs(element) >= 2**24 or element != int(element) for element in elements):
            return None
        rows.append([int(element) for element in elements])
    numbers = _polynomials(rows, distances, orders)
    return None if numbers is None else _Constant(step, operand, numbers)


def _is_same_constant(one: np.ndarray[Any, Any] | None, other: np.ndarray[Any, Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or (one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())


def _has_numbers(value: Any) -> bool:
    """Return whether an attribute's value is an integer or a sequence of integers."""
    return all(isinstance(item, int | np.integer) for item in _items_of(value))


def _items_of(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _is_number(name: str, value: object) -> bool:
    """Return whether an attribute's value is an integer or a sequence of integers that may depend on the sizes."""
    return name not in STRUCTURE and _has_numbers(value)


STRUCTURE = ("code", "results")
"""Names of attributes whose integers encode instructions, which do not depend on sizes."""


def _structure_of(steps: Sequence[EncodedStep]) -> tuple[object, ...]:
    """Return the steps without the integers that may depend on sizes and without the addresses of constants."""
    structure = []
    for kernel, reads, writes, attributes in steps:
        operands = tuple((row[0], row[2], row[3], len(row[4]), bool(row[6])) for row in (*reads, *writes))
        named = tuple(
            (name, len(_items_of(value)) if _is_number(name, value) else repr(value)) for name, value in attributes.items()
        )
        structure.append((kernel, len(reads), operands, named))
    return tuple(structure)


def _numbers_of(steps: Sequence[EncodedStep]) -> Iterable[int]:
    """Yield the integers of the steps that may depend on sizes, in the order of the core's ParametricProgram."""
    for _, reads, writes, attributes in steps:
        for row in (*reads, *writes):
            yield row[1]
            yield from row[4]
            yield from row[5]
        for _, value in sorted(attributes.items()):
            if _has_numbers(value):
                yield from map(int, _items_of(value))


def _sizes_of(plan: Plan) -> Iterable[int]:
    for tensor in (*plan.inputs, *plan.outputs):
        yield from tensor.sizes


def _bytes_of(plan: Plan) -> Iterable[int]:
    return (buffer.nbytes for buffer in plan.buffers)


def _resize(tensor: RunTensor, sizes: Iterable[int]) -> RunTensor:
    return RunTensor(tensor.name, tensor.type, tuple(sizes), tensor.dtype)
