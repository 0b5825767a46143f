"""Bring what is about to be written to a fixpoint of reading and writing: saving a saved model again gives the same bytes.

Reading gives names to what a file leaves without, folds constants, and puts constants first; writing makes names anew for what it
takes apart. Each is settled after a time or two. The weights themselves are neither copied nor hashed: they travel by reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DovetailError
from dovetail.formats.foreign import ForeignModel

Bytes: TypeAlias = NDArray[np.uint8]

ROUNDS = 4
"""Times that a model is read and written at most. One that is not settled then is written as it was at first."""
_ALIGNMENT = 8


class Weights:
    """The content of a side file that nobody writes: a range of it is the array that was put there."""

    def __init__(self) -> None:
        self.parts: dict[int, Bytes] = {}
        self.size = 0

    def place(self, data: Bytes) -> int:
        """The offset that ``data`` gets."""
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        if data.size:
            self.parts[offset] = data
        self.size = offset + data.size
        return offset

    def __getitem__(self, place: slice) -> Bytes:
        start, stop, _ = place.indices(self.size)
        return self.parts[start][: stop - start] if stop > start else np.empty(0, np.uint8)

    def equals(self, other: Weights) -> bool:
        """Whether the contents are the same bytes at the same offsets."""
        if self.parts.keys() != other.parts.keys():
            return False
        return all(_are_same(data, other.parts[offset]) for offset, data in self.parts.items())


class Snapshot(NamedTuple):
    """A model file as bytes, and the weights beside it."""

    data: bytes
    weights: Weights

    def equals(self, other: Snapshot) -> bool:
        return self.data == other.data and self.weights.equals(other.weights)


def fixpoint(
    foreign: ForeignModel, snapshot_of: Callable[[ForeignModel], Snapshot], reread: Callable[[Snapshot], ForeignModel]
) -> ForeignModel:
    """``foreign``, or what comes of it where reading and writing it again changes it.

    ``reread`` reads a snapshot and lowers the model that it means. ``foreign`` stands where that cannot be done.
    """
    first = foreign
    try:
        before = snapshot_of(foreign)
        for _ in range(ROUNDS):
            again = reread(before)
            after = snapshot_of(again)
            if after.equals(before):
                return foreign if _keeps(first, foreign) else first
            foreign, before = again, after
    except DovetailError:
        # It is written as it is, or refused, by those who judge that.
        pass
    return first


def _keeps(first: ForeignModel, other: ForeignModel) -> bool:
    """Whether inputs and outputs have the names that they had."""
    ours, theirs = (
        [[value.names[:1] for value in side] for side in (model.graph.inputs, model.graph.outputs)] for model in (first, other)
    )
    return ours == theirs


def _are_same(one: Bytes, other: Bytes) -> bool:
    if one.size != other.size:
        return False
    pointers = [data.__array_interface__["data"][0] for data in (one, other)]
    return pointers[0] == pointers[1] or np.array_equal(one, other)
