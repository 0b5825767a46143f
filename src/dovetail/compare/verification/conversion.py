"""Verification of a conversion: outputs of source and target in the runtimes of their formats are compared."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

import numpy as np

from dovetail.compare.arrays import NOT_EQUAL, TOLERANCE, deviation_of, tolerance_for, tolerance_of
from dovetail.compare.f64_run import run_wide, run_wide_with_magnitude
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.formats import load
from dovetail.formats.model_source import format_of
from dovetail.ir import dtypes
from dovetail.ir.graph import Model, Node
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.limits import Limits
from dovetail.ir.op import draws
from dovetail.ir.state import own_inputs, own_outputs, state_outputs
from dovetail.ops.control_flow.if_op import symbols_of
from dovetail.runtime import peers as runtimes
from dovetail.runtime.compilation import compile
from dovetail.runtime.peers import Runner
from dovetail.runtime.special_inputs import EXTREMES, NOT_FINITE, TIES, empty_inputs, special_inputs

LIMIT_CODES = ("run.memory", "run.time", "run.text", "loop.trips", "array.size")
"""Error codes of a run that exceeds a limit; no other runtime then runs the model."""

NOT_COMPARED = "not compared: random"
"""The reason of a row whose output depends on random numbers."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference is the largest difference of one output, absolute and relative to the largest magnitude."""

    output: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    agrees: bool
    why: str = ""
    tolerance: float = TOLERANCE


def compare(reference: Arrays, other: Arrays, tolerance: float | None = None, random: Collection[str] = ()) -> list[Difference]:
    """Compare outputs: one row per output of ``reference``, and one row per output that only ``other`` has.

    NaN and infinities must be at the same positions; integers, booleans and strings must be equal. The default ``tolerance``
    depends on the element type of each output. Elements of a sequence are compared as ``name/0``, ``name/1``, ...; an optional
    output that is absent in only one model differs. Outputs in ``random`` depend on random numbers: their types and shapes are
    compared, their elements are not, and such a row does not agree.
    """
    random = {*random, *flatten_outputs({name: reference[name] for name in random if name in reference})}
    reference, other = flatten_outputs(reference), flatten_outputs(other)
    rows = [
        _random_row(name, array, other.get(name)) if name in random else _difference(name, array, other.get(name), tolerance)
        for name, array in reference.items()
    ]
    extra = [(name, np.asarray(array)) for name, array in other.items() if name not in reference]
    return rows + [Difference(name, str(array.dtype), array.shape, np.inf, np.inf, False, "unexpected") for name, array in extra]


def agree(rows: Sequence[Difference], precision: str | None = None) -> bool | None:
    """Return whether outputs agree. With a ``precision`` that rounds, None means that they differ by rounding at most.

    Rounding changes neither shapes nor types, nor which elements are NaN or infinite.
    """
    if all(row.agrees for row in rows):
        return True
    is_rounding = tolerance_for(precision) is not None and all(row.why in ("", NOT_EQUAL) for row in rows)
    return None if is_rounding else False


def random_outputs(model: Model) -> set[str]:
    """Return the outputs that depend on random numbers, which differ between engines for the same seed.

    An output that depends only on sizes of inputs, such as the shape of a random tensor, does not depend on random numbers.
    """
    return _outputs_behind(model, lambda node: draws(node.op, node.inputs))


def selected_outputs(model: Model) -> set[str]:
    """Return the outputs that depend on a selection of boxes by their scores: no specification orders NaN among scores."""
    return _outputs_behind(model, lambda node: node.op.selects_by_score)


def _outputs_behind(model: Model, begins: Callable[[Node], bool]) -> set[str]:
    """Return the outputs whose elements depend on results of nodes for which ``begins`` is true."""
    sizes = symbols_of(model.inputs)
    reached: set[int] = set()
    for node in model.graph.nodes:
        if begins(node) or any(id(x) in reached for x in node.inputs if x is not None):
            reached.update(id(y) for y in node.outputs if y.value is None or not symbols_of([y]) <= sizes)
    return {value.name for value in model.outputs if id(value) in reached}


