"""If and Loop, and their gradients."""

from dovetail.ops.control_flow import (
    gradients,
    if_op,
    loop,
)

__all__ = [
    "gradients",
    "if_op",
    "loop",
]
