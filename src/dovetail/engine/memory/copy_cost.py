"""Cost model of strided reads: estimated times decide whether a kernel reads a strided input directly or a dense copy of it."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.engine.select.kernel_traits import traits_of

COPY_BYTES_PER_NANOSECOND = 20.0
"""Bytes that a strided copy reads plus writes per nanosecond, for tensors that fit into L2 or are slightly larger."""
STRIDED_NANOSECONDS = 5.0
"""Additional time per element of an axis that is not contiguous, for a kernel that loads vectors along that axis."""


def reason_to_copy(call: KernelCall, tensor: RunTensor, strides: Sequence[int]) -> str:
    """Return the reason why a kernel should read a dense copy of ``tensor``, with both estimated times; "" for no copy.

    ``strides`` are in elements. A row-major copy makes only the last axis contiguous.
    """
    traits = traits_of(call.kernel)
    if not traits.loads_along_axis or tensor is not call.reads[0] or not tensor.sizes:
        return ""
    rank = len(tensor.sizes)
    axis = call.attributes.get("axis", rank - 1)
    last = max((axis for axis in range(rank) if tensor.sizes[axis] > 1), default=0)
    if (traits.loads_one_axis and axis != last) or strides[last] == 1 or tensor.sizes[last] < 2:
        return ""
    copy_time = 2 * tensor.nbytes / COPY_BYTES_PER_NANOSECOND
    strided_time = tensor.count * STRIDED_NANOSECONDS
    if copy_time >= strided_time:
        return ""
    return f"{call.kernel} reads a dense copy faster: about {copy_time / 1e3:.1f} us to copy, {strided_time / 1e3:.1f} us strided"
