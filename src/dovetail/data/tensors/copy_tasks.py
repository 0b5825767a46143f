"""Copy tasks: the division of the blocks of a tensor into tasks of bounded memory.

A ``RunCopy`` copies contiguous bytes from file to file. A ``TileCopy`` reads a part of a block, rearranges it in memory, and
writes it. A ``BandCopy`` assembles a contiguous range of the target from all blocks that overlap the range, so that interleaved
blocks, for example those of a Concat along an inner axis, are written in one contiguous run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dovetail.data.tensors.blocks import Block, TensorBlocks, is_fill, move_blocks
from dovetail.data.tensors.strided_read import read_cost
from dovetail.engine.memory.index_map import merge_axes, reverse_axes
from dovetail.ir.op import Window

MIN_RUN = 256 << 10
"""The smallest contiguous run in bytes that is copied without a buffer."""
MAX_RUN = 16 << 20
"""The maximum bytes of one RunCopy."""
MIN_TARGET_RUN = 32 << 10
"""Blocks that interleave with other blocks are assembled in bands if their target runs are shorter than this, in bytes."""
MAX_GAPS = 8
"""A single block with gaps is assembled in bands if its extent is less than about MAX_GAPS times the number of its elements."""
CAST_BYTES = 8 << 20
"""The largest tile in bytes whose elements are cast, because numpy allocates temporary arrays of that size."""


class RunCopy(NamedTuple):
    """RunCopy copies runs of ``nbytes`` bytes of a block's ``source`` from ``source_offsets`` to ``target_offsets``, in bytes."""

    source: Any
    nbytes: int
    source_offsets: tuple[int, ...]
    target_offsets: tuple[int, ...]


class TileCopy(NamedTuple):
    """TileCopy copies a block with arbitrary target strides; offsets and strides are in elements of the target."""

    block: Block


class BandCopy(NamedTuple):
    """BandCopy writes ``size`` elements from ``start`` on, assembled from blocks; later blocks overwrite earlier blocks.

    ``has_zeros``: some elements may be in no block and are zero; otherwise the blocks cover all elements.
    """

    start: int
    size: int
    blocks: tuple[Block, ...]
    has_zeros: bool


class OrderedCopies(NamedTuple):
    """OrderedCopies holds tasks that are executed in order, because later tasks overwrite elements of earlier tasks."""

    tasks: tuple[Any, ...]


Task = RunCopy | TileCopy | BandCopy | OrderedCopies


class Budget(NamedTuple):
    """Budget holds the sizes in bytes of the two buffers of a worker: one for source data, one for target data."""

    source: int
    target: int


def tasks_of(tensor: TensorBlocks, budget: Budget) -> Iterator[Task]:
    """Yield the tasks that write a tensor into a file of zeros."""
    itemsize = tensor.dtype.numpy.itemsize
    blocks = [normalize_block(block) for block in tensor.blocks if block.elements]
    blocks = _without_zeros(blocks)
    for cluster in _clusters(blocks):
        if _needs_bands(cluster, itemsize):
            yield from _tasks_of_cluster(tensor, cluster, itemsize, budget)
        else:
            for block in cluster:
                yield from _tasks_of_block(block, itemsize, budget)


def _needs_bands(cluster: Sequence[Block], itemsize: int) -> bool:
    """Return whether blocks must be assembled in bands: they include a fill, or interleave in short target runs.

    A single block needs bands if it has gaps that make up less than the share set by MAX_GAPS.
    """
    if len(cluster) == 1:
        first, last = target_extent(cluster[0])
        if not (last - first + 1) // MAX_GAPS < cluster[0].elements < last - first + 1:
            return False
    return any(map(is_fill, cluster)) or min(map(_target_run, cluster)) * itemsize < MIN_TARGET_RUN


def normalize_block(block: Block) -> Block:
    """Return an equivalent block that has positive target strides in decreasing order, and whose adjacent axes are merged."""
    axes = zip(block.sizes, block.target_strides, block.source_strides, strict=True)
    target, source, forward = reverse_axes(block.target_offset, block.source_offset, axes)
    merged = merge_axes(forward)
    sizes, target_strides, source_strides = zip(*merged, strict=True) if merged else ((), (), ())
    return Block(block.source, block.casts, sizes, source, source_strides, target, target_strides)


