"""Rewrites that hold for all inputs: folding, gradients, elimination of sequences, specialization of ranks, and laws."""
