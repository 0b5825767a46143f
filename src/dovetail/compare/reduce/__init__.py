"""Reduction of a model to the smallest one for which a check still fails."""
