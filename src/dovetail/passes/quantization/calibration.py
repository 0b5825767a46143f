"""Rows of calibration: the calls by which a model is calibrated, and the calls by which the result is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, EngineError, RuleError, raise_all
from dovetail.ir.graph import Model, Value
from dovetail.ir.inputs_outputs import bind_sizes, sizes_of_arrays, to_array, unknown_input
from dovetail.ir.state import own_inputs
from dovetail.ir.symbolic import name_of
from dovetail.ir.types import Tensor
from dovetail.passes.quantization.error_bounds import bound_error
from dovetail.runtime.compilation import compile
from dovetail.runtime.program import Program
from dovetail.runtime.random_inputs import Inputs, random_inputs

ROWS = 32
"""The maximum number of rows of one call of a model with a symbolic first dimension."""
HELD_OUT_CALLS = 16
"""Number of calls of a model with a symbolic first dimension into which the held-out rows are split, if ROWS permits."""
DRAWN_CALLS = 8
"""Number of calls on random inputs, where no rows are passed; half of them are held out."""

Array = np.ndarray[Any, Any]
Call = dict[str, Any]


@dataclass
class Calibration:
    """Calibration holds the inputs of ``calls``, and of ``held_out`` calls, on whose rows nothing is calibrated.

    ``drawn`` names the inputs that are random. Where there is one call, it is also the only one in ``held_out``. ``small_calls``
    have the rows of ``calls``, as few in a call as ``held_out`` has, so that their errors have a spread.
    """

    calls: list[Call]
    held_out: list[Call]
    small_calls: list[Call]
    drawn: list[str] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        """True if the result is measured on the rows of the calibration, because they fit one call."""
        return self.held_out is self.calls


def calibrate(model: Model, inputs: Inputs) -> Calibration:
    """Split rows into calls of ``model``; three quarters of the rows calibrate, and the others are held out.

    The first axis of an input counts its rows. If that size of the input is fixed, the array holds the rows of one or of several
    calls. If it is symbolic, the inputs with as many rows as the first one are split, and others are passed as they are. Inputs
    without an array are drawn anew for each call. Raises EngineError [input.*] for arrays that do not fit an input
    of the model, and RuleError [argument.value] for NaN and infinities.
    """
    aliases = {alias: value.name for value in model.inputs for alias in value.names}
    arrays = {aliases.get(name, name): array for name, array in inputs.arrays.items()}
    own = {value.name: value for value in own_inputs(model)}
    unknown = [name for name in arrays if name not in own]
    if unknown:
        raise unknown_input(unknown, list(own))
    missing = [name for name in own if name not in arrays]
    if not arrays:
        first = _draw(model, inputs, missing, {}, 0)
        sized = replace(inputs, sizes={**(inputs.sizes or {}), **sizes_of_arrays(model.inputs, first)})
        drawn = [first, *(_draw(model, sized, missing, {}, index) for index in range(1, DRAWN_CALLS))]
        first_half = drawn[: DRAWN_CALLS // 2]
        return Calibration(first_half, drawn[DRAWN_CALLS // 2 :], first_half, missing)
    errors: list[DovetailError] = []
    rows: dict[str, Any] = {}
    for name, array in arrays.items():
        try:
            rows[name] = _check_rows(own[name], array)
        except DovetailError as error:
            errors.append(error.at(file=model.file))
    raise_all(errors, "inputs whose rows cannot calibrate the model")
    calls, held_out, small_calls = (
        [{**call, **_draw(model, inputs, missing, call, index)} for index, call in enumerate(each)] if missing else each
        for each in _split_rows({name: own[name] for name in rows}, rows)
    )
    # A single call is used twice.
    return Calibration(calls, held_out or calls, small_calls, missing)


def _check_rows(value: Value, rows: object) -> Array:
    """Return an array of rows of the input ``value``. Raises EngineError [input.*], RuleError [argument.value]."""
    if not isinstance(value.type, Tensor):
        raise EngineError("input.type", f"rows of input {value.name!r} must be a tensor, got {value.type}")
    array: Array = to_array(rows, value)
    shape = value.type.shape
    sizes = shape or ()
    fixed = [(size, found) for size, found in zip(sizes[1:], array.shape[1:], strict=False) if isinstance(size, int)]
    if shape is not None and (len(shape) != array.ndim or any(size != found for size, found in fixed)):
        raise EngineError("input.shape", f"input {value.name!r} must be {value.type}, got the shape {list(array.shape)}")
    if shape and not len(array):
        raise EngineError("input.shape", f"input {value.name!r} must have at least one row, got none")
    if shape and isinstance(shape[0], int) and len(array) % shape[0]:
        raise EngineError(
            "input.shape", f"rows of input {value.name!r} must be a multiple of its first size ({shape[0]}), got {len(array)}"
        )
    if value.dtype.is_float and not np.all(np.isfinite(array.astype(np.float64))):
        places = np.argwhere(~np.isfinite(array.astype(np.float64)))
        row = f" in row {places[0][0]}" if array.ndim else ""
        raise RuleError("argument.value", f"rows of input {value.name!r} must be finite, got NaN or infinity{row}")
    return array


def _split_rows(values: Mapping[str, Value], rows: Mapping[str, Any]) -> tuple[list[Call], list[Call], list[Call]]:
    """Split arrays into the calls of the calibration, those that are held out, and the former in small calls.

    No calls are held out where there is a single one. Raises EngineError [input.shape] for arrays of different numbers of rows or
    other sizes.
    """
    sizes = {name: _rows_of_call(value) for name, value in values.items()}
    fixed = {name: len(rows[name]) // size for name, size in sizes.items() if size and len(rows[name]) != size}
    symbolic = {name: len(rows[name]) for name, size in sizes.items() if size == 0}
    counts = fixed or {name: count for name, count in symbolic.items() if _has_batch(name, values, symbolic)}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
        raise EngineError("input.shape", f"all inputs must have equally many rows, got {text}")
    count = next(iter(counts.values()), 1)
    held = max(1, count // 4) if count > 1 else 0
    axes = {name: None if fixed else _axis_of_rows(name, values, rows, counts) for name in rows}

    def split(first: int, last: int, step: int) -> list[Call]:
        """Return calls of ``step`` rows, or of one call's rows of the inputs of fixed size."""
        parts: list[Call] = []
        for start, stop in pairwise([*range(first, last, step), last]):
            part = dict(rows)
            for name, array in rows.items():
                size, axis = sizes[name] or 0, axes[name]
                # With inputs of fixed size, a symbolic first size is no number of rows: the array is passed as it is.
                if name in fixed:
                    part[name] = array[start * size : stop * size]
                elif axis is not None:
                    part[name] = array[(slice(None),) * axis + (slice(start, stop),)]
            bind_sizes([values[name] for name in part], list(part.values()))
            parts.append(part)
        return parts

    # At least two calls calibrate.
    step = 1 if fixed else max(1, min(ROWS, (count - held) // 2))
    small = 1 if fixed else max(1, min(ROWS, -(-held // HELD_OUT_CALLS)))
    calls = split(0, count - held, step)
    return calls, split(count - held, count, small), calls if small >= step else split(0, count - held, small)


def _rows_of_call(value: Value) -> int | None:
    """Return the fixed first size of an input; 0 if it is symbolic, None for a scalar or an unknown rank."""
    shape = value.shape
    if not shape:
        return None
    return shape[0] if isinstance(shape[0], int) else 0


def _axis_of_rows(name: str, values: Mapping[str, Value], rows: Mapping[str, Any], counts: Mapping[str, int]) -> int | None:
    """Return the axis of an input that counts its rows; None if there is none.

    That is the first axis of the inputs in ``counts``, and for others the axis that has the symbol and the size of those.
    """
    if name in counts:
        return 0
    symbols = {name_of(values[other].dims[0]) for other in counts} - {None}
    sizes = zip(values[name].dims, rows[name].shape, strict=True) if values[name].shape else ()
    return next((axis for axis, (dim, size) in enumerate(sizes) if name_of(dim) in symbols and size in counts.values()), None)


def _has_batch(name: str, values: Mapping[str, Value], counts: Mapping[str, int]) -> bool:
    """Return whether an input has as many rows as the first one in ``counts``, or the same symbol on its first axis.

    Files without names of sizes have another symbol for each input.
    """
    first = next(iter(counts))
    return counts[name] == counts[first] or name_of(values[name].dims[0]) == name_of(values[first].dims[0])


def _draw(model: Model, inputs: Inputs, names: Sequence[str], call: Call, index: int) -> Call:
    """Draw the inputs ``names`` of one call, with the sizes of the arrays in ``call``."""
    sizes = {**(inputs.sizes or {}), **sizes_of_arrays(model.inputs, call)}
    return random_inputs(model, seed=inputs.seed + index, sizes=sizes, shapes=inputs.shapes, only=names, beside=call)


def count_rows(call: Call) -> int:
    """Return the number of rows of a call: the first size of its first tensor; 1 if it has none."""
    return next((len(array) for array in call.values() if np.ndim(array)), 1)


def keep_initial_states(model: Model) -> None:
    """Remove all outputs but the initial values of states, with which every call of a model with states begins."""
    initial = {state.initial for state in model.states}
    model.graph.outputs = [y for y in model.graph.outputs if y.name in initial]


class ReferenceRun:
    """ReferenceRun holds the float outputs of a model on some calls, with which other models are compared."""

    def __init__(
        self, model: Model, calls: Sequence[Call], program: Program | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        self.names = [y.name for y in model.outputs if isinstance(y.type, Tensor) and y.type.dtype and y.type.dtype.is_float]
        if not self.names:
            listed = ", ".join(f"{y.name!r} of {y.type}" for y in model.outputs)
            raise RuleError(
                "grad.dtype", f"the model must have a float output to measure an error, got {listed}", file=model.file
            )
        self.calls = list(calls)
        program = compile(model) if program is None else program
        self.outputs = [self._run(program, {**call, **(more or {})}) for call in self.calls]
        self.squares = {name: [_squares(outputs[name]) for outputs in self.outputs] for name in self.names}
        self.norms = {name: sum(squares) for name, squares in self.squares.items()}

    def _run(self, program: Program, call: Call) -> dict[str, Any]:
        results = program(call)
        return {name: np.asarray(results[name]).astype(np.float64) for name in self.names}

    def error(self, program: Program, more: Mapping[str, Any] | None = None) -> float:
        """Return the relative error of a program: the largest over the outputs of ``norm(y - y0) / norm(y0)``.

        ``more``: inputs that are added to those of each call. Elements that are finite in neither model are left out; an
        element that is finite in one model only makes the error infinite.
        """
        return self.errors(lambda call: self._run(program, {**call, **(more or {})}))[0]

    def errors(self, run: Callable[[Call], Mapping[str, Array]], held_out: int | None = None) -> tuple[float, float]:
        """Return the error of the outputs of ``run``, which takes the inputs of a call, and its bound on other rows.

        The error is that on the last ``held_out`` calls, by default on all. The bound is the largest :func:`bound_error` of an
        output, on these calls or on all calls.
        """
        squares: dict[str, list[float]] = {name: [] for name in self.names}
        for call, expected in zip(self.calls, self.outputs, strict=True):
            found = run(call)
            for name in self.names:
                squares[name].append(_squared_difference(expected[name], np.asarray(found[name]).astype(np.float64)))
        first = 0 if held_out is None else len(self.calls) - held_out
        error = max(_ratio(sum(squares[name][first:]), sum(self.squares[name][first:])) for name in self.names)
        starts = {0, first}
        return error, max(
            bound_error(squares[name][start:], self.squares[name][start:]) for name in self.names for start in starts
        )


def _squares(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.dot(finite, finite))


def _squared_difference(expected: Array, found: Array) -> float:
    is_finite = np.isfinite(expected)
    if expected.shape != found.shape or not np.array_equal(is_finite, np.isfinite(found)):
        return float("inf")
    difference = (expected - found)[is_finite]
    return float(np.dot(difference, difference))


def _ratio(error: float, norm: float) -> float:
    return float(np.sqrt(error / norm)) if norm > 0 else float(np.sqrt(error))
