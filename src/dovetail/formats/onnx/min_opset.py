"""From which opset on the nodes of a model could be written that stand in the way of an older one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from dovetail.errors import Diagnostic, UnsupportedError


def with_min_opset(error: UnsupportedError, target: int, newest: int, write: Callable[[int], Any]) -> UnsupportedError:
    """``error``, which writing for the opset ``target`` raised, with what ``write`` raises for newer ones: each fault says from
    which opset on it would not be one."""

    @cache
    def refused(opset: int) -> frozenset[str | None]:
        try:
            write(opset)
        except UnsupportedError as other:
            return frozenset(item.node for item in other.diagnostics)
        return frozenset()

    items = [_told(item, _first(item, target, newest, refused), target, newest) for item in error.diagnostics]
    message = items[0].message if len(items) == 1 else f"{len(items)} nodes that onnx cannot say at opset {target}"
    first = items[0]
    return UnsupportedError(first.code, message, node=first.node, op=first.op, file=first.file, diagnostics=items)


def _first(item: Diagnostic, target: int, newest: int, refused: Callable[[int], frozenset[str | None]]) -> int | None:
    """The first opset after ``target`` at which the node is not refused; None where it is at the newest."""
    if target == newest or item.node in refused(newest):
        return None
    low, high = target, newest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if item.node in refused(middle) else (low, middle)
    return high


def _told(item: Diagnostic, first: int | None, target: int, newest: int) -> Diagnostic:
    if first is not None:
        return replace(item, message=f"{item.message}; opset {first} can")
    return item if target == newest else replace(item, message=f"{item.message}; opset {newest} cannot either")
