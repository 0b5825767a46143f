"""Boxes of digits are what they stand for: all elements of a map, and of two boxes those that both have."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

from hypothesis import assume, given, strategies as st

from dovetail.data.tensors.radix_boxes import AffineMap, Box, Progression, boxes_of, intersect, radix_systems

progressions = st.builds(Progression, st.integers(0, 7), st.integers(1, 4), st.integers(1, 5), st.integers(-9, 9))
repeats = st.lists(st.tuples(st.integers(1, 3), st.integers(-20, 20)), max_size=1).map(tuple)


def pairs_of(affine_map: AffineMap) -> Counter[tuple[int, int]]:
    """Return the near and far indices of all positions."""
    pairs: Counter[tuple[int, int]] = Counter()
    for position in product(*map(range, affine_map.sizes)):
        near = affine_map.near + sum(i * stride for i, stride in zip(position, affine_map.near_strides, strict=True))
        far = affine_map.far + sum(i * stride for i, stride in zip(position, affine_map.far_strides, strict=True))
        pairs[near, far] += 1
    return pairs


def elements_of(box: Box) -> list[tuple[tuple[int, ...], int]]:
    """Return the digits and the far index of all elements, with their repeats."""
    elements = []
    for position in product(*(range(each.length) for each in box.digits), *(range(size) for size, _ in box.repeats)):
        own, again = position[: len(box.digits)], position[len(box.digits) :]
        digits = tuple(each.start + i * each.step for each, i in zip(box.digits, own, strict=True))
        far = box.far + sum(i * each.far_stride for each, i in zip(box.digits, own, strict=True))
        elements.append((digits, far + sum(i * stride for i, (_, stride) in zip(again, box.repeats, strict=True))))
    return elements


@given(st.integers(1, 3).flatmap(lambda count: st.tuples(*[st.tuples(progressions, progressions)] * count)), repeats)
def test_an_intersection_has_the_elements_of_both_boxes(
    digits: tuple[tuple[Progression, Progression], ...], again: tuple[tuple[int, int], ...]
) -> None:
    first = Box(tuple(one for one, _ in digits), 100, again)
    second = Box(tuple(other for _, other in digits), 200, ())
    places = dict(elements_of(second))
    expected = Counter((far, places[key]) for key, far in elements_of(first) if key in places)
    common = intersect(first, second)
    assert (Counter() if common is None else pairs_of(common)) == expected


@given(st.data())
def test_the_boxes_of_a_map_have_its_elements(data: st.DataObject) -> None:
    """The map is a view of a tensor: axes of the tensor, in any order and direction, and with steps."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes, near_strides, near = [], [], 0
    for axis in data.draw(st.permutations(range(len(shape)))):
        step = data.draw(st.integers(1, 3))
        size = data.draw(st.integers(1, -(-shape[axis] // step)))
        start = data.draw(st.integers(0, shape[axis] - 1 - (size - 1) * step))
        sign = data.draw(st.sampled_from((1, -1)))
        near += (start if sign == 1 else start + (size - 1) * step) * strides[axis]
        sizes.append(size)
        near_strides.append(sign * step * strides[axis])
    far_strides = data.draw(st.tuples(*[st.integers(-30, 30)] * len(sizes)))
    affine_map = AffineMap(tuple(sizes), near, tuple(near_strides), 7, far_strides)
    count = prod(shape)
    assume(count > 1)
    systems = list(radix_systems(count, [near_strides, data.draw(st.lists(st.sampled_from(strides), max_size=2))]))
    assert systems and all(weights[-1] == 1 for weights in systems)
    for weights in systems:
        boxes = boxes_of(affine_map, weights)
        if boxes is not None:
            elements = [(digits, far) for box in boxes for digits, far in elements_of(box)]
            found = Counter((sum(d * w for d, w in zip(digits, weights, strict=True)), far) for digits, far in elements)
            assert found == pairs_of(affine_map)
