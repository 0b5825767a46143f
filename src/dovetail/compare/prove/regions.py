"""The parts of two models that are not proved equal: cut at values that agree, and run on the same operands."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np

from dovetail.compare.arrays import relative_difference
from dovetail.compare.prove.model_terms import number_terms
from dovetail.compare.prove.real_terms import real_terms
from dovetail.compare.prove.unequal_region import UnequalRegion
from dovetail.errors import DovetailError
from dovetail.ir.evaluate import RunArrays, evaluate_node
from dovetail.ir.graph import Model, Node, Value
from dovetail.ir.limits import bytes_of, counting, current
from dovetail.ir.op import draws
from dovetail.ir.types import Tensor
from dovetail.ops.elementwise.unary import Round
from dovetail.runtime.interpreter.session import InitialStates
from dovetail.runtime.random_inputs import random_inputs

MEMORY = 1 << 30
"""Maximum size in bytes of the values of both models that are kept for the runs of regions."""
MAX_CANDIDATES = 8
"""Maximum number of values of smaller, and of larger, mean magnitude with which a value is compared."""
TOLERANCE = 1e-3
"""Difference relative to the largest magnitude beyond which results differ by more than rounding."""
QUANTIZED_TOLERANCE = 3e-2
"""TOLERANCE of models that round to integers: a rounding difference becomes a step of several units of 8 bits."""


Pair = tuple[Value, Value]


def find_regions(
    models: tuple[Model, Model],
    terms: Sequence[dict[int, Value]],
    outputs: Sequence[Pair],
    seed: int,
    deadline: float,
    real: bool,
    fit_sizes: bool,
) -> tuple[list[UnequalRegion], list[str]]:
    """Return the smallest regions that are not proved equal, and notes.

    Values of unequal terms are paired by name and by the elements of a seeded run. Each pair is a cut: both models are translated
    again with an unknown in place of the pair. If the terms before a cut still differ, the part before the cut is a region.
    """
    notes: list[str] = []
    unequal = [_unequal_nodes(model, own, other) for model, own, other in zip(models, terms, reversed(terms), strict=True)]
    values, reason = _run_both(models, seed, deadline)
    if reason:
        notes.append(f"the models could not run to find the regions: {reason}")
    tolerance = _tolerance_of(models)
    is_different = not reason and any(_distance(pair, values) > tolerance for pair in outputs)
    taken = {id(value) for pair in outputs for value in pair}
    pairs = [*outputs, *_pair_values(unequal, values, taken, by_name=is_different or bool(reason), tolerance=tolerance)]
    cuts: list[dict[int, int]] = [
        {id(pair[index]): number for number, pair in enumerate(pairs) if pair[index].node} for index in (0, 1)
    ]
    numbered = number_terms(models, deadline=deadline, fit_sizes=fit_sizes, cuts=cuts)
    cut_terms, before = numbered.terms, numbered.before_cuts
    if real:
        over_reals = real_terms(numbered, deadline=deadline)
        cut_terms, before = over_reals.terms, over_reals.before_cuts
    regions = []
    known = [{id(term) for term in each.values()} for each in cut_terms]
    runner = _Runner(models, cut_terms, values, deadline)
    for number, pair in enumerate(pairs):
        first, second = (before[index].get(number, cut_terms[index][id(pair[index])]) for index in (0, 1))
        if first is second:
            continue
        region = _region(pair, cut_terms, known, cuts)
        runner.measure(region, pair)
        region.description.is_different &= is_different
        regions.append(region.description)
    return _merge(regions), notes


def _is_quantized(model: Model) -> bool:
    """Return whether a model rounds values to integers."""
    return any("quantiz" in type(node.op).__module__ or isinstance(node.op, Round) for node in model.graph.nodes)


def _unequal_nodes(model: Model, own: dict[int, Value], other: dict[int, Value]) -> list[Node]:
    """Return the nodes on which outputs depend, and whose terms the other model does not have."""
    known = {id(term) for term in other.values()}
    needed = {id(value) for value in model.outputs}
    found = []
    for node in reversed(model.graph.nodes):
        if any(id(y) in needed and id(own[id(y)]) not in known for y in node.outputs):
            found.append(node)
            needed.update(id(x) for x in node.inputs if x is not None)
    return found[::-1]


def differ_in_a_run(models: tuple[Model, Model], outputs: Sequence[Pair], seed: int, deadline: float) -> bool:
    """Return whether floats of the outputs differ by more than rounding in a seeded run; False if the models cannot run.

    Models that draw random numbers are not run.
    """
    if any(draws(node.op, node.inputs) for model in models for node in model.graph.nodes):
        return False
    values, reason = _run_both(models, seed, deadline)
    floats = [pair for pair in outputs if isinstance(array := values[0].get(id(pair[0])), np.ndarray) and array.dtype.kind == "f"]
    return not reason and any(_distance(pair, values) > _tolerance_of(models) for pair in floats)


def _tolerance_of(models: tuple[Model, Model]) -> float:
    return QUANTIZED_TOLERANCE if any(map(_is_quantized, models)) else TOLERANCE


def _run_both(models: tuple[Model, Model], seed: int, deadline: float) -> tuple[list[dict[int, Any]], str]:
    """Run both models on the same inputs. Returns the values of each model by id, and the reason if values are missing."""
    results: list[dict[int, Any]] = [{}, {}]
    limits = current().limits
    memory = MEMORY if limits.memory is None else min(limits.memory, MEMORY)
    limits = replace(limits, seconds=max(deadline - monotonic(), 0.1), memory=memory)
    try:
        with counting(limits):
            return results, _run_in_turn(models, seed, results)
    except DovetailError as error:
        return results, f"[{error.code}] {error.message}"


def _run_in_turn(models: tuple[Model, Model], seed: int, results: list[dict[int, Any]]) -> str:
    """Run one model after the other into ``results``. Returns the reason if values are missing, else an empty string."""
    arrays: dict[str, Any] = random_inputs(models[0], seed=seed)
    usage = current()
    if models[0].states:
        arrays = {**InitialStates(models[0])(arrays), **arrays}
    used = 0
    for model, found in zip(models, results, strict=True):
        for value in model.inputs:
            if value.name not in arrays:
                return f"input {value.name!r} is in only one model"
            found[id(value)] = arrays[value.name]
        # Both runs keep all their values, so the memory of the first run still counts during the second run.
        run_arrays = RunArrays(found.items())
        for node in model.graph.nodes:
            usage.check_time()
            ys = evaluate_node(node, np, [None if x is None else found[id(x)] for x in node.inputs])
            run_arrays.store(node, ys)
            for y, array in zip(node.outputs, ys, strict=False):
                found[id(y)] = array
                used += bytes_of(array) if node.inputs else 0
            if used > MEMORY:
                return f"their values exceed {MEMORY >> 20} MiB"
    return ""


def _distance(pair: Pair, values: Sequence[dict[int, Any]]) -> float:
    first, second = (each.get(id(value)) for each, value in zip(values, pair, strict=True))
    return relative_difference(first, second) if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) else 0.0


def _pair_values(
    unequal: Sequence[list[Node]], values: Sequence[dict[int, Any]], taken: set[int], *, by_name: bool, tolerance: float
) -> list[Pair]:
    """Pair values of unequal terms: first those of equal names and types, then those of equal elements.

    Without ``by_name`` values of equal names must also have equal elements, because the models are not known to differ.
    """
    first, second = ([y for node in nodes for y in node.outputs if id(y) not in taken and node.inputs] for nodes in unequal)
    pairs: list[Pair] = []
    same_name = {y.name: y for y in second}
    used: set[int] = set()
    for x in first:
        y = same_name.get(x.name)
        if y is not None and _have_same_type(x, y, values) and (by_name or _distance((x, y), values) <= tolerance):
            pairs.append((x, y))
            used |= {id(x), id(y)}
    rows: dict[Any, list[tuple[float, int, Value]]] = {}
    for index, y in enumerate(second):
        array = values[1].get(id(y))
        if id(y) not in used and (form := _form(array)) is not None:
            rows.setdefault(form, []).append((_magnitude(array), index, y))
    for candidates in rows.values():
        candidates.sort()
    for x in first:
        array = values[0].get(id(x))
        form = None if id(x) in used else _form(array)
        if form is None:
            continue
        for y in _near(rows.get(form, []), _magnitude(array)):
            if id(y) not in used and relative_difference(array, values[1][id(y)]) <= tolerance:
                pairs.append((x, y))
                used |= {id(x), id(y)}
                break
    return pairs


def _magnitude(array: Any) -> float:
    """Return the mean magnitude of the elements, which is nearly equal for nearly equal arrays."""
    with np.errstate(all="ignore"):
        mean = float(np.mean(np.abs(np.asarray(array, np.float64))))
    return mean if np.isfinite(mean) else -1.0


def _near(candidates: list[tuple[float, int, Value]], magnitude: float) -> list[Value]:
    """Return the candidates whose magnitude is near ``magnitude``, the nearest first."""
    place = bisect_left(candidates, (magnitude, -1))
    chosen = candidates[max(0, place - MAX_CANDIDATES) : place + MAX_CANDIDATES]
    return [value for _, _, value in sorted(chosen, key=lambda item: (abs(item[0] - magnitude), item[1]))]


def _have_same_type(x: Value, y: Value, values: Sequence[dict[int, Any]]) -> bool:
    first, second = values[0].get(id(x)), values[1].get(id(y))
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.shape == second.shape and bool(first.dtype == second.dtype)
    if not isinstance(x.type, Tensor) or not isinstance(y.type, Tensor) or x.type.shape is None or y.type.shape is None:
        return False
    return x.type.dtype is y.type.dtype and len(x.type.shape) == len(y.type.shape)


def _form(array: Any) -> Any:
    """Return the type and the shape of an array with more than one element; None for other values."""
    return (
        (array.dtype.str, array.shape)
        if isinstance(array, np.ndarray) and array.size > 1 and array.dtype.kind in "biuf"
        else None
    )


@dataclass(slots=True)
class _Part:
    """_Part is a region with its nodes; ``inputs`` are, for each model, the values at the boundary of the region."""

    description: UnequalRegion
    nodes: list[list[Node]]
    inputs: list[list[Value]]


def _region(pair: Pair, terms: Sequence[dict[int, Value]], known: Sequence[set[int]], cuts: Sequence[dict[int, int]]) -> _Part:
    """Return the region between a pair of unequal values and the nearest earlier values that are equal or cut."""
    nodes: list[list[Node]] = [[], []]
    inputs: list[list[Value]] = [[], []]
    for index in (0, 1):
        stack, seen = [pair[index]], {id(pair[index])}
        order: dict[int, Node] = {}
        while stack:
            value = stack.pop()
            is_end = value is not pair[index] and (id(value) in cuts[index] or id(terms[index][id(value)]) in known[1 - index])
            if value.node is None or is_end:
                inputs[index].append(value)
                continue
            order[id(value.node)] = value.node
            for x in value.node.inputs:
                if x is not None and id(x) not in seen:
                    seen.add(id(x))
                    stack.append(x)
        nodes[index] = list(order.values())[::-1]
    labels = [[node.label for node in each if node.inputs] for each in nodes]
    names = [value.name for value in inputs[0] if value.constant is None]
    return _Part(UnequalRegion(labels[0], labels[1], names, [(pair[0].name, pair[1].name)]), nodes, inputs)


class _Runner:
    """_Runner runs regions on the values of the first model at the boundaries of the regions."""

    def __init__(
        self,
        models: tuple[Model, Model],
        terms: Sequence[dict[int, Value]],
        values: Sequence[dict[int, Any]],
        deadline: float,
    ) -> None:
        self._terms = terms
        self._values = values
        self._deadline = deadline
        self._by_term = {id(terms[0][key]): array for key, array in values[0].items() if key in terms[0]}
        self._positions = [{id(node): index for index, node in enumerate(model.graph.nodes)} for model in models]

    def measure(self, part: _Part, pair: Pair) -> None:
        """Run a region in both models, and record the difference; a region that draws random numbers does not run."""
        seconds = self._deadline - monotonic()
        if seconds <= 0 or any(draws(node.op, node.inputs) for nodes in part.nodes for node in nodes):
            return
        try:
            with counting(replace(current().limits, seconds=seconds)):
                results = [self._run(part, pair, index) for index in (0, 1)]
        except (DovetailError, KeyError):
            return
        difference = relative_difference(*results)
        part.description.difference = difference
        part.description.is_different = difference > TOLERANCE

    def _run(self, part: _Part, pair: Pair, index: int) -> Any:
        """Run a region in one model. Raises KeyError if a value at the boundary is not known."""
        known: dict[int, Any] = {}
        for value in part.inputs[index]:
            array = self._by_term.get(id(self._terms[index][id(value)]))
            known[id(value)] = self._values[index][id(value)] if array is None else array
        with RunArrays(known.items()) as arrays:
            for node in sorted(part.nodes[index], key=lambda node: self._positions[index][id(node)]):
                current().check_time()
                arrays.store(node, evaluate_node(node, np, [None if x is None else arrays[id(x)] for x in node.inputs]))
            return arrays[id(pair[index])]


def _merge(regions: Sequence[UnequalRegion]) -> list[UnequalRegion]:
    """Merge regions that have the same nodes in both models."""
    merged: list[UnequalRegion] = []
    for region in regions:
        for other in merged:
            if (region.nodes_a, region.nodes_b) == (other.nodes_a, other.nodes_b):
                other.outputs += [pair for pair in region.outputs if pair not in other.outputs]
                other.is_different |= region.is_different
                if region.difference is not None:
                    other.difference = max(region.difference, other.difference or 0.0)
                break
        else:
            merged.append(region)
    return merged
