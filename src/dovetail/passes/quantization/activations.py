"""Static quantization of activations: one scale and one zero point for all elements of a node's input, chosen from rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Model, Value
from dovetail.passes.quantization.calibration import Call, keep_initial_states
from dovetail.passes.quantization.codes import Array
from dovetail.runtime.compilation import compile

if TYPE_CHECKING:
    from dovetail.passes.quantization.weights import ModelWeight

MINMAX, PERCENTILE, MSE = "minmax", "percentile", "mse"
BINS = 2048
"""Number of bins of a histogram of elements."""
SHARE = 1e-4
"""Share of the elements that the method PERCENTILE leaves out at both ends together."""
SHRINK = np.linspace(1.0, 0.1, 91)
"""Factors of the range of all elements among which the method MSE chooses."""
GROUP = 16
"""Number of activations of one run of the calls."""
LEVELS = 256


@dataclass(frozen=True, slots=True)
class Activation:
    """Activation is the u8 grid of a node's input: codes are ``round(x / scale) + zero_point``, clipped to 0 .. 255."""

    scale: float
    zero_point: int

    def apply(self, b: Builder, x: Value) -> Value:
        """Emit QuantizeLinear and DequantizeLinear."""
        scale, point = np.float32(self.scale), np.uint8(self.zero_point)
        y: Value = b.DequantizeLinear(b.QuantizeLinear(x, scale, point), scale, point)
        return y

    def fake_quantize(self, b: Builder, x: Value) -> Value:
        """Emit FakeQuantize with the same grid, which OpenVINO recognizes."""
        scale = np.float32(self.scale)
        low, high = (np.float32((code - self.zero_point) * scale) for code in (0, LEVELS - 1))
        y: Value = b.FakeQuantize(x, low, high, low, high, levels=LEVELS)
        return y


def choose_activations(
    model: Model, weights: Sequence[ModelWeight], calls: Sequence[Call], method: str
) -> list[Activation | None]:
    """Return the grid of the input of each weight's nodes; None where elements are not finite or a scale is subnormal.

    ``method`` is MINMAX, PERCENTILE or MSE. The weights are values of ``model``, whose graph changes.
    """
    values: dict[int, Value] = {}
    for weight in weights:
        values.update({id(node.input(0)): node.input(0) for node, _ in weight.readers})
    grids: dict[int, Activation | None] = {}
    items = list(values.items())
    for start in range(0, len(items), GROUP):
        grids.update(_choose_group(model, dict(items[start : start + GROUP]), calls, method))
    keys = [{id(node.input(0)) for node, _ in weight.readers} for weight in weights]
    return [grids[next(iter(each))] if len(each) == 1 else None for each in keys]


def _choose_group(model: Model, values: dict[int, Value], calls: Sequence[Call], method: str) -> dict[int, Activation | None]:
    old_outputs = model.graph.outputs
    b = Builder(graph=model.graph)
    mark = len(model.graph.nodes)
    new_outputs: list[Value] = [b.Identity(value) for value in values.values()]
    keep_initial_states(model)
    model.graph.outputs += new_outputs
    program = compile(model)
    names = dict(zip(values, (y.name for y in new_outputs), strict=True))
    ranges = dict.fromkeys(values, (0.0, 0.0))
    for call in calls:
        found = program(call)
        for key, name in names.items():
            array = np.asarray(found[name])
            low, high = ranges[key]
            # A NaN in the array stays in the range.
            ranges[key] = float(np.minimum(low, array.min(initial=0))), float(np.maximum(high, array.max(initial=0)))
    if method == MINMAX:
        chosen = ranges
    else:
        histograms = {key: np.zeros(BINS) for key in values}
        finite = [key for key in values if np.all(np.isfinite(ranges[key])) and ranges[key][0] < ranges[key][1]]
        for call in calls:
            found = program(call)
            for key in finite:
                histograms[key] += np.histogram(np.asarray(found[names[key]]), BINS, ranges[key])[0]
        choose = _clip_tails if method == PERCENTILE else _minimize_error
        chosen = {key: choose(histograms[key], *ranges[key]) if key in finite else ranges[key] for key in values}
    model.graph.outputs = old_outputs
    remove_dead(model.graph, kept={id(node) for node in model.graph.nodes[:mark]})
    return {key: grid_of_range(*chosen[key]) for key in values}


def grid_of_range(low: float, high: float) -> Activation | None:
    """Return the grid of elements from ``low`` to ``high``, extended to contain 0.

    Returns None for infinities and NaN, and for ranges of subnormal scale. A range of zeros has the scale 1.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if not np.isfinite(high - low):
        return None
    if low == high:
        return Activation(1.0, 0)
    scale = np.float32((high - low) / (LEVELS - 1))
    if scale < np.finfo(np.float32).tiny * 2**16:
        return None
    return Activation(float(scale), int(np.clip(np.rint(-low / scale), 0, LEVELS - 1)))


def _clip_tails(counts: Array, low: float, high: float) -> tuple[float, float]:
    """Return the range that leaves out half of SHARE of the elements at each end."""
    edges = np.linspace(low, high, BINS + 1)
    total = np.cumsum(counts) / counts.sum()
    first = int(np.searchsorted(total, SHARE / 2))
    last = int(np.searchsorted(total, 1 - SHARE / 2))
    return float(edges[first]), float(edges[min(last + 1, BINS)])


def _minimize_error(counts: Array, low: float, high: float) -> tuple[float, float]:
    """Return the range, shrunk by a factor of SHRINK, with the smallest squared error of the elements."""
    edges = np.linspace(low, high, BINS + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    best, smallest = (low, high), np.inf
    for factor in SHRINK:
        grid = grid_of_range(low * factor, high * factor)
        if grid is None:
            break
        codes = np.clip(np.rint(centers / grid.scale) + grid.zero_point, 0, LEVELS - 1)
        error = float(np.dot(counts, ((codes - grid.zero_point) * grid.scale - centers) ** 2))
        if error < smallest:
            best, smallest = (low * factor, high * factor), error
    return best
