"""A fixpoint of export and import: a model that was saved, loaded and saved again has the same bytes.

An import names unnamed values, folds constants and moves constants to the front; an export names new values. Most models are
stable after one or two rounds. If the names of new constants depend on each other, each new constant needs one more round.
Weights are passed by reference, neither copied nor hashed.
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
"""The maximum number of rounds. A model that is not stable after them is written as first exported."""
_ALIGNMENT = 8


class Weights:
    """Weights is the content of a weights file in memory; ``weights[start:stop]`` returns the bytes stored in that range."""

    def __init__(self) -> None:
        self.parts: dict[int, Bytes] = {}
        self.size = 0

    def store(self, data: Bytes, label: Label) -> int:
        """Store ``data`` without copying it, and return its offset in the file."""
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        if data.size:
            self.parts[offset] = data
        self.size = offset + data.size
        return offset

    def __getitem__(self, byte_range: slice) -> Bytes:
        start, stop, _ = byte_range.indices(self.size)
        return self.parts[start][: stop - start] if stop > start else np.empty(0, np.uint8)

    def equals(self, other: Weights) -> bool:
        """Return whether both contents have equal bytes at equal offsets."""
        if self.parts.keys() != other.parts.keys():
            return False
        return all(_are_equal(data, other.parts[offset]) for offset, data in self.parts.items())


class Snapshot(NamedTuple):
    """Snapshot is the bytes of a model file together with its weights."""

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
    """Import and export ``foreign`` until its snapshot no longer changes; return the stable foreign model and its import.

    If there is no fixpoint, the function returns the given foreign model and None.
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
                # The snapshot equals an earlier one: the rounds are periodic and have no fixpoint.
                break
            seen.add(after.data)
            foreign, before = again, after
    except DovetailError:
        # The caller writes the first foreign model, or refuses the model.
        pass
    return first, None


def _has_same_names(first: ForeignModel, second: ForeignModel) -> bool:
    """Return whether the inputs and outputs of two models have equal primary names."""
    ours, theirs = (
        [[value.names[:1] for value in side] for side in (model.graph.inputs, model.graph.outputs)] for model in (first, second)
    )
    return ours == theirs


def _are_equal(first: Bytes, second: Bytes) -> bool:
    if first.size != second.size:
        return False
    pointers = [data.__array_interface__["data"][0] for data in (first, second)]
    return pointers[0] == pointers[1] or np.array_equal(first, second)
