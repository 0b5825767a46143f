"""Limits of the machine, measured through the native core: copy bandwidth and the rate of f32 and of 8-bit products."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from dovetail.engine.engine import Engine
from dovetail.engine.profile import step_times
from dovetail.ir.arrays import Array
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.limits import DEFAULT, counting

COPIED_BYTES = 1 << 26
"""Bytes of the measured copy, more than the last-level cache of most machines holds."""
SIZE = 1024
"""The number of rows, of columns and of terms per sum (depth) of the measured f32 matrix product."""
CHANNELS, PIXELS = 256, 32
"""The number of channels, and the height and width of the image, in the measured 8-bit convolution."""
ROUNDS = 5
"""The number of runs measured after the first run; the time of the fastest of all runs is the result."""


class MachineLimits(NamedTuple):
    """MachineLimits holds the roofs of a roofline model: bytes/s that a copy reads and writes, operations/s of products.

    A step with operands in the caches, or with more favourable sizes, may exceed these rates.
    """

    threads: int
    copy_rate: float
    f32_rate: float
    integer_rate: float

    def attainable(self, nbytes: float, operations: float, is_integer: bool = False) -> tuple[float, str]:
        """Return the seconds that these bytes and operations take at the limits, and the limit that dominates."""
        memory = nbytes / self.copy_rate
        compute = operations / (self.integer_rate if is_integer else self.f32_rate)
        return max(memory, compute), "memory" if memory >= compute else "compute"


@cache
def measure_limits(threads: int) -> MachineLimits:
    """Measure the limits with ``threads`` threads, in about a quarter of a second, once per process."""
    with counting(DEFAULT):
        values = np.ones(COPIED_BYTES // 4, np.float32)  # np.zeros would share one page of memory.
        copy = _fastest(_copy_model(), values, threads)
        product = _fastest(_product_model(), np.full((SIZE, SIZE), 0.5, np.float32), threads)
        quantized = _fastest(_quantized_model(), np.full((1, CHANNELS, PIXELS, PIXELS), 0.5, np.float32), threads)
    integer_operations = 2.0 * 9 * (CHANNELS * PIXELS) ** 2
    return MachineLimits(threads, 2.0 * COPIED_BYTES / copy, 2.0 * SIZE**3 / product, integer_operations / quantized)


def _fastest(model: Model, array: Array, threads: int) -> float:
    """Return the seconds of the slowest step of a model: the minimum over all runs."""
    engine = Engine(model, threads)
    executable, arrays = engine.bind([array])
    names = [value.name for value in model.outputs]
    return min(max(step_times(executable, arrays, names)) for _ in range(ROUNDS + 1)) / 1e9


def _copy_model() -> Model:
    b = Builder()
    b.output("y", b.Identity(b.input("x", "f32", (COPIED_BYTES // 4,))))
    return b.model


def _product_model() -> Model:
    b = Builder()
    b.output("y", b.MatMul(b.input("x", "f32", (SIZE, SIZE)), np.full((SIZE, SIZE), 0.5, np.float32)))
    return b.model


def _quantized_model() -> Model:
    """Return a convolution of 3 x 3 taps between QuantizeLinear and DequantizeLinear."""
    b = Builder()
    image = b.input("x", "f32", (1, CHANNELS, PIXELS, PIXELS))
    x = b.DequantizeLinear(b.QuantizeLinear(image, 0.1, np.uint8(3)), 0.1, np.uint8(3))
    w = b.DequantizeLinear(np.full((CHANNELS, CHANNELS, 3, 3), 3, np.int8), 0.1, np.int8(0))
    b.output("y", b.QuantizeLinear(b.Conv(x, w, pads=[1, 1, 1, 1]), 0.5, np.uint8(3)))
    return b.model
