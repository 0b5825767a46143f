"""Blocks: boxes of stored elements that make up a tensor of a graph, composed from the windows of the operators.

Movement operators are only used through their ``windows``. A Cast acts on single elements at any position, so that it becomes a
property of the block. If two windows do not compose (a Reshape that cuts across the axes of another Reshape), the value between
them becomes a *scratch tensor*: a separate file, from which later blocks are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.data.tensors.radix_boxes import AffineMap, Box, boxes_of, intersect, radix_systems
from dovetail.errors import DovetailError, UnsupportedError, raise_all
from dovetail.ir.builder import describe_op
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.limits import current
from dovetail.ir.op import Op, Window, Windows, has
from dovetail.ir.types import Unknown, static
from dovetail.ops.constant import Constant, Identity
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.tensor.transpose_expand_tile import strides_of

MAX_BLOCKS = 1 << 14
"""The maximum number of blocks of one tensor; a value with more blocks becomes a scratch tensor."""


@dataclass(frozen=True, eq=False)
class Scratch:
    """Scratch is a value that is written to a separate file before the tensors that read it."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class Block(NamedTuple):
    """Block is a box of elements of ``source``, to which ``casts`` are applied and which are copied to a target.

    Element i is read at ``source_offset + sum(i * source_strides)`` and written at ``target_offset + sum(i * target_strides)``,
    both counted in elements. ``source`` is a tensor of a set, an array of a constant, a Scratch, or the single element of a fill.
    """

    source: Any
    casts: tuple[Op, ...]
    sizes: tuple[int, ...]
    source_offset: int
    source_strides: tuple[int, ...]
    target_offset: int
    target_strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.sizes)


