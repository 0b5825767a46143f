"""The first opset that can express the nodes that an older opset cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from dovetail.errors import Diagnostic, UnsupportedError


def with_min_opset(error: UnsupportedError, target: int, newest: int, write: Callable[[int], Any]) -> UnsupportedError:
    """Add to each fault of ``error``, raised for the opset ``target``, the first opset at which ``write`` accepts the node."""

    @cache
    def nodes_refused_at(opset: int) -> frozenset[str | None]:
        try:
            write(opset)
        except UnsupportedError as other:
            return frozenset(item.node for item in other.diagnostics)
        return frozenset()

    firsts = [_first_accepting(item, target, newest, nodes_refused_at) for item in error.diagnostics]
    items = [_with_opset(item, first, target, newest) for item, first in zip(error.diagnostics, firsts, strict=True)]
    message = items[0].message
    if len(items) > 1:
        message = f"{len(items)} nodes that onnx cannot express at opset {target}"
        known = [first for first in firsts if first is not None]
        if len(known) == len(firsts) and not nodes_refused_at(max(known)):
            message += f"; opset {max(known)} can"
    first = items[0]
    return UnsupportedError(first.code, message, node=first.node, op=first.op, file=first.file, diagnostics=items)


def first_that_expresses(write: Callable[[int], Any], target: int, newest: int) -> int | None:
    """Return the lowest opset after ``target`` at which ``write`` accepts the whole model; None where the newest does not."""

    def is_accepted(opset: int) -> bool:
        try:
            write(opset)
        except UnsupportedError:
            return False
        return True

    if target == newest or not is_accepted(newest):
        return None
    low, high = target, newest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_accepted(middle) else (middle, high)
    return high


def _first_accepting(
    item: Diagnostic, target: int, newest: int, nodes_refused_at: Callable[[int], frozenset[str | None]]
) -> int | None:
    """Return the first opset after ``target`` that accepts the node; None where the newest does not."""
    if target == newest or item.node in nodes_refused_at(newest):
        return None
    low, high = target, newest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if item.node in nodes_refused_at(middle) else (low, middle)
    return high


def _with_opset(item: Diagnostic, first: int | None, target: int, newest: int) -> Diagnostic:
    if first is not None:
        return replace(item, message=f"{item.message}; opset {first} can")
    return item if target == newest else replace(item, message=f"{item.message}; opset {newest} cannot either")
