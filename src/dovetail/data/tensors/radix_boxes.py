"""Boxes of digits: affine maps onto row-major indices as boxes in a mixed-radix system, and the intersection of such boxes.

A *radix system* of a tensor is a decreasing list of weights, each a multiple of the next weight; the last weight is 1. An index
is the sum of digit * weight. Every digit but the first is less than the previous weight divided by the digit's weight. Two maps
that are boxes in the same system are intersected digit by digit, as arithmetic progressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import gcd, prod
from typing import NamedTuple

from dovetail.engine.memory.index_map import merge_axes, reverse_axes

Weights = tuple[int, ...]
MAX_BOXES = 256
"""The maximum number of boxes of one map."""


class AffineMap(NamedTuple):
    """AffineMap maps positions of a box of ``sizes`` to indices of two tensors.

    Position i has the index ``near + sum(i * near_strides)`` in one tensor, and ``far + sum(i * far_strides)`` in the other.
    """

    sizes: tuple[int, ...]
    near: int
    near_strides: tuple[int, ...]
    far: int
    far_strides: tuple[int, ...]


class Progression(NamedTuple):
    """Progression holds ``length`` digits ``start``, ``start + step``, ...; each step adds ``far_stride`` to the far index."""

    start: int
    step: int
    length: int
    far_stride: int


class Box(NamedTuple):
    """Box holds one progression for each digit of a radix system, and the far index of the first element.

    ``repeats`` are the axes (size, far stride) along which the near index does not change.
    """

    digits: tuple[Progression, ...]
    far: int
    repeats: tuple[tuple[int, int], ...]


def radix_systems(count: int, strides: Sequence[Sequence[int]]) -> Iterator[Weights]:
    """Yield radix systems of ``count`` elements in which maps with near ``strides`` may be boxes, the finest system first."""
    seen = set()
    groups = [sorted({abs(stride) for stride in group if stride and abs(stride) < max(count, 2)}) for group in strides]
    for order in (range(len(groups)), reversed(range(len(groups)))):
        weights = [1]
        for index in order:
            for stride in groups[index]:
                weights = _insert(weights, stride)
        seen.add(tuple(reversed(weights)))
    yield from sorted(seen, key=len, reverse=True)


def _insert(weights: list[int], weight: int) -> list[int]:
    """Insert a weight into ascending weights if it is a multiple of the next smaller one and divides the next larger one."""
    if weight in weights:
        return weights
    below = max(other for other in weights if other < weight)
    above = min((other for other in weights if other > weight), default=weight)
    return sorted([*weights, weight]) if weight % below == 0 and above % weight == 0 else weights


def boxes_of(affine_map: AffineMap, weights: Weights) -> list[Box] | None:
    """Return the boxes of a map in a radix system; None if the map is no union of at most MAX_BOXES boxes.

    Two positions of the map may have the same near index only along an axis of near stride 0.
    """
    if 0 in affine_map.sizes:
        return []
    near, far, axes, repeats = _normalize(affine_map)
    starts = [0] * len(weights)
    rest = near
    for index, weight in enumerate(weights):
        starts[index], rest = divmod(rest, weight)
    parts: list[list[tuple[int, tuple[Progression, ...]]]] = []
    below = len(weights)
    for size, near_stride, far_stride in axes:
        digit = next(index for index, weight in enumerate(weights) if near_stride % weight == 0)
        if digit >= below:
            return None
        parts.append([(0, tuple(Progression(starts[index], 1, 1, 0) for index in range(digit + 1, below)))])
        step = near_stride // weights[digit]
        top = _top_digit(weights, starts, digit, step, size)
        # The digits from `top` to `digit` belong to this axis; more significant digits belong to axes of larger stride.
        pieces = _pieces_of_axis(weights[top : digit + 1], starts[top : digit + 1], step, size, far_stride)
        if pieces is None:
            return None
        parts.append(pieces)
        below = top
    parts.append([(0, tuple(Progression(starts[index], 1, 1, 0) for index in range(below)))])
    if prod(map(len, parts)) > MAX_BOXES:
        return None
    boxes = []
    for choice in product(*parts):
        digits = tuple(digit for _, group in reversed(choice) for digit in group)
        boxes.append(Box(digits, far + sum(offset for offset, _ in choice), repeats))
    return boxes


def _normalize(affine_map: AffineMap) -> tuple[int, int, list[tuple[int, int, int]], tuple[tuple[int, int], ...]]:
    """Return near and far offsets, the axes of positive near stride, and the axes of near stride 0.

    The axes of positive near stride are in increasing order of stride, with contiguous axes merged.
    """
    axes = zip(affine_map.sizes, affine_map.near_strides, affine_map.far_strides, strict=True)
    near, far, forward = reverse_axes(affine_map.near, affine_map.far, axes)
    merged = merge_axes(axis for axis in forward if axis[1])
    repeats = tuple((size, far_stride) for size, near_stride, far_stride in forward if not near_stride and size != 1)
    return near, far, list(reversed(merged)), repeats


def _top_digit(weights: Weights, starts: Sequence[int], digit: int, step: int, size: int) -> int:
    """Return the most significant digit that an axis changes: the axis steps ``digit``, and overflows carry to higher digits."""
    last = starts[digit] + step * (size - 1)
    top = digit
    while top:
        radix = weights[top - 1] // weights[top]
        if last < radix:
            break
        top -= 1
        last = starts[top] + last // radix
    return top


def _pieces_of_axis(
    weights: Sequence[int], starts: Sequence[int], step: int, size: int, far_stride: int
) -> list[tuple[int, tuple[Progression, ...]]] | None:
    """Return an axis as boxes of the digits that it changes, each with the far offset of the box's first element."""
    if len(weights) == 1:
        return [(0, (Progression(starts[0], step, size, far_stride),))]
    unit = weights[-1]
    if step != 1:
        return None
    first = sum(start * (weight // unit) for start, weight in zip(starts, weights, strict=True))
    pieces = []
    for offset, counts in _ranges([weight // unit for weight in weights], first, first + size):
        digits = []
        rest = offset
        for weight, count in zip(weights, counts, strict=True):
            start, rest = divmod(rest, weight // unit)
            digits.append(Progression(start, 1, count, far_stride * (weight // unit)))
        pieces.append(((offset - first) * far_stride, tuple(digits)))
    return pieces


def _ranges(weights: Sequence[int], first: int, last: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the range [first, last) as boxes of digits: the first number of a box, and the number of values of each digit."""
    if len(weights) == 1:
        if last > first:
            yield first, (last - first,)
        return
    weight = weights[0]
    full, end = -(-first // weight), last // weight
    inner = [above // below for above, below in pairwise(weights)]
    if full > end:
        for offset, counts in _ranges(weights[1:], first - end * weight, last - end * weight):
            yield end * weight + offset, (1, *counts)
        return
    if first < full * weight:
        base = (full - 1) * weight
        for offset, counts in _ranges(weights[1:], first - base, weight):
            yield base + offset, (1, *counts)
    if full < end:
        yield full * weight, (end - full, *inner)
    if last > end * weight:
        for offset, counts in _ranges(weights[1:], 0, last - end * weight):
            yield end * weight + offset, (1, *counts)


def intersect(first: Box, second: Box) -> AffineMap | None:
    """Return the map whose near indices are the far indices of ``first`` and whose far indices are those of ``second``.

    The map consists of the elements that both boxes have. The result is None if the boxes have no common element. ``second`` must
    not repeat elements.
    """
    near, far = first.far, second.far
    sizes, near_strides, far_strides = [], [], []
    for one, other in zip(first.digits, second.digits, strict=True):
        common = _common(one, other)
        if common is None:
            return None
        start, step, count = common
        near += (start - one.start) // one.step * one.far_stride
        far += (start - other.start) // other.step * other.far_stride
        if count > 1:
            sizes.append(count)
            near_strides.append(step // one.step * one.far_stride)
            far_strides.append(step // other.step * other.far_stride)
    for size, stride in first.repeats:
        sizes.append(size)
        near_strides.append(stride)
        far_strides.append(0)
    return AffineMap(tuple(sizes), near, tuple(near_strides), far, tuple(far_strides))


def _common(one: Progression, other: Progression) -> tuple[int, int, int] | None:
    """Return start, step and count of the numbers in both progressions; None if they have no common number."""
    low = max(one.start, other.start)
    high = min(one.start + one.step * (one.length - 1), other.start + other.step * (other.length - 1))
    divisor = gcd(one.step, other.step)
    if low > high or (other.start - one.start) % divisor:
        return None
    step = one.step // divisor * other.step
    # Solve one.start + one.step * k = other.start (mod other.step).
    modulus = other.step // divisor
    quotient = (other.start - one.start) // divisor * pow(one.step // divisor, -1, modulus) % modulus if modulus > 1 else 0
    start = one.start + one.step * quotient
    start += -(-(low - start) // step) * step if start < low else 0
    # The solution may be greater than the first common number.
    start -= (start - low) // step * step
    return (start, step, (high - start) // step + 1) if start <= high else None
