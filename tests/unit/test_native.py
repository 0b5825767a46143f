"""The strided copy of a window: both implementations against index arithmetic in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from dovetail.errors import EngineError
from dovetail.ir.host import native_core

COPIES = {"numpy": native_core._copy_numpy} | ({"compiled": native_core._copy_native} if native_core.is_compiled else {})
# dst elements, src elements, sizes, dst offset, dst strides, src offset, src strides, itemsize
Window = tuple[int, int, tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...], int]


@pytest.fixture(params=COPIES)
def copy_window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(native_core, "is_compiled", request.param == "compiled")
    return native_core.copy_window


def by_hand(
    dst: bytes, src: bytes, sizes: Any, dst_offset: int, dst_strides: Any, src_offset: int, src_strides: Any, n: int
) -> bytes:
    """Element by element, into a fresh buffer."""
    result = bytearray(dst)
    for position in itertools.product(*map(range, sizes)):
        to = dst_offset + sum(p * stride for p, stride in zip(position, dst_strides, strict=True))
        at = src_offset + sum(p * stride for p, stride in zip(position, src_strides, strict=True))
        assert 0 <= to < len(dst) // n and 0 <= at < len(src) // n
        result[to * n : (to + 1) * n] = src[at * n : (at + 1) * n]
    return bytes(result)


@st.composite
def layouts(draw: st.DrawFn, sizes: tuple[int, ...], repeats: bool) -> tuple[tuple[int, ...], int, int]:
    """Strides of an array with axes permuted, reversed, spaced out and perhaps repeated; its offset; the elements it needs."""
    strides = [0] * len(sizes)
    step, low, high = 1, 0, 0
    for axis in draw(st.permutations(range(len(sizes)))):
        if repeats and draw(st.integers(0, 3)) == 0:
            continue
        step *= draw(st.integers(1, 2))
        strides[axis] = step * draw(st.sampled_from((1, -1)))
        reach = (sizes[axis] - 1) * strides[axis]
        low, high = low + min(reach, 0), high + max(reach, 0)
        step *= sizes[axis]
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    return tuple(strides), before - low, before - low + high + 1 + after


@st.composite
def windows(draw: st.DrawFn) -> Window:
    sizes = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    dst_strides, dst_offset, dst_elements = draw(layouts(sizes, repeats=False))
    src_strides, src_offset, src_elements = draw(layouts(sizes, repeats=True))
    itemsize = draw(st.sampled_from((1, 2, 3, 4, 8, 16, 24)))
    return dst_elements, src_elements, sizes, dst_offset, dst_strides, src_offset, src_strides, itemsize


TRANSPOSE: Window = (6, 6, (2, 3), 0, (3, 1), 0, (1, 2), 4)
REVERSE: Window = (5, 5, (5,), 0, (1,), 4, (-1,), 2)
REPEAT: Window = (6, 1, (2, 3), 0, (3, 1), 0, (0, 0), 8)
SCALAR: Window = (3, 3, (), 2, (), 1, (), 16)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@given(window=windows())
@example(window=TRANSPOSE)
@example(window=REVERSE)
@example(window=REPEAT)
@example(window=SCALAR)
def test_a_window_moves_exactly_the_elements_it_names(copy: Callable[..., None], window: Window) -> None:
    dst_elements, src_elements, *numbers = window
    itemsize = window[-1]
    bits = np.random.default_rng(0)
    dst = bits.integers(0, 256, dst_elements * itemsize, np.uint8)
    src = bits.integers(0, 256, src_elements * itemsize, np.uint8)
    expected = by_hand(dst.tobytes(), src.tobytes(), *numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_core, "is_compiled", copy is not native_core._copy_numpy)
        native_core.copy_window(dst, src, *numbers)
    assert dst.tobytes() == expected


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@given(window=windows())
def test_the_source_is_read_before_shared_memory_is_written(copy: Callable[..., None], window: Window) -> None:
    dst_elements, src_elements, *numbers = window
    itemsize = window[-1]
    arena = np.random.default_rng(1).integers(0, 256, max(dst_elements, src_elements) * itemsize, np.uint8)
    expected = by_hand(arena.tobytes(), arena.tobytes(), *numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_core, "is_compiled", copy is not native_core._copy_numpy)
        native_core.copy_window(arena, arena, *numbers)
    assert arena.tobytes() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.bool_, ml_dtypes.bfloat16, ml_dtypes.int4, "S3", ">f4"])
def test_any_element_type_is_carried_bit_for_bit(copy_window: Callable[..., None], dtype: Any) -> None:
    dtype = np.dtype(dtype)
    src = np.random.default_rng(2).integers(0, 2, 12 * dtype.itemsize, np.uint8).view(dtype).reshape(3, 4)
    dst = np.zeros((4, 3), dtype)
    copy_window(dst, src, (4, 3), 0, (3, 1), 0, (1, 4), dtype.itemsize)
    assert dst.tobytes() == src.T.tobytes()


def test_a_large_transposition_agrees_with_numpy(copy_window: Callable[..., None]) -> None:
    src = np.arange(200 * 300 * 5, dtype=np.float32).reshape(200, 300, 5)
    dst = np.empty((5, 300, 200), np.float32)
    copy_window(dst, src, src.shape, 0, (1, 200, 60000), 0, (1500, 5, 1), 4)
    assert np.array_equal(dst, src.transpose(2, 1, 0))


def test_plain_buffers_serve_as_well_as_arrays(copy_window: Callable[..., None]) -> None:
    dst = bytearray(6)
    copy_window(dst, b"abcdef", (3,), 0, (1,), 2, (-1,), 2)
    assert dst == b"efcdab"


def test_an_axis_of_size_one_takes_no_step(copy_window: Callable[..., None]) -> None:
    dst = np.zeros(3, np.int32)
    copy_window(dst, np.array([1, 2, 3], np.int32), (1, 3, 1), 0, (10**30, 1, 0), 0, (-(2**63), 1, 2**64), 4)
    assert dst.tolist() == [1, 2, 3]


@pytest.mark.parametrize("sizes", [(0,), (3, 0), (0, 10**30)])
def test_an_empty_window_may_have_any_offset(copy_window: Callable[..., None], sizes: tuple[int, ...]) -> None:
    dst = np.zeros(2, np.int8)
    copy_window(dst, np.ones(0, np.int8), sizes, 99, (1,) * len(sizes), -1, (2**70,) * len(sizes), 1)
    assert dst.tolist() == [0, 0]


HUGE = 2**62
OUTSIDE = [
    # sizes, dst offset, dst strides, src offset, src strides; both buffers hold 6 elements
    ((7,), 0, (1,), 0, (0,)),
    ((3,), 4, (1,), 0, (1,)),
    ((3,), 0, (1,), 1, (-1,)),
    ((2, 3), 0, (3, 1), 0, (4, 1)),
    ((), 6, (), 0, ()),
    ((), 0, (), -1, ()),
    ((), 0, (), 2**63, ()),
    ((3,), 0, (HUGE,), 0, (1,)),
    ((3,), 0, (1,), 0, (-(2**63),)),
    ((HUGE, HUGE), 0, (1, 1), 0, (0, 0)),
    ((5, 5), 0, (1, 1), 0, (HUGE, -HUGE)),  # the two reaches cancel where they are added without care
    ((2**32 + 1,), 0, (1,), 0, (2**32,)),  # the product is 2^64
    ((10**30,), 0, (1,), 0, (1,)),
]


@pytest.mark.parametrize("window", OUTSIDE)
def test_a_window_outside_its_buffer_is_refused_and_writes_nothing(copy_window: Callable[..., None], window: Any) -> None:
    dst = np.zeros(6, np.int32)
    with pytest.raises(EngineError) as caught:
        copy_window(dst, np.ones(6, np.int32), *window, 4)
    assert caught.value.code == "copy.window"
    assert not dst.any()


@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
@pytest.mark.parametrize("window", OUTSIDE)
def test_the_core_checks_bounds_by_itself(window: Any) -> None:
    from dovetail import _native

    dst = np.zeros(6, np.int32)
    with pytest.raises((ValueError, TypeError)):  # TypeError: a number of more than 64 bits
        _native.copy_window(dst.view(np.uint8), np.ones(24, np.uint8), *[*map(_listed, window), 4])
    assert not dst.any()


@pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
@pytest.mark.parametrize(
    "window",
    [
        ([2], 0, [0], 0, [1], 1),
        ([2, 2], 0, [1, 1], 0, [1, 1], 1),
        ([-1], 0, [1], 0, [1], 1),
        ([2], 0, [1], 0, [1], 0),
        ([2], 0, [], 0, [1], 1),
    ],
)
def test_the_core_refuses_an_invalid_window(window: Any) -> None:
    from dovetail import _native

    with pytest.raises(ValueError):
        _native.copy_window(bytearray(6), bytes(6), *window)


def _listed(number: Any) -> Any:
    return list(number) if isinstance(number, tuple) else number


@pytest.mark.parametrize(("sizes", "strides"), [((2,), (0,)), ((2, 2), (1, 1)), ((2, 3), (2, 1)), ((2, 3), (1, -1))])
def test_an_element_written_twice_is_refused(copy_window: Callable[..., None], sizes: Any, strides: Any) -> None:
    with pytest.raises(EngineError) as caught:
        copy_window(bytearray(9), bytes(9), sizes, 4, strides, 0, (0,) * len(sizes), 1)
    assert caught.value.code == "copy.window"


@pytest.mark.parametrize(
    ("sizes", "dst_strides", "src_strides", "itemsize"),
    [((2, 2), (1,), (1, 2), 1), ((2,), (1,), (), 1), ((-1,), (1,), (1,), 1), ((1,), (1,), (1,), 0), ((1,), (1,), (1,), -4)],
)
def test_numbers_that_make_no_window_are_refused(
    copy_window: Callable[..., None], sizes: Any, dst_strides: Any, src_strides: Any, itemsize: int
) -> None:
    with pytest.raises(EngineError) as caught:
        copy_window(bytearray(9), bytes(9), sizes, 0, dst_strides, 0, src_strides, itemsize)
    assert caught.value.code == "copy.window"


def _read_only() -> Any:
    array = np.zeros(4, np.int8)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "dst",
    [bytes(4), _read_only(), np.zeros((4, 4), np.int8)[:, ::2], np.zeros((2, 2), np.int8, order="F"), np.empty(4, object), 4],
)
def test_a_buffer_that_cannot_be_written_as_bytes_is_refused(copy_window: Callable[..., None], dst: Any) -> None:
    with pytest.raises(EngineError) as caught:
        copy_window(dst, bytes(4), (2,), 0, (1,), 0, (1,), 1)
    assert caught.value.code == "copy.window"


def test_the_build_has_a_description() -> None:
    assert native_core.build().startswith("native core (" if native_core.is_compiled else "pure Python")
