"""Record the state of memory-mapped files, and check that they are unchanged.

The memory map of a modified file shows the new bytes; a read beyond the file's new end causes a SIGBUS.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dovetail.errors import FormatError
from dovetail.ir.graph import Graph
from dovetail.ir.op import bodies
from dovetail.ir.packed_elements import PackedElements
from dovetail.ops.constant import Constant


class _State(NamedTuple):
    """_State is the state of a file at the time of its mapping."""

    descriptor: int
    size: int
    modified: int
    address: int
    """The memory address of the file's first byte."""


_states: dict[int, _State] = {}
"""The states of mapped files by the ``id`` of the ``mmap`` object."""


def watch(array: np.ndarray[Any, Any], descriptor: int) -> None:
    """Record the state of the file that ``array`` maps from its first byte, until the map is no longer in use."""
    map_ = map_of(array)
    if map_ is None:
        return
    own = os.dup(descriptor)
    status = os.fstat(own)
    _states[id(map_)] = _State(own, status.st_size, status.st_mtime_ns, address_of(array))
    weakref.finalize(map_, _forget, id(map_))


def _forget(key: int) -> None:
    os.close(_states.pop(key).descriptor)


def check_mapped_files(graph: Graph, file: str | None = None) -> None:
    """Raise FormatError [file.changed] if constants of ``graph`` map a file that was modified after the mapping.

    A file that was replaced by another file does not count as modified: the map still shows the bytes of the old file.
    """
    if not _states:
        return
    for key in {id(map_) for array in stored_constants(graph) if (map_ := map_of(array)) is not None}:
        state = _states.get(key)
        if state is None:
            continue
        now = os.fstat(state.descriptor)
        if (now.st_size, now.st_mtime_ns) != (state.size, state.modified):
            change = f"changed from {state.size} to {now.st_size} bytes" if now.st_size != state.size else "was modified"
            raise FormatError("file.changed", f"the weights file must not change after loading, but it {change}", file=file)


def stored_constants(graph: Graph) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the constants of a graph and of its subgraphs as they are in memory: several elements may share a byte."""
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            storage = node.op.storage
            yield storage.packed if isinstance(storage, PackedElements) else storage
        for _, body in bodies(node.op):
            yield from stored_constants(body)


def region_of(array: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """Return the descriptor of the file that a contiguous array maps, and the array's offset; None for any other memory."""
    map_ = map_of(array)
    state = None if map_ is None else _states.get(id(map_))
    return None if state is None else (state.descriptor, address_of(array) - state.address)


def mapped_constants(graph: Graph) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Yield the contiguous constants that are views of a mapped file, with their offsets in that file."""
    for array in stored_constants(graph):
        region = region_of(array) if array.flags.c_contiguous and array.size else None
        if region is not None:
            yield array, region[1]


def release_pages(array: np.ndarray[Any, Any]) -> None:
    """Return the pages of a constant that maps a file to the system; a later read takes them from the file again."""
    region = region_of(array) if array.flags.c_contiguous else None
    map_ = map_of(array)
    if region is None or map_ is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = -(-region[1] // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (region[1] + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        map_.madvise(mmap.MADV_DONTNEED, first, size)


def address_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def map_of(array: object) -> mmap.mmap | None:
    """Return the ``mmap`` object that an array is a view of; None for any other memory."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array if isinstance(array, mmap.mmap) else None
