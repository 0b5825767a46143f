"""Substitution of symbols in types and in the elements of shape values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.types import Map, Optional, Sequence, Size, Tensor, Type


def map_sizes(type: Type, function: Callable[[Size], Size]) -> Type:
    """Return a type with ``function`` applied to every known size, including the lengths of sequences."""
    if isinstance(type, Sequence):
        return Sequence(map_sizes(type.element, function), None if type.length is None else function(type.length))
    if isinstance(type, Optional):
        return Optional(map_sizes(type.element, function))
    if isinstance(type, Map):
        return Map(type.key, map_sizes(type.element, function))
    if type.shape is None or all(isinstance(size, int) for size in type.shape):
        return type
    sizes: Any = tuple(None if size is None else function(size) for size in type.shape)
    return Tensor(type.dtype, sizes)


def substitute_type(type: Type, substitution: Mapping[str, Size]) -> Type:
    """Return a type with the symbols of its sizes replaced."""
    return map_sizes(type, lambda size: symbolic.substitute(size, substitution))


def map_elements(elements: np.ndarray[Any, Any] | None, function: Callable[[Size], Size]) -> Any:
    """Return a shape value with ``function`` applied to every element; integer arrays and None are returned unchanged."""
    if elements is None or np.asarray(elements).dtype != object:
        return elements
    array = np.empty(np.shape(elements), dtype=object)
    array.reshape(-1)[:] = [function(item) for item in np.asarray(elements, dtype=object).reshape(-1).tolist()]
    return symbolic.xp.asarray(array)
