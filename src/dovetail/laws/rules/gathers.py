"""Rewrites of gathers and selections: coordinates as one index, and selections that no element needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Size, Tensor, Type
from dovetail.laws.law import Result
from dovetail.laws.rules.movement import expand, reshape, without_expand
from dovetail.laws.rules.slices import Span, slice_axes
from dovetail.laws.terms.opaque import KnownIntegers
from dovetail.laws.terms.terms import Terms
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.elementwise.logical import IsNaN
from dovetail.ops.reduction.softmax import Softmax
from dovetail.ops.shape_values import is_size
from dovetail.ops.tensor.gather import GatherND
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.shape import Range
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose

MAX_VISITED = 1 << 12
"""Maximum number of terms that the search for negative indices or infinite numbers visits."""


def write_flat_index(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite GatherND of coordinates that are not negative as a Gather of the flattened axes."""
    assert isinstance(op, GatherND)
    data, indices = xs
    if data is None or indices is None or op.batch_dims or indices.shape is None or data.shape is None:
        return None
    depth = indices.shape[-1]
    if not isinstance(depth, int) or depth < 1:
        return None
    sizes = data.shape[:depth]
    total: Value | None = None
    for axis in range(depth):
        coordinate = slice_axes(b, indices, {len(indices.shape) - 1: Span(axis, 1, 1)})
        coordinate = reshape(b, coordinate, indices.shape[:-1])
        if not _is_nonnegative(coordinate):
            return None
        if (found := without_expand(coordinate)) is not None:
            coordinate = reshape(b, *found)
        stride = b.known_term(_scalar(symbolic.product(sizes[axis + 1 :])), Tensor(indices.dtype, ()))
        if stride is None:
            return None
        scaled = b.Multiply(coordinate, stride)
        total = scaled if total is None else b.Add(total, scaled)
    if total is None:
        return None
    total = expand(b, total, indices.shape[:-1])
    return b.Gather(reshape(b, data, (symbolic.product(sizes), *data.shape[depth:])), total, axis=0)


def _scalar(size: Size) -> np.ndarray[Any, Any]:
    value = np.empty((), object)
    value[()] = size
    return value


def _is_nonnegative(x: Value) -> bool:
    """Return whether the integers of a term are not negative for any inputs. Types that sizes may not fit wrap."""

    def sources_of(each: Value) -> Iterable[Value] | None:
        if each.node is None or each.dtype.name not in ("i32", "i64"):
            return None
        if each.constant is not None:
            return () if bool(np.all(each.constant >= 0)) else None
        match each.node.op:
            case KnownIntegers():
                return () if all(is_size(size) for size in each.node.op.elements) else None
            case Reshape() | Transpose() | Expand():
                return (each.node.input(0),)
            case Cast():
                return (each.node.input(0),)
            case Range():
                return (each.node.input(0), each.node.input(2))
            case Add() | Multiply():
                return (each.node.input(0), each.node.input(1))
        return None

    return _holds(x, sources_of)


def drop_nan_test(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite Where(IsNaN(y), ..., y) as y, where y is a Softmax that no infinite constant reaches."""
    condition, _, y = xs
    if condition is None or condition.node is None or not isinstance(condition.node.op, IsNaN) or y is None or y.node is None:
        return None
    if condition.node.input(0) is not y or not isinstance(y.node.op, Softmax):
        return None

    def sources_of(each: Value) -> Iterable[Value] | None:
        if each.constant is not None:
            return () if bool(np.all(np.isfinite(each.constant))) else None
        is_float = isinstance(each.type, Tensor) and each.dtype.is_float
        return () if each.node is None or not is_float else [source for source in each.node.inputs if source is not None]

    return y if _holds(y.node.input(0), sources_of) else None


def _holds(x: Value, sources_of: Callable[[Value], Iterable[Value] | None]) -> bool:
    """Return whether a fact holds of a term: ``sources_of`` returns the terms of which it must hold, None where it does not."""
    pending, visited = [x], {id(x)}
    while pending:
        sources = sources_of(pending.pop())
        if sources is None or len(visited) > MAX_VISITED:
            return False
        for source in sources:
            if id(source) not in visited:
                visited.add(id(source))
                pending.append(source)
    return True