def _difference(name: str, first: Any, second: Any, tolerance: float | None) -> Difference:
    first = np.asarray(first)
    dtype = "string" if first.dtype.kind in "OUS" else str(dtypes.dtype(first.dtype))
    natural = tolerance_of(dtypes.dtype(dtype))
    allowed = natural if tolerance is None or not natural else tolerance

    def row(absolute: float, relative: float, agrees: bool, why: str = "") -> Difference:
        return Difference(name, dtype, first.shape, absolute, relative, agrees, why, allowed)

    if second is None:
        return row(np.inf, np.inf, False, "missing")
    second = np.asarray(second)
    if first.shape != second.shape:
        return row(np.inf, np.inf, False, f"shape {list(second.shape)}")
    if first.dtype != second.dtype and not {first.dtype.kind, second.dtype.kind} <= set("OUS"):
        return row(np.inf, np.inf, False, f"type {second.dtype}")
    found = deviation_of(first, second, allowed if natural else None)
    return row(found.absolute, found.relative, found.agrees, found.why)


def _random_row(name: str, first: Any, second: Any) -> Difference:
    row = _difference(name, np.zeros_like(first), None if second is None else np.zeros_like(second), None)
    return replace(row, absolute=np.nan, relative=np.nan, agrees=False, why=row.why or NOT_COMPARED)


