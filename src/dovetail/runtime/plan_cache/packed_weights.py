"""Packed weights of a plan as a separate cache entry, which all processes of a host map."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dovetail.storage.cache_folder import CacheFolder, Entry
from dovetail.storage.digest import name_of

FLOAT_BYTES = 4


def packed_name(name: str) -> str:
    """Return the name of the entry with the packed weights of the entry ``name``."""
    return name_of([name, "packed weights"])


def write_weights(folder: CacheFolder, name: str, weights: Any) -> bool:
    """Write the packed weights of ``weights``, a WeightCache of the core, to the cache. Returns whether they were written."""
    rows = weights.export_floats()
    blobs = [np.frombuffer((ctypes.c_char * (count * FLOAT_BYTES)).from_address(address), np.uint8) for _, address, count in rows]
    return folder.write(packed_name(name), {"keys": [key.hex() for key, _, _ in rows]}, blobs)


def import_weights(weights: Any, entry: Entry) -> None:
    """Import the packed weights of an entry into a WeightCache. Raises ValueError or KeyError for a damaged header."""
    keys = entry.header["keys"]
    if len(keys) != len(entry.blobs):
        raise ValueError("the numbers of keys and packed weights must be equal")
    base = entry.data.__array_interface__["data"][0]
    for key, (offset, size) in zip(keys, entry.blobs, strict=True):
        weights.import_floats(bytes.fromhex(key), base + offset, size // FLOAT_BYTES)