def _without_zeros(blocks: list[Block]) -> list[Block]:
    """Drop fills of zero bits that overwrite no other block, because a new file consists of zeros."""
    kept: list[Block] = []
    for block in blocks:
        is_zero = is_fill(block) and not np.asarray(block.source).reshape(1).view(np.uint8).any()
        first, last = target_extent(block)
        if not is_zero or any(target_extent(other)[1] >= first and target_extent(other)[0] <= last for other in kept):
            kept.append(block)
    return kept


def target_extent(block: Block) -> tuple[int, int]:
    """Return the first and the last target element of a normalized block."""
    reach = sum((size - 1) * stride for size, stride in zip(block.sizes, block.target_strides, strict=True))
    return block.target_offset, block.target_offset + reach


def _clusters(blocks: list[Block]) -> Iterator[list[Block]]:
    """Yield groups of blocks whose target extents overlap; each group keeps the order of ``blocks``."""
    rows = sorted(range(len(blocks)), key=lambda index: target_extent(blocks[index]))
    cluster: list[int] = []
    end = -1
    for index in rows:
        first, last = target_extent(blocks[index])
        if cluster and first > end:
            yield [blocks[member] for member in sorted(cluster)]
            cluster = []
        cluster.append(index)
        end = max(end, last)
    if cluster:
        yield [blocks[member] for member in sorted(cluster)]


def _target_run(block: Block) -> int:
    """Return the number of contiguous target elements of a normalized block."""
    run = 1
    for size, stride in zip(reversed(block.sizes), reversed(block.target_strides), strict=True):
        if stride != run:
            break
        run *= size
    return run


def _tasks_of_block(block: Block, itemsize: int, budget: Budget) -> Iterator[Task]:
    if _copies_runs(block, itemsize):
        yield from _run_copies(block, itemsize)
        return
    tile = choose_tile(block, itemsize, budget)
    for part in split_block(block, tile):
        yield TileCopy(part)


def _copies_runs(block: Block, itemsize: int) -> bool:
    if isinstance(block.source, np.ndarray) or block.casts:
        return False
    if not block.sizes:
        return True
    return block.target_strides[-1] == block.source_strides[-1] == 1 and (
        block.sizes[-1] * itemsize >= MIN_RUN or len(block.sizes) == 1
    )


