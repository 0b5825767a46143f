"""Sequences of tensors and optional values."""

from dovetail.ops.sequence import (
    optional,
    sequence,
)

__all__ = [
    "optional",
    "sequence",
]
