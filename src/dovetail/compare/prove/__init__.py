"""Equality of models for all inputs: joint value numbering, proofs and their certificates."""
