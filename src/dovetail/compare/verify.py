"""Verification of a conversion: source and target run in their own runtimes, the source in dovetail too, and are compared."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.compare import runtimes
from dovetail.compare.random_inputs import flatten_outputs
from dovetail.compare.runtimes import Runner
from dovetail.dtypes import DType
from dovetail.errors import EngineError, UnsupportedError
from dovetail.formats import load
from dovetail.formats.model_source import format_of
from dovetail.ir.graph import Model
from dovetail.ir.op import draws
from dovetail.ir.state import own_inputs, own_outputs, state_outputs
from dovetail.ops.control_flow.if_op import symbols_of
from dovetail.program import compile

TOLERANCE = 1e-4
"""The largest allowed difference, relative to the largest magnitude of the reference output; see also tolerance_of."""

NOT_COMPARED = "not compared: random"
"""The reason of a row whose output depends on random numbers."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one output of two models: the largest, and the largest relative to the largest magnitude."""

    output: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    agrees: bool
    why: str = ""
    tolerance: float = TOLERANCE


def compare(reference: Arrays, other: Arrays, tolerance: float | None = None, random: Collection[str] = ()) -> list[Difference]:
    """Compare outputs: one row per output of ``reference``, and one for each that only ``other`` has.

    NaN and infinities must be at the same positions; integers, booleans and strings must be equal. ``tolerance`` defaults to that
    of each output's element type. Elements of a sequence are compared as ``name/0``, ``name/1``, ...; an optional output
    is absent in both, or missing in one. Outputs in ``random`` depend on random numbers: their types and shapes are compared,
    their elements are not, and such a row does not agree.
    """
    random = {*random, *flatten_outputs({name: reference[name] for name in random if name in reference})}
    reference, other = flatten_outputs(reference), flatten_outputs(other)
    rows = [
        _random_row(name, array, other.get(name)) if name in random else _difference(name, array, other.get(name), tolerance)
        for name, array in reference.items()
    ]
    extra = [(name, np.asarray(array)) for name, array in other.items() if name not in reference]
    return rows + [Difference(name, str(array.dtype), array.shape, np.inf, np.inf, False, "unexpected") for name, array in extra]


def random_outputs(model: Model) -> set[str]:
    """Return the outputs that depend on random numbers: engines draw different ones for the same seed.

    An output that follows from the sizes of the inputs alone, such as the shape of a random tensor, does not depend on them.
    """
    sizes = symbols_of(model.inputs)
    reached: set[int] = set()
    for node in model.graph.nodes:
        if draws(node.op, node.inputs) or any(id(x) in reached for x in node.inputs if x is not None):
            reached.update(id(y) for y in node.outputs if y.value is None or not symbols_of([y]) <= sizes)
    return {value.name for value in model.outputs if id(value) in reached}


def tolerance_of(dtype: DType) -> float:
    """Return TOLERANCE, or 4 ulp of a coarser type; 0 for types whose elements must be equal."""
    if not dtype.is_float and dtype.kind != "complex":
        return 0.0
    if dtype.kind == "complex" or dtype.name in ("f32", "f64"):
        return TOLERANCE
    return max(TOLERANCE, 4 * _spacing(dtype)) if dtype.numpy != np.uint8 else 0.0


def _spacing(dtype: DType) -> float:
    import ml_dtypes

    facts: Any = ml_dtypes.finfo
    return float(facts(dtype.numpy).eps)


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
    if not natural:
        equal = bool(np.array_equal(first, second))
        apart = 0.0 if equal or dtype in ("string", "boolean") else _integer_distance(first, second)
        return row(apart, apart, equal, "" if equal else "not equal")
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    x, y = first.astype(wide), second.astype(wide)
    special = ~np.isfinite(x) | ~np.isfinite(y)
    if special.any() and not np.array_equal(x[special], y[special], equal_nan=True):
        return row(np.nan, np.nan, False, "NaN or infinity in different places")
    x, y = x[~special], y[~special]
    absolute = float(np.max(np.abs(x - y), initial=0.0))
    largest = float(np.max(np.abs(x), initial=0.0))
    relative = absolute / largest if largest else (0.0 if absolute == 0 else np.inf)
    return row(absolute, relative, relative <= allowed)


