"""Workers that execute copy tasks: each worker has two buffers, and reads and writes files at given offsets."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.data.tensors.blocks import Block
from dovetail.data.tensors.copy_tasks import (
    BandCopy,
    Budget,
    OrderedCopies,
    RunCopy,
    Task,
    TileCopy,
    choose_tile,
    source_itemsize,
    split_block,
)
from dovetail.data.tensors.strided_read import StridedRead, plan_read
from dovetail.data.tensors.tensor_sets import StoredTensor
from dovetail.errors import EngineError
from dovetail.runtime.array_ops import copy

_PREFETCHED = 1 << 20
# The largest part of a file that one POSIX_FADV_WILLNEED reads, in bytes.
_MAX_ADVICE = 8
# Strided runs are prefetched together with the gaps between them if the whole extent is less than this multiple of the runs.
MIN_WRITEBACK = 1 << 20
"""The smallest run in bytes whose writeback is started immediately; other runs may fill the rest of a shorter run's pages."""
_NO_COPY_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)

Bytes = NDArray[np.uint8]
Resolve = Callable[[Any], StoredTensor]
"""A function that returns the stored tensor of a block's source: a StoredTensor unchanged, or the file of a Scratch."""


class CopyWorker:
    """CopyWorker executes copy tasks in one thread with its two buffers. ``resolve`` returns the stored tensor of a source.

    With ``is_uncached`` the pages of a file are dropped from the page cache after they are copied.
    """

    def __init__(self, budget: Budget, resolve: Resolve, *, is_uncached: bool = False) -> None:
        self._budget = budget
        self._cache = _PageCache() if is_uncached else None
        self._resolve = resolve
        self._source = allocate(budget.source)
        self._target = allocate(budget.target)

    def execute(self, task: Task, descriptor: int, base: int, itemsize: int) -> int:
        """Execute a task of a tensor that begins at byte ``base`` of the file. Returns the number of bytes written."""
        match task:
            case RunCopy():
                return self._copy_runs(task, descriptor, base)
            case TileCopy():
                return self._copy_tile(task.block, descriptor, base, itemsize)
            case BandCopy():
                return self._copy_band(task, descriptor, base, itemsize)
            case OrderedCopies():
                return sum(self.execute(part, descriptor, base, itemsize) for part in task.tasks)

    def _copy_runs(self, task: RunCopy, descriptor: int, base: int) -> int:
        tensor = self._resolve(task.source)
        source = tensor.file.descriptor
        starts = [tensor.offset + offset for offset in task.source_offsets]
        if len(starts) > 1:
            _advise(source, starts, task.nbytes)
        for start, target in zip(starts, task.target_offsets, strict=True):
            copied = _copy_range(source, descriptor, task.nbytes, start, base + target)
            while copied < task.nbytes:
                size = min(task.nbytes - copied, self._target.size)
                read_exactly(tensor, self._target[:size], start + copied)
                write_all(descriptor, self._target[:size], base + target + copied)
                copied += size
            self._release(descriptor, base + target, task.nbytes)
            self._read_once(tensor, start, task.nbytes)
        return task.nbytes * len(starts)

    def _copy_tile(self, block: Block, descriptor: int, base: int, itemsize: int) -> int:
        strides = _dense_strides(block.sizes)
        self._read(block._replace(target_offset=0, target_strides=strides), self._target, itemsize)
        outer, run = _contiguous_axes(block)
        nbytes = run * itemsize
        for number, position in enumerate(product(*map(range, block.sizes[:outer]))):
            offset = block.target_offset + sum(i * stride for i, stride in zip(position, block.target_strides, strict=False))
            write_all(descriptor, self._target[number * nbytes : (number + 1) * nbytes], base + offset * itemsize)
            if nbytes >= MIN_WRITEBACK:
                self._release(descriptor, base + offset * itemsize, nbytes)
        return block.elements * itemsize

    def _copy_band(self, band: BandCopy, descriptor: int, base: int, itemsize: int) -> int:
        target = self._target[: band.size * itemsize]
        if band.has_zeros:
            target[:] = 0
        self.read_blocks(band.blocks, target, itemsize)
        write_all(descriptor, target, base + band.start * itemsize)
        self._release(descriptor, base + band.start * itemsize, target.size)
        return target.size

    def read_blocks(self, blocks: Sequence[Block], target: Bytes, itemsize: int) -> None:
        """Read normalized blocks into a dense tensor; later blocks overwrite earlier blocks."""
        for block in blocks:
            for part in split_block(block, choose_tile(block, itemsize, self._budget)):
                self._read(part, target, itemsize)

    def _read(self, block: Block, target: Bytes, itemsize: int) -> None:
        """Read a block that fits into the source buffer, and write its elements into ``target``."""
        source, offset, strides = self._fetch(block)
        elements = strided_view(source, block.sizes, offset, strides, source_itemsize(block))
        if block.casts:
            elements = copy(elements).view(_element_of(block))
            for op in block.casts:
                elements = np.asarray(op.evaluate(np, elements))
            elements = elements.view(_bits_of(itemsize))
        copy(elements, out=strided_view(target, block.sizes, block.target_offset, block.target_strides, itemsize))

    def _fetch(self, block: Block) -> tuple[Bytes, int, Sequence[int]]:
        """Return a buffer with the elements of a block, the offset of the first element, and the strides in the buffer."""
        if isinstance(block.source, np.ndarray):
            return block.source.reshape(-1).view(np.uint8), block.source_offset, block.source_strides
        tensor = self._resolve(block.source)
        size = source_itemsize(block)
        read = plan_read(block.sizes, block.source_offset, block.source_strides, size, self._source.size)
        assert read is not None, "tiles are chosen so that they fit"
        self._read_runs(tensor, read, size)
        if read.elements == prod(count for count, stride in zip(block.sizes, block.source_strides, strict=True) if stride):
            # A read without gaps contains only elements of this tile, so that no other tile reads these pages.
            for start in read.starts if read.run * size >= MIN_WRITEBACK else ():
                self._read_once(tensor, tensor.offset + start * size, read.run * size)
        return self._source[: read.elements * size], read.offset, read.strides

    def _release(self, descriptor: int, offset: int, nbytes: int) -> None:
        start_writeback(descriptor, offset, nbytes)
        if self._cache is not None:
            self._cache.add(descriptor, offset, nbytes)

    def _read_once(self, tensor: StoredTensor, offset: int, nbytes: int) -> None:
        if self._cache is not None:
            drop_pages(tensor.file.descriptor, offset, nbytes)

    def _read_runs(self, tensor: StoredTensor, read: StridedRead, itemsize: int) -> None:
        nbytes = read.run * itemsize
        starts = [tensor.offset + start * itemsize for start in read.starts]
        _advise(tensor.file.descriptor, starts, nbytes)
        for number, start in enumerate(starts):
            read_exactly(tensor, self._source[number * nbytes : (number + 1) * nbytes], start)