@dataclass
class TensorBlocks:
    """TensorBlocks is a tensor that consists of blocks; later blocks overwrite earlier blocks."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    blocks: list[Block] = field(default_factory=list)

    @property
    def count(self) -> int:
        return prod(self.shape)


class Composition(NamedTuple):
    """Composition holds the blocks of the outputs, and the blocks of the scratch tensors in the order to write them."""

    outputs: list[TensorBlocks]
    scratch: list[tuple[Scratch, TensorBlocks]]


def compose_blocks(graph: Graph, sources: Mapping[str, Any]) -> Composition:
    """Compose the windows of a graph of static shapes to blocks of its inputs, which are ``sources`` by name.

    Raises UnsupportedError [reshard.operator] with every node that is neither a movement operator nor a Cast.
    """
    composer = _Composer(sources)
    for value in graph.inputs:
        composer.add_source(value, sources[value.name])
    errors: list[DovetailError] = []
    read = _values_read(graph)
    for node in graph.nodes:
        if not any(id(y) in read for y in node.outputs):
            continue
        try:
            composer.add_node(node)
        except Unsuitable as error:
            message = (
                f"the operator must be a Cast or a movement operator with known windows, got {type(node.op).__name__}{error}"
            )
            errors.append(UnsupportedError("reshard.operator", message).at(node=node.label, op=describe_op(node.op, node.inputs)))
            for y in node.outputs:
                composer.blocks[id(y)] = []
    raise_all(errors, "nodes that cannot be computed out of core")
    outputs = [TensorBlocks(y.name, y.dtype, static(y.shape), composer.blocks[id(y)]) for y in graph.outputs]
    return Composition(outputs, composer.scratch)


class Unsuitable(Exception):
    """Unsuitable is raised for an operator without usable windows; its text is the reason, or empty."""


def _values_read(graph: Graph) -> set[int]:
    """Return the ids of the values whose elements the outputs contain; values read only as host inputs are excluded."""
    read = {id(y) for y in graph.outputs}
    for node in reversed(graph.nodes):
        if any(id(y) in read for y in node.outputs):
            read |= {id(x) for x, is_host in zip(node.inputs, _host_flags(node), strict=True) if x is not None and not is_host}
    return read


def _host_flags(node: Node) -> list[bool]:
    ports = node.op.signature.inputs
    flags = [ports[min(index, len(ports) - 1)].host for index in range(len(node.inputs))] if ports else []
    return flags


class _Composer:
    def __init__(self, sources: Mapping[str, Any]) -> None:
        self.sources = sources
        self.blocks: dict[int, list[Block]] = {}
        self.scratch: list[tuple[Scratch, TensorBlocks]] = []

    def add_source(self, value: Value, source: Any) -> None:
        self.blocks[id(value)] = whole_tensor(source, static(value.shape))

    def add_node(self, node: Node) -> None:
        op = node.op
        if isinstance(op, Constant):
            self.add_source(node.outputs[0], np.ascontiguousarray(op.data))
        elif isinstance(op, Identity):
            self.blocks[id(node.outputs[0])] = self._blocks_of(node.inputs[0])
        elif isinstance(op, Cast):
            self.blocks[id(node.outputs[0])] = [cast_block(block, op) for block in self._blocks_of(node.inputs[0])]
        else:
            windows = windows_of_node(node)
            for index, y in enumerate(node.outputs):
                rows = [window for window in windows.windows if window.output == index and 0 not in window.sizes]
                self.blocks[id(y)] = self._move(node, y, rows, windows.fill)

    def _blocks_of(self, value: Value | None) -> list[Block]:
        assert value is not None
        return self.blocks[id(value)]

    def _move(self, node: Node, y: Value, windows: Sequence[Window], fill: float | None) -> list[Block]:
        count = prod(static(y.shape))
        blocks: list[Block] = []
        if fill is not None and count:
            element = np.full((), fill).astype(y.dtype.numpy)
            blocks.append(Block(element, (), (count,), 0, (0,), 0, (1,)))
        for window in windows:
            x = node.inputs[window.input]
            assert x is not None
            moved = move_blocks(window, self._blocks_of(x), static(x.shape))
            if moved is None or len(blocks) + len(moved) > MAX_BLOCKS:
                self._write_scratch(x)
                moved = move_blocks(window, self._blocks_of(x), static(x.shape))
                assert moved is not None
            blocks += moved
        return blocks

    def _write_scratch(self, value: Value) -> None:
        """Turn a value into a scratch tensor, which later blocks have as their source."""
        scratch = Scratch(value.name, value.dtype, static(value.shape))
        self.scratch.append((scratch, TensorBlocks(value.name, value.dtype, scratch.shape, self.blocks[id(value)])))
        self.add_source(value, scratch)


def whole_tensor(source: Any, shape: tuple[int, ...]) -> list[Block]:
    """Return the blocks of a tensor whose elements are those of ``source``: one block, or none for an empty tensor."""
    count = prod(shape)
    dense = strides_of(shape)
    strides = getattr(source, "stored_strides", dense)
    if not count:
        return []
    if strides == dense:
        return [Block(source, (), (count,), 0, (1,), 0, (1,))]
    return [Block(source, (), shape, 0, strides, 0, dense)]


def windows_of_node(node: Node) -> Windows:
    """Return the windows of a node. Raises Unsuitable if the node has no windows for its shapes."""
    if not has(node.op, "windows"):
        raise Unsuitable
    try:
        return node.op.windows(*node.inputs)
    except (Unknown, UnsupportedError, NotImplementedError) as error:
        message = getattr(error, "message", "its shapes or host inputs are not known")
        raise Unsuitable(f": {message}") from None


def cast_block(block: Block, op: Op) -> Block:
    """Append ``op`` to the casts of a block; the element of a fill is cast immediately."""
    if is_fill(block):
        return block._replace(source=np.asarray(op.evaluate(np, block.source)))
    return block._replace(casts=(*block.casts, op))


def is_fill(block: Block) -> bool:
    """Return whether a block is a fill: all its elements are a single element in memory."""
    return isinstance(block.source, np.ndarray) and block.source.ndim == 0 and not block.casts


def move_blocks(window: Window, blocks: Sequence[Block], shape: Sequence[int]) -> list[Block] | None:
    """Return the blocks that a window writes if its input, a tensor of ``shape``, consists of ``blocks``.

    The result is None if these elements are no union of boxes.
    """
    count = prod(shape)
    if len(blocks) == 1 and _is_dense(blocks[0], count):
        return [_read_dense(window, blocks[0])]
    if _is_dense_window(window, count):
        offset, stride = window.target_offset, window.target_strides[0]
        return [
            block._replace(
                target_offset=offset + block.target_offset * stride,
                target_strides=tuple(other * stride for other in block.target_strides),
            )
            for block in blocks
        ]
    low, high = _extent(window.source_offset, window.sizes, window.source_strides)
    moved: list[Block] = []
    for block in blocks:
        current().check_time()
        first, last = _extent(block.target_offset, block.sizes, block.target_strides)
        if last < low or high < first:
            continue
        pieces = _intersect_block(window, block, shape)
        if pieces is None:
            return None
        moved += pieces
    return moved


def _is_dense(block: Block, count: int) -> bool:
    return block.sizes == (count,) and block.target_offset == 0 and block.target_strides == (1,)


def _read_dense(window: Window, block: Block) -> Block:
    stride = block.source_strides[0]
    return Block(
        block.source,
        block.casts,
        window.sizes,
        block.source_offset + window.source_offset * stride,
        tuple(other * stride for other in window.source_strides),
        window.target_offset,
        window.target_strides,
    )


def _is_dense_window(window: Window, count: int) -> bool:
    return window.sizes == (count,) and window.source_offset == 0 and window.source_strides == (1,)


def _extent(offset: int, sizes: Iterable[int], strides: Iterable[int]) -> tuple[int, int]:
    reaches = [(size - 1) * stride for size, stride in zip(sizes, strides, strict=True)]
    return offset + sum(reach for reach in reaches if reach < 0), offset + sum(reach for reach in reaches if reach > 0)


def _intersect_block(window: Window, block: Block, shape: Sequence[int]) -> list[Block] | None:
    """Return the elements of a block that a window reads, as blocks of the window's output; None if these are no boxes."""
    reads = AffineMap(window.sizes, window.source_offset, window.source_strides, window.target_offset, window.target_strides)
    writes = AffineMap(block.sizes, block.target_offset, block.target_strides, block.source_offset, block.source_strides)
    if 0 in window.sizes or 0 in block.sizes:
        return []
    own = [prod(shape[axis:]) for axis in range(1, len(shape))]
    for weights in radix_systems(prod(shape), (own, _strides_of(writes), _strides_of(reads))):
        read, written = boxes_of(reads, weights), boxes_of(writes, weights)
        if read is not None and written is not None:
            return [
                Block(block.source, block.casts, common.sizes, common.far, common.far_strides, common.near, common.near_strides)
                for common in _intersections(read, written)
            ]
    return None


def _strides_of(affine_map: AffineMap) -> list[int]:
    """Return the near strides of a map, and for each axis size * stride, the stride that an axis around this axis would have."""
    pairs = [(size, abs(stride)) for size, stride in zip(affine_map.sizes, affine_map.near_strides, strict=True) if size > 1]
    return [stride for _, stride in pairs] + [size * stride for size, stride in pairs]


def _intersections(read: Sequence[Box], written: Sequence[Box]) -> Iterator[AffineMap]:
    for one in written:
        for other in read:
            common = intersect(other, one)
            if common is not None:
                yield common