def _random_row(name: str, first: Any, second: Any) -> Difference:
    row = _difference(name, np.zeros_like(first), None if second is None else np.zeros_like(second), None)
    return replace(row, absolute=np.nan, relative=np.nan, agrees=False, why=row.why or NOT_COMPARED)


def _integer_distance(x: Any, y: Any) -> float:
    return float(max((abs(int(a) - int(b)) for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)), default=0))


def run_either(path: str | PathLike[str], inputs: Mapping[str, Any]) -> tuple[Runner, dict[str, Any]]:
    """Run a model in its own runtime, or in dovetail where that fails (with the reason in the runner's ``notes``)."""
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
    """The outputs of ``file`` in ``runtime``, compared with those of the source in its own runtime."""

    file: str
    runtime: str
    rows: list[Difference]


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparisons of a conversion. ``reference`` is the runtime that ran the source; ``notes`` list what did not run."""

    reference: str
    comparisons: list[Comparison]
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """True where every output was compared in every runtime, and agrees."""
        return all(each.rows and all(row.agrees for row in each.rows) for each in self.comparisons)


def verify_conversion(
    model: Model,
    source: str | PathLike[str],
    target: str | PathLike[str],
    inputs: Arrays,
    tolerance: float | None = None,
    random: Collection[str] = (),
) -> Verification:
    """Run ``source`` in its own runtime, ``target`` in its own, and ``source`` in dovetail; compare the outputs with the first's.

    ``model`` is the loaded source. Outputs that are states are excluded: OpenVINO does not return them. Dovetail is excluded
    where it is the reference, and, with a note, where it has no rule for an operator.
    """
    states = state_outputs(model)

    def visible(outputs: Arrays) -> dict[str, Any]:
        return {name: x for name, x in outputs.items() if name not in states}

    first, outputs = run_either(source, inputs)
    reference, second = visible(outputs), runner_of_target(target)
    notes = [*first.notes, *second.notes]
    found = [Comparison(fspath(target), second.name, compare(reference, visible(second.run(inputs)), tolerance, random))]
    if first.name != "dovetail":
        try:
            ours = visible(_ours(fspath(source)).run(inputs))
            found.append(Comparison(fspath(source), "dovetail", compare(reference, ours, tolerance, random)))
        except UnsupportedError as error:
            notes.append(f"dovetail does not run {fspath(source)}: [{error.code}] {error.message}")
    return Verification(first.name, found, tuple(notes))


def runner_of_target(path: str | PathLike[str]) -> Runner:
    """Return a runner of the file's own runtime; OpenVINO for an ONNX file that onnxruntime cannot load."""
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


def runner_for(path: str | PathLike[str], prefer: str | None = None) -> Runner:
    """Return a runner of the file's own runtime where it is installed, else of dovetail.

    ``prefer``: "onnxruntime", "openvino" or "dovetail". Raises UnsupportedError [runtime.missing] where a preferred one is not
    installed, EngineError [runtime.load] where it refuses the model.
    """
    own = {"onnx": "onnxruntime", "openvino": "openvino", "text": "dovetail"}[format_of(path)]
    wanted = prefer or (own if importlib.util.find_spec(own) else "dovetail")
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino, "dovetail": _ours}
    if wanted not in makers or (wanted != "dovetail" and not importlib.util.find_spec(wanted)):
        raise UnsupportedError("runtime.missing", f"{wanted} is not installed")
    return makers[wanted](fspath(path))


def _ours(path: str) -> Runner:
    return runtimes.ours(compile(load(path)))


def _onnxruntime(path: str) -> Runner:
    return runtimes.runner("onnxruntime", path, exact=True)


def _openvino(path: str) -> Runner:
    if not path.endswith(".xml"):
        return runtimes.runner("openvino", path, exact=True)
    model = load(path)
    names = runtimes.Names([x.name for x in own_inputs(model)], [y.name for y in own_outputs(model)])
    return runtimes.runner("openvino", path, names=names, exact=True)