def run_either(path: str | PathLike[str], inputs: Mapping[str, Any]) -> tuple[Runner, dict[str, Any]]:
    """Run a model in the runtime of its format; if that fails, in dovetail, with the reason in the runner's ``notes``."""
    runner = None
    try:
        runner = runner_for(path)
        return runner, runner.run(inputs)
    except EngineError as error:
        if runner is not None and runner.name == "dovetail":
            raise
        reason = error.message
    ours = _ours(fspath(path))
    return Runner(ours.name, ours.run, (reason,)), ours.run(inputs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison compares outputs of ``file`` in ``runtime`` with outputs of the source in the runtime of its format."""

    file: str
    runtime: str
    rows: list[Difference]


@dataclass(frozen=True, slots=True)
class Verification:
    """Verification holds the comparisons of a conversion; ``reference`` is the runtime of the source, ``notes`` list failures."""

    reference: str
    comparisons: list[Comparison]
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """True if every output was compared in every runtime, and agrees."""
        return all(each.rows and all(row.agrees for row in each.rows) for each in self.comparisons)


def verify_conversion(
    model: Model,
    source: str | PathLike[str],
    target: str | PathLike[str],
    inputs: Arrays,
    tolerance: float | None = None,
    random: Collection[str] = (),
    varied: Collection[str] = (),
) -> Verification:
    """Compare outputs of ``target`` in its runtime, and of ``source`` in dovetail, with those of ``source`` in its runtime.

    The runtime of a file is the runtime of its format, onnxruntime or OpenVINO. ``model`` is the loaded source. Outputs that are
    states are excluded, because OpenVINO does not return them. Dovetail is excluded if it is the reference, and, with a note, if
    it has no rule for an operator.

    A target that its runtime cannot load disagrees, with two exceptions. The first is a source of the same format that cannot be
    loaded either. The second is an IR source whose ONNX target needs a kernel that onnxruntime lacks. In both cases OpenVINO runs
    an ONNX target.

    Without a ``tolerance``, floats that differ still agree, with a note, if both files give equal results in f64 and the
    difference is at most one rounding. ``varied`` are the inputs that also take special values: NaN, infinities, -0, ties,
    extremes, and no elements.
    """
    return _Conversion(model, fspath(source), fspath(target), tolerance, random).verify(inputs, varied)


class _Conversion:
    """_Conversion is the verification of one conversion: its two files and their runners."""

    def __init__(self, model: Model, source: str, target: str, tolerance: float | None, random: Collection[str]) -> None:
        self.model, self.source, self.target = model, source, target
        self.tolerance, self.random = tolerance, random
        self.states = state_outputs(model)
        self.notes: list[str] = []
        self._written_model: Model | None = None

    @property
    def written_model(self) -> Model:
        """The model that is loaded from the file ``target``."""
        if self._written_model is None:
            self._written_model = load(self.target, limits=self.model.limits)
        return self._written_model

    def visible(self, outputs: Arrays) -> dict[str, Any]:
        return {name: x for name, x in outputs.items() if name not in self.states}

    def verify(self, inputs: Arrays, varied: Collection[str]) -> Verification:
        # Other runtimes have no limits: dovetail runs first, and rejects a run that exceeds the limits of the model.
        ours = self._run_ours(inputs)
        first, outputs = run_either(self.source, inputs)
        self.notes += first.notes
        reference = self.visible(outputs)
        second = self._runner_of_target(bool(first.notes))
        if isinstance(second, EngineError):
            rows = [replace(row, agrees=False, why=_LOAD) for row in compare(reference, {}, self.tolerance)]
            self.notes.append(second.message)
            return Verification(first.name, [Comparison(self.target, own_runtime(self.target), rows)], tuple(self.notes))
        self.notes += second.notes
        found = [self._compare_run(self.target, second.name, reference, self.visible(second.run(inputs)), inputs)]
        if first.name != "dovetail":
            if isinstance(ours, DovetailError):
                if not isinstance(ours, UnsupportedError):
                    raise ours
                self.notes.append(f"dovetail does not run {self.source}: [{ours.code}] {ours.message}")
            else:
                found.append(self._compare_run(self.source, "dovetail", reference, self.visible(ours), inputs))
        result = Verification(first.name, found, tuple(self.notes))
        if not result.agrees or not varied:
            return result
        rows = self._special_rows(first, second, inputs, varied)
        found[0] = replace(found[0], rows=[*found[0].rows, *rows])
        return Verification(first.name, found, tuple(self.notes))

    def _run_ours(self, inputs: Arrays) -> dict[str, Any] | DovetailError:
        """Return the outputs of the source in dovetail, or its error. Raises the errors of a limit."""
        try:
            return _ours(self.source, self.model.limits).run(inputs)
        except DovetailError as error:
            if error.code in LIMIT_CODES:
                raise
            return error

    def _runner_of_target(self, is_source_refused: bool) -> Runner | EngineError:
        """Return a runner of the target's runtime, or the error if this runtime cannot load the file."""
        try:
            return runner_for(self.target)
        except EngineError as error:
            is_same_format = format_of(self.source) == format_of(self.target)
            # A valid file may need a kernel that its runtime lacks; the source's runtime can then read the file.
            is_excused = is_source_refused if is_same_format else _NO_KERNEL in error.message
            if error.code != "runtime.load" or not is_excused:
                return error
            try:
                return runner_of_target(self.target)
            except EngineError:
                return error

    def _compare_run(self, file: str, runtime: str, reference: Arrays, outputs: Arrays, inputs: Arrays) -> Comparison:
        rows = compare(reference, outputs, self.tolerance, self.random)
        if self.tolerance is None and any(_is_near(row) for row in rows):
            rows = self._judge(rows, file, runtime, reference, inputs)
        return Comparison(file, runtime, rows)

    def _judge(self, rows: list[Difference], file: str, runtime: str, reference: Arrays, inputs: Arrays) -> list[Difference]:
        """Accept floats that differ by one rounding of the largest value, if both files give equal results in f64."""
        try:
            exact, largest = run_wide_with_magnitude(self.model, inputs)
            again = exact if file == self.source else run_wide(self.written_model, inputs_by_name(self.written_model, inputs))
        except DovetailError:
            return rows
        wide = flatten_outputs(exact)
        same = {row.output for row in compare(exact, again, TOLERANCE) if row.agrees}
        judged = []
        for row in rows:
            if _is_near(row) and row.output in same and row.absolute <= ROUNDING * largest:
                theirs = deviation_of(wide[row.output], flatten_outputs(reference)[row.output]).absolute
                self.notes.append(
                    f"{row.output}: both files are the same in f64, and {file} in {runtime} is {row.absolute:.2g} away from that "
                    f"in the source's runtime, which is {theirs:.2g} away from f64; values reach {largest:.2g}"
                )
                row = replace(row, agrees=True)
            judged.append(row)
        return judged

    # Special values

    def _special_rows(self, first: Runner, second: Runner, inputs: Arrays, varied: Collection[str]) -> list[Difference]:
        rows: list[Difference] = []
        if self.model.states:
            # A runtime keeps states between runs, so that further runs start from other states.
            return rows
        for kind in (NOT_FINITE, TIES):
            special = special_inputs(self.model, inputs, kind, only=varied)
            if special is not None:
                rows += self._rows_in_runtimes(kind, first, second, special)
        kinds = (NOT_FINITE, TIES, EXTREMES)
        samples = [(kind, special_inputs(self.model, inputs, kind, only=varied)) for kind in kinds]
        for kind, sample in [*samples, ("no elements", self._empty(varied))]:
            if sample is not None:
                rows += self._rows_in_dovetail(kind, sample)
        return rows

    def _empty(self, varied: Collection[str]) -> dict[str, Any] | None:
        """Return inputs whose first dynamic size is 0; None if no size is dynamic, or if an input was passed."""
        if set(varied) != {value.name for value in self.model.inputs}:
            return None
        return empty_inputs(self.model)

    def _rows_in_runtimes(self, kind: str, first: Runner, second: Runner, special: Arrays) -> list[Difference]:
        """Compare the runtimes where the f64 run confirms the source's result.

        The result is empty if the target's runtime deviates on both files in the same way.
        """
        try:
            reference = self.visible(first.run(special))
        except DovetailError:
            return []
        try:
            outputs = self.visible(second.run(special))
        except DovetailError as error:
            return [failed_row(name, x, f"{kind}: {error.message}") for name, x in flatten_outputs(reference).items()]
        if all(row.agrees for row in compare(reference, outputs, self.tolerance, self.random)):
            return []
        try:
            exact = run_wide(self.model, special)
        except DovetailError:
            return []
        rows = self._deviations(kind, reference, outputs, exact)
        if kind == NOT_FINITE and (selected := selected_outputs(self.model) & {row.output for row in rows}):
            names = ", ".join(map(repr, sorted(selected)))
            self.notes.append(f"{kind}: the runtimes select other boxes ({names}); no specification orders NaN among scores")
            rows = [row for row in rows if row.output not in selected]
        if rows and self._deviates_on_source(second, outputs, special):
            self.notes.append(f"{kind}: {second.name} deviates on {self.source} in the same way as on {self.target}")
            return []
        return rows

    def _deviates_on_source(self, second: Runner, outputs: Arrays, special: Arrays) -> bool:
        """Return whether the target's runtime computes from the source the same ``outputs`` as from the target."""
        if format_of(self.source) != "onnx" or not second.name.startswith("openvino"):
            return False
        try:
            same = self.visible(_openvino(self.source).run(special))
        except DovetailError:
            return False
        return all(row.agrees for row in compare(same, outputs, self.tolerance, self.random))

    def _rows_in_dovetail(self, kind: str, sample: Arrays) -> list[Difference]:
        try:
            reference = self.visible(dict(compile(self.model, precision="f32")(dict(sample))))
            exact = run_wide(self.model, sample)
        except DovetailError:
            return []
        try:
            outputs = dict(compile(self.written_model, precision="f32")(inputs_by_name(self.written_model, sample)))
        except DovetailError as error:
            self.notes.append(f"{kind}: dovetail runs {self.source}, and not {self.target}: [{error.code}] {error.message}")
            return []
        return self._deviations(kind, reference, self.visible(outputs), exact, is_strict=True)

    def _deviations(
        self, kind: str, reference: Arrays, outputs: Arrays, exact: Arrays, is_strict: bool = False
    ) -> list[Difference]:
        reference, outputs, exact = flatten_outputs(reference), flatten_outputs(outputs), flatten_outputs(exact)
        rows = []
        for name, x in reference.items():
            if name in self.random or name not in exact:
                continue
            if not is_followed(x, outputs.get(name), exact[name], self.tolerance, is_strict=is_strict):
                rows.append(failed_row(name, x, f"{kind}: not what the source gives"))
        return rows


_LOAD = "its runtime cannot load it"
_NO_KERNEL = "NOT_IMPLEMENTED"
"""The word in onnxruntime's error for a valid file with an operator for which onnxruntime has no kernel."""
ROUNDING = 1e-6
"""Maximum error of one rounding of an engine's operator, as a fraction of a model's largest value: 8 ulp of f32."""


def _is_near(row: Difference) -> bool:
    """Return whether a row of floats differs only by finite amounts."""
    return not row.agrees and not row.why and bool(row.tolerance) and bool(np.isfinite(row.absolute))


def failed_row(name: str, x: Any, why: str) -> Difference:
    x = np.asarray(x)
    return Difference(
        name, "string" if x.dtype.kind in "OUS" else str(dtypes.dtype(x.dtype)), x.shape, np.inf, np.inf, False, why
    )


def is_followed(x: Any, y: Any, exact: Any, tolerance: float | None, *, is_strict: bool) -> bool:
    """Return whether ``y`` equals ``x`` wherever ``x`` equals the f64 result.

    NaN counts only with ``is_strict``, because runtimes may lose NaN.
    """
    if y is None or np.shape(x) != np.shape(y):
        return False
    x, y, exact = np.asarray(x), np.asarray(y), np.asarray(exact)
    if x.shape != exact.shape:
        return True
    if x.dtype.kind in "OUSbiu" or x.dtype.kind == "c":
        return bool(np.all((x == y) | (x != exact)))
    allowed = tolerance_of(dtypes.dtype(x.dtype)) if tolerance is None else tolerance
    with np.errstate(all="ignore"):
        a, b, c = (each.astype(np.float64) for each in (x, y, exact.astype(x.dtype)))
        finite = np.isfinite(a)
        margin = max(allowed, TOLERANCE) * float(np.max(np.abs(a), initial=0.0, where=finite))
        is_right = (a == c) | (np.abs(a - c) <= margin)
        is_same = (a == b) | (np.abs(a - b) <= margin) | (np.isnan(a) & np.isnan(b))
        is_open = np.isnan(c) & ~(np.isnan(a) & is_strict)
        return bool(np.all(is_same | is_open | ~(is_right | np.isnan(c))))


def inputs_by_name(model: Model, inputs: Arrays) -> dict[str, Any]:
    """Return the inputs of ``model`` by their names. Raises EngineError [input.missing]."""
    lacking = [value.name for value in model.inputs if value.name not in inputs]
    if lacking:
        raise EngineError("input.missing", f"{model.file} has the input {lacking[0]!r}, which the source does not have")
    return {value.name: inputs[value.name] for value in model.inputs}


def runner_of_target(path: str | PathLike[str]) -> Runner:
    """Return a runner of the runtime of a file's format; of OpenVINO for an ONNX file that onnxruntime cannot load."""
    try:
        return runner_for(path)
    except EngineError as error:
        if error.code != "runtime.load" or format_of(path) != "onnx" or not importlib.util.find_spec("openvino"):
            raise
        try:
            other = runner_for(path, "openvino")
        except EngineError:
            raise error from None
        return replace(other, notes=(error.message,))


def own_runtime(path: str | PathLike[str]) -> str:
    """Return the name of the runtime of a file's format; dovetail if this runtime is not installed."""
    own = {"onnx": "onnxruntime", "openvino": "openvino"}.get(format_of(path), "dovetail")
    return own if importlib.util.find_spec(own) else "dovetail"


def runner_for(path: str | PathLike[str], prefer: str | None = None) -> Runner:
    """Return a runner of the runtime of a file's format if it is installed, else of dovetail.

    ``prefer`` selects "onnxruntime", "openvino" or "dovetail". Raises UnsupportedError [runtime.missing] if the selected runtime
    is not installed, EngineError [runtime.load] if the runtime refuses the model.
    """
    wanted = prefer or own_runtime(path)
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino, "dovetail": _ours}
    if wanted not in makers or (wanted != "dovetail" and not importlib.util.find_spec(wanted)):
        raise UnsupportedError("runtime.missing", f"{wanted} is not installed")
    return makers[wanted](fspath(path))


def _ours(path: str, limits: Limits | None = None) -> Runner:
    return runtimes.ours(compile(load(path, limits=limits), precision="f32"))


def _onnxruntime(path: str) -> Runner:
    return runtimes.runner("onnxruntime", path, exact=True)


def _openvino(path: str) -> Runner:
    model = load(path)
    # An ONNX file has its states as inputs and outputs.
    is_ir = format_of(path) == "openvino"
    inputs, outputs = (own_inputs(model), own_outputs(model)) if is_ir else (model.inputs, model.outputs)
    names = runtimes.Names([x.name for x in inputs], [y.name for y in outputs])
    return runtimes.runner("openvino", path, names=names, exact=True)
