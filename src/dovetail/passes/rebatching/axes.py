"""Batch axes of tensors: which axis carries the samples, and how samples are cut from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.types import Shape, Size, Tensor, Type

Array: TypeAlias = np.ndarray[Any, Any]


class FreedSize(NamedTuple):
    """FreedSize is a fixed size of inputs that the analysis replaces by a symbol.

    The lower bound of ``symbol`` is far above the constants of models, so that ``symbol`` neither equals a constant nor
    broadcasts with one. ``old`` is the size in the model, and ``new`` is the requested size. ``is_batch`` marks axes of
    independent samples.
    """

    symbol: symbolic.Dim
    old: int
    new: Size
    is_batch: bool

    @property
    def name(self) -> str:
        return str(symbolic.name_of(self.symbol))


class BatchAxis(NamedTuple):
    """BatchAxis is a tensor axis that carries samples, of the size ``outer * batch * inner`` in this order of nesting."""

    axis: int
    name: str
    inner: Size


FREED_MINIMUM = 1 << 20
"""The lower bound of the symbols of the analysis."""


def freed_symbol(name: str) -> symbolic.Dim:
    """Return the symbol that the analysis uses for a size that becomes ``name``."""
    return symbolic.symbol(f"new {name}", FREED_MINIMUM)


def has_symbol(size: object, name: str) -> bool:
    return isinstance(size, symbolic.Dim) and any(symbolic.name_of(symbol) == name for symbol in symbolic.symbols(size))


def carries(type: Type, name: str) -> bool:
    """Return whether a size of the tensor depends on the symbol."""
    return isinstance(type, Tensor) and type.shape is not None and any(has_symbol(size, name) for size in type.shape)


def axes_of(shape: Shape | None, freed: FreedSize, inner: dict[tuple[int, str], Size] | None = None) -> list[BatchAxis]:
    """Return the axes whose size is a multiple of the freed size. ``inner`` maps (axis, name) to the known inner size."""
    found = []
    for axis, size in enumerate(shape or ()):
        if not has_symbol(size, freed.name):
            continue
        factor = symbolic.exact_quotient(size, freed.symbol)
        if factor is not None and not has_symbol(factor, freed.name):
            found.append(BatchAxis(axis, freed.name, (inner or {}).get((axis, freed.name), factor)))
    return found


def take_samples(array: Array, axes: Sequence[tuple[int, int]], batch: int, start: int, stop: int) -> Array:
    """Return the samples ``start`` to ``stop`` of ``batch`` along each of ``axes``, which are pairs of axis and inner size."""
    for axis, inner in axes:
        size = array.shape[axis]
        outer = size // (batch * inner)
        split = array.reshape(*array.shape[:axis], outer, batch, inner, *array.shape[axis + 1 :])
        cut = np.take(split, range(start, stop), axis=axis + 1)
        array = cut.reshape(*array.shape[:axis], outer * (stop - start) * inner, *array.shape[axis + 1 :])
    return array
