"""In-place computation: which reads of a kernel may share memory with its result.

A kernel that is not listed may write any part of its result before it has read all of its inputs, so no read may overlap a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WITH_RESIDUAL = frozenset(("conv", "matmul", "quantized_conv"))
"""Kernels whose epilogue adds a residual, their last read. Its element i is read just before element i of the
result is written."""


def overwritable_reads(kernel: str, attributes: Mapping[str, Any], reads: int, writes: int) -> frozenset[int]:
    """The positions among ``reads`` inputs that a kernel's only result may overwrite.

    Element i of such an input is read before element i of the result is written, and is not read again. So the input may share
    memory with the result where both have the same address, strides and item size; every other overlap is a fault of the plan.
    """
    if writes != 1:
        return frozenset()
    if kernel == "elementwise":
        return frozenset(range(reads))
    if kernel in WITH_RESIDUAL and attributes.get("has_residual"):
        return frozenset((reads - 1,))
    return frozenset()
