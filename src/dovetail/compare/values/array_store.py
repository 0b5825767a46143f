"""Store of arrays that are needed later: in memory, or as files in a private folder if memory is limited."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

SPILL_BYTES = 1 << 18
"""Minimum size in bytes of an array that is written to a file."""


class ArrayStore:
    """ArrayStore holds arrays by the id of their value. With ``folder``, that folder has the arrays of at least SPILL_BYTES."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._items: dict[int, Any] = {}
        self._files: dict[int, tuple[str, Any, tuple[int, ...]]] = {}
        self._count = 0

    def __contains__(self, key: int) -> bool:
        return key in self._items or key in self._files

    def identities(self) -> set[int]:
        """Return the ids of the values that have arrays."""
        return {*self._items, *self._files}

    def store(self, key: int, item: Any) -> None:
        self.drop(key)
        plain = isinstance(item, np.ndarray) and not item.dtype.hasobject
        if self._folder is None or not plain or item.nbytes < SPILL_BYTES:
            self._items[key] = item
            return
        self._count += 1
        path = os.path.join(self._folder, f"{id(self):x}-{self._count}.array")
        np.ascontiguousarray(item).view(np.uint8).tofile(path)
        self._files[key] = path, item.dtype, item.shape

    def get(self, key: int) -> Any:
        if key in self._items:
            return self._items[key]
        path, dtype, shape = self._files[key]
        return np.fromfile(path, np.uint8).view(dtype).reshape(shape)

    def drop(self, key: int) -> None:
        self._items.pop(key, None)
        entry = self._files.pop(key, None)
        if entry is not None:
            os.unlink(entry[0])

    def keep_only(self, keys: set[int]) -> None:
        """Drop all arrays except those of ``keys``."""
        for key in self.identities() - keys:
            self.drop(key)
