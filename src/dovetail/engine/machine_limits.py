"""Limits of the machine, measured through the native core: copy bandwidth, and the rates of f32, 8-bit and bf16 products."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from dovetail.engine.engine import Engine
from dovetail.engine.profile import step_times
from dovetail.ir.arrays import Array
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ir.limits import DEFAULT, counting

COPIED_BYTES = 1 << 26
"""Bytes of the measured copy, more than the last-level cache of most machines holds."""
SIZE = 384
"""The number of rows, of columns and of terms per sum (depth) of the measured f32 and bf16 matrix products."""
CHANNELS, PIXELS = 256, 24
"""The number of channels, and the height and width of the image, in the measured 8-bit convolution."""
SAMPLES = 15
"""The number of runs of a product or convolution in one measurement; one run is about 1 ms, shorter than a time slice."""
Timer = Callable[[], float]
"""A function that runs a measured operation once and returns its seconds."""


class MachineLimits(NamedTuple):
    """MachineLimits holds the roofs of a roofline model: bytes/s that a copy reads and writes, operations/s of products.

    A step with operands in the caches, or with more favourable sizes, may exceed these rates. ``bf16_rate`` is None on a
    processor without AVX512-BF16.
    """

    threads: int
    copy_rate: float
    f32_rate: float
    integer_rate: float
    bf16_rate: float | None = None

    def rate_of(self, arithmetic: str) -> float:
        """Return the operations/s of products with operands of "f32", "bf16" or "int8"."""
        return {"int8": self.integer_rate, "bf16": self.bf16_rate}.get(arithmetic) or self.f32_rate

    def attainable(self, nbytes: float, operations: float, arithmetic: str = "f32") -> tuple[float, str]:
        """Return the seconds that these bytes and operations take at the limits, and the limit that dominates.

        ``arithmetic``: the operands of products, "f32", "bf16" or "int8".
        """
        memory = nbytes / self.copy_rate
        compute = operations / self.rate_of(arithmetic)
        return max(memory, compute), "memory" if memory >= compute else "compute"


class LimitMeter:
    """LimitMeter measures the limits with ``threads`` threads in rounds, and keeps the shortest times.

    Other programs on the processors only lengthen times, so that further rounds give higher rates. All meters
    of a process with the same number of threads share the shortest times. ``timers`` replaces the measured copy, f32 product,
    8-bit convolution and, if there is a fourth one, bf16 product; the times of such a meter are its own.

    >>> meter = LimitMeter(1, [lambda: 0.5, lambda: 0.25, lambda: 0.125])
    >>> meter.measure()
    >>> meter.limits.copy_rate == 2 * COPIED_BYTES / 0.5
    True
    """

    def __init__(self, threads: int, timers: Sequence[Timer] | None = None) -> None:
        self.threads = threads
        self._timers = timers
        count = len(timers) if timers is not None else 4 if native_core.has_bf16() else 3
        self._shortest = [inf] * count if timers is not None else _SHORTEST.setdefault(threads, [inf] * count)

    def measure(self, rounds: int = 1, is_first: bool = False) -> None:
        """Measure each limit ``rounds`` times after a first time, in which caches and threads are cold.

        With ``is_first``, earlier times are forgotten: those of a machine with other frequencies.
        """
        if is_first:
            self._shortest[:] = [inf] * len(self._shortest)
        with counting(DEFAULT):
            # The memory of the measured copy is released at the end: a profiled model may need it.
            timers = _timers(self.threads) if self._timers is None else self._timers
            for _ in range(rounds + 1):
                self._shortest[:] = [min(shortest, timer()) for shortest, timer in zip(self._shortest, timers, strict=True)]

    @property
    def limits(self) -> MachineLimits:
        """The limits of the shortest times; the rates are 0 before the first round."""
        copy, product, quantized, *rounded = self._shortest
        integer_operations = 2.0 * 9 * (CHANNELS * PIXELS) ** 2
        rates = [2.0 * SIZE**3 / seconds for seconds in (product, *rounded)]
        return MachineLimits(self.threads, 2.0 * COPIED_BYTES / copy, rates[0], integer_operations / quantized, *rates[1:])


_SHORTEST: dict[int, list[float]] = {}
"""Maps a number of threads to the shortest seconds of the copy, the f32 product, the 8-bit convolution and the bf16 product."""


def _timers(threads: int) -> list[Timer]:
    rows = np.full((SIZE, SIZE), 0.5, np.float32)
    timers = [
        _copy_timer(threads),
        _step_timer(_product_model(), rows, threads),
        _step_timer(_quantized_model(), np.full((1, CHANNELS, PIXELS, PIXELS), 0.5, np.float32), threads),
    ]
    return [*timers, _step_timer(_product_model(), rows, threads, "bf16")] if native_core.has_bf16() else timers


def _copy_timer(threads: int) -> Timer:
    """Return a function that copies COPIED_BYTES between arrays whose pages are mapped, and returns the seconds."""
    executable, arrays = Engine(_copy_model(), threads).bind([np.ones(COPIED_BYTES // 4, np.float32)])
    # A result array of the engine may be new, and the first writes to its pages take longer than the copy.
    target = {"y": np.ones(COPIED_BYTES // 4, np.float32)}

    def run() -> float:
        start = time.perf_counter()
        executable(arrays, target, ["y"])
        return time.perf_counter() - start

    return run


def _step_timer(model: Model, array: Array, threads: int, precision: str = "f32") -> Timer:
    """Return a function that runs a model SAMPLES times, and returns the seconds of the slowest step of the fastest run.

    Another program interrupts few of the short runs; it would interrupt each run that is longer than a time slice.
    """
    executable, arrays = Engine(model, threads, precision=precision).bind([array])
    names = [value.name for value in model.outputs]
    return lambda: min(max(step_times(executable, arrays, names)) for _ in range(SAMPLES)) / 1e9


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
