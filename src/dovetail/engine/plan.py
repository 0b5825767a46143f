"""Plan of a program: its steps, their operands, and the buffers of the arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.memory.tensor import KernelCall, RunTensor

COPY, FILL = "copy", "fill"
NO_BUFFER = -1
"""The buffer index of constants and dynamic tensors, which have no buffer."""


class UnallocatedStep(NamedTuple):
    """UnallocatedStep is a step whose operands have physical layouts but no buffers yet."""

    kernel: str
    call: KernelCall | None
    reads: list[RunTensor | None]
    writes: list[RunTensor]
    attributes: dict[str, Any]
    reason: str


class Operand(NamedTuple):
    """Operand is a step's tensor in the buffer of index ``buffer`` (0: the arena), at ``offset`` with ``strides``, both in bytes.

    ``data`` are the elements of a constant. Constants and dynamic tensors have no buffer (NO_BUFFER).
    """

    tensor: RunTensor
    buffer: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    data: np.ndarray[Any, Any] | None = None


@dataclass(slots=True)
class Step:
    """Step is one call of a kernel, or one evaluation of an operator in Python (``kernel`` is INTERPRET)."""

    kernel: str
    label: str
    call: KernelCall | None
    reads: list[Operand | None]
    writes: list[Operand]
    attributes: dict[str, Any]
    reason: str

    @property
    def nbytes(self) -> int:
        """The bytes that the step writes."""
        return sum(prod(operand.sizes) * operand.tensor.itemsize for operand in self.writes if operand.buffer >= 0)

    def constants(self) -> list[np.ndarray[Any, Any]]:
        """Return the constants that the step reads."""
        return [operand.data for operand in self.reads if operand is not None and operand.data is not None]


class Buffer(NamedTuple):
    """Buffer is a buffer of the arena: its root, offset and bytes, and its lifetime from step ``first`` to step ``last``."""

    root: RunTensor
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(slots=True)
class Plan:
    """Plan is a program that is not bound to memory yet. Buffer 0 is the arena; the inputs' buffers follow, then the outputs'."""

    inputs: list[RunTensor]
    outputs: list[RunTensor]
    steps: list[Step]
    arena_bytes: int
    lower_bound: int
    """The peak of live bytes over all steps: no arena is smaller."""
    buffers: list[Buffer]
    moved_bytes: int
    """The bytes that data movement operators would write if each wrote its results."""
    activation_bytes: int
    results: list[RunTensor]
    """The graph's result tensors, whose elements ``outputs`` receives."""
    constant_bytes: int
    """The bytes of constants that only this plan has, computed from the sizes of the run."""
    order: Sequence[int] | None = None
    """The indices of the kernel calls in the order of execution; None for the order of the graph."""

    @property
    def copied_bytes(self) -> int:
        return sum(step.nbytes for step in self.steps if step.kernel == COPY)
