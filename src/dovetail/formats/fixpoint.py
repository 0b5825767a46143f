"""A fixpoint of export and import: saving a saved model again gives the same bytes.

An import names unnamed values, folds constants, and puts constants first; an export names new values. Both are stable after one
or two rounds in most models, and after one round for each new constant where their names depend on each other. Weights are
neither copied nor hashed: they are passed by reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DovetailError
from dovetail.formats.foreign import ForeignModel
from dovetail.ir.graph import Model
from dovetail.storage.weights_file import Label

Bytes: TypeAlias = NDArray[np.uint8]

ROUNDS = 32
"""The most rounds of export and import. A model that is not stable then is written as it was at first."""
_ALIGNMENT = 8


class Weights:
    """The content of a weights file that is not written: a range of it is the array that was stored there."""

    def __init__(self) -> None:
        self.parts: dict[int, Bytes] = {}
        self.size = 0

    def store(self, data: Bytes, label: Label) -> int:
        """Store ``data``, and return its offset."""
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        if data.size:
            self.parts[offset] = data
        self.size = offset + data.size
        return offset

    def __getitem__(self, byte_range: slice) -> Bytes:
        start, stop, _ = byte_range.indices(self.size)
        return self.parts[start][: stop - start] if stop > start else np.empty(0, np.uint8)

    def equals(self, other: Weights) -> bool:
        """Tell whether the contents are the same bytes at the same offsets."""
        if self.parts.keys() != other.parts.keys():
            return False
        return all(_are_equal(data, other.parts[offset]) for offset, data in self.parts.items())


class Snapshot(NamedTuple):
    """The bytes of a model file, and its weights."""

    data: bytes
    weights: Weights

    def equals(self, other: Snapshot) -> bool:
        return self.data == other.data and self.weights.equals(other.weights)


def find_fixpoint(
    foreign: ForeignModel,
    snapshot_of: Callable[[ForeignModel], Snapshot],
    import_snapshot: Callable[[Snapshot], Model],
    export: Callable[[Model], ForeignModel],
) -> tuple[ForeignModel, Model | None]:
    """Import and export ``foreign`` until it no longer changes; return the result, and the model that was read back from it.

    Where that fails, ``foreign`` itself is returned, and no model.
    """
    first = foreign
    try:
        before = snapshot_of(foreign)
        seen = {before.data}
        for _ in range(ROUNDS):
            model = import_snapshot(before)
            again = export(model)
            after = snapshot_of(again)
            if after.equals(before):
                return (foreign, model) if _has_same_names(first, foreign) else (first, None)
            if after.data in seen:
                # The rounds would repeat.
                break
            seen.add(after.data)
            foreign, before = again, after
    except DovetailError:
        # The caller writes the model as it is, or refuses it.
        pass
    return first, None


def _has_same_names(first: ForeignModel, second: ForeignModel) -> bool:
    """Tell whether inputs and outputs have the same names."""
    ours, theirs = (
        [[value.names[:1] for value in side] for side in (model.graph.inputs, model.graph.outputs)] for model in (first, second)
    )
    return ours == theirs


def _are_equal(first: Bytes, second: Bytes) -> bool:
    if first.size != second.size:
        return False
    pointers = [data.__array_interface__["data"][0] for data in (first, second)]
    return pointers[0] == pointers[1] or np.array_equal(first, second)
