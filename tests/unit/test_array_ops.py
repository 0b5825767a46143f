"""dovetail.concat, split and copy against numpy, with the core and without: types, strides, what is refused in which words."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dovetail
from dovetail import EngineError, RuleError
from dovetail.errors import ArgumentTypeError
from dovetail.ir.host import native_core
from dovetail.runtime import array_ops

TYPES = [
    "?",
    "i1",
    "u2",
    "f2",
    "f4",
    "f8",
    "i8",
    "c16",
    "S3",
    "M8[s]",
    ">f4",
    "i4,f8",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
]


@pytest.fixture(params=["compiled", "numpy"])
def it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Provide the module with its core, and as it is where none was built."""
    if request.param == "compiled":
        if not native_core.is_compiled:
            pytest.skip("no compiled core")
        yield array_ops
        return
    spec = importlib.util.spec_from_file_location("movement_without_core", Path(array_ops.__file__))
    assert spec is not None and spec.loader is not None
    monkeypatch.setitem(sys.modules, "dovetail._native", None)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


def pattern(shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(0).integers(0, 2 if dtype == "?" else 256, size, np.uint8).view(dtype).reshape(shape)


def same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_keeps_its_bits(it: ModuleType, dtype: Any) -> None:
    x, y = pattern((3, 4, 5), dtype), pattern((3, 2, 5), dtype)
    whole = it.concat([x, y], 1)
    assert same(whole, np.concatenate([x, y], 1, dtype=x.dtype))
    assert all(map(same, it.split(whole, [4, 2], 1, copy=True), [x, y]))
    assert same(it.copy(x.T), np.ascontiguousarray(x.T))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, np.int64(1)])
def test_axes_count_from_either_end(it: ModuleType, axis: int) -> None:
    x = pattern((2, 3, 4), "f4")
    assert same(it.concat([x, x, x], axis), np.concatenate([x, x, x], axis))
    assert all(map(same, it.split(np.concatenate([x, x], axis), [x.shape[axis], -1], axis), [x, x]))


def test_arrays_of_any_strides_and_size(it: ModuleType) -> None:
    x = pattern((300, 40, 30), "f4")
    for view in (
        x.T,
        x[::-1, ::2],
        x[:, :, 3:],
        x.transpose(1, 0, 2)[::3],
        np.broadcast_to(x[:1], (9, 40, 30)),
        x[:0],
        x[0, 0, 0:1],
    ):
        assert same(it.copy(view), view.copy())
        assert same(it.concat((view, view[:1], view), 0), np.concatenate((view, view[:1], view), 0))
        into = np.empty(view.shape[::-1], "f4").T
        assert it.copy(view, out=into) is into and same(into, view)


def test_copy_takes_a_scalar(it: ModuleType) -> None:
    assert same(it.copy(np.float32(3)), np.array(3, np.float32))


def test_empty_inputs_agree_off_the_axis(it: ModuleType) -> None:
    x, none = pattern((2, 3), "f4"), np.empty((0, 3), "f4")
    assert same(it.concat([none, x, none], 0), x)
    assert it.concat([none, none], 0).shape == (0, 3)
    with pytest.raises(RuleError, match=r"shape\.rank"):
        it.concat([np.empty(0, "f4"), x], 0)
    with pytest.raises(RuleError, match=r"shape\.disagree"):
        it.concat([none, x], 1)


def test_pieces_are_views_without_copy(it: ModuleType) -> None:
    x = pattern((6, 4), "f4").copy()
    assert all(piece.base is x and np.shares_memory(piece, x) for piece in it.split(x, [2, 4], 0))
    assert not any(np.shares_memory(piece, x) for piece in it.split(x, [2, 4], 0, copy=True))
    x.flags.writeable = False
    assert not any(piece.flags.writeable for piece in it.split(x, (1, 3), 1))


@pytest.mark.parametrize("lengths", [[6], [0, 6, 0], [1] * 6, [-1], [2, -1, 4], (3, 3), np.array([4, 2])])
def test_lengths_add_up(it: ModuleType, lengths: Any) -> None:
    x = pattern((6, 4), "f4")
    pieces = it.split(x, lengths, 0, copy=True)
    assert len(pieces) == len(lengths) and same(np.concatenate(pieces), x)


def test_lengths_are_integers(it: ModuleType) -> None:
    for lengths in ([3.0, 3.0], 6, None):
        with pytest.raises(ArgumentTypeError, match=r"split\.sizes"):
            it.split(pattern((6, 4), "f4"), lengths, 0)


