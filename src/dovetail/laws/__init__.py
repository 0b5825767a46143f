"""Rewrites that hold for all inputs: constant folding, gradients, sequences and ranks resolved, and laws of terms."""
