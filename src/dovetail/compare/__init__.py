"""Comparison of models: their differences, proofs of equality, verification by runs, values layer by layer, reduction."""
