"""Whether two models compute the same: both are run, each in its own runtime where that is installed, and compared."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np

from dovetail import dtypes, peers
from dovetail.dtypes import DType
from dovetail.errors import EngineError, UnsupportedError
from dovetail.formats import format_of, load
from dovetail.peers import Runner
from dovetail.program import compile

TOLERANCE = 1e-4
"""The largest difference allowed, as a share of the largest magnitude in the reference output; see also tolerance_of."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far apart one output of two models is: the largest difference, and that over the largest magnitude."""

    output: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    agrees: bool
    why: str = ""
    tolerance: float = TOLERANCE


def compare(reference: Arrays, other: Arrays, tolerance: float | None = None) -> list[Difference]:
    """One row per output of ``reference``, and one for each that only ``other`` has.

    NaN must meet NaN and infinity the same infinity; integers, booleans and strings must be equal. ``tolerance`` defaults to that
    of each output's element type.
    """
    rows = [_difference(name, array, other.get(name), tolerance) for name, array in reference.items()]
    extra = [(name, np.asarray(array)) for name, array in other.items() if name not in reference]
    return rows + [Difference(name, str(array.dtype), array.shape, np.inf, np.inf, False, "unexpected") for name, array in extra]


def tolerance_of(dtype: DType) -> float:
    """TOLERANCE, or four times the relative spacing of a type that is too coarse for that; 0 for types that have to be equal."""
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


def _integer_distance(x: Any, y: Any) -> float:
    return float(max((abs(int(a) - int(b)) for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)), default=0))


def run_either(path: str | PathLike[str], inputs: Mapping[str, Any]) -> tuple[Runner, dict[str, Any]]:
    """The outputs of a model in its own runtime, or in ours where that does not carry it (the runner's ``notes`` say why)."""
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


def runner_for(path: str | PathLike[str], prefer: str | None = None) -> Runner:
    """The file's own runtime where it is installed and can carry the model, else ours.

    ``prefer``: "onnxruntime", "openvino" or "dovetail". Raises UnsupportedError [runtime.missing] where a preferred one is not
    there, EngineError [runtime.load] where it refuses the model.
    """
    own = {"onnx": "onnxruntime", "openvino": "openvino"}[format_of(path)]
    wanted = prefer or (own if importlib.util.find_spec(own) else "dovetail")
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino, "dovetail": _ours}
    if wanted not in makers or (wanted != "dovetail" and not importlib.util.find_spec(wanted)):
        raise UnsupportedError("runtime.missing", f"{wanted} is not installed")
    return makers[wanted](fspath(path))


def _ours(path: str) -> Runner:
    return peers.ours(compile(load(path)))


def _onnxruntime(path: str) -> Runner:
    return peers.runner("onnxruntime", path)


def _openvino(path: str) -> Runner:
    if not path.endswith(".xml"):
        return peers.runner("openvino", path)
    model = load(path)
    return peers.runner("openvino", path, names=peers.Names([x.name for x in model.inputs], [y.name for y in model.outputs]))
