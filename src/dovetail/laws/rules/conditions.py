"""Laws of If whose condition is known."""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.edit import inline
from dovetail.ir.op import Op
from dovetail.laws.law import Inputs, Result, Types
from dovetail.ops.control_flow.if_op import If, known_branch


def known_index(op: Op, xs: Inputs) -> int | None:
    """Return the index of the branch that an If runs if the condition is known; else None."""
    return known_branch(xs[0]) if isinstance(op, If) and xs[0] is not None else None


def inline_known_branch(b: Builder, op: Op, xs: Inputs, types: Types, *, keep_names: bool = False) -> Result:
    """Inline the branch that the known condition of an If selects."""
    index = known_index(op, xs)
    if index is None or not isinstance(op, If):
        return None
    branch = (op.then_branch, op.else_branch)[index]
    return None if branch.fault is not None else inline(b, branch, xs[1:], keep_names=keep_names)
