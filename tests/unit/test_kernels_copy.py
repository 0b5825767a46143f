"""Movement in the compiled core against numpy: layouts, element sizes, empty axes, non-temporal stores, instruction sets."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.ir.host import native_core
from kernel_runner import run

if native_core.is_compiled:
    from dovetail import _native

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no compiled core")
Array = np.ndarray[Any, Any]
WIDTHS = (1, 2, 3, 4, 8, 12, 16)
PAST_THE_CACHE = (native_core.core().non_temporal_threshold() if native_core.is_compiled else 0) * 9 // 8


def pattern(shape: Sequence[int], width: int, seed: int = 0) -> Array:
    """Elements of any size, no two bytes of a row alike."""
    made = np.random.default_rng(seed).integers(0, 256, (*shape, width), np.uint8)
    return made.view(np.dtype((np.void, width))).reshape(tuple(shape))


def empty(shape: Sequence[int], width: int) -> Array:
    return np.zeros((*shape, width), np.uint8).view(np.dtype((np.void, width))).reshape(tuple(shape))


def random_layout_of(array: Array, choice: np.random.Generator) -> Array:
    """Return an array of this shape somewhere in a larger one: axes in any order, backwards, with gaps."""
    order = choice.permutation(array.ndim)
    steps = choice.choice([1, 1, 1, 2, -1], array.ndim)
    room = empty([int(abs(steps[i])) * array.shape[i] + int(choice.integers(0, 2)) for i in order], array.itemsize)
    inner = room[(..., *(slice(0, abs(int(steps[i])) * array.shape[i], abs(int(steps[i]))) for i in order))]
    turned = inner.transpose(np.argsort(order))
    return turned[(..., *(slice(None, None, int(np.sign(step))) for step in steps))]


def same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def concat(parts: Sequence[Array], y: Array, axis: int) -> None:
    """Concatenate in the core, which leaves no plain arrays to Python."""
    assert _native.try_concat(list(parts), axis, y) is y


def split(x: Array, parts: Sequence[Array], axis: int) -> None:
    """Split in the core, into the given arrays."""
    outs = list(parts)
    assert _native.try_split(x, [part.shape[axis] for part in parts], axis, outs) is not None


def check_copies(count: int, seed: int) -> None:
    """Copies between arrays of random layouts: numpy's assignment is the reference."""
    choice = np.random.default_rng(seed)
    for _ in range(count):
        width = int(choice.choice(WIDTHS))
        shape = choice.integers(1, (70, 40, 6, 4)[: int(choice.integers(0, 5))])
        x = pattern(shape, width, int(choice.integers(1000)))
        source = random_layout_of(x, choice)
        source[...] = x
        y = random_layout_of(x, choice)
        run("copy", [source], [y], {})
        assert same(y, x), (shape, width, source.strides, y.strides)


def check_joins(count: int, seed: int) -> None:
    choice = np.random.default_rng(seed)
    for _ in range(count):
        width = int(choice.choice(WIDTHS))
        shape = choice.integers(0, (200, 20, 5)[: int(choice.integers(1, 4))])
        axis = int(choice.integers(len(shape)))
        even = bool(choice.integers(2))
        sizes = [int(shape[axis]) if even else int(choice.integers(0, 9)) for _ in range(choice.integers(1, 10))]
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        parts = [pattern(each, width, i) for i, each in enumerate(shapes)]
        whole = np.concatenate(parts, axis)
        plain = bool(choice.integers(2))
        froms = parts if plain else [random_layout_of(part, choice) for part in parts]
        for source, part in zip(froms, parts, strict=True):
            source[...] = part
        y = empty(whole.shape, width) if plain else random_layout_of(whole, choice)
        concat(froms, y, axis)
        assert same(y, whole), (shapes, axis, width)
        ys = [empty(part.shape, width) if plain else random_layout_of(part, choice) for part in parts]
        split(whole, ys, axis)
        for mine, part in zip(ys, parts, strict=True):
            assert same(mine, part), (shapes, axis, width)


def test_a_copy_is_the_same_elements_between_any_two_layouts() -> None:
    check_copies(300, 1)


def test_concat_and_split_move_parts_of_any_layout() -> None:
    check_joins(200, 2)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["base", "avx2", "avx512"])
