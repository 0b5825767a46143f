"""Reductions, ArgMax and ArgMin, CumSum, Softmax."""

from dovetail.ops.reduction import (
    argminmax,
    cumulative,
    reduce,
    softmax,
)

__all__ = [
    "argminmax",
    "cumulative",
    "reduce",
    "softmax",
]
