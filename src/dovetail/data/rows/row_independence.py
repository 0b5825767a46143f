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
"""The difference of a row in two batches, relative to the largest magnitude of an output, up to which rows are independent."""
MAX_DIFFERENCE = 0.05
"""The difference up to which it may be rounding, of half precision or in another order."""

Arrays = Mapping[str, Any]


def check_independence(
    run: Callable[[dict[str, Any]], Arrays], inputs: Arrays, outputs: Arrays, count: int, signature: RowSignature
) -> None:
    """Run the second half of a batch again, in place of the first half and with copies behind it, and compare the results.

    Raises EngineError [batch.rows] where they differ by more than MAX_DIFFERENCE, and no operator computes a scale of the batch;
    logs a warning beyond TOLERANCE.
    """
    middle = count // 2
    rows = np.full(len(next(iter(inputs.values()))), middle)
    rows[: count - middle] = np.arange(middle, count)
    again = run({name: array[rows] for name, array in inputs.items()})
    for port in signature.outputs:
        if port.name in signature.random:
            continue
        difference = _difference(outputs[port.name][middle:count], again[port.name][: count - middle])
        message = f"a row of output {port.name!r} must depend on that row alone, and differs by {difference:.2g} in another batch"
        if difference > MAX_DIFFERENCE and not signature.has_batch_scales:
            raise EngineError("batch.rows", f"{message}; {REMEDY}")
        if difference > TOLERANCE:
            LOGGER.warning("%s", message)


def _difference(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Return the largest difference relative to the largest magnitude; of integers and strings the part that differs."""
    is_exact = first.dtype.kind in "OUSbiu" and first.shape == second.shape and first.size
    return float(np.mean(first != second)) if is_exact else relative_difference(first, second)
