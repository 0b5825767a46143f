"""What reading through strides costs, and what a copy would: rough times, by which a copy may be kept for speed."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.memory.tensor import KernelCall, RunTensor

COPY_BYTES_PER_NANOSECOND = 20.0
"""Bytes read and written by a strided copy in cache and a little beyond it."""
GATHERED_NANOSECONDS = 5.0
"""What an element more costs that does not lie beside its neighbour, for a kernel that goes along the axis in vectors."""
ALONG = ("softmax", "log_softmax", "layer_norm", "rms_norm")
"""Kernels that do."""


def reason_to_copy(call: KernelCall, tensor: RunTensor, strides: Sequence[int]) -> str:
    """Why a kernel should read a dense copy of ``tile`` instead of it: both estimated times. Empty where it should not.

    ``strides``: in elements. Only an axis that is the last one becomes dense by copying in the order of the axes.
    """
    if call.kernel not in ALONG or tensor is not call.reads[0] or not tensor.sizes:
        return ""
    rank = len(tensor.sizes)
    axis = call.attributes.get("axis", rank - 1)
    last = max((place for place in range(rank) if tensor.sizes[place] > 1), default=0)
    if (call.kernel.endswith("softmax") and axis != last) or strides[last] == 1 or tensor.sizes[last] < 2:
        return ""
    copied = 2 * tensor.nbytes / COPY_BYTES_PER_NANOSECOND
    gathered = tensor.count * GATHERED_NANOSECONDS
    if copied >= gathered:
        return ""
    return (
        f"{call.kernel} reads a copy faster: about {copied / 1e3:.1f} us to copy against {gathered / 1e3:.1f} us through strides"
    )
