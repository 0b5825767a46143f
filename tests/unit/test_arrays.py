"""The portable array functions: every library against an independent oracle, and against the others."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest
from hypothesis import given, settings, strategies as st

from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import arrays, dtypes

LIBRARIES = ("numpy", "array_api_compat.torch", "jax.numpy")
PORTABLE = LIBRARIES[1:]


def library(name: str) -> Any:
    pytest.importorskip(name.split(".")[-1] if "compat" in name else name.split(".")[0])
    return importlib.import_module(name)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    """JAX compiles every operation for every shape, which is nearly all the time that these tests take."""
    jax = sys.modules.get("jax") or (importlib.util.find_spec("jax") and importlib.import_module("jax"))
    if not jax:
        yield
        return
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(params=LIBRARIES)
def xp(request: pytest.FixtureRequest) -> Any:
    return library(request.param)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def integers(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape, endpoint=True).astype(dtype)


def through(xp: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """``function`` called in ``xp``: numpy arrays go in, a numpy array of the same type comes out."""

    def given_to(value: Any) -> Any:
        return arrays.from_numpy(xp, value) if isinstance(value, np.ndarray) else value

    result = function(xp, *map(given_to, args), **{key: given_to(value) for key, value in kwargs.items()})
    assert isinstance(result, tuple | np.generic) or arrays.namespace(result) is xp
    return tuple(map(arrays.to_numpy, result)) if isinstance(result, tuple) else arrays.to_numpy(result)


def same(got: Any, want: Any, tolerance: float = 0) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if tolerance:
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


def for_all(name: str, law: Callable[[Any, st.DataObject], None]) -> None:
    """``law`` over drawn data in a library; few draws in JAX, which compiles every operation for every shape anew."""
    xp = library(name)

    @settings(max_examples=2 if "jax" in name else 40, deadline=None)
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        law(xp, data)

    holds()


def by_library(cases: Any) -> Any:
    """Parametrise by library and case, with a few of the cases in JAX: it compiles for long, and torch runs the same code."""
    few = ("line", "no images", "add 2", "none 1", "1 2")
    pairs = [(name, case) for name in LIBRARIES for case in cases if "jax" not in name or case in few]
    return pytest.mark.parametrize("xp,case", pairs, indirect=["xp"])


# Libraries and types


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
def test_arrays_pass_through_every_library_unchanged(xp: Any, dtype: Any) -> None:
    array = integers(2, 3, low=0, dtype=dtype)[:, ::-1]
    inside = arrays.from_numpy(xp, array)
    assert arrays.namespace(inside) is xp
    assert arrays.element(inside) is dtypes.dtype(dtype)
    same(arrays.to_numpy(inside), array)


@pytest.mark.parametrize("name", PORTABLE)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "i4", "string"])
def test_a_type_outside_the_standard_is_refused_by_name(name: str, dtype: str) -> None:
    array = np.zeros(2, dtypes.dtype(dtype).numpy)
    with pytest.raises(UnsupportedError, match=dtype) as caught:
        arrays.from_numpy(library(name), array)
    assert caught.value.code == "array.dtype"


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint64, np.complex128])
def test_jax_without_x64_refuses_rather_than_narrows(dtype: Any) -> None:
    jnp = library("jax.numpy")
    with pytest.raises(UnsupportedError) as caught:
        arrays.from_numpy(jnp, np.zeros(2, dtype))
    assert caught.value.code == "array.dtype"
    with pytest.raises(UnsupportedError, match="x64"):
        arrays.cast(jnp, jnp.zeros(2, jnp.int32), dtypes.i64)


def test_torch_types_that_numpy_lacks_become_ml_dtypes(torch: Any) -> None:
    same(arrays.to_numpy(torch.tensor([1.5, -2]).to(torch.bfloat16)), np.array([1.5, -2], ml_dtypes.bfloat16))
    same(arrays.to_numpy(torch.tensor([1.5, -2]).to(torch.float8_e5m2)), np.array([1.5, -2], ml_dtypes.float8_e5m2))


def test_an_object_of_no_library_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        arrays.namespace(object())
    assert caught.value.code == "array.library"


def test_strings_become_objects() -> None:
    texts = arrays.to_numpy(np.array([["a", "bc"], ["", "\u00e9 "]]))
    assert texts.dtype == object and texts.tolist() == [["a", "bc"], ["", "\u00e9 "]]
    assert {type(text) for text in texts.flat} == {str}


# Movement

MODES: dict[str, Any] = {"edge": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap"}


def padded_by_numpy(x: Any, begins: Any, ends: Any, mode: Any, value: Any) -> Any:
    """numpy's own padding, as wide as needed, then cropped: numpy knows no negative pads."""
    wide = [(max(a, 0), max(b, 0)) for a, b in zip(begins, ends, strict=True)]
    extra: dict[str, Any] = {"constant_values": value} if mode == "constant" else {}
    result = np.pad(x, wide, mode, **extra)
    crops = (slice(max(-a, 0), max(n - max(-b, 0), 0)) for a, b, n in zip(begins, ends, result.shape, strict=True))
    return result[tuple(crops)]


@pytest.mark.parametrize("name", LIBRARIES)
def test_padding_is_numpys_with_crops(name: str) -> None:
    def law(xp: Any, data: st.DataObject) -> None:
        shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        begins, ends = (data.draw(st.lists(st.integers(-2, 7), min_size=len(shape), max_size=len(shape))) for _ in range(2))
        mode = data.draw(st.sampled_from(["constant", *MODES]))
        x = integers(*shape)
        want = padded_by_numpy(x, begins, ends, mode, 7)
        same(through(xp, arrays.pad, x, begins, ends, mode, 7), want)

    for_all(name, law)


