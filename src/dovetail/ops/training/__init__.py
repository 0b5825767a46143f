"""Losses and optimizers."""

from dovetail.ops.training import (
    ctc_loss,
    losses,
    optimizers,
)

__all__ = [
    "ctc_loss",
    "losses",
    "optimizers",
]