def _run_copies(block: Block, itemsize: int) -> Iterator[RunCopy]:
    run = block.sizes[-1] if block.sizes else 1
    step = max(MAX_RUN // itemsize, 1)
    rows_per_task = max(MAX_RUN // (run * itemsize), 1)
    rows: list[tuple[int, int]] = []
    for position in product(*map(range, block.sizes[:-1])):
        source = block.source_offset + sum(i * stride for i, stride in zip(position, block.source_strides, strict=False))
        target = block.target_offset + sum(i * stride for i, stride in zip(position, block.target_strides, strict=False))
        if run > step:
            for start in range(0, run, step):
                yield _run_copy(block, min(step, run - start), [(source + start, target + start)], itemsize)
            continue
        rows.append((source, target))
        if len(rows) == rows_per_task:
            yield _run_copy(block, run, rows, itemsize)
            rows = []
    if rows:
        yield _run_copy(block, run, rows, itemsize)


def _run_copy(block: Block, run: int, rows: Sequence[tuple[int, int]], itemsize: int) -> RunCopy:
    sources, targets = zip(*rows, strict=True)
    return RunCopy(
        block.source, run * itemsize, tuple(item * itemsize for item in sources), tuple(item * itemsize for item in targets)
    )


def _tasks_of_cluster(tensor: TensorBlocks, cluster: list[Block], itemsize: int, budget: Budget) -> Iterator[Task]:
    """Yield bands of the target, or the tasks of the single blocks if the elements of a band are no union of boxes."""
    extents = [target_extent(block) for block in cluster]
    first, last = min(low for low, _ in extents), max(high for _, high in extents) + 1
    period = max((block.target_strides[0] for block in cluster if block.sizes), default=1)
    limit = max(budget.target // itemsize, 1)
    step = max(limit // period, 1) * period if period <= limit else limit
    starts = [first, *range(first - first % step + step, last, step)]
    # With fills the number of elements does not show gaps: fills of zero may be dropped, and fills may be overwritten.
    has_fill = any(map(is_fill, tensor.blocks))
    bands = []
    for start, stop in zip(starts, [*starts[1:], last], strict=True):
        window = Window(0, 0, (stop - start,), start, (1,), 0, (1,))
        parts = move_blocks(window, cluster, tensor.shape)
        if parts is None:
            break
        if parts:
            has_zeros = has_fill or sum(part.elements for part in parts) != stop - start
            bands.append(BandCopy(start, stop - start, tuple(map(normalize_block, parts)), has_zeros))
    else:
        yield from bands
        return
    tasks = [task for block in cluster for task in _tasks_of_block(block, itemsize, budget)]
    yield from [OrderedCopies(tuple(tasks))] if any(map(is_fill, cluster)) else tasks


def choose_tile(block: Block, itemsize: int, budget: Budget) -> tuple[int, ...]:
    """Return tile sizes for a normalized block: source and target runs are long, and a tile fits into the buffers."""
    sizes = block.sizes
    tile = [1] * len(sizes)
    size = source_itemsize(block)
    by_target = list(reversed(range(len(sizes))))
    by_source = sorted(by_target, key=lambda axis: (block.source_strides[axis] == 0, abs(block.source_strides[axis])))
    orders = [by_target] if is_fill(block) else [by_target, by_source]
    is_open = [True] * len(orders)
    limit = min(budget.target, CAST_BYTES) if block.casts else budget.target
    while any(is_open):
        # The tile grows along the side (source or target) with the shorter runs.
        localities = [_locality(tile, sizes, order) for order in orders]
        order = min((index for index, flag in enumerate(is_open) if flag), key=localities.__getitem__)
        axis = next((axis for axis in orders[order] if tile[axis] < sizes[axis]), None)
        if axis is None:
            break
        grown = [*tile]
        grown[axis] = min(tile[axis] * 2, sizes[axis])
        fits = prod(grown) * max(itemsize, size) <= limit and (
            isinstance(block.source, np.ndarray) or read_cost(tuple(grown), block.source_strides, size, budget.source) is not None
        )
        if fits:
            tile = grown
        else:
            is_open[order] = False
    return tuple(tile)


def _locality(tile: Sequence[int], sizes: Sequence[int], order: Sequence[int]) -> int:
    """Return the product of a tile's sizes in ``order``, up to and including the first axis that the tile cuts."""
    count = 1
    for axis in order:
        count *= tile[axis]
        if tile[axis] < sizes[axis]:
            break
    return count


def source_itemsize(block: Block) -> int:
    """Return the bytes of one element of the source of a block."""
    source = block.source
    return int(source.dtype.itemsize if isinstance(source, np.ndarray) else source.dtype.numpy.itemsize)


def split_block(block: Block, tile: Sequence[int]) -> Iterator[Block]:
    """Yield the tiles of a block in an order in which tiles that share source runs are adjacent."""
    axes = range(len(block.sizes))
    # The axis of the largest source stride varies slowest, so that a file is read from its start to its end.
    order = sorted(axes, key=lambda axis: -abs(block.source_strides[axis]))
    for starts in product(*(range(0, block.sizes[axis], tile[axis]) for axis in order)):
        start = dict(zip(order, starts, strict=True))
        yield Block(
            block.source,
            block.casts,
            tuple(min(tile[axis], block.sizes[axis] - start[axis]) for axis in axes),
            block.source_offset + sum(start[axis] * block.source_strides[axis] for axis in axes),
            block.source_strides,
            block.target_offset + sum(start[axis] * block.target_strides[axis] for axis in axes),
            block.target_strides,
        )