def strided_view(buffer: Bytes, sizes: Sequence[int], offset: int, strides: Sequence[int], itemsize: int) -> NDArray[Any]:
    """Return a view of a box of elements in a buffer as unsigned integers of the same bits; offset, strides are in elements."""
    return np.ndarray(sizes, _bits_of(itemsize), buffer.data, offset * itemsize, [stride * itemsize for stride in strides])


def _bits_of(itemsize: int) -> np.dtype[Any]:
    return np.dtype(f"u{itemsize}") if itemsize <= 8 else np.dtype(np.complex128)


def allocate(nbytes: int) -> Bytes:
    """Allocate a buffer of unspecified content."""
    return np.empty(nbytes, np.uint8)


class _PageCache:
    """_PageCache holds the latest written ranges. Their pages are dropped a few tasks later, when they are on the disk."""

    _LAG = 4

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int, int]] = deque()

    def add(self, descriptor: int, offset: int, nbytes: int) -> None:
        self._recent.append((descriptor, offset, nbytes))
        if len(self._recent) > self._LAG:
            oldest, *position = self._recent.popleft()
            # The descriptor of another file may be closed already, because that file is complete.
            if oldest == descriptor:
                drop_pages(descriptor, *position)


def _element_of(block: Block) -> np.dtype[Any]:
    dtype: np.dtype[Any] = block.source.dtype if isinstance(block.source, np.ndarray) else block.source.dtype.numpy
    return dtype


