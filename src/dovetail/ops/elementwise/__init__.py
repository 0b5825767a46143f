"""Elementwise operators: unary, binary, comparison, logical, activation functions, Cast."""
