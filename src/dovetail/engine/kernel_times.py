"""Predicted time of a step: its bytes and operations at the limits of the machine, times factors fitted for its kernel.

The time is ``overhead + (cached * c + streamed * s) / copy_rate + (computed * operations + evaluated * functions) / rate``. ``s``
are the bytes of cache lines that a step loads from memory, ``c`` those that are in the cache of the core (:func:`moved_by`).
``functions`` are operations of which an element takes many instructions (``step_costs.FUNCTIONS``), ``operations`` all others. A
run adds its own overhead. The factors of ``fitted_kernels`` relate to the limits of the machine, so that another machine differs
from them less than in its times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.engine.fitted_kernels import FACTORS, RUN
from dovetail.engine.machine_limits import MachineLimits
from dovetail.engine.step_costs import StepCost

CACHED_BYTES = 1 << 20
"""The maximum bytes that a step touches, and of the constants of a program, which are probably in the cache of the core."""
ISA_WORDS = ("base", "avx2", "avx512", "vnni", "amx", "neon")
"""Words of a kernel's name that name an instruction set."""


class KernelFactors(NamedTuple):
    """KernelFactors holds the seconds of a step without work, and the factors by which work exceeds the time at the limits."""

    overhead: float
    cached: float
    streamed: float
    computed: float
    evaluated: float


def kind_of(kernel: str) -> str:
    """Return the name of a kernel without its instruction set.

    >>> kind_of("conv rows avx2")
    'conv rows'
    """
    return " ".join(word for word in kernel.split() if word not in ISA_WORDS)


def factors_of(kernel: str) -> KernelFactors:
    """Return the factors of a kernel, else those of its family (the first word of its name), else those of all kernels."""
    kind = kind_of(kernel)
    found = FACTORS.get(kind) or FACTORS.get(kind.split(" ")[0]) or FACTORS[""]
    return KernelFactors(*found)


class StepTime(NamedTuple):
    """StepTime holds the time of a step in seconds: ``overhead``, ``per_byte`` moved and ``per_operation`` performed."""

    overhead: float
    per_byte: float
    per_operation: float

    def seconds(self, cost: StepCost) -> float:
        """Return the predicted seconds of the step."""
        return self.overhead + self.per_byte * (cost.read + cost.written) + self.per_operation * cost.operations


def run_overhead(steps: int, arrays: int, output_bytes: int) -> float:
    """Return the seconds of a run beside its steps, with this number of inputs and outputs, whose arrays are new."""
    of_run, of_array, of_step, of_byte = RUN
    return of_run + of_array * arrays + of_step * steps + of_byte * output_bytes


def moved_by(cost: StepCost, is_cold: bool) -> tuple[int, int]:
    """Return the bytes of cache lines of a step that are in the cache of the core, and those that are not.

    ``is_cold``: constants are not, as in a program with more than CACHED_BYTES of them.
    """
    values = cost.touched - cost.constant
    streamed = cost.constant * is_cold + values * (values > CACHED_BYTES)
    return cost.touched - streamed, streamed


def step_times(kernels: Iterable[str], costs: Sequence[StepCost], limits: MachineLimits) -> list[StepTime]:
    """Return the predicted times of a program's steps, as linear functions of their bytes and operations."""
    is_cold = sum(cost.constant for cost in costs) > CACHED_BYTES
    return [_step_time(factors_of(kernel), cost, limits, is_cold) for kernel, cost in zip(kernels, costs, strict=True)]


def _step_time(factors: KernelFactors, cost: StepCost, limits: MachineLimits, is_cold: bool) -> StepTime:
    cached, streamed = moved_by(cost, is_cold)
    moving = (factors.cached * cached + factors.streamed * streamed) / limits.copy_rate
    work = factors.computed * (cost.operations - cost.functions) + factors.evaluated * cost.functions
    return StepTime(
        factors.overhead,
        moving / max(cost.read + cost.written, 1),
        work / max(cost.operations, 1) / limits.rate_of(cost.arithmetic),
    )