def _dense_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    return tuple(strides)


def _contiguous_axes(block: Block) -> tuple[int, int]:
    """Return the number of outer axes, and the number of contiguous target elements of the inner axes."""
    run, axis = 1, len(block.sizes)
    while axis and (block.target_strides[axis - 1] == run or block.sizes[axis - 1] == 1):
        axis -= 1
        run *= block.sizes[axis]
    return axis, run


def _advise(descriptor: int, starts: Sequence[int], nbytes: int) -> None:
    """Start to prefetch runs that the operating system does not recognize as sequential reads."""
    if not hasattr(os, "posix_fadvise"):
        return
    low, high = min(starts), max(starts) + nbytes
    ranges = [(low, high)] if high - low < _MAX_ADVICE * nbytes * len(starts) else [(start, start + nbytes) for start in starts]
    for first, last in ranges:
        for offset in range(first, last, _PREFETCHED):
            os.posix_fadvise(descriptor, offset, min(_PREFETCHED, last - offset), os.POSIX_FADV_WILLNEED)


def _copy_range(source: int, target: int, nbytes: int, source_offset: int, target_offset: int) -> int:
    """Copy bytes between files with copy_file_range, which may copy fewer bytes. Returns the number of copied bytes."""
    copied = 0
    while copied < nbytes and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source, target, nbytes - copied, source_offset + copied, target_offset + copied)
        except OSError as error:
            if error.errno in _NO_COPY_RANGE:
                break
            raise write_error(error) from None
        if not count:
            break
        copied += count
    return copied


def read_exactly(tensor: StoredTensor, buffer: Bytes, offset: int) -> None:
    """Fill a buffer from a file. Raises EngineError [file.changed] if the file is too short, [path.unreadable]."""
    view = memoryview(buffer.data)
    while view:
        try:
            count = os.preadv(tensor.file.descriptor, [view], offset)
        except OSError as error:
            message = f"{tensor.file.path!r} cannot be read: {error.strerror}"
            raise EngineError("path.unreadable", message, file=tensor.file.path) from None
        if not count:
            raise EngineError("file.changed", f"{tensor.file.path!r} became shorter while it was read", file=tensor.file.path)
        view, offset = view[count:], offset + count


def write_all(descriptor: int, buffer: Bytes, offset: int) -> None:
    """Write a whole buffer at ``offset``. Raises EngineError [folder.unwritable]."""
    view = memoryview(buffer.data)
    while view:
        try:
            count = os.pwrite(descriptor, view, offset)
        except OSError as error:
            raise write_error(error) from None
        view, offset = view[count:], offset + count


def start_writeback(descriptor: int, offset: int, nbytes: int) -> None:
    """Start to write a range of a file to the disk, without waiting.

    Linux starts to write back dirty pages at 10 % of the memory. If all cores are busy, its flusher is slower than the workers,
    which then block at 20 %. POSIX_FADV_DONTNEED submits the writes in the calling thread; pages in flight stay cached.
    """
    drop_pages(descriptor, offset, nbytes)


def drop_pages(descriptor: int, offset: int, nbytes: int) -> None:
    """Drop the pages of a range from the page cache, except dirty pages and pages that a process maps."""
    if hasattr(os, "posix_fadvise") and nbytes:
        os.posix_fadvise(descriptor, offset, nbytes, os.POSIX_FADV_DONTNEED)


def write_error(error: OSError) -> EngineError:
    return EngineError("folder.unwritable", f"the tensors cannot be written: {error.strerror}")
