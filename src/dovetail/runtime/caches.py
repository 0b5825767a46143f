"""Caches of a model: inputs whose next values are outputs, extended or partly overwritten.

A growing cache is the first input of a Concat, or the past of an Attention, whose result is an output.
:func:`with_leading_growth` makes the growing axis the outermost axis in memory, so that new elements are appended behind the old
ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, inline, rename
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.symbolic import Size
from dovetail.ir.types import Tensor, axis_in, sizes_in
from dovetail.ops.attention.attention import Attention
from dovetail.ops.tensor.concat_split import Concat
from dovetail.ops.tensor.scatter import ScatterOp
from dovetail.runtime.session_states import cached_ports


class Cache(NamedTuple):
    """Cache is an input and the output that is the input's next value.

    ``order``: a permutation of a growing cache's axes, with the growing axis first; empty for a cache that each call overwrites
    in part. ``inverse`` is the inverse permutation, ``length`` the size of the output along the growing axis.
    """

    input: str
    output: str
    order: tuple[int, ...] = ()
    inverse: tuple[int, ...] = ()
    length: Size | None = None


def find_caches(model: Model) -> list[Cache]:
    """Find the caches of a model from the structure of its graph, at most one cache for each input and output."""
    caches: list[Cache] = []
    known = {str(symbol) for value in model.inputs for size in sizes_in(value.type) for symbol in symbolic.symbols(size)}
    for source, output, op in cached_ports(model):
        if source.shape is None:
            continue
        if isinstance(op, Concat | Attention):
            # The past of Attention is [batch, heads, length, size].
            axis = axis_in(op.axis if isinstance(op, Concat) else 2, len(source.shape))
            if _grows(source, output, axis, known):
                order = (axis, *(other for other in range(len(source.shape)) if other != axis))
                inverse = tuple(order.index(index) for index in range(len(order)))
                caches.append(Cache(source.name, output.name, order, inverse, output.dims[axis]))
        elif isinstance(op, ScatterOp) and source.type == output.type:
            caches.append(Cache(source.name, output.name))
    return caches


def _grows(source: Value, output: Value, axis: int, known: Container[str]) -> bool:
    """Return whether ``output`` and ``source`` differ only in the size of ``axis``, which ``known`` symbols determine in both.

    The size of ``axis`` in ``source`` must be symbolic, and the elements no strings.
    """
    before, after = source.shape, output.shape
    if before is None or after is None or None in (*before, *after) or len(before) != len(after) or source.dtype != output.dtype:
        return False
    is_same = all(one == other for index, (one, other) in enumerate(zip(before, after, strict=True)) if index != axis)
    follows = all(str(symbol) in known for size in (before[axis], after[axis]) for symbol in symbolic.symbols(size))
    return is_same and follows and not isinstance(before[axis], int) and source.dtype.name != "string"


def with_leading_growth(model: Model, caches: Iterable[Cache]) -> Model:
    """Return a model without states in which the growing axis of each cache is the first axis of its input and output."""
    grown = {name: cache for cache in caches if cache.order for name in (cache.input, cache.output)}
    b = Builder(graph=Graph(model.graph.name))
    inputs = []
    for old in model.inputs:
        if old.name in grown:
            cache = grown[old.name]
            rows = b.input_of(old.name, Tensor(old.dtype, tuple(old.dims[axis] for axis in cache.order)))
            inputs.append(b.Transpose(rows, cache.inverse))
        else:
            inputs.append(b.input_of(old.name, old.type))
    for old, value in zip(model.outputs, inline(b, model.graph, inputs, keep_names=True), strict=True):
        if old.name in grown:
            rename(b.graph, value, b.graph.free_name(f"{old.name}_grown"))
            value = b.Transpose(value, grown[old.name].order)
        b.output(old.name, value)
    new = copy_model(model, b.graph)
    new.states = []
    return new
