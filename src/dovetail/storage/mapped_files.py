"""Files that arrays map, and the check that they are unchanged.

A map shows new bytes of a modified file, and a read beyond its new end is a SIGBUS.
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
from dovetail.ops.constant import Constant


class _State(NamedTuple):
    """The state of a file when it was mapped."""

    descriptor: int
    size: int
    modified: int
    address: int
    """The address of the file's first byte in the map."""


_states: dict[int, _State] = {}
"""States by the id of the map that arrays are views of."""


def watch(array: np.ndarray[Any, Any], descriptor: int) -> None:
    """Record the state of the file that ``array`` maps from its first byte, as long as the map is in use."""
    map_ = map_of(array)
    if map_ is None:
        return
    own = os.dup(descriptor)
    status = os.fstat(own)
    _states[id(map_)] = _State(own, status.st_size, status.st_mtime_ns, _address(array))
    weakref.finalize(map_, _forget, id(map_))


def _forget(key: int) -> None:
    os.close(_states.pop(key).descriptor)


def check_mapped_files(graph: Graph, file: str | None = None) -> None:
    """Raise FormatError [file.changed] where constants map a file that was modified since.

    A file that was replaced is another file: its map still shows the old bytes.
    """
    if not _states:
        return
    for key in {id(map_) for array in _constants(graph) if (map_ := map_of(array)) is not None}:
        state = _states.get(key)
        if state is None:
            continue
        now = os.fstat(state.descriptor)
        if (now.st_size, now.st_mtime_ns) != (state.size, state.modified):
            change = f"has {now.st_size} bytes, and had {state.size}" if now.st_size != state.size else "was written to"
            raise FormatError("file.changed", f"the weights file {change} since the model was loaded", file=file)


def _constants(graph: Graph) -> Iterator[np.ndarray[Any, Any]]:
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            yield node.op.data
        for _, body in bodies(node.op):
            yield from _constants(body)


def region_of(array: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """Return the open file and the offset of a contiguous array in it; None for an array of any other memory."""
    map_ = map_of(array)
    state = None if map_ is None else _states.get(id(map_))
    return None if state is None else (state.descriptor, _address(array) - state.address)


def mapped_constants(graph: Graph) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Yield the contiguous constants that are views of a mapped file, with their offsets in it."""
    for array in _constants(graph):
        region = region_of(array) if array.flags.c_contiguous and array.size else None
        if region is not None:
            yield array, region[1]


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def map_of(array: object) -> mmap.mmap | None:
    """Return the map that an array is a view of; None for any other memory."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array if isinstance(array, mmap.mmap) else None
