"""A difference between two engines, checked on smaller models: the check of a reduction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.compare.arrays import Deviation, deviation_of
from dovetail.compare.values.array_store import ArrayStore
from dovetail.compare.values.engines import run_part
from dovetail.compare.values.subject import Part, Subject
from dovetail.errors import DovetailError
from dovetail.formats import load
from dovetail.ir.graph import Model, Value
from dovetail.ir.types import Tensor
from dovetail.runtime.random_inputs import random_inputs

_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+|: (\w+Error|Exception|\w+Exception)\b", re.ASCII)
MAX_VALUE_BYTES = 1 << 29
"""The total size in bytes up to which the reference's values are kept, as inputs of parts of the model."""


class Outcome(NamedTuple):
    """Outcome is the result of one engine: the arrays of the outputs, or the code and the text of its error."""

    arrays: list[Any] | None
    code: str = ""
    why: str = ""

    @property
    def failure(self) -> tuple[str, str]:
        """The code of the error, and the status that the runtime itself gives to its kind."""
        status = _STATUS.search(self.why)
        return self.code, "" if status is None else status[0]


def run_engine(engine: str, part: Part, folder: str, threads: int | None) -> Outcome:
    """Run a part in an engine; an error is an outcome. Raises EngineError [run.time] beyond the limit of the model."""
    try:
        return Outcome(run_part(engine, part, folder, threads))
    except DovetailError as error:
        if error.code == "run.time":
            raise
        return Outcome(None, error.code, error.message)


class ReleaseDifference:
    """ReleaseDifference is a difference of ``engine`` from ``witnesses``, the reference and other engines, which agree.

    ``failure`` is the kind of the engine's error; two empty texts if its outputs differ. ``arrays`` are the inputs and values of
    the whole model by name, from which the inputs of its parts are taken.
    """

    def __init__(
        self,
        engine: str,
        witnesses: Sequence[str],
        failure: tuple[str, str],
        arrays: Mapping[str, Any],
        folder: str,
        tolerance: float | None,
        threads: int | None,
    ) -> None:
        self.engine, self.witnesses, self.failure = engine, list(witnesses), failure
        self.arrays, self.folder, self.tolerance, self.threads = arrays, folder, tolerance, threads

    def __call__(self, path: str) -> bool:
        """Return whether the file of a model shows the difference."""
        try:
            model = load(path)
            return self.is_in(model, self.inputs_of(model))
        except DovetailError:
            return False

    def is_in(self, model: Model, inputs: Mapping[str, Any]) -> bool:
        """Return whether a model shows the difference on inputs: the witnesses agree, and the engine fails or differs."""
        subject = Subject(model, inputs)
        part = subject.part(list(subject.model.outputs), ArrayStore(None))
        expected: Outcome | None = None
        for witness in self.witnesses:
            found = run_engine(witness, part, self.folder, self.threads)
            if found.arrays is None:
                return False
            if expected is not None and self.differing(subject, expected, found):
                return False
            expected = expected or found
        assert expected is not None
        found = run_engine(self.engine, part, self.folder, self.threads)
        if found.arrays is None:
            return found.failure == self.failure
        return not self.failure[0] and bool(self.differing(subject, expected, found))

    def differing(self, subject: Subject, expected: Outcome, found: Outcome) -> dict[str, Deviation]:
        """Return the outputs that differ, with their deviations."""
        cells = deviations(subject, expected, found, self.tolerance)
        return {name: cell for name, cell in cells.items() if not cell.agrees}

    def inputs_of(self, model: Model) -> dict[str, Any]:
        """Return inputs of a part of the model: its values where they are known, cut to the part's sizes; else random arrays."""
        found: dict[str, Any] = {}
        for value in model.inputs:
            array = self.arrays.get(value.name)
            cut = _cut(value, array) if isinstance(array, np.ndarray) else array
            if cut is not None:
                found[value.name] = cut
        lacking = [value.name for value in model.inputs if value.name not in found]
        if lacking:
            found |= random_inputs(model, only=lacking, beside=found or None)
        return {value.name: found[value.name] for value in model.inputs}


def deviations(subject: Subject, expected: Outcome, found: Outcome, tolerance: float | None) -> dict[str, Deviation]:
    """Return the deviation of each output of two outcomes that have arrays."""
    cells: dict[str, Deviation] = {}
    assert expected.arrays is not None and found.arrays is not None
    for value, one, other in zip(subject.model.outputs, expected.arrays, found.arrays, strict=True):
        cells[value.name] = deviation_of(one, other, tolerance, minimum=subject.tolerances.get(id(value), 0.0))
    return cells


def values_by_name(subject: Subject, inputs: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the inputs, and the interpreter's values of all nodes if they fit into MAX_VALUE_BYTES, by name."""
    known = dict(inputs)
    values = subject.values_of(0, len(subject.nodes))
    if sum(map(subject.nbytes, values)) <= MAX_VALUE_BYTES and values:
        found = run_engine("interpreter", subject.part(values, ArrayStore(None)), folder, None)
        if found.arrays is not None:
            known |= {value.name: array for value, array in zip(values, found.arrays, strict=True)}
    return known


def _cut(value: Value, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the leading elements of an array in the shape of a value; None if the shape is larger, or the type another one."""
    if not isinstance(value.type, Tensor) or value.type.dtype is None or value.type.dtype.numpy != array.dtype:
        return None
    shape = value.type.shape
    if shape is None or len(shape) != array.ndim:
        return None
    sizes = [size if isinstance(size, int) else actual for size, actual in zip(shape, array.shape, strict=True)]
    if any(size > actual for size, actual in zip(sizes, array.shape, strict=True)):
        return None
    return np.ascontiguousarray(array[tuple(slice(size) for size in sizes)])