def test_inputs_are_a_sequence(it: ModuleType) -> None:
    with pytest.raises(ArgumentTypeError, match=r"node\.inputs"):
        it.concat(3, 0)


@pytest.mark.parametrize("lengths", [[], [5], [7], [-1, -1], [-2, 8], [7, -1]])
def test_lengths_that_do_not_suit_are_refused(it: ModuleType, lengths: Any) -> None:
    with pytest.raises(RuleError, match=r"split\.sizes"):
        it.split(pattern((6, 4), "f4"), lengths, 0)


F4 = np.ones((2, 3), "f4")


@pytest.mark.parametrize(
    ("arrays", "axis", "code"),
    [
        ([], 0, "node.inputs"),
        ([F4[0, 0]], 0, "shape.rank"),
        ([F4], 2, "axis.range"),
        ([F4], -3, "axis.range"),
        ([F4], 2**32, "axis.range"),
        ([F4], 2**70, "axis.range"),
        ([F4, F4[0]], 0, "shape.rank"),
        ([F4, F4.T], 0, "shape.disagree"),
        ([F4, F4.astype("f8")], 0, "type.disagree"),
        ([F4, F4.astype(">f4")], 0, "type.disagree"),
        ([F4, [[1.0]]], 0, "array.library"),
        ([F4.astype(object)], 0, "array.dtype"),
        ([np.ma.masked_array(F4)], 0, "array.library"),
        ([np.broadcast_to(np.int8(0), (2**62,))] * 2, 0, "shape.range"),
    ],
)
def test_arrays_that_cannot_be_concatenated_are_refused(it: ModuleType, arrays: Any, axis: int, code: str) -> None:
    with pytest.raises((RuleError, EngineError)) as caught:
        it.concat(arrays, axis)
    assert caught.value.code == code


def test_an_axis_is_an_integer(it: ModuleType) -> None:
    with pytest.raises(ArgumentTypeError, match=r"attribute\.value"):
        it.concat([F4], 0.0)
    with pytest.raises(TypeError):
        it.split(F4, [1, 1], "0")
    with pytest.raises(TypeError):
        it.concat([F4])


def read_only() -> Any:
    out = np.empty((4, 3), "f4")
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    "out",
    [
        np.empty((3, 4), "f4"),
        np.empty((4, 3), "f8"),
        read_only(),
        np.lib.stride_tricks.as_strided(np.empty(6, "f4"), (4, 3), (4, 4)),
    ],
    ids=["shape", "type", "read-only", "overlapping"],
)
def test_an_out_that_does_not_suit_is_refused(it: ModuleType, out: Any) -> None:
    with pytest.raises(EngineError, match=r"output\.array"):
        it.concat([F4, F4], 0, out=out)
    with pytest.raises(EngineError, match=r"output\.array"):
        it.copy(np.ones((4, 3), "f4"), out)
    with pytest.raises(EngineError, match=r"output\.array"):
        it.split(np.ones((4, 3), "f4"), [4], 0, out=[out])


def test_a_number_of_outs_that_does_not_suit_is_refused(it: ModuleType) -> None:
    room = np.zeros((3, 3), "f4")
    with pytest.raises(EngineError, match=r"output\.array"):
        it.split(F4, [1, 1], 0, out=[room[:1]])
    with pytest.raises(EngineError, match=r"output\.array"):
        it.split(F4, [1, 1], 0, out=[room[:1], room[:1]])


def test_an_out_may_share_memory_with_inputs(it: ModuleType) -> None:
    room = pattern((8, 4), "i4")
    expected = np.concatenate([room[4:], room[:4]])
    assert same(it.concat([room[4:], room[:4]], 0, room), expected)
    square = pattern((50, 50), "i4")
    expected = square.T.copy()
    assert same(it.copy(square.T, square), expected)
    expected = np.split(room.copy(), 2)
    it.split(room, [4, 4], 0, out=[room[4:], room[:4]])
    assert same(room[4:], expected[0]) and same(room[:4], expected[1])


def test_outs_that_interleave_are_written(it: ModuleType) -> None:
    room = np.zeros((2, 4), "f4")
    it.split(np.arange(8, dtype="f4").reshape(2, 4), [2, 2], 1, out=(room[:, ::2], room[:, 1::2]))
    assert room.tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]


