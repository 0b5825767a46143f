"""Boxes of digits: an affine map onto row-major indices as boxes in a mixed-radix system, and their intersection.

A *radix system* of a tensor is a list of weights, the largest first, each a multiple of the next, the last one 1. An index is the
sum of digit * weight; every digit but the first is below the quotient of its neighbour's weight and its own. Two maps that are
boxes in one system intersect digit by digit, as arithmetic progressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import gcd, prod
from typing import NamedTuple

from dovetail.engine.memory.index_map import merge_axes, reverse_axes

Weights = tuple[int, ...]
MAX_BOXES = 256
"""Boxes that one map may need; more are not tried."""


class AffineMap(NamedTuple):
    """An affine map over a box of ``sizes``: position i has the index ``near + sum(i * near_strides)`` of one tensor, and the
    index ``far + sum(i * far_strides)`` of another."""

    sizes: tuple[int, ...]
    near: int
    near_strides: tuple[int, ...]
    far: int
    far_strides: tuple[int, ...]


class Progression(NamedTuple):
    """Digits ``start``, ``start + step``, ...: ``length`` of them; the far index grows by ``far_stride`` with each."""

    start: int
    step: int
    length: int
    far_stride: int


class Box(NamedTuple):
    """One progression per digit of a radix system, and the far index of the first element.

    ``repeats`` are the axes (size, far stride) along which the near index stays the same.
    """

    digits: tuple[Progression, ...]
    far: int
    repeats: tuple[tuple[int, int], ...]


def radix_systems(count: int, strides: Sequence[Sequence[int]]) -> Iterator[Weights]:
    """Yield radix systems of ``count`` elements in which maps of these near strides may be boxes, the finest first."""
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
    """Return ascending weights with one more, where it divides and is divided by its neighbours."""
    if weight in weights:
        return weights
    below = max(other for other in weights if other < weight)
    above = min((other for other in weights if other > weight), default=weight)
    return sorted([*weights, weight]) if weight % below == 0 and above % weight == 0 else weights


def boxes_of(affine_map: AffineMap, weights: Weights) -> list[Box] | None:
    """Return the boxes of a map in a radix system; None where it is no union of at most MAX_BOXES boxes.

    Two positions of the map may have one near index only along an axis of near stride 0.
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
        # The digits from `top` to `digit` are this axis's own: a digit above belongs to an axis of larger stride.
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
    """Return near, far, axes of positive near stride (the smallest first, contiguous ones merged), and axes of near stride 0."""
    axes = zip(affine_map.sizes, affine_map.near_strides, affine_map.far_strides, strict=True)
    near, far, forward = reverse_axes(affine_map.near, affine_map.far, axes)
    merged = merge_axes(axis for axis in forward if axis[1])
    repeats = tuple((size, far_stride) for size, near_stride, far_stride in forward if not near_stride and size != 1)
    return near, far, list(reversed(merged)), repeats


def _top_digit(weights: Weights, starts: Sequence[int], digit: int, step: int, size: int) -> int:
    """Return the most significant digit that an axis changes: it starts at ``digit`` and carries while its digits overflow."""
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
    """Return an axis as boxes of its own digits, each with the far offset of its first element."""
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
    """Yield [first, last) as boxes of digits: the number of the first element, and the count of each digit."""
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
    """Return the far index of ``first`` (as near) and that of ``second`` (as far) of the elements that both have.

    None where there are none. ``second`` must not repeat elements.
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
    """Return start, step and count of the numbers in both progressions; None where there are none."""
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
    # The solution may lie above the first common number.
    start -= (start - low) // step * step
    return (start, step, (high - start) // step + 1) if start <= high else None
