"""Bounds of the difference between two models in floats that are equal over the real numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.compare.rounding.rounded_array import Floats, RoundedArray
from dovetail.compare.rounding.rounding_functions import RoundingFunctions
from dovetail.errors import DovetailError, RuleError, UnsupportedError, printable
from dovetail.ir import dtypes
from dovetail.ir.evaluate import evaluate_node, last_readers, live_nodes
from dovetail.ir.graph import Model
from dovetail.ir.limits import counting, current
from dovetail.ir.types import Tensor, Type
from dovetail.runtime.interpreter.session import InitialStates
from dovetail.runtime.random_inputs import Inputs

SAMPLES = 6
"""Runs with random rounding errors."""
DEVIATIONS = 6.0
"""The expected difference, in standard deviations of the runs with random rounding errors."""
NEAR = 4.0
"""The error of a constant that a rewrite computed, in units of rounding: two units in the last place."""
Range = tuple[float, float]
PIXEL_RANGES: dict[str, Range] = {
    "NominalRange_0_255": (0.0, 255.0),
    "NominalRange_16_235": (16.0, 235.0),
    "Normalized_0_1": (0.0, 1.0),
    "Normalized_1_1": (-1.0, 1.0),
}
"""The values of Image.NominalPixelRange in the metadata of an ONNX file (ONNX, MetadataProps)."""


@dataclass(slots=True, frozen=True)
class OutputBound:
    """OutputBound has the largest differences of the elements of one output.

    ``bound`` holds for sums in any order, ``expected`` if rounding errors are independent (six standard deviations); None where
    none is known. ``measured`` is the difference of both models in the engine, ``magnitude`` the largest magnitude.
    """

    name: str
    bound: float | None
    expected: float | None
    measured: float
    magnitude: float


@dataclass(slots=True, repr=False)
class RoundingBound:
    """RoundingBound is the result of :meth:`EqualityProof.bound_rounding`, one row per output.

    ``ranges`` are the ranges of inputs for which the bounds hold; without ranges they hold for the inputs of the run. ``notes``
    say why an output has no bound.
    """

    outputs: list[OutputBound]
    ranges: dict[str, Range] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        rows = [
            f"{row.name}: {row.measured:.2g} of at most {_text(row.bound)}, {_text(row.expected)} expected"
            for row in self.outputs
        ]
        return printable("; ".join([*rows, *self.notes]).join("<>"))


def _text(bound: float | None) -> str:
    return "unknown" if bound is None else f"{bound:.2g}"


def bound_rounding(
    models: tuple[Model, Model], inputs: Mapping[str, Any] | Inputs | None = None, ranges: Mapping[str, Range] | None = None
) -> RoundingBound:
    """Bound the difference of two models that are equal over the real numbers, for inputs or for ranges of inputs.

    Raises RuleError [argument.value] for a range of an input that is no float tensor, or that is not ordered.
    """
    source = Inputs.of(inputs)
    if inputs is None and ranges is None:
        ranges = _ranges_of_file(models[0])
    ranges = {name: (float(low), float(high)) for name, (low, high) in (ranges or {}).items()}
    _check_ranges(models[0], ranges)
    arrays = source.complete(models[0])
    generator = np.random.default_rng(source.seed)
    for name, (low, high) in ranges.items():
        array = np.asarray(arrays[name])
        arrays[name] = generator.uniform(low, high, array.shape).astype(array.dtype)
    if models[0].states:
        arrays = {**InitialStates(models[0])(arrays), **arrays}
    unit = unit_of_f64(models)
    notes: list[str] = []
    bounds: list[Floats | None] = [None] * len(models[0].outputs)
    try:
        functions = RoundingFunctions(unit)
        known = _float_constants(models[0]) if ranges else {}
        pairs = [
            evaluate_with_bounds(model, functions, arrays, ranges, known if index else None) for index, model in enumerate(models)
        ]
        bounds = [_bound_of(*pair, is_range=bool(ranges)) for pair in zip(*pairs, strict=True)]
    except DovetailError as error:
        notes.append(_reason(error))
    expected = _estimate_difference(models, arrays, unit, source.seed, notes)
    rows = []
    for value, bound, spread, (first, second) in zip(models[0].outputs, bounds, expected, _measure(models, arrays), strict=True):
        measured, magnitude = _largest(np.abs(first - second)), _largest(np.abs(first))
        rows.append(OutputBound(value.name, None if bound is None else _largest(bound), spread, measured, magnitude))
    return RoundingBound(rows, dict(ranges), notes)


def _reason(error: DovetailError) -> str:
    """Return why no bound is known. Raises the error again if a limit of the run was reached."""
    if not isinstance(error, UnsupportedError) and error.code != "run.failed":
        raise error
    return f"no bound: {error.message}" + (f" ({error.node})" if error.node else "")


def _ranges_of_file(model: Model) -> dict[str, Range]:
    """Return the range of the pixels of the input of four axes, from ONNX's metadata of images."""
    text = str(model.metadata.get("metadata_props", {}).get("Image.NominalPixelRange", ""))
    images = [x for x in model.inputs if isinstance(x.type, Tensor) and x.type.shape is not None and len(x.type.shape) == 4]
    is_known = text in PIXEL_RANGES and len(images) == 1 and _is_float(images[0].type)
    return {images[0].name: PIXEL_RANGES[text]} if is_known else {}


def _is_float(type: Type | None) -> bool:
    return isinstance(type, Tensor) and type.dtype is not None and type.dtype.is_float


