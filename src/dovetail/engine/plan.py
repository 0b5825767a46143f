"""Plan of a program: its steps, their operands, and the buffers of the arena."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.memory.tensor import KernelCall, RunTensor

COPY, FILL = "copy", "fill"


NOWHERE = -1
"""The number of the buffer of what has none."""


class Operand(NamedTuple):
    """A tensor as a step sees it: ``offset`` and ``strides`` in bytes, in buffer number ``buffer`` (0: the arena). ``data``
    are the elements of a constant. A constant has no buffer (NOWHERE), and a loose tensor only a name."""

    tensor: RunTensor
    buffer: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    data: np.ndarray[Any, Any] | None = None


@dataclass(slots=True)
class Step:
    """One call of a kernel, or of an operator's own rule (``kernel`` is INTERPRET)."""

    kernel: str
    label: str
    call: KernelCall | None
    reads: list[Operand | None]
    writes: list[Operand]
    attributes: dict[str, Any]
    reason: str

    @property
    def nbytes(self) -> int:
        """The bytes that it writes."""
        return sum(prod(operand.sizes) * operand.tensor.itemsize for operand in self.writes if operand.buffer >= 0)

    def constants(self) -> list[np.ndarray[Any, Any]]:
        """The constants that it reads."""
        return [operand.data for operand in self.reads if operand is not None and operand.data is not None]


class Buffer(NamedTuple):
    """A piece of the arena: which root lies there, and from which step to which."""

    root: RunTensor
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(slots=True)
class Plan:
    """A program before it is bound: buffers are 0 the arena, then the inputs, then the outputs."""

    inputs: list[RunTensor]
    outputs: list[RunTensor]
    steps: list[Step]
    arena_bytes: int
    lower_bound: int
    buffers: list[Buffer]
    moved_bytes: int
    activation_bytes: int
    results: list[RunTensor]
    """The tensors that the outputs are, as the graph has them."""
    constant_bytes: int
    """The bytes of the constants that this plan has for itself, computed from the sizes of the run."""

    @property
    def copied_bytes(self) -> int:
        return sum(step.nbytes for step in self.steps if step.kernel == COPY)


__all__ = ["COPY", "FILL", "Buffer", "Operand", "Plan", "Step"]
