"""Bounds of the rounding of constants that are folded in f32, by running error analysis beside an evaluation in f64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.ir.evaluate import apply
from dovetail.ir.op import Op
from dovetail.ops.elementwise.activation import Sigmoid
from dovetail.ops.elementwise.binary import Power
from dovetail.ops.elementwise.unary import Erf, Exp, Log, Tanh
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.reduction.reduce import ReduceMean, ReduceSum

Array = np.ndarray[Any, Any]
UNIT = 2.0**-24
"""Maximum relative error of one rounding to f32."""
FUNCTION_ULPS = 4
"""Maximum error in ulp of the functions of mathematical libraries in f32."""
MAX_RELATIVE = 2.0**-16
"""Maximum bound of an element relative to the largest element of its constant."""


def evaluate_with_error(op: Op, operands: Sequence[Array | None], errors: Sequence[Array | None]) -> tuple[Array, Array] | None:
    """Evaluate an operator on constants in f64. Returns the result and a bound of the error of an evaluation in f32.

    ``errors`` are bounds of the errors of the operands; None stands for an operand that is no float. The derivative of a
    function is replaced by the larger difference from its values at both ends of the error. Returns None for an operator of
    which no bound is known, and for a bound beyond MAX_RELATIVE. Raises the errors of :func:`apply`.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(apply(op, np, list(operands))[0], np.float64)
        bound = _bound_of(op, operands, errors, result)
        if bound is None or not np.all(np.isfinite(result)):
            return None
        bound = np.broadcast_to(np.asarray(bound, np.float64), result.shape)
        largest = float(np.max(np.abs(result), initial=0.0))
        if not np.all(bound <= MAX_RELATIVE * largest):
            return None
    return result, bound


def _bound_of(op: Op, operands: Sequence[Any], errors: Sequence[Any], result: Array) -> Any:
    match op:
        case MatMul():
            x, y = map(np.abs, operands)
            terms = operands[0].shape[-2 if op.transpose_a and operands[0].ndim > 1 else -1]
            sums = apply(op, np, [x, y])[0]
            return apply(op, np, [errors[0], y])[0] + apply(op, np, [x + errors[0], errors[1]])[0] + _growth(terms) * sums
        case ReduceSum() | ReduceMean():
            terms = max(operands[0].size // max(result.size, 1), 1)
            parts = [apply(op, np, [each, *operands[1:]])[0] for each in (errors[0], np.abs(operands[0]))]
            return parts[0] + _growth(terms + 1) * parts[1]
        case _ if op.moves_elements and len(op.signature.outputs) == 1:
            moved = [each if error is None else error for each, error in zip(operands, errors, strict=True)]
            return apply(op, np, moved)[0]
        case Erf() | Exp() | Log() | Power() | Sigmoid() | Tanh():
            return _change_of(op, operands, errors, result) + 2 * UNIT * FUNCTION_ULPS * np.abs(result)
        case _ if op.is_algebraic and len(operands) <= 2:
            # At most three operations, each of which IEEE 754 rounds once.
            return _change_of(op, operands, errors, result) + 4 * UNIT * np.abs(result)
    return None


def _growth(terms: int) -> float:
    """Return the factor n u / (1 - n u) of Higham, which bounds the relative error of sums of n products in any order."""
    return terms * UNIT / (1 - terms * UNIT) if terms * UNIT < 0.5 else np.inf


def _change_of(op: Op, operands: Sequence[Any], errors: Sequence[Any], result: Array) -> Any:
    """Return the change of the result of an elementwise operator at the ends of the errors of its operands."""
    total: Any = 0.0
    for index, error in enumerate(errors):
        if error is None or not np.any(error):
            continue
        ends = []
        for end in (operands[index] - error, operands[index] + error):
            moved = [end if position == index else x for position, x in enumerate(operands)]
            ends.append(np.abs(np.asarray(apply(op, np, moved)[0]) - result))
        total = total + np.maximum(*ends)
    return total
