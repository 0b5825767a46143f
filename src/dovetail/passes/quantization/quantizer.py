"""Quantization of a model: rounds, ranks and encodes its weights, and measures the result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.compare.values.engines import PEERS, peer_runner
from dovetail.errors import DovetailError, EngineError, RuleError, UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.graph import Graph, Model
from dovetail.ir.suggestions import closest
from dovetail.ir.types import Unknown
from dovetail.ops.constant import DefaultInput
from dovetail.passes.quantization.activations import choose_activations
from dovetail.passes.quantization.biases import find_shifts
from dovetail.passes.quantization.calibration import Calibration, Call, ReferenceRun, calibrate
from dovetail.passes.quantization.codes import BLOCK_SIZES, Grid, round_matrix
from dovetail.passes.quantization.encodings import IR, MATMULNBITS, encode_weights
from dovetail.passes.quantization.error_compensation import compensate
from dovetail.passes.quantization.hessians import collect_hessians, group_weights
from dovetail.passes.quantization.report import QuantizedNode, QuantizeOptions, QuantizeReport, attach_report
from dovetail.passes.quantization.selection import order_to_keep, predict_count, smallest_count
from dovetail.passes.quantization.sensitivity import copy_with_weights, lift_weights, measure_errors, predict_errors
from dovetail.passes.quantization.weights import (
    CONVOLUTION,
    GPTQ,
    LOOKUP,
    PRODUCT,
    ModelWeight,
    Rounded,
    find_constants,
    find_weights,
    grid_of,
)
from dovetail.runtime.compilation import compile
from dovetail.runtime.random_inputs import Inputs

F16_ERROR = 2.0**-10
"""Relative error of a constant in f16 above which it stays in f32: its elements are below the normal range of f16."""


def quantize_weights(model: Model, to: str, inputs: Inputs, budget: float | None, options: QuantizeOptions) -> Model:
    """Return a copy of a model with rounded weights and its report; the arguments are those of :func:`dovetail.quantize`.

    ``options`` have no None for integer types, ``encoding`` aside.
    """
    find = find_constants if to in ("f16", "bf16") else find_weights
    encoding = options.encoding or (IR if model.format == "openvino" else MATMULNBITS)
    weights = find(model.graph)
    if not weights:
        raise _no_weights(model, to)
    _keep(model, weights, options.keep)
    calibration = calibrate(model, inputs) if options.verify else None
    _round(weights, to, options, encoding)
    chosen = [weight for weight in weights if weight.rounded is not None]
    writer = _Writer(model, weights, find, encoding)
    if calibration is not None and options.rounding == GPTQ:
        _compensate(chosen, writer, calibration)
    if calibration is not None and options.activations is not None:
        _quantize_activations(chosen, writer, calibration, options.activations)
    if calibration is not None and options.rounding == GPTQ:
        _correct_biases(chosen, writer, calibration)
    report = QuantizeReport(to, [_row(weight) for weight in weights], budget)
    if calibration is None or not chosen:
        new, _ = writer.write(chosen)
        attach_report(new, report)
        return new
    report.engine = options.engine or ""
    report.calls, report.held_out, report.drawn = len(calibration.calls), len(calibration.held_out), calibration.drawn
    if calibration.is_shared:
        report.notes.append("the rows fit one call: the result is measured on the rows that were used for calibration")
    new = _choose(model, chosen, calibration, writer, report, inputs.seed, options.engine)
    attach_report(new, report)
    return new


def _no_weights(model: Model, to: str) -> UnsupportedError:
    count = sum(isinstance(node.op, DefaultInput) for node in model.graph.nodes)
    found = (
        f"none, and {count} optional inputs with a default; load with freeze_defaults makes these constants" if count else "none"
    )
    message = f"the model must have constant float weights to be stored as {to}, got {found}"
    return UnsupportedError("constant.needed", message, file=model.file)


class _Writer:
    """_Writer writes copies of a model in which some of its weights are rounded."""

    def __init__(
        self, model: Model, weights: Sequence[ModelWeight], find: Callable[[Graph], list[ModelWeight]], encoding: str
    ) -> None:
        self.model, self.weights, self.find, self.encoding = model, list(weights), find, encoding

    def copy(self, chosen: Sequence[ModelWeight]) -> tuple[Model, list[ModelWeight]]:
        """Return a copy of the model and, among its weights, those of ``chosen``, none of them in a subgraph."""
        new, others = self._copy(chosen)
        lift_weights(new.graph, others)
        return new, others

    def write(self, chosen: Sequence[ModelWeight]) -> tuple[Model, list[ModelWeight]]:
        """Return a copy of the model in which the weights ``chosen`` are rounded, and these weights."""
        new, others = self._copy(chosen)
        encode_weights(new.graph, others, self.encoding)
        return new, others

    def _copy(self, chosen: Sequence[ModelWeight]) -> tuple[Model, list[ModelWeight]]:
        wanted = set(map(id, chosen))
        new, others = copy_with_weights(self.model, self.weights, self.find)
        return new, [other for other, weight in zip(others, self.weights, strict=True) if id(weight) in wanted]


def _keep(model: Model, weights: Sequence[ModelWeight], names: Collection[str]) -> None:
    """Let the weights keep their type that are named, or that a named node reads. Raises RuleError [name.unknown]."""
    known: dict[str, list[ModelWeight]] = {}
    for weight in weights:
        for name in {
            weight.value.name,
            weight.source.name,
            *(text for node, _ in weight.readers for text in (node.name, node.label)),
        }:
            known.setdefault(name, []).append(weight)
    for name in names:
        if name not in known:
            message = f"keep must name nodes with weights, or constants that they read, got {name!r}{closest(name, known)}"
            raise RuleError("name.unknown", message, file=model.file)
        for weight in known[name]:
            weight.kept = "the caller keeps it"


def _round(weights: Sequence[ModelWeight], to: str, options: QuantizeOptions, encoding: str) -> None:
    """Round each weight, or set the reason why it keeps its type."""
    for weight in weights:
        if weight.kept:
            continue
        data = weight.data
        largest = float(np.abs(data).max(initial=0))
        if not np.isfinite(largest):
            weight.kept = "it has NaN or infinities"
            continue
        if to in ("f16", "bf16"):
            weight.rounded = Rounded(dtype=dtypes.dtype(to))
            weight.kept = _reason_against(weight, largest)
        else:
            assert options.block_size is not None and options.symmetric is not None
            kind = None if to.startswith("int") else dtypes.dtype("f8e4m3" if to == "f8" else to)
            grid = grid_of(weight, Grid(4 if to == "int4" else 8, options.block_size, options.symmetric, dtype=kind))
            grid = _fit_block(grid, weight.matrix_shape[1], encoding)
            if 0 < largest < _smallest_range(weight):
                weight.kept = "its scales are subnormal"
            elif largest > _largest_range(weight):
                weight.kept = f"it is near the largest number of {weight.value.dtype}"
            elif grid.bytes(*weight.matrix_shape) >= weight.bytes:
                weight.kept = "it takes fewer bytes as it is"
            else:
                weight.rounded = Rounded(round_matrix(weight.matrix(), grid))
        if weight.kept:
            weight.rounded = None


def _smallest_range(weight: ModelWeight) -> float:
    """Return a magnitude below which scales are subnormal, or in f16 0."""
    dtype = weight.value.dtype
    return float(np.finfo(np.float16).tiny) if dtype == "f16" else float(np.finfo(np.float32).tiny) * 2**16


def _largest_range(weight: ModelWeight) -> float:
    """Return a magnitude above which the difference of two elements, or a rounded element, may be infinite."""
    return float(np.finfo(np.float16 if weight.value.dtype == "f16" else np.float32).max) / 2


def _compensate(weights: Sequence[ModelWeight], writer: _Writer, calibration: Calibration) -> None:
    """Round weights of products and convolutions again, so that errors compensate each other on the rows of ``calibration``."""
    if len(calibration.calls) < 2:
        return
    for group in group_weights(weights):
        chosen = [weights[index] for index in group]
        for weight, hessians in zip(chosen, collect_hessians(*writer.copy(chosen), calibration.calls), strict=True):
            nearest = weight.rounded.codes if weight.rounded is not None else None
            assert nearest is not None
            codes = compensate(weight.matrix(), hessians, nearest.grid, nearest)
            if codes is not nearest:
                weight.rounded = Rounded(codes, rounding=GPTQ)


def _quantize_activations(weights: Sequence[ModelWeight], writer: _Writer, calibration: Calibration, method: str) -> None:
    """Choose the grids of the inputs of products and convolutions from the rows of ``calibration``."""
    chosen = [
        weight
        for weight in weights
        if weight.is_linear and weight.kind != LOOKUP and all(node.input(0).dtype == "f32" for node, _ in weight.readers)
    ]
    has_channels = writer.encoding == IR
    grids = choose_activations(*writer.copy(chosen), calibration.calls, method, has_channels=has_channels)
    for weight, grid in zip(chosen, grids, strict=True):
        weight.activation = grid


def _correct_biases(weights: Sequence[ModelWeight], writer: _Writer, calibration: Calibration) -> None:
    """Shift the biases of products and convolutions by the mean changes on the rows of ``calibration``."""
    if len(calibration.calls) < 2:
        return
    chosen = [weight for weight in weights if weight.is_linear and weight.kind in (PRODUCT, CONVOLUTION)]
    for weight, shifts in zip(chosen, find_shifts(*writer.copy(chosen), calibration.calls), strict=True):
        weight.shifts = shifts


def _reason_against(weight: ModelWeight, largest: float) -> str:
    """Return the reason why a weight keeps its type rather than a type of 16 bits; "" if there is none."""
    assert weight.rounded is not None
    if largest > float(dtypes.f16.numpy.type(65504)) and weight.rounded.dtype == "f16":
        return "it exceeds the range of f16"
    data = weight.data.astype(np.float64)
    with np.errstate(all="ignore"):
        difference = weight.rounded.data(weight).astype(np.float64) - data
    if not np.all(np.isfinite(difference)):
        return f"it exceeds the range of {weight.rounded.dtype}"
    if weight.rounded.dtype == "f16" and np.linalg.norm(difference) > F16_ERROR * np.linalg.norm(data):
        return "it is below the normal range of f16"
    return ""


def _fit_block(grid: Grid, depth: int, encoding: str) -> Grid:
    """Return a grid that suits rows of ``depth`` elements in an encoding.

    OpenVINO recognizes compressed weights only in whole blocks: the block is the largest power of two that divides the depth, or
    a row if that is below 16. Weights of 4 bits get 8 bits if the depth is odd.
    """
    block, bits = grid.block, grid.bits
    if block and encoding == IR:
        while depth % block:
            block //= 2
        if block < BLOCK_SIZES[0]:
            block = 0
    if encoding == IR and bits < 8 and depth % 2:
        # OpenVINO 2026.4 computes wrong products where rows of 4-bit weights are no whole number of bytes.
        bits = 8
    return replace(grid, bits=bits, block=block)


def _row(weight: ModelWeight) -> QuantizedNode:
    node, rounded = weight.node, weight.rounded
    bits, size = (weight.bits, weight.bytes) if rounded is None else (rounded.bits, rounded.bytes(weight))
    block = 0 if rounded is None else rounded.block
    return QuantizedNode(
        node.label, node.title, weight.source.name, weight.bits, bits, block,
        "" if rounded is None else rounded.rounding, weight.bytes, size, 32 if weight.activation is None else 8,
        kept=weight.kept,
    )  # fmt: skip


@contextmanager
def _running(model: Model, engine: str | None, *, is_ir: bool) -> Iterator[Callable[[Call], Mapping[str, Any]]]:
    """Yield a function that runs a model on the inputs of a call, in ``engine`` or the default engine.

    ``is_ir``: OpenVINO runs an IR file. Raises RuleError [argument.conflict] for states, which other runtimes get as inputs;
    EngineError [runtime.load], [runtime.run].
    """
    if engine not in PEERS:
        yield compile(model, engine="auto" if engine is None else engine)
        return
    if model.states:
        raise RuleError("argument.conflict", f"the engine of a model with states must be one of dovetail, got {engine!r}")
    with tempfile.TemporaryDirectory() as folder:
        runner = peer_runner(engine, model, folder if is_ir and engine == "openvino" else None)

        def run(call: Call) -> Mapping[str, Any]:
            try:
                return runner.run(call)
            except DovetailError:
                raise
            except Exception as error:
                # A peer raises errors of its own classes.
                text = " ".join(str(error).split())[:500]
                raise EngineError("runtime.run", f"{engine} cannot run the result: {text}") from error

        yield run


def _predict(
    chosen: list[ModelWeight], writer: _Writer, reference: ReferenceRun, report: QuantizeReport, seed: int
) -> list[float | None]:
    """Return the predicted errors; None for weights without a gradient, with a note in the report."""
    linear = [weight for weight in chosen if weight.is_linear]
    for group, name in ((chosen, "the model"), (linear, "a recurrent layer or a subgraph")):
        if not group:
            break
        try:
            errors = dict(zip(map(id, group), predict_errors(*writer.copy(group), reference, seed), strict=True))
        except (DovetailError, Unknown) as error:
            failure = error
            continue
        if group is linear:
            report.notes.append(_describe_order(name, failure))
        return [errors.get(id(weight)) for weight in chosen]
    report.notes.append(_describe_order("the model", failure))
    return [None] * len(chosen)


def _describe_order(name: str, error: DovetailError | Unknown) -> str:
    reason = error.message if isinstance(error, DovetailError) else "a rank is not known"
    return f"{name} has no gradient, nodes are ordered by their measured errors: {reason}"


def _choose(
    model: Model,
    chosen: list[ModelWeight],
    calibration: Calibration,
    writer: _Writer,
    report: QuantizeReport,
    seed: int,
    engine: str | None,
) -> Model:
    """Rank the weights ``chosen``, keep some of them for the budget, measure the result, and complete the report."""
    reference = ReferenceRun(model, calibration.calls)
    held_out = reference if calibration.is_shared else ReferenceRun(model, calibration.held_out)
    all_rows = reference if calibration.is_shared else ReferenceRun(model, [*calibration.small_calls, *calibration.held_out])
    measured = measure_errors(*writer.copy(chosen), held_out)
    predicted = _predict(chosen, writer, reference, report, seed)
    errors = [there if error is None else error for error, there in zip(predicted, measured, strict=True)]
    rows = [row for row in report.nodes if not row.kept]
    for row, prediction, measurement in zip(rows, predicted, measured, strict=True):
        row.predicted, row.measured = prediction, measurement
    order = order_to_keep(chosen, errors)
    results: dict[int, tuple[Model, float, float]] = {}

    def holds(count: int) -> bool:
        kept = set(order[:count])
        new, _ = writer.write([weight for index, weight in enumerate(chosen) if index not in kept])
        with _running(new, engine, is_ir=writer.encoding == IR) as run:
            error, upper = all_rows.errors(run, len(calibration.held_out))
        results[count] = new, error, upper
        return report.budget is None or upper <= report.budget

    count = 0
    if report.budget is None:
        holds(0)
    else:
        count = smallest_count(predict_count(order, errors, report.budget), len(order), holds)
    if count == len(order):
        new, report.measured, report.upper = writer.write([])[0], 0.0, 0.0
    else:
        new, report.measured, report.upper = results[count]
    for index in order[:count]:
        row = rows[index]
        row.kept, row.bits, row.block, row.rounding, row.bytes = "the budget", row.bits_before, 0, "", row.bytes_before
        row.activation_bits = 32
    if None not in predicted:
        report.predicted = float(np.sqrt(sum(errors[index] ** 2 for index in order[count:])))
    return new