def test_large_jobs_are_the_same_from_several_threads(it: ModuleType) -> None:
    from concurrent.futures import ThreadPoolExecutor

    xs = [pattern((2000, size), "f4") for size in (100, 300, 1)]

    def work(_: int) -> bool:
        whole = it.concat(xs, 1)
        return same(whole, np.concatenate(xs, 1)) and all(map(same, it.split(whole, [100, 300, 1], 1, copy=True), xs))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(12)))


def test_other_libraries_give_their_memory(it: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.arange(6.0).reshape(2, 3), torch.empty(4, 3)
    assert it.concat([x, F4], 0).tolist() == [[0, 1, 2], [3, 4, 5], [1, 1, 1], [1, 1, 1]]
    assert it.concat([x, x], 0, out=out) is out and out[2:].equal(x)
    assert it.copy(x.T).tolist() == x.T.tolist()
    with pytest.raises(EngineError, match=r"array\.library"):
        it.copy(x.requires_grad_())


def test_the_functions_have_signatures_and_docstrings() -> None:
    assert list(inspect.signature(dovetail.concat).parameters) == ["arrays", "axis", "out"]
    assert list(inspect.signature(dovetail.split).parameters) == ["array", "lengths", "axis", "out", "copy"]
    assert list(inspect.signature(dovetail.copy).parameters) == ["view", "out"]
    assert "Concatenate" in (dovetail.concat.__doc__ or "")


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("count", [1, 5, 64, 1 << 18])
def test_elements_may_lie_at_odd_addresses(it: ModuleType, dtype: Any, count: int) -> None:
    def moved(x: Any, by: int = 1) -> Any:
        data = np.zeros(x.nbytes + 64, np.uint8)
        view = data[by + 16 - data.ctypes.data % 16 :][: x.nbytes].view(x.dtype).reshape(x.shape)
        view[...] = x
        assert view.ctypes.data % 16 == by
        return view

    x = (np.arange(2 * count) % 1000).astype(dtype).reshape(2, count)
    y = x[:, ::-1].copy()
    for by in (1, 3, 7):
        for axis in (0, 1):
            wanted = np.concatenate([x, y], axis)
            np.testing.assert_array_equal(it.concat([moved(x, by), moved(y)], axis), wanted)
            out = moved(np.zeros_like(wanted), by)
            assert it.concat([x, moved(y, by)], axis, out=out) is out
            np.testing.assert_array_equal(out, wanted)
        for piece, each in zip(it.split(moved(x, by), [1, 1], axis=0, copy=True), x, strict=True):
            np.testing.assert_array_equal(piece[0], each)
        np.testing.assert_array_equal(it.copy(moved(x, by).T), x.T)
        out = moved(np.zeros((count, 2), dtype), by)
        it.copy(x.T, out=out)
        np.testing.assert_array_equal(out, x.T)


SMALL_VIEWS = {
    "two rows of a wider array": lambda a: a[:2, 3:40],
    "rows apart": lambda a: a[::3, :32],
    "rows backwards": lambda a: a[::-1, 8:24],
    "one row": lambda a: a[1:2, 5:60],
    "runs of one block": lambda a: a[1:4],
    "rows read again": lambda a: np.broadcast_to(a[0, 4:36], (5, 32)),
    "blocks of rows": lambda a: a.reshape(3, 4, 64)[:, 1:3, :48],
    "rows of equal distance over two axes": lambda a: a.reshape(3, 4, 64)[:, :, :48],
    "axes of size 1": lambda a: a[:3, None, 2:50, None],
    "short runs": lambda a: a[:3, :3],
    "columns": lambda a: a[:, ::2],
    "transposed": lambda a: a.T,
    "nothing": lambda a: a[:2, 9:9],
}


@pytest.mark.parametrize("view", SMALL_VIEWS.values(), ids=SMALL_VIEWS.keys())
@pytest.mark.parametrize("dtype", ["f4", "i1", "c16", "S70"])
def test_small_views_are_copied_without_writes_outside_the_output(it: ModuleType, view: Any, dtype: str) -> None:
    array = np.arange(12 * 64).astype(dtype).reshape(12, 64)
    x = view(array)
    np.testing.assert_array_equal(it.copy(x), x)
    for gap in (0, 1, 5):
        memory = np.zeros((*x.shape[:-1], x.shape[-1] + gap), dtype)
        out = memory[..., : x.shape[-1]]
        assert it.copy(x, out=out) is out
        np.testing.assert_array_equal(out, x)
        assert not memory[..., x.shape[-1] :].astype(bool).any()
        backwards = np.zeros_like(memory)[::-1][..., : x.shape[-1]]
        it.copy(x, out=backwards)
        np.testing.assert_array_equal(backwards, x)
