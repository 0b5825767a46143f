"""Static quantization of activations: scales and zero points of a node's input, chosen from rows.

All elements share one scale. The input of a depthwise convolution has one scale for each channel if their ranges differ much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Model, Node, Value
from dovetail.ops.nn.conv import Conv
from dovetail.ops.nn.group_conv import GroupConv
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
MAX_RATIO = 4.0
"""Root mean square of the ratios of a common scale to those of channels, up to which a depthwise convolution has the former."""


@dataclass(frozen=True, slots=True)
class Activation:
    """Activation is the u8 grid of a node's input: codes are ``round(x / scale) + zero_point``, clipped to 0 .. 255.

    ``scales`` and ``zero_points`` have one element, or one for each channel on axis 1.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]

    def apply(self, b: Builder, x: Value) -> Value:
        """Emit QuantizeLinear and DequantizeLinear."""
        scales, points = np.array(self.scales, np.float32), np.array(self.zero_points, np.uint8)
        if len(scales) == 1:
            scales, points = scales[0], points[0]
        y: Value = b.DequantizeLinear(b.QuantizeLinear(x, scales, points, axis=1), scales, points, axis=1)
        return y

    def fake_quantize(self, b: Builder, x: Value) -> Value:
        """Emit FakeQuantize with the same grid, which OpenVINO recognizes."""
        scales, points = np.array(self.scales, np.float32), np.array(self.zero_points)
        shape = () if len(scales) == 1 else (1, -1, *[1] * (len(x.dims) - 2))
        low, high = (((code - points) * scales).astype(np.float32).reshape(shape) for code in (0, LEVELS - 1))
        y: Value = b.FakeQuantize(x, low, high, low, high, levels=LEVELS)
        return y


@dataclass(frozen=True, slots=True)
class _Input:
    """_Input is the first input of some nodes; ``channels`` is 1, or the number of channels that have a scale each."""

    value: Value
    channels: int

    @property
    def key(self) -> tuple[int, int]:
        return id(self.value), self.channels


def _input_of(node: Node) -> _Input:
    x = node.input(0)
    groups = 1
    if isinstance(node.op, Conv):
        groups = node.op.group
    elif isinstance(node.op, GroupConv):
        groups = node.inputs[1].dims[0] if node.inputs[1] is not None and isinstance(node.inputs[1].dims[0], int) else 1
    return _Input(x, groups if groups > 1 and x.shape is not None and x.dims[1] == groups else 1)


def choose_activations(
    model: Model, weights: Sequence[ModelWeight], calls: Sequence[Call], method: str, *, has_channels: bool
) -> list[Activation | None]:
    """Return the grid of the input of each weight's nodes; None where elements are not finite or a scale is subnormal.

    ``method`` is MINMAX, PERCENTILE or MSE. Without ``has_channels``, inputs that need several scales have None: onnxruntime 1.32
    fuses the QuantizeLinear of such an input with the node in front of it, and then refuses several scales. The weights are
    values of ``model``, whose graph changes.
    """
    keys = [{each.key: each for each in (_input_of(node) for node, _ in weight.readers)} for weight in weights]
    inputs = {key: each for items in keys for key, each in items.items()}
    grids: dict[tuple[int, int], Activation | None] = {}
    items = list(inputs.values())
    for start in range(0, len(items), GROUP):
        grids.update(_choose_group(model, items[start : start + GROUP], calls, method))
    chosen = [grids[next(iter(each))] if len(each) == 1 else None for each in keys]
    return [grid if grid is None or has_channels or len(grid.scales) == 1 else None for grid in chosen]


