"""Sequences of tensors and optional values."""
