"""A check that the result of a row depends neither on the other rows of its batch nor on its position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.compare.arrays import relative_difference
from dovetail.data.rows.row_signature import REMEDY, RowSignature
from dovetail.errors import EngineError

LOGGER = logging.getLogger("dovetail")
TOLERANCE = 1e-4
"""The largest difference of a row between two batches, relative to an output's magnitude, that counts as independence."""
MAX_DIFFERENCE = 0.05
"""The largest relative difference that rounding can explain, in half precision or in a different order of additions."""

Arrays = Mapping[str, Any]


def check_independence(
    run: Callable[[dict[str, Any]], Arrays], inputs: Arrays, outputs: Arrays, count: int, signature: RowSignature
) -> None:
    """Run the second half of a batch again at the positions of the first half, and compare both results.

    The other rows of that batch are copies of the middle row. Raises EngineError [batch.rows] if the results differ by more than
    MAX_DIFFERENCE and no operator computes a scale of the whole batch. Logs a warning for differences above TOLERANCE.
    """
    middle = count // 2
    rows = np.full(len(next(iter(inputs.values()))), middle)
    rows[: count - middle] = np.arange(middle, count)
    again = run({name: array[rows] for name, array in inputs.items()})
    for port in signature.outputs:
        if port.name in signature.random:
            continue
        difference = _difference(outputs[port.name][middle:count], again[port.name][: count - middle])
        message = (
            f"a row of output {port.name!r} must depend only on its input row, but differs by {difference:.2g} in another batch"
        )
        if difference > MAX_DIFFERENCE and not signature.has_batch_scales:
            raise EngineError("batch.rows", f"{message}; {REMEDY}")
        if difference > TOLERANCE:
            LOGGER.warning("%s", message)


def _difference(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Return the largest difference relative to the largest magnitude.

    For integers and strings, return the fraction of the elements that differ.
    """
    is_exact = first.dtype.kind in "OUSbiu" and first.shape == second.shape and first.size
    return float(np.mean(first != second)) if is_exact else relative_difference(first, second)
