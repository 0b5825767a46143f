"""Comparison of every value in several engines, search for the operator that is wrong, reduction to the smallest model."""
