"""Verification of rewritten graphs: both graphs run on seeded inputs, in the native engine and in the interpreter."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.compare.arrays import same_bits
from dovetail.compare.verification.conversion import compare, random_outputs
from dovetail.compare.verification.engine import MAX_NATIVE_WEIGHTS, has_native_size
from dovetail.errors import DovetailError
from dovetail.ir.edit import copy_model
from dovetail.ir.evaluate import run
from dovetail.ir.graph import Graph, Model
from dovetail.ir.inputs_outputs import flatten_outputs, sizes_of_arrays
from dovetail.ir.limits import active, counting
from dovetail.runtime.compilation import compile
from dovetail.runtime.program import Program
from dovetail.runtime.random_inputs import random_inputs
from dovetail.runtime.special_inputs import EXTREMES, NOT_FINITE, TIES, empty_inputs, special_inputs

OTHER_SIZES = (5, 4, 6, 8, 2, 7, 16)
"""Sizes of dynamic dimensions that are tried for the second run, until the model runs at one of them."""
MAX_SECONDS = 0.1
"""Seconds of a run of the model beyond which only one special case is run."""
Outputs = dict[str, Any]


class Case:
    """Case holds inputs, and the outputs of the original model and of the last graph that was not refuted.

    ``original`` and ``last`` are outputs of the native engine. ``exact`` are outputs of the interpreter for the last graph; None
    until a comparison needs them. A special case has values or sizes at which only exact transformations must agree; the native
    engine does not run it.
    """

    def __init__(self, inputs: Mapping[str, Any], native: Outputs, is_special: bool = False) -> None:
        self.inputs = inputs
        self.original = self.last = native
        self.exact: Outputs | None = None
        self.is_special = is_special


class RewriteVerification:
    """RewriteVerification compares runs of transformed graphs of one model with runs of the model, natively if possible.

    ``sizes`` are the sizes of dynamic dimensions of each case; ``notes`` are the reasons why cases could not run. Nothing runs
    before the first comparison.
    """

    def __init__(self, model: Model, seed: int = 0, tolerance: float | None = None) -> None:
        self._model = model
        self._seed = seed
        self._tolerance = tolerance
        self._random = random_outputs(model)
        self._cases: list[Case] | None = None
        self._special_cases: list[Case] | None = None
        self.sizes: list[dict[str, int]] = []
        self.notes: list[str] = []
        self._seconds = 0.0
        self._is_native = has_native_size(model)
        self._program: Program | None = None

    @property
    def cases(self) -> list[Case]:
        """The ordinary cases, created at the first read."""
        if self._cases is None:
            self._cases = []
            if not self._is_native:
                size = MAX_NATIVE_WEIGHTS >> 20
                self.notes.append(
                    f"the weights exceed {size} MiB: only the interpreter runs, which reads mapped weights in place"
                )
            self._add_cases(self._seed)
            self._program = None
        return self._cases

    def refute(self, before: Graph, after: Graph, *, is_exact: bool) -> str:
        """Compare outputs of ``after`` with outputs of ``before`` and of the original. Returns the first difference, else "".

        Outputs of the native engine must equal those of the original within the tolerance. Outputs of an exact transformation
        must also have the bits of the outputs of ``before``, in the native engine or in the interpreter. Native kernels sum in
        the order of their layouts, so that their bits may differ. ``before`` is the last graph that was not refuted.
        """
        model = copy_model(self._model, after)
        cases = [*self.cases, *(self.special_cases if is_exact else ())]
        try:
            program = compile(model, engine="native", precision="f32") if self._is_native and cases else None
            answers = []
            for case in cases:
                answer = self._compare(case, model, program, before, is_exact=is_exact)
                if isinstance(answer, str):
                    return answer
                answers.append(answer)
        except DovetailError as error:
            return f"the run fails: [{error.code}] {error.message}"
        for case, (native, exact) in zip(cases, answers, strict=True):
            case.last, case.exact = native, exact
        if not is_exact:
            for case in self._special_cases or ():
                case.exact = None
        return ""

    def _compare(
        self, case: Case, model: Model, program: Program | None, before: Graph, *, is_exact: bool
    ) -> str | tuple[Outputs, Outputs | None]:
        """Return the native and the interpreted outputs (None if not run) of a model for one case, or a difference as text."""
        native = {} if program is None or case.is_special else dict(program(case.inputs))
        if reason := self._difference(case.original, native):
            return reason
        if program is not None and not case.is_special and (not is_exact or not bit_difference(case.last, native, self._random)):
            return native, None
        exact = run_row_major(model, case.inputs)
        if case.exact is None:
            case.exact = run_row_major(copy_model(self._model, before), case.inputs)
        reason = bit_difference(case.exact, exact, self._random) if is_exact else self._difference(case.exact, exact)
        return reason or (native, exact)

    def _run(self, inputs: Mapping[str, Any]) -> Outputs:
        """Run the original model natively; if the model is too large, the interpreter only tests that it accepts the inputs."""
        if not self._is_native:
            run_row_major(self._model, inputs)
            return {}
        if self._program is None:
            self._program = compile(self._model, engine="native", precision="f32")
        return dict(self._program(inputs))

    def _difference(self, before: Outputs, after: Outputs) -> str:
        for row in compare(before, after, self._tolerance, self._random):
            is_random = row.output in self._random and row.why.startswith("not compared")
            if not row.agrees and not is_random:
                return f"output {row.output!r} {row.why or f'differs by {row.relative:.3g} of its largest magnitude'}"
        return ""

    def _add_cases(self, seed: int) -> None:
        first = self._add_case(seed, {})
        if first is None:
            return
        names = list(first)
        if names:
            self._add_other_sizes(seed, first, names)

    @property
    def special_cases(self) -> list[Case]:
        """The cases of special values and of no elements, created when an exact transformation is first compared."""
        if self._special_cases is None:
            self._special_cases = []
            if self.cases:
                self._add_special_cases(self._seed)
        return self._special_cases

    def _add_special_cases(self, seed: int) -> None:
        first = self.sizes[0]
        self._add_special(special_inputs(self._model, self.cases[0].inputs, NOT_FINITE, seed))
        if self._seconds > MAX_SECONDS:
            return
        if first:
            self._add_special(empty_inputs(self._model, first, seed))
        for kind in (TIES, EXTREMES):
            self._add_special(special_inputs(self._model, self.cases[0].inputs, kind, seed))

    def _add_special(self, inputs: Mapping[str, Any] | None) -> None:
        """Add a case of special values, or of no elements, if the model runs on it."""
        if inputs is None:
            return
        try:
            run_row_major(self._model, inputs)
        except DovetailError:
            return
        assert self._special_cases is not None
        self._special_cases.append(Case(inputs, {}, is_special=True))

    def _add_other_sizes(self, seed: int, first: Mapping[str, int], names: list[str]) -> None:
        apart = {name: OTHER_SIZES[index % len(OTHER_SIZES)] + index // len(OTHER_SIZES) for index, name in enumerate(names)}
        if len(names) > 1 and self._add_case(seed + 1, apart) is not None:
            return
        for size in OTHER_SIZES:
            wanted = {name: size for name in names if first[name] != size}
            if wanted and self._add_case(seed + 1, wanted) is not None:
                return
        for name in names:
            for size in OTHER_SIZES:
                if first[name] != size and self._add_case(seed + 1, {**first, name: size}) is not None:
                    return
        self.notes.append(f"the model runs only at one size of its dynamic dimensions: {first}")

    def _add_case(self, seed: int, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """Add the case of ``sizes``. Returns all sizes; None, with a note for the first case, if the model does not run."""
        assert self._cases is not None
        # A model may reject sizes at which its inference rules hold; runs then search for other sizes.
        searches: tuple[dict[str, Any] | None, ...] = (None,) if sizes else (None, {})
        for number, beside in enumerate(searches):
            try:
                inputs = random_inputs(self._model, seed=seed, sizes=sizes, beside=beside, distinct=True)
                chosen = sizes_of_arrays(self._model.inputs, inputs)
                start = time.perf_counter()
                native = self._run(inputs)
                self._seconds = time.perf_counter() - start
            except DovetailError as error:
                if not sizes and number == len(searches) - 1:
                    self.notes.append(f"nothing is verified, the model does not run: [{error.code}] {error.message}")
                continue
            self._cases.append(Case(inputs, native))
            self.sizes.append(chosen)
            return chosen
        return None


def run_row_major(model: Model, inputs: Mapping[str, Any]) -> Outputs:
    """Run a model in numpy, with every result stored in row-major order.

    A sum of floats depends on the order of its addends, which numpy chooses by the strides of its input. Two graphs that move
    elements by different views then have the same bits only if every operator reads the same layout.
    """
    with counting(None if active() else model.limits):
        ys = run(model.graph, [inputs[x.name] for x in model.inputs], np, store=_row_major)
    return dict(zip([y.name for y in model.outputs], ys, strict=True))


def _row_major(y: object) -> object:
    return np.ascontiguousarray(y).reshape(y.shape) if isinstance(y, np.ndarray) else y


def bit_difference(before: Outputs, after: Outputs, random: set[str]) -> str:
    """Return as text the first output whose bits differ; NaNs of any payload are equal."""
    first, second = flatten_outputs(before), flatten_outputs(after)
    if first.keys() != second.keys():
        return "the outputs have other elements"
    for name, x in first.items():
        if name in random:
            continue
        x, y = np.asarray(x), np.asarray(second[name])
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"output {name!r} has another type or shape"
        if not np.all(same_bits(x, y) | ((x != x) & (y != y))):
            return f"output {name!r} differs in bits"
    return ""
