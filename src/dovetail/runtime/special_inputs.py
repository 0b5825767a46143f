"""Inputs with values for which implementations differ: NaN, infinities, -0, ties, extremes, and axes without elements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Model
from dovetail.ir.types import sizes_in
from dovetail.runtime.random_inputs import random_inputs

NOT_FINITE, TIES, EXTREMES = "NaN and infinities", "ties", "extremes"
"""The kinds of special values, which are mixed with ordinary numbers.

They are NaN, infinities and -0; multiples of 0.5, many of them equal; and the minimum and maximum of a type.
"""
SHARE = 4
"""One of each SHARE elements gets a special value."""


def special_inputs(
    model: Model, arrays: Mapping[str, Any], kind: str, seed: int = 0, only: Collection[str] | None = None
) -> dict[str, Any] | None:
    """Return ``arrays`` with special values in all inputs, or only in the inputs named in ``only``.

    Integer inputs change only for the kind EXTREMES. The result is None if no input changes.
    """
    generator = np.random.default_rng(seed)
    found, is_changed = dict(arrays), False
    for value in model.inputs:
        array = arrays.get(value.name)
        if (only is not None and value.name not in only) or not isinstance(array, np.ndarray) or not array.size:
            continue
        if array.dtype.kind in "OUSbc":
            continue
        dtype = dtypes.dtype(array.dtype)
        if dtype.is_float and dtype.bits >= 16:
            found[value.name] = _with_special_floats(array, dtype, kind, generator)
        elif dtype.is_integer and dtype.bits >= 8 and kind == EXTREMES:
            found[value.name] = _with_special(array.copy(), _extreme_integers(dtype), generator)
        else:
            continue
        is_changed = True
    return found if is_changed else None


def empty_inputs(model: Model, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Any] | None:
    """Return random inputs in which the first symbolic size that may be 0 is 0; None if the model has no such size."""
    open_sizes = [size for value in model.inputs for size in sizes_in(value.type) if not isinstance(size, int)]
    for size in open_sizes:
        name, (low, _) = symbolic.name_of(size), symbolic.bounds(size)
        if name is not None and not low:
            try:
                return dict(random_inputs(model, seed=seed, sizes={**(sizes or {}), name: 0}))
            except DovetailError:
                return None
    return None


def _with_special_floats(array: np.ndarray[Any, Any], dtype: DType, kind: str, generator: np.random.Generator) -> Any:
    import ml_dtypes

    wide = array.astype(np.float64)
    facts: Any = ml_dtypes.finfo
    limit = float(facts(dtype.numpy).max)
    special = {NOT_FINITE: [np.nan, np.inf, -np.inf, -0.0], TIES: [0.5, 1.5, 2.5, -0.5], EXTREMES: [limit, -limit]}[kind]
    if kind == TIES:
        # Ordinary numbers rounded to multiples of 0.5 have few distinct values, so that many are equal.
        wide = np.round(wide * 2) / 2
    return _with_special(wide, special, generator).astype(array.dtype)


def _extreme_integers(dtype: DType) -> list[Any]:
    """Return a type's minimum, maximum and their neighbours, and the smallest integers that f32 and f64 cannot represent."""
    low, high = dtype.range()
    rounded = [2**bits + 1 for bits in (24, 53) if 2**bits < high]
    return [low, high, *rounded, low + 1, high - 1]


def _with_special(array: np.ndarray[Any, Any], special: list[Any], generator: np.random.Generator) -> Any:
    """Write the ``special`` values, in cyclic order, to one of each SHARE elements of ``array``, at random positions."""
    flat = array.reshape(-1)
    first = int(generator.integers(len(special)))
    for index, place in enumerate(generator.permutation(flat.size)[: max(flat.size // SHARE, 1)]):
        flat[place] = special[(first + index) % len(special)]
    return flat.reshape(array.shape)
