"""Elementwise operators: unary, binary, comparison, logical, activation functions, Cast."""

from dovetail.ops.elementwise import (
    activation,
    binary,
    bitwise,
    broadcast,
    cast,
    clip,
    logical,
    unary,
)

__all__ = [
    "activation",
    "binary",
    "bitwise",
    "broadcast",
    "cast",
    "clip",
    "logical",
    "unary",
]