def test_every_instruction_set_moves_the_same(isa: str) -> None:
    here = os.path.dirname(__file__)
    code = "import test_kernels_copy as it; it.check_copies(150, 3); it.check_joins(100, 4); it.check_large()"
    code += "; it.check_parts(16, 4, 4); it.check_parts(3, 2, 32); it.check_parts(16, 4, 1000); it.check_transposes(40, 6)"
    path = os.pathsep.join([str(Path(native_core.__file__).parents[3]), *sys.path])
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "DOVETAIL_ISA": isa, "PYTHONPATH": path}, cwd=here, check=True
    )


def check_large() -> None:
    """Jobs beyond the caches, where stores go past them: aligned or not, even rows or odd ones."""
    for width, offset in itertools.product((1, 4, 12), (0, 1)):
        rows = PAST_THE_CACHE // width // 24
        parts = [pattern((rows, size), width, size) for size in (7, 7, 10)]
        room = empty((rows * 24 + 1,), width)
        y = room[offset : offset + rows * 24].reshape(rows, 24)
        concat(parts, y, 1)
        assert same(y, np.concatenate(parts, 1))
        taken = [empty(part.shape, width) for part in parts]
        split(y, taken, 1)
        assert all(map(same, taken, parts))
        turned = room[offset : offset + rows * 24].reshape(24, rows)
        x = np.concatenate(parts, 1)
        run("copy", [x.T], [turned], {})
        assert same(turned, x.T)


