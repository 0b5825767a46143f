"""Output sizes and scales of Resize: read from constant inputs, computed as ratios of sizes, and rounded in f32."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.types import Size, View


def drop_empty(item: View | None) -> Any:
    """Return ``item``; None for an absent input or an empty vector."""
    if item is None or (item.shape is not None and len(item.shape) == 1 and symbolic.equal(item.shape[0], 0) is True):
        return None
    return item


def known_floats(item: View | None) -> list[Any] | None:
    """Return the elements of a constant float input in f32; None if the input is not constant."""
    data = getattr(item, "constant", None)
    if data is None and item is not None:
        data = item.value
    return None if data is None else list(np.asarray(data).astype(np.float32))


def known_scales(item: View | None) -> list[Any] | None:
    """Return the elements of constant scales in f32, or None. Raises RuleError [attribute.range] unless all are above 0."""
    scales = known_floats(item)
    if scales is not None and not all(0 < scale < np.inf for scale in scales):
        raise RuleError("attribute.range", f"scales must be above 0, got {[float(scale) for scale in scales]}")
    return scales


def ratio_of(out: Size, size: Size) -> Any:
    if symbolic.equal(out, size) is True:
        return np.float32(1)
    if isinstance(out, int) and isinstance(size, int) and size:
        return np.float32(out) / np.float32(size)
    return None


MARGIN = np.float32(1e-6)
"""OpenVINO adds MARGIN to a scale before multiplying the scale by a length."""


def scale_size(size: Any, scale: Any, roi: tuple[float, float], has_margin: bool = False) -> Any:
    """Compute floor(size * scale) in f32 for the part ``roi`` of an axis; ``has_margin`` adds MARGIN to the scale.

    A symbolic size gives a symbolic length, or None if ``roi`` is not the whole axis or the scale has a denominator above 1024.
    """
    whole = tuple(roi) == (0.0, 1.0)
    if has_margin and isinstance(size, int):
        return floor_product(np.float32(size), np.float32(scale) + MARGIN)
    if isinstance(size, int):
        part = np.float32(size) if whole else np.float32(size) * (np.float32(roi[1]) - np.float32(roi[0]))
        return floor_product(part, scale)
    numerator, denominator = float(scale).as_integer_ratio()
    if not whole or denominator > 1024:
        return None
    return size * numerator // denominator


SURE = 1.5
"""Scales of at least SURE change every length of 2 or more; a scale between 1 and SURE may round down to the same length."""


def changes_length(scale: Any) -> bool:
    """Test whether a scale is known to change every length of more than one element."""
    return scale is not None and bool(scale < 1 or scale >= SURE)


def has_same_length(size: Any, scale: Any) -> bool:
    """Test whether a scaled length is known to be the same with and without MARGIN."""
    if scale is None:
        return False
    if isinstance(size, int):
        return bool(scale_size(size, scale, (0.0, 1.0)) == scale_size(size, scale, (0.0, 1.0), has_margin=True))
    # If the scale is a multiple of 1/1024, the scaled length is at least 1/1024 below the next integer. MARGIN adds less than
    # 1/1024 to a scaled length if the length is below 976.
    return float(scale) * 1024 == int(float(scale) * 1024)


def floor_product(size: Any, scale: Any, offset: Any = 0) -> int:
    """Compute floor(size * scale + offset) in f32. Raises RuleError [attribute.range] if the result is not finite."""
    with np.errstate(all="ignore"):
        product = np.floor(size * scale + offset)
    if not np.isfinite(product):
        raise RuleError("attribute.range", f"scaled sizes must be finite, got {size} elements times {scale}")
    return int(product)
