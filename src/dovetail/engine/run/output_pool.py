"""Memory for results, taken back when nobody holds the result any more.

Fresh pages cost more than what is written to them: a cache that grows by a token a step spent two thirds of its time in them. The
system's allocator gives large blocks back at once, so that every step would meet new ones.
"""

from __future__ import annotations

from collections import deque
from math import prod
from typing import Any

import numpy as np

from dovetail.forks import ForkLock

MIN_POOLED_BYTES = 1 << 17
"""Results of fewer bytes come from numpy: the system's allocator keeps such blocks itself."""
_ALIGNMENT = 64

Block = np.ndarray[Any, Any]


class OutputPool:
    """Blocks that lie ready. One that a whole call did not want is let go: what is kept is what a call or two gave back."""

    def __init__(self) -> None:
        self._returned: deque[Block] = deque()
        self._kept: list[tuple[int, Block]] = []
        self._calls = 0
        self._lock = ForkLock()

    def begin(self) -> None:
        """A call begins."""
        with self._lock:
            self._collect()
            self._calls += 1
            self._kept = [(generation, block) for generation, block in self._kept if generation >= self._calls - 2]

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array of that shape, its elements not set."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < MIN_POOLED_BYTES:
            return np.empty(shape, dtype)
        block = self._block(_capacity(nbytes))
        memory = np.asarray(_PooledBlock(self, block))
        return np.ndarray(shape, dtype, memory, -memory.__array_interface__["data"][0] % _ALIGNMENT)

    def take_back(self, block: Block) -> None:
        # Whenever Python lets a loan go, even while this thread holds the lock: a deque needs none.
        self._returned.append(block)

    def _block(self, nbytes: int) -> Block:
        with self._lock:
            self._collect()
            for place, (_, block) in enumerate(self._kept):
                if block.nbytes == nbytes:
                    del self._kept[place]
                    return block
        return np.empty(nbytes, np.uint8)

    def _collect(self) -> None:
        while self._returned:
            self._kept.append((self._calls, self._returned.popleft()))


class _PooledBlock:
    """What keeps a block from the shelf: the base of the array made of it, and of every view of that."""

    __slots__ = ("__array_interface__", "_block", "_output_pool")

    def __init__(self, output_pool: OutputPool, block: Block) -> None:
        self._output_pool = output_pool
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._output_pool.take_back(self._block)


def _capacity(nbytes: int) -> int:
    """A size that what is a little larger has too: a sixteenth of the next power of two."""
    unit = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // unit) * unit + _ALIGNMENT