def test_jobs_beyond_the_caches_are_the_same() -> None:
    check_large()


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [2, 3, 4, 8, 9])
def test_narrow_columns_are_interleaved_and_split(width: int, count: int) -> None:
    for rows in (3, 64, 1001, PAST_THE_CACHE // width // count):
        parts = [pattern((rows, 1), width, i) for i in range(count)]
        y = empty((rows, count), width)
        concat(parts, y, 1)
        assert same(y, np.concatenate(parts, 1))
        taken = [empty((rows, 1), width) for _ in range(count)]
        split(y, taken, 1)
        assert all(map(same, taken, parts))


def check_parts(step: int, count: int, width: int) -> None:
    """Columns beyond the caches, each destination `step` bytes further into a line of 64; around them nothing is written."""
    for rows in (PAST_THE_CACHE // width // count, PAST_THE_CACHE // width // count + 37):
        x = pattern((rows, count * width), 1, width)
        rooms = [np.full((rows * width + 192, 1), 7, np.uint8).view("V1").reshape(-1) for _ in range(count)]
        starts = [-room.ctypes.data % 64 + k * step % 64 for k, room in enumerate(rooms)]
        ys = [room[start : start + rows * width].reshape(rows, width) for room, start in zip(rooms, starts, strict=True)]
        split(x, ys, 1)
        for k, (room, start, y) in enumerate(zip(rooms, starts, ys, strict=True)):
            assert same(y, np.ascontiguousarray(x[:, k * width : (k + 1) * width])), (step, count, width, rows)
            edges = np.concatenate([room[:start], room[start + rows * width :]]).view(np.uint8)
            assert (edges == 7).all(), (step, count, width, rows)
        back = empty((rows, count * width), 1)
        concat(ys, back, 1)
        assert same(back, x), (step, count, width, rows)


@pytest.mark.parametrize("step", [0, 16, 4, 1])
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_parts_begin_anywhere_in_a_line(step: int, count: int) -> None:
    for width in (1, 2, 4, 8, 16, 24, 32, 64, 100, 1000, 1024):
        check_parts(step, count, width)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[1::3])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_large_transposes(order: tuple[int, ...], width: int) -> None:
    x = pattern((9, 65, 33, PAST_THE_CACHE // width // (9 * 65 * 33) + 1), width)
    y = empty([x.shape[i] for i in order], width)
    run("copy", [x.transpose(order)], [y], {})
    assert same(y, np.ascontiguousarray(x.transpose(order)))


@pytest.mark.parametrize("inner", [(32, 32), (17, 33), (5, 64), (3, 2)])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_many_small_matrices_are_transposed_with_non_temporal_stores(inner: tuple[int, int], width: int) -> None:
    count = PAST_THE_CACHE // width // (inner[0] * inner[1]) + 1
    x = pattern((3, count // 3 + 1, *inner), width)
    for order, offset in itertools.product([(0, 1, 3, 2), (1, 0, 3, 2)], (0, 1)):
        y = empty((x.size + 1,), width)[offset : offset + x.size].reshape([x.shape[i] for i in order])
        run("copy", [x.transpose(order)], [y], {})
        assert same(y, np.ascontiguousarray(x.transpose(order)))


def check_transposes(count: int, seed: int) -> set[str]:
    """Transposes beyond the caches that begin anywhere; around them nothing is written. How they were done."""
    choice = np.random.default_rng(seed)
    bits = choice.integers(0, 256, 2 * PAST_THE_CACHE, np.uint8)
    ways = set()
    for _ in range(count):
        width = int(choice.choice((1, 2, 4, 8)))
        shape = choice.choice((2, 3, 8, 16, 17, 24, 32, 33, 64, 128), int(choice.integers(2, 6)))
        longest = int(choice.integers(len(shape)))
        shape[longest] = 1
        shape[longest] = -(-PAST_THE_CACHE // width // int(shape.prod()))
        if shape.prod() * width > len(bits) - 64:
            continue
        order = choice.permutation(len(shape))
        begin, skip = (int(choice.choice((0, 1, 5)) * width + choice.choice((0, 0, 0, 1))) for _ in range(2))
        x = bits[skip : skip + shape.prod() * width].view((np.void, width)).reshape(tuple(shape)).transpose(order)
        room = np.full(x.nbytes + 192, 7, np.uint8)
        start = -room.ctypes.data % 64 + begin
        y = room[start : start + x.nbytes].view((np.void, width)).reshape(x.shape)
        ways.add(run("copy", [x], [y], {}))
        assert same(y, np.ascontiguousarray(x)), (shape, order, width, begin, skip)
        assert (np.concatenate([room[:start], room[start + x.nbytes :]]) == 7).all(), (shape, order, width, begin)
    return ways


def test_large_transposes_have_each_copy_strategy() -> None:
    assert {"copy streaming transpose", "copy batched transpose", "copy tiled transpose"} <= check_transposes(100, 5)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("order", [(0, 1, 2, 4, 3), (4, 3, 2, 1, 0), (0, 3, 4, 1, 2), (1, 2, 3, 4, 0), (0, 4, 1, 2, 3)])
def test_transposes_of_even_sizes_need_no_other_way(width: int, order: tuple[int, ...]) -> None:
    x = pattern((1 << (PAST_THE_CACHE // (width << 17)).bit_length(), 16, 16, 16, 32), width)
    assert x.nbytes > PAST_THE_CACHE
    y = empty([x.shape[i] for i in order], width)
    assert run("copy", [x.transpose(order)], [y], {}) in ("copy streaming transpose", "copy batched transpose")
    assert same(y, np.ascontiguousarray(x.transpose(order)))


def test_fill_repeats_one_element() -> None:
    for shape, width in itertools.product([(), (0, 3), (5,), (7, 9)], (1, 2, 3, 4, 8, 16)):
        element = pattern((1,), width)
        y = random_layout_of(empty(shape, width), np.random.default_rng(0))
        run("fill", [], [y], {"bytes": list(element.tobytes())})
        assert y.tobytes() == element.tobytes() * y.size


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_chooses_slices(kind: Any, axis: int) -> None:
    choice = np.random.default_rng(axis)
    for shape, width in itertools.product([(5,), (2, 3), (), (0,), (40, 50)], (1, 4, 12)):
        x = random_layout_of(empty((6, 7, 8), width), choice)
        x[...] = pattern((6, 7, 8), width)
        indices = choice.integers(-x.shape[axis], x.shape[axis], shape).astype(kind)
        expected = np.take(x, indices, axis)
        y = random_layout_of(expected, choice)
        run("gather", [x, indices], [y], {"axis": axis, "wrap": 1})
        assert same(y, expected)


@pytest.mark.parametrize(("index", "wrap"), [(3, 1), (-4, 1), (3, 0), (-1, 0)])
def test_a_wrong_index_is_reported_and_nothing_is_written(index: int, wrap: int) -> None:
    x, y = np.ones((3, 4), np.float32), np.full((2, 4), 7, np.float32)
    with pytest.raises(_native.StepFailed) as caught:
        run("gather", [x, np.array([0, index])], [y], {"axis": 0, "wrap": wrap})
    assert caught.value.args == (0, "index.range")
    assert (y == 7).all()


@pytest.mark.parametrize(
    ("kernel", "x", "y", "attributes"),
    [
        ("copy", (2, 3), (3, 2), {}),
        ("fill", (2, 3), (2, 3), {"bytes": [0, 0, 0, 0]}),
    ],
)
def test_operands_that_do_not_fit_make_no_step(kernel: str, x: Any, y: Any, attributes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=kernel):
        run(kernel, [empty(x, 4)], [empty(y, 4)], attributes)
