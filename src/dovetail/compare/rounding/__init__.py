"""Rounding: bounds of the difference between results in floats and over the real numbers."""
