"""Specializations of models with caches: graphs that are equal to a model where the elements of some inputs are the usual ones.

In the usual step of generation every sequence goes on (``beam_idx`` is 0, 1, ...) and has as many tokens as the cache. The
general graph gathers the rows of the caches by such inputs, and so copies them; the special graph extends them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, remove_dead, replace_uses
from dovetail.ir.graph import Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.inputs_outputs import sizes_of_arrays
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Size, sizes_in
from dovetail.ops.attention.group_query_attention import GroupQueryAttention
from dovetail.ops.tensor.gather import Gather
from dovetail.runtime.native_program import NativeProgram
from dovetail.runtime.session_states import behind_identities

Arrays = Mapping[str, Any]
Condition = Callable[[Arrays], bool]
MAX_NODES = 32
"""The maximum number of operators that compute the lengths of sequences from the inputs, in each call."""


class Specialization(NamedTuple):
    """Specialization is a model with the inputs and outputs of another one, to which it is equal if all ``conditions`` hold.

    A condition takes the arrays of all inputs by name.
    """

    model: Model
    conditions: tuple[Condition, ...]

    def holds(self, arrays: Arrays) -> bool:
        return all(condition(arrays) for condition in self.conditions)


def specialize_caches(model: Model) -> Specialization | None:
    """Return the specialization of a model whose caches the model gathers; None if there is none."""
    new = copy_model(model)
    conditions = (*_keep_beams(new), *_append_full_sequences(new))
    if not conditions:
        return None
    remove_dead(new.graph)
    infer_graph(new.graph, file=new.file)
    return Specialization(new, conditions)


def _keep_beams(model: Model) -> list[Condition]:
    """Replace each Gather of rows of a cache by the cache, where an input selects the rows; return the conditions."""
    conditions: list[Condition] = []
    for x in model.inputs:
        readers = [node for node, _ in x.uses]
        if readers and all(_selects_rows(node, x) for node in readers):
            caches = [behind_identities(node.input(0)) for node in readers]
            for node in readers:
                replace_uses(model.graph, node.outputs[0], node.input(0))
            conditions.append(_in_order(x.name, [cache.name for cache in caches]))
    return conditions


def _selects_rows(node: Node, indices: Value) -> bool:
    """Return whether a node gathers rows of a graph input, at indices that are no negative numbers."""
    op = node.op
    if not isinstance(op, Gather) or op.axis != 0 or op.batch_dims or node.inputs[1] is not indices:
        return False
    cache = behind_identities(node.input(0))
    return cache.node is None and cache.shape is not None and indices.shape is not None and len(indices.shape) == 1


def _in_order(indices: str, caches: list[str]) -> Condition:
    def is_in_order(arrays: Arrays) -> bool:
        rows = np.asarray(arrays[indices])
        return all(len(arrays[name]) == len(rows) for name in caches) and np.array_equal(rows, np.arange(len(rows)))

    return is_in_order


class _Lengths(NamedTuple):
    """_Lengths names the lengths of the sequences of a GroupQueryAttention, their maximum, and its number of new rows.

    ``buffer`` is the length of its caches, None for an open length.
    """

    last: str
    total: str
    rows: Size
    buffer: int | None


def _append_full_sequences(model: Model) -> list[Condition]:
    """Replace each GroupQueryAttention by an Attention that appends to its cache, or writes into it; return the conditions."""
    original = copy_model(model)
    caches: dict[_Lengths, list[str]] = {}
    programs: dict[_Lengths, NativeProgram] = {}

    def rule(b: Builder, node: Node) -> Any:
        op = node.op
        if not isinstance(op, GroupQueryAttention) or len(node.inputs) < 7 or node.inputs[3] is None:
            return None
        query, past, last, total = (node.input(index) for index in (0, 3, 5, 6))
        cache = behind_identities(past)
        if cache.node is not None or cache.shape is None or query.shape is None:
            return None
        size = cache.shape[2]
        lengths = _Lengths(last.name, total.name, query.shape[1], size if isinstance(size, int) else None)
        if lengths not in programs and (program := _program_of(original, lengths)) is not None:
            programs[lengths] = program
        outputs = op.decompose_full(b, node.input(0), *node.inputs[1:]) if lengths in programs else None
        if outputs is not None:
            caches.setdefault(lengths, []).append(cache.name)
        return outputs

    rewrite(model.graph, rule)
    return [_are_full(original, lengths, programs[lengths], names) for lengths, names in caches.items()]


def _program_of(model: Model, lengths: _Lengths) -> NativeProgram | None:
    """Return a program that computes the lengths from the inputs; None if that takes more than MAX_NODES operators."""
    known = {str(symbol) for x in model.inputs for size in sizes_in(x.type) for symbol in symbolic.symbols(size)}
    if any(str(symbol) not in known for symbol in symbolic.symbols(lengths.rows)):
        return None
    part = copy_model(model)
    part.states = []
    values = {value.name: value for value in part.graph.values()}
    b = Builder(graph=part.graph)
    part.graph.outputs = [b.Identity(values[name]) for name in (lengths.last, lengths.total)]
    remove_dead(part.graph)
    part.graph.inputs = [x for x in part.graph.inputs if x.uses]
    return NativeProgram(part, 1) if len(part.graph.nodes) <= MAX_NODES else None


def _are_full(model: Model, lengths: _Lengths, program: NativeProgram, caches: list[str]) -> Condition:
    """Return the condition that all sequences have as many tokens as each cache has rows after the step.

    For buffers: that the step fits, and writes one row or all sequences have equally many tokens.
    """
    names = [x.name for x in program.inputs]
    needed = {str(symbol) for symbol in symbolic.symbols(lengths.rows)}
    sized = [x for x in model.inputs if needed & {str(symbol) for size in sizes_in(x.type) for symbol in symbolic.symbols(size)}]

    def are_full(arrays: Arrays) -> bool:
        rows = symbolic.evaluate(lengths.rows, sizes_of_arrays(sized, arrays))
        last, total = program({name: arrays[name] for name in names})
        wanted = int(total.reshape(-1)[0])
        if lengths.buffer is not None and last.size:
            first, end = int(last.min()) + 1 - rows, int(last.max()) + 1
            return first >= 0 and end == wanted <= lengths.buffer and bool(rows == 1 or (last + 1 == wanted).all())
        return bool((last + 1 == wanted).all()) and all(np.shape(arrays[name])[2:3] == (wanted - rows,) for name in caches)

    return are_full
