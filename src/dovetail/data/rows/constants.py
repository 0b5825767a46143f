"""Constants: arrays of the model inputs that have the same value for all rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

MAX_SHOWN = 8
"""The maximum number of elements of a constant whose text lists the values instead of their digest."""


class Constants:
    """Constants holds arrays by input name, in the types of the inputs. Constants are equal if names, types and bytes are."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.arrays = dict(arrays)

    @cached_property
    def record(self) -> dict[str, str]:
        """The text of each constant by name: type, shape, and the values or their digest."""
        return {name: _text_of(self.arrays[name]) for name in sorted(self.arrays)}

    def __bool__(self) -> bool:
        return bool(self.arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple((name, array.dtype.str, array.shape, _bytes_of(array)) for name, array in sorted(self.arrays.items()))


def _bytes_of(array: np.ndarray[Any, Any]) -> bytes:
    return sha256(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()).digest()


def _text_of(array: np.ndarray[Any, Any]) -> str:
    is_short = array.size <= MAX_SHOWN and not array.dtype.hasobject
    return f"{array.dtype}{list(array.shape)} {array.tolist() if is_short else _bytes_of(array).hex()}"
