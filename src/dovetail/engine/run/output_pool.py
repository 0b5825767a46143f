"""A pool that reuses output buffers once the caller has released them.

Page faults on fresh memory cost more than writing the results: a key-value cache that grows by one token per call spends two
thirds of its time in them. The system's allocator returns large blocks to the kernel at once, so every call would fault anew.
"""

from __future__ import annotations

from collections import deque
from math import prod
from typing import Any

import numpy as np

from dovetail.forks import ForkLock

MIN_POOLED_BYTES = 1 << 17
"""Smaller results come from numpy: the system's allocator keeps such blocks for reuse."""
_ALIGNMENT = 64

Block = np.ndarray[Any, Any]


class OutputPool:
    """Free blocks by the call that released them. A block that no call takes within two calls is freed."""

    def __init__(self) -> None:
        self._released: deque[Block] = deque()
        self._free: list[tuple[int, Block]] = []
        self._calls = 0
        self._lock = ForkLock()

    def begin_call(self) -> None:
        """Start a call, and free blocks that the two calls before it did not take."""
        with self._lock:
            self._collect()
            self._calls += 1
            self._free = [(call, block) for call, block in self._free if call >= self._calls - 2]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an uninitialized array."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < MIN_POOLED_BYTES:
            return np.empty(shape, dtype)
        block = self._take(_capacity_of(nbytes))
        memory = np.asarray(_PooledBlock(self, block))
        return np.ndarray(shape, dtype, memory, -memory.__array_interface__["data"][0] % _ALIGNMENT)

    def release(self, block: Block) -> None:
        """Return a block. Without the lock: a finalizer may run while its thread holds the lock, and a deque needs none."""
        self._released.append(block)

    def _take(self, nbytes: int) -> Block:
        with self._lock:
            self._collect()
            for index, (_, block) in enumerate(self._free):
                if block.nbytes == nbytes:
                    del self._free[index]
                    return block
        return np.empty(nbytes, np.uint8)

    def _collect(self) -> None:
        while self._released:
            self._free.append((self._calls, self._released.popleft()))


class _PooledBlock:
    """The base of an array in a block, and of all views of the array; releases the block when the last of them is gone."""

    __slots__ = ("__array_interface__", "_block", "_output_pool")

    def __init__(self, output_pool: OutputPool, block: Block) -> None:
        self._output_pool = output_pool
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._output_pool.release(self._block)


def _capacity_of(nbytes: int) -> int:
    """Return the size class of ``nbytes``: classes are 1/16 of a power of two apart, so that a slightly larger result
    fits the same."""
    unit = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // unit) * unit + _ALIGNMENT
