"""The arena: no two buffers that live at one time overlap, and none lies further out than it has to."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dovetail.engine.memory.arena import Lifetime, align, assign_offsets, lower_bound_of
from work_counts import count_lines

spans = st.builds(
    lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
    st.one_of(st.integers(0, 5).map(lambda count: count * 64), st.integers(0, 400)),
    st.integers(0, 6),
    st.integers(0, 4),
)


def padded(nbytes: int) -> int:
    return (nbytes + 63) // 64 * 64


def at_once(found: list[Lifetime]) -> int:
    """Return the most bytes of spans that live at one step, step by step."""
    return max((sum(padded(span.nbytes) for span in found if span.first <= step <= span.last) for step in range(12)), default=0)


@given(st.lists(spans, max_size=9))
def test_buffers_of_overlapping_lifetimes_do_not_overlap(found: list[Lifetime]) -> None:
    offsets, total = assign_offsets(found)
    assert len(offsets) == len(found)
    assert all(offset >= 0 and offset % 64 == 0 for offset in offsets)
    placed = [(span, offset, offset + padded(span.nbytes)) for span, offset in zip(found, offsets, strict=True)]
    for place, (one, low, high) in enumerate(placed):
        for other, start, stop in placed[:place]:
            assert one.last < other.first or other.last < one.first or low >= stop or start >= high
    assert total == max((high for _, low, high in placed if high > low), default=0)
    assert lower_bound_of(found) == at_once(found) <= total


def test_buffers_begin_at_multiples_of_64() -> None:
    assert [align(nbytes) for nbytes in (0, 1, 63, 64, 65, 128, 1000)] == [0, 64, 64, 64, 128, 128, 1024]


@pytest.mark.parametrize(
    ("found", "offsets"),
    [
        # What is over before another begins makes room for it.
        ([(128, 0, 1), (128, 2, 3)], [0, 0]),
        ([(128, 2, 3), (128, 0, 1)], [0, 0]),
        ([(64, 0, 1), (128, 2, 3)], [0, 0]),
        ([(128, 0, 2), (128, 2, 3)], [0, 128]),
        # The largest lies first, of equals the earliest.
        ([(64, 0, 3), (192, 0, 3)], [192, 0]),
        ([(64, 1, 3), (64, 0, 3)], [64, 0]),
        # A gap between two that live: as large as is needed, or larger.
        ([(256, 0, 0), (192, 0, 2), (128, 0, 2), (192, 2, 2)], [0, 256, 448, 0]),
        ([(256, 0, 0), (192, 0, 2), (128, 0, 2), (256, 2, 2)], [0, 256, 448, 0]),
        ([(256, 0, 0), (192, 0, 4), (192, 4, 4), (64, 4, 4)], [0, 256, 0, 192]),
        # The outermost buffer comes first where that saves memory.
        ([(256, 0, 0), (192, 0, 4), (192, 4, 4), (128, 4, 4)], [0, 320, 0, 192]),
        # Of two gaps the smaller, of equals the first.
        ([(512, 0, 0), (448, 0, 4), (384, 0, 0), (320, 0, 4), (192, 4, 4)], [0, 512, 960, 1344, 960]),
        ([(512, 0, 0), (448, 0, 4), (512, 0, 0), (320, 0, 4), (192, 4, 4)], [0, 1024, 512, 1472, 0]),
    ],
)
def test_each_buffer_is_placed_in_the_smallest_gap_that_fits(found: list[tuple[int, int, int]], offsets: list[int]) -> None:
    assert assign_offsets([Lifetime(*each) for each in found])[0] == offsets


def test_a_chain_of_buffers_takes_linear_time() -> None:
    """Each buffer is compared with those of its lifetime alone."""

    def lines(count: int) -> int:
        return count_lines(lambda: assign_offsets([Lifetime(64 + step % 7 * 64, step, step + 1) for step in range(count)]))

    lines(3)
    assert lines(2000) < 5 * lines(500)
