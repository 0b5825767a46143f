"""Selection of kernels of transforms, sampling and random numbers: DFT, GridSample, RandomUniform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.engine.memory.tensor import KernelCall
from dovetail.engine.select.indexing import Reads, Writes
from dovetail.ir.graph import Node

if TYPE_CHECKING:
    from dovetail.ops.nn.grid_sample import GridSample
    from dovetail.ops.random import RandomUniform
    from dovetail.ops.signal.dft import DFT

FLOATS = ("f32", "f64")
MAX_DFT_LENGTH = 1 << 22
"""The maximum length of a native DFT."""


def select_dft(op: DFT, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, axes, signal_size = (*reads, None)[:3]
    assert x is not None and x.dtype is not None and axes is not None
    if x.dtype.name not in FLOATS:
        return f"a transform of {x.dtype}"
    length_view = None if signal_size is None else signal_size.as_view()
    plan = op.plan(x.sizes[:-1], axes.as_view(), length_view, op.onesided and op.inverse)
    if plan is None or len(plan) != 1:
        return "a transform over several axes"
    ((axis, length),) = plan
    if not 0 < length <= MAX_DFT_LENGTH:
        return f"a transform of the length {length}"
    attributes = {"axis": axis, "length": length, "inverse": int(op.inverse), "onesided": int(op.onesided)}
    return KernelCall("dft", (node,), [x], writes, attributes)


def select_grid_sample(op: GridSample, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, grid = reads[:2]
    assert x is not None and grid is not None and x.dtype is not None
    if x.dtype.name not in FLOATS or grid.dtype is not x.dtype:
        return f"sampling of {x.dtype} by {grid.dtype}"
    if not 3 <= len(x.sizes) <= 5 or 0 in x.sizes[2:]:
        return "more than 3 spatial axes, or none"
    attributes = {"align_corners": int(op.align_corners), "mode": op.mode, "padding_mode": op.padding_mode}
    return KernelCall("grid_sample", (node,), [x, grid], writes, attributes)


def select_random_uniform(op: RandomUniform, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    _, low, high = reads
    assert low is not None and high is not None
    if low.dtype is None or low.dtype.name not in FLOATS or low.data is None or high.data is None:
        return "bounds that are no constants of f32 or f64"
    attributes: dict[str, Any] = {
        "state": _state_words_of(op),
        "low": float(low.data.reshape(())),
        "high": float(high.data.reshape(())),
    }
    return KernelCall("random_uniform", (node,), [], writes, attributes)


def _state_words_of(op: RandomUniform) -> list[int]:
    """Return the state and the increment of the operator's PCG64 generator, as signed words of 64 bits."""
    state: Any = np.random.PCG64(np.random.SeedSequence(op.state())).state["state"]
    words = [word for number in (state["state"], state["inc"]) for word in (number >> 64, number % 2**64)]
    return [word - 2**64 if word >= 2**63 else word for word in words]
