"""Verification: two models run on the same inputs, and their outputs are compared."""