@pytest.mark.parametrize("mode", ["constant", *MODES])
def test_padding_moves_any_element_type(mode: Any) -> None:
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn, np.bool_):
        x = np.array([1, 0, 1]).astype(dtype)
        same(arrays.pad(np, x, (2,), (1,), mode).astype(np.float32), np.pad(x.astype(np.float32), [(2, 1)], mode=mode))
    texts = np.array(["a", "b", "c"], object)
    assert list(arrays.pad(np, texts, (1,), (-1,), mode, "z"))[1:] == ["a", "b"]


def test_padding_nothing_with_itself_is_refused(xp: Any) -> None:
    with pytest.raises(EngineError) as caught:
        through(xp, arrays.pad, np.zeros((0, 2), np.float32), (1, 0), (0, 0), "edge")
    assert caught.value.code == "shape.empty"


@pytest.mark.parametrize("name", LIBRARIES)
def test_slices_are_those_of_python(name: str) -> None:
    def law(xp: Any, data: st.DataObject) -> None:
        shape = data.draw(st.lists(st.integers(0, 5), min_size=0, max_size=3))
        bound = st.none() | st.integers(-7, 7)
        step = st.integers(-3, 3).filter(bool)
        slices = [data.draw(st.tuples(bound, bound, step)) for _ in shape]
        x = integers(*shape)
        starts, stops, steps = (list(part) for part in zip(*slices, strict=True)) if slices else ([], [], [])
        same(through(xp, arrays.strided_slice, x, starts, stops, steps), x[tuple(slice(*item) for item in slices)])

    for_all(name, law)


