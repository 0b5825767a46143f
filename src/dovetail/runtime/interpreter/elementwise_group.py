"""ElementwiseGroup: elementwise operators computed together in blocks, so that results between them stay in cache."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir.arrays import Array
from dovetail.ir.evaluate import FAILURES, apply
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor
from dovetail.ops.elementwise.activation import PRelu, Relu
from dovetail.ops.elementwise.binary import Add, Multiply, Subtract
from dovetail.ops.elementwise.broadcast import BroadcastingOp
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import UnaryOp
from dovetail.runtime.interpreter.worker_threads import WorkerThreads

BLOCK_ELEMENTS = 1 << 15
"""The elements of one block: few enough for the L2 cache, enough for the time of numpy's calls to be small beside theirs."""
Block: TypeAlias = tuple[slice, ...]
UFUNCS: Mapping[type[Op], np.ufunc] = {Add: np.add, Multiply: np.multiply, Subtract: np.subtract}
"""The ufuncs of operators that compute nothing else for floats of one type, and can write into a given array."""


def is_groupable(node: Node) -> bool:
    """Return whether a node computes each element of one output from the elements that broadcast to it, for floats."""
    op = node.op
    is_elementwise = isinstance(op, UnaryOp | BroadcastingOp | Clip) or (isinstance(op, PRelu) and not op.channels)
    return (
        is_elementwise
        and not op.is_custom
        and all(_is_float(value) for value in (*node.inputs, *node.outputs))
        and len(node.outputs) == 1
    )


def _is_float(value: Value | None) -> bool:
    return value is None or (
        isinstance(value.type, Tensor) and value.type.dtype is not None and value.type.dtype in ("f32", "f64")
    )


class ElementwiseGroup:
    """ElementwiseGroup holds groupable ``nodes`` in order; only the last one has an output that others read."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        inner = {id(node.outputs[0]) for node in nodes[:-1]}
        self.inputs = list({id(x): x for node in nodes for x in node.inputs if x is not None and id(x) not in inner}.values())
        self.output = nodes[-1].outputs[0]

    def compute(self, xs: Sequence[Array], overwritable: Sequence[bool], threads: WorkerThreads) -> Array | None:
        """Return the output, written into an overwritable input of its size if there is one; None for small operands."""
        try:
            shape = np.broadcast_shapes(*(x.shape for x in xs))
        except ValueError:
            return None
        if math.prod(shape) <= BLOCK_ELEMENTS // 4:
            return None
        assert isinstance(self.output.type, Tensor) and self.output.type.dtype is not None
        dtype = self.output.type.dtype.numpy
        candidates = itertools.compress(xs, overwritable)
        target = next((x for x in candidates if x.shape == shape and x.dtype == dtype), None)
        result = np.empty(shape, dtype) if target is None else target
        is_flat = all(x.size == 1 or (x.shape == shape and x.flags.c_contiguous) for x in (*xs, result))
        operands = [x.reshape(() if x.size == 1 else -1) for x in xs] if is_flat else xs
        view = result.reshape(-1) if is_flat else result
        blocks = blocks_of(view.shape)
        try:
            # An error of the shapes is one of the first block, before anything is overwritten.
            self._compute_block(operands, view, next(blocks))
        except (DovetailError, *FAILURES):
            return None
        threads.run(partial(self._compute_block, operands, view, block) for block in blocks)
        return result

    def _compute_block(self, xs: Sequence[Array], result: Array, block: Block) -> None:
        values: dict[int, Array] = {id(value): _block_of(x, block, result.ndim) for value, x in zip(self.inputs, xs, strict=True)}
        target = result[block]
        for node in self.nodes:
            operands = [None if x is None else values[id(x)] for x in node.inputs]
            is_last = node is self.nodes[-1]
            values[id(node.outputs[0])] = _apply_into(node.op, operands, target if is_last else None)
        last = values[id(self.output)]
        if last is not target:
            target[...] = last


def _apply_into(op: Op, xs: Sequence[Any], target: Array | None) -> Array:
    """Apply an operator; write its result into ``target`` if a ufunc computes it."""
    if isinstance(op, Relu):
        return np.maximum(xs[0], xs[0].dtype.type(0), out=target)
    ufunc = UFUNCS.get(type(op))
    if ufunc is not None and all(x.dtype == xs[0].dtype for x in xs):
        return np.asarray(ufunc(*xs, out=target))
    result: Array = apply(op, np, xs)[0]
    return result


def blocks_of(shape: Sequence[int]) -> Iterator[Block]:
    """Yield indices that divide an array of ``shape`` into blocks of about BLOCK_ELEMENTS consecutive elements."""
    axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= BLOCK_ELEMENTS)
    step = max(1, BLOCK_ELEMENTS // math.prod(shape[axis + 1 :]))
    outer = [[slice(index, index + 1) for index in range(size)] for size in shape[:axis]]
    parts = [slice(start, start + step) for start in range(0, shape[axis], step)]
    return itertools.product(*outer, parts)


def _block_of(x: Array, block: Block, rank: int) -> Array:
    """Return the part of ``x`` that broadcasts to a block of an array of ``rank`` axes."""
    leading = block[rank - x.ndim :]
    return x[tuple(part if size != 1 else slice(None) for part, size in zip(leading, x.shape, strict=False))]
