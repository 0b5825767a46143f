"""Reproducible programs: which operators numpy computes with the same bits on every processor."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.engine.plan import Step
from dovetail.errors import UnsupportedError, raise_all
from dovetail.ir.graph import Node
from dovetail.ir.types import Tensor
from dovetail.ops.elementwise.binary import Power
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.quantization.quantize_linear import DequantizeLinear
from dovetail.ops.tensor.shape import Range


def is_exact(node: Node) -> bool:
    """Return whether numpy gives a node's results with the same bits on every processor.

    It does where no result has floats, where elements are moved, and where each step of a result is rounded as IEEE 754
    requires: of +, -, *, / and the square root, but not of functions such as exp, nor of sums, whose order is numpy's choice.
    Operators that hold subgraphs compute anything.
    """
    if isinstance(node.op, Power) or node.op.holds_graphs:
        return False
    if node.op.moves_elements or node.op.is_algebraic or isinstance(node.op, Cast | DequantizeLinear | Range):
        return True
    types = [y.type for y in node.outputs]
    return all(isinstance(type, Tensor) and type.dtype is not None and not type.dtype.is_float for type in types)


def refuse_inexact_steps(steps: Iterable[tuple[Step, str]], file: str | None) -> None:
    """Raise UnsupportedError [run.bits] for all steps that Python runs and whose bits depend on the processor.

    ``steps``: each step with the reason for which it has no kernel.
    """
    raise_all(
        [
            UnsupportedError(
                "run.bits",
                f"{node.op} has no kernel ({reason}), so that its bits depend on the processor",
                file=file,
                node=node.label,
            )
            for step, reason in steps
            if step.call is not None
            for node in step.call.nodes
            if not is_exact(node)
        ],
        "operators that are not reproducible",
    )