def _choose_group(
    model: Model, inputs: Sequence[_Input], calls: Sequence[Call], method: str
) -> dict[tuple[int, int], Activation | None]:
    old_outputs = model.graph.outputs
    b = Builder(graph=model.graph)
    mark = len(model.graph.nodes)
    new_outputs: list[Value] = [b.Identity(each.value) for each in inputs]
    keep_initial_states(model)
    model.graph.outputs += new_outputs
    program = compile(model)
    names = [y.name for y in new_outputs]
    ranges = [(np.zeros(each.channels), np.zeros(each.channels)) for each in inputs]

    def elements(each: _Input, array: object) -> Array:
        """Return elements as [channels, n]."""
        found = np.asarray(array)
        return (found if each.channels == 1 else np.moveaxis(found, 1, 0)).reshape(each.channels, -1)

    for call in calls:
        found = program(call)
        for index, (each, name) in enumerate(zip(inputs, names, strict=True)):
            array = elements(each, found[name])
            low, high = ranges[index]
            # A NaN in the array stays in the range.
            ranges[index] = np.minimum(low, array.min(axis=1, initial=0)), np.maximum(high, array.max(axis=1, initial=0))
    if method != MINMAX:
        histograms = [np.zeros((each.channels, BINS)) for each in inputs]
        finite = [np.isfinite(high - low).all() and bool((low < high).any()) for low, high in ranges]
        for call in calls:
            found = program(call)
            for index, (each, name) in enumerate(zip(inputs, names, strict=True)):
                if finite[index]:
                    histograms[index] += _count(elements(each, found[name]), *ranges[index])
        choose = _clip_tails if method == PERCENTILE else _minimize_error
        ranges = [
            choose(counts, *bounds) if usable else bounds
            for counts, bounds, usable in zip(histograms, ranges, finite, strict=True)
        ]
    model.graph.outputs = old_outputs
    remove_dead(model.graph, kept={id(node) for node in model.graph.nodes[:mark]})
    return {each.key: _grid_of_channels(*bounds) for each, bounds in zip(inputs, ranges, strict=True)}


def _grid_of_channels(low: Array, high: Array) -> Activation | None:
    """Return the grid of ranges with one scale, or with one for each channel if their ranges differ much."""
    common, grid = grid_of_range(low.min(), high.max()), grid_of_range(low, high)
    if common is None or grid is None:
        return None
    scales = np.array(grid.scales)[high > low]
    is_common = not len(scales) or float(np.sqrt(np.mean((common.scales[0] / scales) ** 2))) <= MAX_RATIO
    return common if is_common else grid


def _count(elements: Array, low: Array, high: Array) -> Array:
    """Return the histograms [channels, BINS] of ``elements`` [channels, n] over the ranges of the channels."""
    width = np.where(high > low, (high - low) / BINS, 1)[:, None]
    bins = np.clip((elements - low[:, None]) / width, 0, BINS - 1).astype(np.int64)
    bins += np.arange(len(bins))[:, None] * BINS
    counts: Array = np.bincount(bins.ravel(), minlength=len(bins) * BINS).reshape(len(bins), BINS)
    return counts


def grid_of_range(low: Array | float, high: Array | float) -> Activation | None:
    """Return the grid of elements from ``low`` to ``high``, numbers or one of each channel, extended to contain 0.

    Returns None for infinities and NaN, and for ranges of subnormal scale. A range of zeros has the scale 1.
    """
    low, high = np.minimum(np.atleast_1d(low), 0.0), np.maximum(np.atleast_1d(high), 0.0)
    span = high - low
    if not np.all(np.isfinite(span)):
        return None
    scales = np.where(span > 0, span / (LEVELS - 1), 1).astype(np.float32)
    if np.any(scales < np.finfo(np.float32).tiny * 2**16):
        return None
    points = np.clip(np.rint(-low / scales), 0, LEVELS - 1).astype(np.int64)
    return Activation(tuple(scales.tolist()), tuple(points.tolist()))


def _clip_tails(counts: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the range of each channel that leaves out half of SHARE of the elements at each end."""
    total = np.cumsum(counts, axis=1) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    first = np.sum(total < SHARE / 2, axis=1)
    last = np.minimum(np.sum(total < 1 - SHARE / 2, axis=1) + 1, BINS)
    step = (high - low) / BINS
    return low + first * step, np.where(last == BINS, high, low + last * step)


def _minimize_error(counts: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the range of each channel, shrunk by a factor of SHRINK, with the smallest squared error of the elements."""
    centers = low[:, None] + (np.arange(BINS) + 0.5) * ((high - low) / BINS)[:, None]
    best, smallest = np.ones(len(low)), np.full(len(low), np.inf)
    for factor in SHRINK:
        grid = grid_of_range(low * factor, high * factor)
        if grid is None:
            break
        scales, points = np.array(grid.scales)[:, None], np.array(grid.zero_points)[:, None]
        codes = np.clip(np.rint(centers / scales) + points, 0, LEVELS - 1)
        error = np.einsum("ij,ij->i", counts, ((codes - points) * scales - centers) ** 2)
        best, smallest = np.where(error < smallest, factor, best), np.minimum(error, smallest)
    return low * best, high * best