@pytest.mark.parametrize("name", LIBRARIES)
def test_sliding_windows_have_the_elements_that_they_cover(name: str) -> None:
    def law(xp: Any, data: st.DataObject) -> None:
        lead = data.draw(st.lists(st.integers(0, 2), max_size=2))
        dims = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
        sizes, strides, dilations = (
            data.draw(st.lists(st.integers(1, 3), min_size=len(dims), max_size=len(dims))) for _ in "123"
        )
        x = integers(*lead, *dims)
        got = through(xp, arrays.sliding_windows, x, sizes, strides, dilations)
        outs = [max((n - (k - 1) * d - 1) // s + 1, 0) for n, k, s, d in zip(dims, sizes, strides, dilations, strict=True)]
        assert got.shape == (*lead, *outs, *sizes)
        for place in itertools.product(*map(range, outs), *map(range, sizes)):
            out, offset = place[: len(dims)], place[len(dims) :]
            source = tuple(o * s + k * d for o, s, k, d in zip(out, strides, offset, dilations, strict=True))
            np.testing.assert_array_equal(got[(..., *place)], x[(..., *source)])

    for_all(name, law)


def test_numpys_windows_copy_nothing() -> None:
    x = random(3, 8)
    assert np.shares_memory(arrays.sliding_windows(np, x, (3,)), x)


@pytest.mark.parametrize("shape,repeats", [((2, 3), (2, 1)), ((2, 3), (3, 2)), ((), ()), ((2, 0), (1, 2)), ((2,), (0,))])
def test_tiles_are_numpys(xp: Any, shape: tuple[int, ...], repeats: tuple[int, ...]) -> None:
    x = integers(*shape)
    same(through(xp, arrays.tile, x, repeats), np.tile(x, repeats))


@pytest.mark.parametrize("counts", [2, 0, [1, 0, 3]])
def test_repeats_are_numpys(xp: Any, counts: Any) -> None:
    x = integers(2, 3)
    same(through(xp, arrays.repeat, x, counts, 1), np.repeat(x, counts, 1))


@pytest.mark.parametrize("diagonal", [-9, -1, 0, 2, 9])
@pytest.mark.parametrize("upper", [True, False])
def test_triangles_are_numpys(xp: Any, diagonal: int, upper: bool) -> None:
    x = random(2, 3, 4)
    same(through(xp, arrays.triangle, x, diagonal, upper), (np.triu if upper else np.tril)(x, diagonal))


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_one_place_is_hot(xp: Any, axis: int, dtype: Any) -> None:
    indices = np.array([[0, 2, -1], [-3, 3, -4]], dtype)
    rows = np.array([[[5, 1, 1], [1, 1, 5], [1, 1, 5]], [[5, 1, 1], [1, 1, 1], [1, 1, 1]]], np.float32)
    got = through(xp, arrays.one_hot, indices, 3, np.array(5, np.float32), np.array(1, np.float32), axis)
    same(got, np.moveaxis(rows, -1, axis))
    same(through(xp, arrays.one_hot, np.array([-1], dtype), 2, np.array(True), np.array(False), negative=False), [[False, False]])


# Indexing


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_is_numpys(xp: Any, axis: int) -> None:
    x, indices = random(3, 4, 3), np.array([[0, -1], [2, -3]], np.int32)
    same(through(xp, arrays.take, x, indices, axis), np.take(x, indices, axis))


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_take_goes_batch_by_batch(xp: Any, axis: int) -> None:
    x, indices = random(2, 3, 4, 5), integers(2, 6, 1, low=-3, high=2)
    want = np.stack([np.take(x[i], indices[i], axis - 1) for i in range(2)])
    same(through(xp, arrays.take, x, indices, axis, 1), want)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_is_torchs(xp: Any, torch: Any, axis: int) -> None:
    x, indices = random(3, 4, 3), integers(2, 3, 3, low=0, high=2)
    want = torch.gather(torch.tensor(x), axis, torch.tensor(indices.astype(np.int64))).numpy()
    same(through(xp, arrays.take_along, x, indices, axis), want)
    same(through(xp, arrays.take_along, x, indices - x.shape[axis], axis), want)


@by_library(["0 1", "0 2", "0 3", "1 1", "1 2", "2 1", "0 0"])
def test_gather_nd_is_indexing_by_tuples(xp: Any, case: str) -> None:
    batch, depth = map(int, case.split())
    x = random(2, 3, 4)
    indices = integers(*x.shape[:batch], 5, depth, low=-2, high=1)
    want = np.empty((*x.shape[:batch], 5, *x.shape[batch + depth :]), np.float32)
    for place in np.ndindex(*x.shape[:batch], 5):
        want[place] = x[place[:batch]][tuple(indices[place])]
    same(through(xp, arrays.gather_nd, x, indices, batch), want)


@pytest.mark.parametrize("function", [arrays.take, arrays.take_along])
@pytest.mark.parametrize("index", [-4, 3, 100])
def test_an_index_outside_is_refused(xp: Any, function: Any, index: int) -> None:
    with pytest.raises(EngineError) as caught:
        through(xp, function, np.zeros(3, np.float32), np.array([0, index], np.int32), 0)
    assert caught.value.code == "index.range"


COMBINE = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("name", LIBRARIES)
def test_scattered_elements_arrive_one_after_the_other(name: str) -> None:
    def law(xp: Any, data: st.DataObject) -> None:
        shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        reduction = data.draw(st.sampled_from(sorted(COMBINE)))
        part = [data.draw(st.integers(0, n)) for n in shape]
        part[axis] = data.draw(st.integers(0, 5))
        size = shape[axis]
        x, updates = integers(*shape, seed=1), integers(*part, seed=2)
        indices = integers(*part, low=-size, high=size - 1)
        want = x.copy()
        for place in np.ndindex(*part):
            there = list(place)
            there[axis] = int(indices[place])
            want[tuple(there)] = COMBINE[reduction](want[tuple(there)], updates[place])
        same(through(xp, arrays.scatter_along, x, indices, updates, axis, reduction), want)

    for_all(name, law)


@by_library([f"{reduction} {depth}" for reduction in sorted(COMBINE) for depth in (1, 2, 3)])
def test_scattered_slices_arrive_one_after_the_other(xp: Any, case: str) -> None:
    reduction, depth = case.split()[0], int(case.split()[1])
    x, indices = random(2, 3, 4), integers(3, 5, depth, low=-2, high=1)
    updates = random(3, 5, *x.shape[depth:], seed=3)
    want = x.copy()
    for place in np.ndindex(3, 5):
        there = tuple(indices[place])
        want[there] = COMBINE[reduction](want[there], updates[place])
    same(through(xp, arrays.scatter_nd, x, indices, updates, reduction), want)


def test_texts_and_small_types_scatter() -> None:
    texts = np.array(["a", "b", "c"], object)
    got = arrays.scatter_along(np, texts, np.array([2, 0, 2]), np.array(["x", "y", "z"], object), 0)
    assert list(got) == ["y", "b", "z"]
    assert list(texts) == ["a", "b", "c"]
    small = np.ones(2, ml_dtypes.bfloat16)
    same(arrays.scatter_along(np, small, np.array([1, 1]), small, 0, "add"), np.array([1, 3], ml_dtypes.bfloat16))


# Convolution

CONVOLUTIONS = {
    "plain": ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    "strided": ((2, 3, 9, 8), (4, 3, 3, 2), (2, 3), (1, 0), (1, 1), (1, 1), 1),
    "dilated": ((1, 2, 9, 11), (3, 2, 3, 3), (1, 2), (2, 1), (0, 3), (2, 3), 1),
    "grouped": ((2, 6, 5, 5), (9, 2, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 3),
    "depthwise": ((2, 4, 6, 5), (8, 1, 3, 3), (1, 2), (1, 1), (0, 1), (2, 1), 4),
    "one channel": ((2, 1, 6, 5), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "pointwise": ((2, 6, 5, 4), (4, 3, 1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 2),
    "pointwise strided": ((2, 6, 5, 4), (4, 6, 1, 1), (2, 3), (1, 0), (0, 0), (1, 1), 1),
    "cropped": ((1, 2, 8, 8), (3, 2, 3, 3), (1, 1), (-1, -2), (0, -1), (1, 1), 1),
    "wide kernel": ((2, 3, 9, 9), (4, 3, 8, 8), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    "whole": ((2, 3, 4, 4), (5, 3, 4, 4), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    "line": ((2, 4, 20), (6, 2, 5), (3,), (2,), (1,), (2,), 2),
    "volume": ((1, 4, 5, 6, 7), (4, 2, 2, 3, 3), (1, 2, 1), (0, 1, 1), (1, 0, 1), (1, 1, 2), 2),
    "no images": ((0, 3, 5, 5), (4, 3, 3, 3), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    "no room": ((1, 3, 2, 5), (4, 3, 3, 3), (1, 1), (0, 0), (0, 0), (1, 1), 1),
}  # fmt: skip


def correlated(x: Any, w: Any, strides: Any, begins: Any, ends: Any, dilations: Any, group: int) -> Any:
    """Return the definition, in f64 or int64: the sum over kernel places of what stands under them."""
    wide = np.int64 if x.dtype.kind in "iu" else np.float64
    x = padded_by_numpy(x.astype(wide), (0, 0, *begins), (0, 0, *ends), "constant", 0)
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    outs = [max((n - e) // s + 1, 0) for n, e, s in zip(x.shape[2:], extents, strides, strict=True)]
    result = np.zeros((len(x), len(w), *outs), wide)
    width = w.shape[1]
    for output in range(len(w)):
        start = output // (len(w) // group) * width
        for out in np.ndindex(*outs):
            area = [slice(o * s, o * s + e, d) for o, s, e, d in zip(out, strides, extents, dilations, strict=True)]
            result[(slice(None), output, *out)] = (x[(slice(None), slice(start, start + width), *area)] * w[output]).sum(
                tuple(range(1, x.ndim))
            )
    return result


@by_library(CONVOLUTIONS)
def test_convolution_is_its_definition(xp: Any, case: str) -> None:
    shape, kernel, *rest = CONVOLUTIONS[case]
    x, w = random(*shape), random(*kernel, seed=1)
    same(through(xp, arrays.convolve, x, w, *rest), correlated(x, w, *rest).astype(np.float32), 2e-5)


@by_library(CONVOLUTIONS)
def test_integer_convolution_is_exact(xp: Any, case: str) -> None:
    shape, kernel, *rest = CONVOLUTIONS[case]
    x, w = integers(*shape, low=-128, high=127), integers(*kernel, low=-128, high=127, seed=1)
    same(through(xp, arrays.convolve, x, w, *rest), correlated(x, w, *rest).astype(np.int32))


def test_large_integers_convolve_modulo_their_width() -> None:
    x, w = (integers(1, 3, 4, 4, low=2**60, high=2**62, dtype=np.int64, seed=seed) for seed in (0, 1))
    rest = ((1, 1), (0, 0), (0, 0), (1, 1), 1)
    same(arrays.convolve(np, x, w[:, :, :2, :2], *rest), correlated(x, w[:, :, :2, :2], *rest))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_small_floats_are_summed_in_f32_and_rounded_once(dtype: Any) -> None:
    x, w = (integers(*shape, low=-2, high=2).astype(dtype) for shape in ((1, 64, 5, 5), (4, 64, 3, 3)))
    rest = ((1, 1), (1, 1), (1, 1), (1, 1), 1)
    same(arrays.convolve(np, x, w, *rest), correlated(x, w, *rest).astype(dtype))


def test_blocks_of_columns_join_without_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, rest = random(5, 4, 9, 7), random(6, 4, 3, 3, seed=1), ((1, 1), (1, 1), (1, 1), (1, 1), 1)
    want = correlated(x, w, *rest).astype(np.float32)
    for size in (1, 4000, 30000):
        monkeypatch.setattr(arrays.convolution, "_BLOCK_BYTES", size)
        same(arrays.convolve(np, x, w, *rest), want, 2e-5)


@pytest.mark.parametrize("case", [name for name in CONVOLUTIONS if not name.startswith("no ")])
def test_convolution_agrees_with_torch(torch: Any, case: str) -> None:
    shape, kernel, strides, begins, ends, dilations, group = CONVOLUTIONS[case]
    x, w = random(*shape), random(*kernel, seed=1)
    pads = list(itertools.chain.from_iterable(zip(reversed(begins), reversed(ends), strict=True)))
    wide = torch.nn.functional.pad(torch.tensor(x), pads)
    function = getattr(torch.nn.functional, f"conv{len(strides)}d")
    same(
        arrays.convolve(np, x, w, strides, begins, ends, dilations, group),
        function(wide, torch.tensor(w), None, strides, 0, dilations, group).numpy(),
        2e-5,
    )


TRANSPOSED = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 3), (1, 1), (0, 0), (0, 0), (0, 0), (1, 1), 1),
    "strided": ((2, 3, 4, 5), (3, 4, 3, 2), (2, 3), (1, 0), (1, 0), (1, 2), (1, 1), 1),
    "dilated": ((1, 2, 4, 5), (2, 3, 3, 3), (2, 1), (1, 2), (1, 2), (1, 0), (2, 2), 1),
    "grouped": ((2, 6, 4, 4), (6, 2, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (1, 1), 3),
    "line": ((2, 4, 6), (4, 3, 4), (3,), (2,), (2,), (1,), (1,), 2),
    "volume": ((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), (2, 1, 2), (0, 1, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1), 1),
}


@by_library(TRANSPOSED)
def test_transposed_convolution_agrees_with_torch(xp: Any, torch: Any, case: str) -> None:
    shape, kernel, strides, begins, ends, extra, dilations, group = TRANSPOSED[case]
    assert begins == ends
    x, w = random(*shape), random(*kernel, seed=1)
    function = getattr(torch.nn.functional, f"conv_transpose{len(strides)}d")
    want = function(torch.tensor(x), torch.tensor(w), None, strides, begins, extra, group, dilations).numpy()
    same(through(xp, arrays.convolve_transpose, x, w, strides, begins, ends, extra, dilations, group), want, 2e-5)


@pytest.mark.parametrize("begins,ends,extra", [((1, 0), (0, 2), (0, 0)), ((-1, -2), (0, -1), (0, 0)), ((0, 0), (1, 0), (3, 2))])
def test_uneven_and_negative_pads_window_the_whole_transpose(xp: Any, begins: Any, ends: Any, extra: Any) -> None:
    x, w, none = random(1, 2, 3, 4), random(2, 3, 3, 2, seed=1), (0, 0)
    whole = arrays.convolve_transpose(np, x, w, (2, 2), none, none, none, (1, 1))
    grown = [e - p for e, p in zip(extra, ends, strict=True)]
    want = padded_by_numpy(whole, (0, 0, *(-p for p in begins)), (0, 0, *grown), "constant", 0)
    same(through(xp, arrays.convolve_transpose, x, w, (2, 2), begins, ends, extra, (1, 1)), want, 2e-5)


@by_library(["plain", "strided", "dilated", "grouped", "depthwise", "line", "volume"])
def test_both_gradients_of_a_convolution_are_convolutions(xp: Any, torch: Any, case: str) -> None:
    shape, kernel, strides, begins, _, dilations, group = CONVOLUTIONS[case]
    x, w = torch.tensor(random(*shape), requires_grad=True), torch.tensor(random(*kernel, seed=1), requires_grad=True)
    y = getattr(torch.nn.functional, f"conv{len(strides)}d")(x, w, None, strides, begins, dilations, group)
    g = torch.tensor(random(*y.shape, seed=2))
    y.backward(g)
    covered = zip(y.shape[2:], strides, kernel[2:], dilations, begins, strict=True)
    rest = [n - ((o - 1) * s + (k - 1) * d + 1 - 2 * b) for n, (o, s, k, d, b) in zip(shape[2:], covered, strict=True)]
    dx = through(xp, arrays.convolve_transpose, g.numpy(), w.detach().numpy(), strides, begins, begins, rest, dilations, group)
    same(dx, x.grad.numpy(), 1e-4)
    n, c = shape[:2]
    swapped = x.detach().numpy().reshape(n, group, c // group, *shape[2:]).swapaxes(0, 2)
    swapped = swapped.reshape(c // group, group * n, *shape[2:])
    ends = [b - r for b, r in zip(begins, rest, strict=True)]
    dw = through(xp, arrays.convolve, swapped, g.numpy().swapaxes(0, 1), dilations, begins, ends, strides, group)
    same(dw.swapaxes(0, 1), w.grad.numpy(), 1e-4)


# Pooling

POOLS = {
    "plain": ((2, 3, 6, 7), (2, 3), (2, 3), (0, 0), (0, 0), (1, 1)),
    "overlapping": ((2, 3, 6, 7), (3, 3), (1, 2), (1, 1), (1, 1), (1, 1)),
    "dilated": ((1, 2, 8, 9), (3, 2), (2, 1), (1, 1), (1, 1), (2, 2)),
    "line": ((2, 3, 9), (3,), (2,), (1,), (1,), (1,)),
    "volume": ((1, 2, 4, 5, 4), (2, 2, 3), (1, 2, 1), (1, 0, 1), (1, 0, 1), (1, 1, 1)),
}


@by_library(POOLS)
def test_greatest_elements_and_their_places_are_torchs(xp: Any, torch: Any, case: str) -> None:
    shape, *window = POOLS[case]
    sizes, strides, begins, _, dilations = window
    x = integers(*shape, low=-3, high=3, dtype=np.float32)
    function = getattr(torch.nn.functional, f"max_pool{len(sizes)}d")
    want, places = function(torch.tensor(x), sizes, strides, begins, dilations, return_indices=True)
    same(through(xp, arrays.pool_max, x, *window), want.numpy())
    got, where = through(xp, arrays.pool_max_indices, x, *window)
    same(got, want.numpy())
    np.testing.assert_array_equal(where, places.numpy())


@by_library([name for name in POOLS if name != "dilated"])
def test_sums_over_counts_are_torchs_averages(xp: Any, torch: Any, case: str) -> None:
    shape, *window = POOLS[case]
    sizes, strides, begins, _, dilations = window
    x = random(*shape)
    function = getattr(torch.nn.functional, f"avg_pool{len(sizes)}d")
    want = function(torch.tensor(x), sizes, strides, begins, count_include_pad=False).numpy()
    dims, outs = shape[-len(sizes) :], want.shape[-len(sizes) :]
    axes = zip(dims, sizes, strides, dilations, begins, outs, strict=True)
    counts = reduce(np.multiply.outer, [arrays.WindowAxis(*axis).counts(0, axis[0]) for axis in axes])
    same(through(xp, arrays.pool_sum, x, *window) / counts.astype(np.float32), want, 1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_padding_is_never_the_greatest(xp: Any, dtype: Any) -> None:
    x = np.full((1, 1, 2), np.iinfo(dtype).min, dtype)
    got, where = through(xp, arrays.pool_max_indices, x, (2,), (1,), (1,), (1,), (1,))
    same(got, np.full((1, 1, 3), np.iinfo(dtype).min, dtype))
    assert where.tolist() == [[[0, 0, 1]]]
    lowest = np.full((1, 1, 2), -np.inf, np.float32)
    assert through(xp, arrays.pool_max_indices, lowest, (2,), (1,), (1,), (1,), (1,))[1].tolist() == [[[0, 0, 1]]]


def test_nan_is_the_greatest(xp: Any) -> None:
    x = np.array([[[1, np.nan, np.nan, 2]]], np.float32)
    got, where = through(xp, arrays.pool_max_indices, x, (2,), (1,), (0,), (0,), (1,))
    same(got, np.array([[[np.nan] * 3]], np.float32))
    same(through(xp, arrays.pool_max, x, (2,), (1,), (0,), (0,), (1,)), got)
    assert where.tolist() == [[[1, 1, 2]]]


# Arithmetic


@pytest.mark.parametrize("name", ["numpy", "array_api_compat.torch"])
def test_erf_is_right_to_the_last_digits(name: str) -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), np.geomspace(1e-300, 1, 400), [0.46875, 4, 5.9999, 6, 27, np.inf, -np.inf]])
    want = np.array([math.erf(value) for value in x])
    np.testing.assert_allclose(through(library(name), arrays.erf, x), want, rtol=4e-16 * 2, atol=0)


def test_erf_of_f32_is_the_rounded_one(xp: Any) -> None:
    x = np.linspace(-5, 5, 1001, dtype=np.float32)
    want = np.array([math.erf(value) for value in x], np.float32)
    same(through(xp, arrays.erf, x), want, 3e-7)
    edge = through(xp, arrays.erf, np.array([-0.0, np.nan, np.inf], np.float32))
    assert np.signbit(edge[0]) and np.isnan(edge[1]) and edge[2] == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_erf_of_small_floats_is_rounded_once(dtype: Any) -> None:
    x = np.linspace(-3, 3, 301).astype(dtype)
    same(arrays.erf(np, x), np.array([math.erf(value) for value in x]).astype(dtype))


ROUNDED = [-2.5, -1.5, -0.5, -0.3, -0.0, 0.5, 0.49999997, 1.5, 2.5, 8388609.0, math.inf, -math.inf, math.nan]


def test_ties_round_to_even_or_away_from_zero(xp: Any) -> None:
    x = np.array(ROUNDED, np.float32)
    same(
        through(xp, arrays.round_half_even, x),
        np.array([*map(float, [-2, -2, -0.0, -0.0, -0.0, 0, 0, 2, 2]), *ROUNDED[9:]], np.float32),
    )
    away = np.array([*map(float, [-3, -2, -1, -0.0, -0.0, 1, 0, 2, 3]), *ROUNDED[9:]], np.float32)
    got = through(xp, arrays.round_half_away, x)
    same(got, away)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(away))
    assert list(arrays.round_half_away(np, np.array([2.5, -0.5], ml_dtypes.bfloat16)).astype(float)) == [3, -1]


def wrap(value: int, dtype: Any) -> int:
    """Return a whole number reduced to the width of an integer type, as two's complement has it."""
    bits = np.iinfo(dtype).bits
    value %= 2**bits
    return value - 2**bits if np.iinfo(dtype).min < 0 and value >= 2 ** (bits - 1) else value


DIVISIONS = {
    "floor_divide": lambda a, b: a // b,
    "floor_mod": lambda a, b: a % b,
    "trunc_divide": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "trunc_mod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}


# torch has no arithmetic for the wide unsigned types, JAX without x64 no 64-bit types at all.
WIDTHS = {
    "numpy": ["int8", "uint8", "int32", "int64", "uint64"],
    "array_api_compat.torch": ["int8", "uint8", "int64"],
    "jax.numpy": ["int8", "int32"],
}


@pytest.mark.parametrize("function", DIVISIONS)
@pytest.mark.parametrize("xp,dtype", [(name, dtype) for name in WIDTHS for dtype in WIDTHS[name]], indirect=["xp"])
def test_integer_division_is_exact(xp: Any, function: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = sorted({info.min, info.min + 1, info.max, info.max - 1, 7, 2, 1, 0, *((-7, -2, -1) if info.min else ())})
    pairs = [(a, b) for a in values for b in values if b]
    x, y = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    want = np.array([wrap(DIVISIONS[function](a, b), dtype) for a, b in pairs], dtype)
    same(through(xp, getattr(arrays, function), x, y), want)


@pytest.mark.parametrize("function", DIVISIONS)
def test_integer_division_by_zero_is_refused(xp: Any, function: str) -> None:
    with pytest.raises(EngineError) as caught:
        through(xp, getattr(arrays, function), np.array([1], np.int32), np.array([0], np.int32))
    assert caught.value.code == "array.divide-by-zero"


def test_float_remainders_are_exact(xp: Any) -> None:
    x = np.array([5.3, -5.3, 5.3, -5.3, 1e10, -0.0, 3, 4], np.float32)
    y = np.array([2, 2, -2, -2, 3, 2, np.inf, 0], np.float32)
    same(through(xp, arrays.trunc_mod, x, y), np.fmod(x, y, where=y != 0, out=np.full_like(x, np.nan)))
    same(through(xp, arrays.floor_mod, x[:6], y[:6]), np.remainder(x[:6], y[:6]))


def test_integer_powers_are_exact_modulo_their_width(xp: Any) -> None:
    pairs = list(itertools.product([-3, -2, -1, 0, 1, 2, 7, 2**31 - 1], [-3, -2, -1, 0, 1, 2, 13, 40]))
    x, y = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
    want = [a**b if b >= 0 else int(a ** (b % 2)) if abs(a) == 1 else 0 for a, b in pairs]
    same(through(xp, arrays.power, x, y), np.array([wrap(value, np.int32) for value in want], np.int32))


def test_a_power_has_the_type_of_its_base(xp: Any) -> None:
    same(
        through(xp, arrays.power, np.array([2.5, 4], np.float32), np.array([3, -1], np.int32)),
        np.array([15.625, 0.25], np.float32),
    )
    same(through(xp, arrays.power, np.array([2, 9], np.int32), np.array([2.5, 0.5], np.float32)), np.array([5, 3], np.int32))
    half = arrays.power(np, np.array([1.5], np.float16), np.array([2], np.int64))
    same(half, np.array([2.25], np.float16))


@pytest.mark.parametrize("direction", ["left", "right"])
def test_shifts_past_the_width_leave_nothing(xp: Any, direction: str) -> None:
    pairs = list(itertools.product([0, 1, 37, 255], [0, 1, 7, 8, 200]))
    x, y = (np.array(side, np.uint8) for side in zip(*pairs, strict=True))
    want = np.array([(a << b) % 256 if direction == "left" else a >> b for a, b in pairs], np.uint8)
    same(through(xp, arrays.bit_shift, x, y, direction, 8), want)
    if direction == "right":
        signed = through(xp, arrays.bit_shift, np.array([-128, -1, 5], np.int8), np.array([1, 100, 100], np.int8), direction, 8)
        same(signed, np.array([-64, -1, 0], np.int8))


@pytest.mark.parametrize("axis", [0, -1, (0, 1)])
def test_softmax_and_its_logarithm_are_accurate_far_from_zero(xp: Any, axis: Any) -> None:
    x = random(3, 4) * 3 + np.array([[0], [1000], [-1000]], np.float32) * (axis == -1)
    wide = x.astype(np.float64)
    wide = wide - wide.max(axis=axis, keepdims=True)
    total = np.exp(wide).sum(axis=axis, keepdims=True)
    same(through(xp, arrays.softmax, x, axis), (np.exp(wide) / total).astype(np.float32), 1e-6)
    same(through(xp, arrays.log_softmax, x, axis), (wide - np.log(total)).astype(np.float32), 2e-6)


def test_softmax_is_nan_where_a_row_has_no_finite_sum(xp: Any) -> None:
    x = np.array([[-np.inf] * 3, [np.inf, 1, 2], [-np.inf, 0, 0]], np.float32)
    same(through(xp, arrays.softmax, x, -1), np.array([[np.nan] * 3, [np.nan] * 3, [0, 0.5, 0.5]], np.float32))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), ()])
@pytest.mark.parametrize("keepdims", [True, False])
def test_logsumexp_is_its_definition(xp: Any, axis: Any, keepdims: bool) -> None:
    x = random(3, 4)
    want = np.log(np.exp(x.astype(np.float64)).sum(axis=axis, keepdims=keepdims)).astype(np.float32)
    same(through(xp, arrays.logsumexp, x, axis, keepdims), want, 1e-6)


def test_logsumexp_of_infinities_is_no_nan(xp: Any) -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, -np.inf], [1000, -np.inf]], np.float32)
    same(through(xp, arrays.logsumexp, x, 1), np.array([-np.inf, np.inf, 1000], np.float32))
    same(through(xp, arrays.logsumexp, np.zeros((2, 0), np.float32), 1), np.array([-np.inf] * 2, np.float32))


# Casts

FLOATS = [
    0.0,
    -0.0,
    0.47892547,
    0.8191,
    1.0625,
    -1.5,
    2.5,
    3.5,
    5.0,
    7.9,
    17.0,
    447.0,
    464.0,
    465.0,
    1e6,
    -1e6,
    1e-7,
    -1e-7,
    1e30,
]
SPECIAL = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("source", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("to", ["f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1", "bf16", "f16", "f32"])
def test_float_casts_are_onnx_references(source: Any, to: str, saturate: bool) -> None:
    reference = pytest.importorskip("onnx.reference.ops.op_cast")
    with np.errstate(all="ignore"):
        x = np.array([*FLOATS, *SPECIAL]).astype(source)
        kind = dtypes.dtype(to)
        # Through f32, in which everything here that rounds is exact: from f64 the reference rounds twice.
        want = reference.cast_to(x.astype(np.float32), kind.onnx, saturate)
    got = arrays.cast(np, x, kind, saturate=saturate)
    assert got.dtype == kind.numpy
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    finite = np.isfinite(want.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(got.astype(np.float64))[finite], np.signbit(want.astype(np.float64))[finite])


@pytest.mark.parametrize("to", ["f8e4m3", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"])
@pytest.mark.parametrize("saturate", [True, False])
def test_f8_casts_follow_the_table_of_the_specification(to: str, saturate: bool) -> None:
    kind = dtypes.dtype(to)
    greatest = float(ml_dtypes.finfo(kind.numpy).max)
    got = arrays.cast(np, np.array([math.inf, -math.inf, 1e6, -1e6, math.nan], np.float32), kind, saturate=saturate).astype(float)
    beyond = greatest if saturate else math.inf if to == "f8e5m2" else math.nan
    np.testing.assert_array_equal(got, [beyond, -beyond, beyond, -beyond, math.nan])


def represented(kind: dtypes.DType) -> list[float]:
    codes = np.arange(2**kind.bits).astype(np.uint16 if kind.bits > 8 else np.uint8)
    with np.errstate(invalid="ignore"):
        values = codes.view(kind.numpy).astype(np.float64)
    return sorted(set(values[np.isfinite(values)].tolist()))


REPRESENTED = {
    name: represented(dtypes.dtype(name)) for name in ("bf16", "f16", "f8e4m3", "f8e5m2", "f4e2m1", "f6e2m3", "f6e3m2")
}


@pytest.mark.parametrize("to", REPRESENTED)
@given(value=st.floats(-400, 400) | st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_casts_round_once_to_the_nearest(to: str, value: float | int) -> None:
    kind = dtypes.dtype(to)
    values = REPRESENTED[to]
    got = float(arrays.cast(np, np.array([value]), kind)[0])
    if abs(value) > values[-1]:
        assert abs(got) in (values[-1], math.inf)
    else:
        at = int(np.searchsorted(values, float(value)))
        near = values[max(at - 2, 0) : at + 3]
        assert abs(Fraction(got) - Fraction(value)) == min(abs(Fraction(item) - Fraction(value)) for item in near)


@pytest.mark.parametrize(
    "x",
    [1 + 2**-8 + 2**-40, 2**60 + 2**52 + 1, -(2**60) - 2**52 - 1, (1 << 24) + (1 << 16) + 1],
    ids=["f64", "i64", "-i64", "i32"],
)
def test_a_value_just_past_the_middle_is_rounded_up(x: float) -> None:
    got = float(arrays.cast(np, np.array(x), dtypes.bf16))
    assert abs(got) > abs(x)


INTEGER_TYPES = ["i64", "i32", "i16", "i8", "i4", "i2", "u64", "u32", "u16", "u8", "u4", "u2"]


@pytest.mark.parametrize("to", INTEGER_TYPES)
def test_integers_wrap_and_floats_are_truncated_or_rounded(to: str) -> None:
    kind = dtypes.dtype(to)
    low, high = kind.range()
    numbers = np.array([0, 1, -1, 200, -200, 9, -9, 2**40 + 3, 2**62], np.int64)
    span = 2**kind.bits
    want = [(int(n) - low) % span + low for n in numbers]
    assert [int(v) for v in arrays.cast(np, numbers, kind)] == want
    # Integers of fewer than 8 bits: to nearest, ties to even; their low bits.
    whole = int if kind.bits >= 8 else round
    floats = [value for value in (0.0, 0.9, -0.9, 1.5, -1.5, 6.99, -6.99, 99.9) if low <= int(value) <= high]
    for source in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        x = np.array(floats).astype(source)
        x = x[[low <= int(v) <= high for v in x.astype(float)]]
        assert [int(v) for v in arrays.cast(np, x, kind)] == [(whole(v) - low) % span + low for v in x.astype(float)]
    assert [int(v) for v in arrays.cast(np, np.array([True, False]), kind)] == [(1 - low) % span + low, 0]


@pytest.mark.parametrize("source", INTEGER_TYPES)
@pytest.mark.parametrize("to", [*INTEGER_TYPES, "f32", "f16", "bf16", "f64"])
def test_every_integer_type_casts_to_every_number(source: str, to: str) -> None:
    low, high = dtypes.dtype(source).range()
    values = sorted({low, 0, 1, min(high, 100)})
    x = np.array(values, dtype=np.uint64 if source == "u64" else np.int64).astype(dtypes.dtype(source).numpy)
    kind = dtypes.dtype(to)
    got = arrays.cast(np, x, kind)
    assert got.dtype == kind.numpy
    if kind.is_integer:
        base = kind.range()[0]
        assert [int(v) for v in got] == [(v - base) % 2**kind.bits + base for v in values]
    else:
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got, np.array(values, np.float64).astype(kind.numpy))


def test_anything_but_zero_is_true(xp: Any) -> None:
    x = np.array([0, -0.0, 0.25, math.nan, math.inf], np.float32)
    same(through(xp, arrays.cast, x, dtypes.boolean), [False, False, True, True, True])
    same(through(xp, arrays.cast, np.array([0, 36, 256], np.int32), dtypes.boolean), [False, True, True])
    if arrays.is_numpy(xp):
        same(arrays.cast(np, x.astype(ml_dtypes.bfloat16), dtypes.boolean), [False, False, True, True, True])


@pytest.mark.parametrize("to", ["f32", "i32", "i8", "u8"])
def test_libraries_cast_alike(xp: Any, to: str) -> None:
    kind = dtypes.dtype(to)
    for x in (np.array([0, 1.9, 100.5], np.float32), np.array([0, -1, 300, 70000], np.int32), np.array([True, False])):
        same(through(xp, arrays.cast, x, kind), x.astype(kind.numpy))


@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False])
def test_scales_are_onnxs(rounding: str, saturate: bool) -> None:
    x = np.array([0.124, 0.25, 0.5, 1.1, 1.4, 1.5, 1.6, 2, 4, 8, 2.0**127, 1e-30, math.nan], np.float32)
    want = onnx.numpy_helper.to_float8e8m0(x, saturate, rounding)
    for source in (np.float32, np.float64):
        got = arrays.cast(np, x.astype(source), dtypes.dtype("f8e8m0"), saturate=saturate, rounding=rounding)
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_scales_beyond_the_range_follow_the_table_of_the_specification() -> None:
    x = np.array([0, math.inf, 1e39, 1e-40, 2.0**-127])
    up = arrays.cast(np, x, dtypes.dtype("f8e8m0"), saturate=True, rounding="up")
    assert up.view(np.uint8).tolist() == [0, 254, 254, 0, 0]
    nearest = arrays.cast(np, x, dtypes.dtype("f8e8m0"), saturate=False, rounding="nearest")
    assert nearest.view(np.uint8).tolist() == [255, 255, 255, 255, 0]


def test_codes_stay_within_their_bits() -> None:
    x = np.array([0, 1, 5, 9, 64, -1], np.int32)
    for name, want in (("u1", [0, 1, 1, 1, 0, 1]), ("u3", [0, 1, 5, 1, 0, 7]), ("u6", [0, 1, 5, 9, 0, 63])):
        same(arrays.cast(np, x, dtypes.dtype(name)), np.array(want, np.uint8))


def test_normal_float_codes_read_as_their_quantiles() -> None:
    got = arrays.cast(np, np.array([0, 7, 15], np.uint8), dtypes.f32, source=dtypes.dtype("nf4"))
    same(got, np.array([-1, 0, 1], np.float32))


def test_texts_are_read_as_numbers() -> None:
    texts = np.array([["3.14", "1000", "1e-5"], ["1E8", "+INF", "-inf"], ["NaN", "INF", " 7"]], object)
    want = [[3.14, 1000, 1e-5], [1e8, math.inf, -math.inf], [math.nan, math.inf, 7]]
    same(arrays.cast(np, texts, dtypes.f32), np.array(want, np.float32))
    same(arrays.cast(np, texts[0, :2], dtypes.f16), np.array(want[0][:2], np.float16))
    same(arrays.cast(np, np.array(["100.5", "-9223372036854775808", "12"], object), dtypes.i64), np.array([100, -(2**63), 12]))
    same(arrays.cast(np, np.array(["18446744073709551615"], object), dtypes.dtype("u64")), np.array([2**64 - 1], np.uint64))


@pytest.mark.parametrize(
    "text,to", [("hello", "f32"), ("1_0", "f32"), ("", "i32"), ("inf", "i32"), ("300", "u8"), ("-1", "u8"), ("x", "boolean")]
)
def test_a_text_that_is_no_such_number_is_refused(text: str, to: str) -> None:
    with pytest.raises(EngineError) as caught:
        arrays.cast(np, np.array([text], object), dtypes.dtype(to))
    assert caught.value.code == "array.cast"


def test_numbers_are_written_as_onnxs_reference_writes_them() -> None:
    for x in (np.array([314.15926, 0.1, 1.0], np.float32), np.array([1, -5]), np.array([True, False])):
        got = arrays.cast(np, x, dtypes.string)
        assert got.dtype == object
        assert list(got) == list(x.astype(np.str_))


@pytest.mark.parametrize("source,to", [("complex64", "f32"), ("f32", "complex64"), ("f32", "nf4")])
def test_casts_without_a_meaning_are_refused(source: str, to: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        arrays.cast(np, np.zeros(1, dtypes.dtype(source).numpy), dtypes.dtype(to))
    assert caught.value.code == "array.cast"


@pytest.mark.parametrize("function", ["erf", "round_half_even", "round_half_away"])
def test_arrays_without_dimensions_keep_their_type(function: str) -> None:
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
        assert getattr(arrays, function)(np, np.array(0.25, dtype)).dtype == dtype


@pytest.mark.parametrize("function", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_small_floats_are_reduced_in_f32_and_rounded_once(function: str, dtype: Any) -> None:
    x = random(3, 50).astype(dtype)
    same(getattr(arrays, function)(np, x, 1), getattr(arrays, function)(np, x.astype(np.float32), 1).astype(dtype))


# Dask


def test_dask_moves_without_computing() -> None:
    xp = importlib.import_module("array_api_compat.dask.array") if pytest.importorskip("dask.array") else None
    x = random(4, 6)
    lazy = xp.asarray(x)
    assert arrays.namespace(lazy) is xp
    moved = arrays.pad(
        xp, arrays.strided_slice(xp, arrays.tile(xp, lazy, (1, 2)), (0, -1), (4, None), (2, -3)), (1, -1), (0, 2), "reflect"
    )
    want = np.pad(np.tile(x, (1, 2))[::2, ::-3], [(1, 0), (0, 2)], mode="reflect")[:, 1:]
    assert type(moved).__module__.startswith("dask")
    same(arrays.to_numpy(moved), want)