def _check_ranges(model: Model, ranges: Mapping[str, Range]) -> None:
    types = {value.name: value.type for value in model.inputs}
    for name, (low, high) in ranges.items():
        if not _is_float(types.get(name)):
            raise RuleError("argument.value", f"a range needs an input of floats, got {name!r}; inputs: {', '.join(types)}")
        if not -np.inf < low <= high < np.inf:
            raise RuleError("argument.value", f"the range of {name!r} must be two finite numbers in order, got {low}, {high}")


def unit_of_f64(models: tuple[Model, Model]) -> float:
    """Return the unit roundoff of f64 arrays.

    It is that of f32 if an input has fewer bits, because runtimes compute in f32 what rules compute in f64.
    """
    kinds = {value.type.dtype for model in models for value in model.inputs if isinstance(value.type, Tensor)}
    floats = {kind for kind in kinds if kind is not None and kind.is_float}
    return 2.0**-53 if floats == {dtypes.f64} else 2.0**-24


def _float_constants(model: Model) -> dict[bytes, None]:
    found: dict[bytes, None] = {}
    for node in model.graph.nodes:
        for y in node.outputs:
            if y.constant is not None and y.constant.dtype.kind not in "iubO":
                found[y.constant.tobytes()] = None
    return found


def evaluate_with_bounds(
    model: Model,
    functions: RoundingFunctions,
    arrays: Mapping[str, Any],
    ranges: Mapping[str, Range] | None = None,
    known: Mapping[bytes, None] | None = None,
) -> list[RoundedArray]:
    """Evaluate a model with bounds. ``known``: the constants of the other model, if the bounds are for ranges."""
    graph = model.graph
    found: dict[int, Any] = {}
    for inner, x in zip(graph.inputs, model.inputs, strict=True):
        if isinstance(arrays[x.name], list | dict):
            raise UnsupportedError("array.library", f"input {x.name!r} is a sequence, for which no bound is known")
        array = found[id(inner)] = np.asarray(arrays[x.name])
        if ranges and x.name in ranges:
            low, high = ranges[x.name]
            middle, radius = np.full(array.shape, (low + high) / 2), np.full(array.shape, (high - low) / 2)
            found[id(inner)] = RoundedArray(functions, middle, array.dtype, None, radius)
    last, live = last_readers(graph), live_nodes(graph)
    with counting(model.limits):
        for index, node in enumerate(graph.nodes):
            if index not in live:
                continue
            current().check_time()
            ys = evaluate_node(node, functions, [None if x is None else found[id(x)] for x in node.inputs])
            for y, result in zip(node.outputs, ys, strict=False):
                found[id(y)] = result
                if known is not None and y.constant is not None and _is_new(y.constant, known):
                    error = NEAR * functions.unit(y.constant.dtype) * np.abs(y.constant.astype(np.float64))
                    found[id(y)] = RoundedArray(functions, y.constant.astype(np.float64), y.constant.dtype, error)
                elif isinstance(result, RoundedArray) and result.spread is None and not result.is_float:
                    # Rules that read elements take numpy's arrays.
                    found[id(y)] = np.asarray(result)
            for key in last.get(index, ()):
                found.pop(key, None)
    results = [found[id(inner)] for inner in graph.outputs]
    if any(isinstance(result, list | dict) for result in results):
        raise UnsupportedError("array.library", "an output is a sequence, for which no bound is known")
    return [functions.asarray(result) for result in results]


def _is_new(constant: Floats, known: Mapping[bytes, None]) -> bool:
    """Return whether a float constant is not in the other model."""
    return constant.dtype.kind not in "iubO" and constant.tobytes() not in known


def _bound_of(first: RoundedArray, second: RoundedArray, *, is_range: bool) -> Floats:
    """Return the bound of the difference of two results."""
    total = np.zeros(first.shape)
    for each in (first.error, second.error):
        total = total if each is None else total + each
    if is_range:
        return total
    # The constants of both models differ by rounding, so that their exact results do too.
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(first.value, second.value, dtype=np.float64))
    return np.asarray(np.where(first.value == second.value, total, np.where(np.isnan(apart), total, total + apart)))


def _estimate_difference(
    models: tuple[Model, Model], arrays: Mapping[str, Any], unit: float, seed: int, notes: list[str]
) -> list[float | None]:
    """Return the expected difference of each output, from runs with random rounding errors."""
    try:
        squares: list[Any] = [0.0] * len(models[0].outputs)
        for sample in range(SAMPLES):
            functions = RoundingFunctions(unit, np.random.default_rng((seed, sample)))
            pairs = zip(*(evaluate_with_bounds(model, functions, arrays) for model in models), strict=True)
            for index, (first, second) in enumerate(pairs):
                with np.errstate(invalid="ignore"):
                    apart = np.subtract(first.value, second.value, dtype=np.float64)
                squares[index] = squares[index] + np.where(np.isnan(apart), 0.0, apart) ** 2
    except DovetailError as error:
        note = _reason(error)
        if note not in notes:
            notes.append(note)
        return [None] * len(models[0].outputs)
    return [DEVIATIONS * _largest(np.sqrt(each / SAMPLES)) for each in squares]


def _measure(models: tuple[Model, Model], arrays: Mapping[str, Any]) -> list[tuple[Floats, Floats]]:
    """Run both models in the engine; return the pairs of results as f64."""
    # Deferred for start-up time: most proofs do not run.
    from dovetail.runtime.compilation import compile

    results = []
    for model in models:
        outputs = compile(model)({value.name: arrays[value.name] for value in model.inputs})
        results.append([np.asarray(outputs[value.name]).astype(np.float64) for value in models[0].outputs])
    return list(zip(*results, strict=True))


def _largest(array: Floats) -> float:
    return float(np.max(np.where(np.isnan(array), 0.0, array), initial=0.0))
