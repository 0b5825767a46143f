"""Reductions, ArgMax and ArgMin, CumSum, Softmax."""
