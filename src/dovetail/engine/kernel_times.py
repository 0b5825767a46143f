"""Predicted time of a step: its bytes and operations at the limits of the machine, times factors fitted for its kernel.

The time is ``overhead + cached * bytes / copy_rate + computed * operations / rate``, with ``streamed`` in place of ``cached`` for
a step of more than CACHED_BYTES. The factors of ``fitted_kernels`` relate to the limits of the machine, so that another machine
differs from them less than in its times.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.engine.fitted_kernels import FACTORS
from dovetail.engine.machine_limits import MachineLimits
from dovetail.engine.step_costs import StepCost

CACHED_BYTES = 1 << 20
"""The maximum bytes of a step whose operands are probably in the cache of the core."""
ISA_WORDS = ("base", "avx2", "avx512", "vnni", "amx", "neon")
"""Words of a kernel's name that name an instruction set."""


class KernelFactors(NamedTuple):
    """KernelFactors holds the seconds of a step without work, and the factors by which work exceeds the time at the limits."""

    overhead: float
    cached: float
    streamed: float
    computed: float


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


def step_time(kernel: str, cost: StepCost, limits: MachineLimits) -> StepTime:
    """Return the predicted time of a step that ``kernel`` runs, as a linear function of its bytes and operations."""
    factors = factors_of(kernel)
    nbytes = cost.read + cost.written
    rate = limits.rate_of(cost.arithmetic)
    return StepTime(
        factors.overhead,
        (factors.cached if nbytes <= CACHED_BYTES else factors.streamed) / limits.copy_rate,
        factors.computed / rate,
    )
