"""The kernels of ai.onnx.ml (LabelEncoder, distances of support vectors), and random numbers, against loops and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail import Graph, compile, plan
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Model
from dovetail.ir.host import native_core
from dovetail.ops.ml.label_encoder import LabelEncoder
from dovetail.ops.ml.svm import SquaredDistances
from dovetail.ops.random import Bernoulli, Multinomial, RandomNormal, RandomUniform, RandomUniformLike
from kernel_runner import LAYOUTS, random, run

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="the core is not compiled")

KEYS: dict[str, list[float]] = {
    "dense": [3, 1, 2, 5, 1],
    "sparse": [1000, -7, 2**40, 5],
    "ends": [-(2**63), 2**63 - 1, 0],
    "one": [4],
    "none": [],
}


def encoded(x: Any, keys: list[Any], values: Any, layout: str = "row_major") -> Any:
    y = LAYOUTS[layout](np.zeros(x.shape, values.dtype))
    run("label_encoder", [LAYOUTS[layout](x), values], [y], {"keys": keys}, constants=(1,))
    return y


def by_search(x: Any, keys: list[Any], values: Any) -> Any:
    rows = [max((i for i, key in enumerate(keys) if key == item), default=len(keys)) for item in x.reshape(-1).tolist()]
    return values[rows].reshape(x.shape)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("to", ["float32", "int64", "int16", "bool"])
@pytest.mark.parametrize("name", KEYS)
def test_label_encoder_of_integers(name: str, to: str, layout: str) -> None:
    keys = KEYS[name]
    values = random((len(keys) + 1,), to)
    for kind in ("int64", "int32", "int16"):
        info = np.iinfo(kind)
        own = [key for key in keys if info.min <= key <= info.max]
        own_values = values[: len(own) + 1]
        candidates = np.array([*own, *(key + 1 for key in own if key < info.max), 0, -1, info.min, info.max], kind)
        x = candidates[np.random.default_rng(0).integers(0, len(candidates), (3, 5, 7))]
        np.testing.assert_array_equal(encoded(x, own, own_values, layout), by_search(x, own, own_values))


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_label_encoder_of_floats(kind: str) -> None:
    keys = [0.5, -0.0, float("inf"), 0.5, 0.1]
    keys = np.array(keys, kind).tolist()
    x = np.array([[[0.5, 0.0, -0.0, np.inf, -np.inf, 0.1, 7, np.nan]]], kind)
    values = random((len(keys) + 1,))
    np.testing.assert_array_equal(encoded(x, keys, values), by_search(x, keys, values))
    with_nan = [*keys, float("nan"), float("nan")]
    values = random((len(with_nan) + 1,))
    expected = by_search(x, with_nan, values)
    expected[0, 0, -1] = values[len(keys) + 1]
    np.testing.assert_array_equal(encoded(x, with_nan, values), expected)


def test_label_encoder_of_much_and_of_nothing() -> None:
    x = np.random.default_rng(0).integers(-5, 105, (300, 1, 1000))
    values = random((101,))
    expected = np.where((x >= 0) & (x < 100), values[np.clip(x, 0, 99)], values[100])
    np.testing.assert_array_equal(encoded(x, list(range(100)), values), expected)
    assert encoded(np.zeros((0, 1, 3), np.int64), [1], random((2,))).shape == (0, 1, 3)


def test_a_table_that_does_not_fit_makes_no_step() -> None:
    for x, values, y in (
        (np.zeros((1, 1, 2), np.int64), np.zeros(3), np.zeros((1, 1, 2))),
        (np.zeros((1, 1, 2), np.int64), np.zeros(2), np.zeros((1, 1, 3))),
        (np.zeros((1, 1, 2), np.int64), np.zeros(2, np.float32), np.zeros((1, 1, 2))),
        (np.zeros((1, 1, 2), np.uint8), np.zeros(2), np.zeros((1, 1, 2))),
    ):
        with pytest.raises(ValueError, match="label_encoder"):
            run("label_encoder", [x, values], [y], {"keys": [1]}, constants=(1,))


def test_label_encoder_in_the_engine() -> None:
    b = Builder(graph=Graph())
    x = b.input("x", dtypes.i64, (2, 3))
    table = [b.constant(np.array(row)) for row in ([1, 5, 9], np.float32([0.5, 1.5, 2.5]), np.float32([-1]))]
    b.output("y", *b.add(LabelEncoder(), x, *table))
    assert not plan(Model(b.graph), rounds=0).interpreted
    y = compile(Model(b.graph), engine="native")({"x": np.array([[1, 9, 2], [5, 5, 0]])})["y"]
    np.testing.assert_array_equal(y, np.float32([[0.5, 2.5, -1], [1.5, 1.5, -1]]))


@pytest.mark.parametrize(
    ("rows", "vectors", "size"), [(1, 1, 1), (7, 31, 4), (7, 33, 4), (40, 100, 13), (3, 5, 0), (0, 4, 2), (300, 70, 50)]
)
def test_squared_distances(rows: int, vectors: int, size: int) -> None:
    x, v = random((rows, size)) + 100, random((vectors, size), seed=1) + 100
    wide = (x.astype(np.float64)[:, None] - v.astype(np.float64)) ** 2
    for layout in (np.ascontiguousarray, np.asfortranarray):
        y = layout(np.ones((rows, vectors), np.float32))
        run("squared_distances", [layout(x), layout(v)], [y], {}, constants=(1,))
        np.testing.assert_allclose(y, wide.sum(-1), rtol=1e-7, atol=0)
    np.testing.assert_allclose(SquaredDistances().evaluate(np, x, v), y, rtol=1e-6, atol=1e-9)


# Random numbers: those of numpy's generator, whatever the threads


def drawn(op: Any, *arrays: Any, engine: str = "native", threads: int = 2) -> Any:
    b = Builder(graph=Graph())
    (y,) = b.add(op, *(b.constant(array) for array in arrays))
    b.output("y", y)
    return compile(Model(b.graph), engine=engine, threads=threads)({})["y"]


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4, 5), (70_001,), (300, 501)], ids=str)
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 8), (1, 1), (2, -1), (1, 1.0000001)])
def test_random_uniform(low: float, high: float, shape: tuple[int, ...], kind: str) -> None:
    op, bounds = RandomUniform(seed=3.5, op_seed=7), (np.array(low, kind), np.array(high, kind))
    sizes = np.array(shape, np.int64)
    expected = drawn(op, sizes, *bounds, engine="interpreter")
    found = {drawn(op, sizes, *bounds, threads=threads).tobytes() for threads in (1, 2, 3)}
    assert found == {expected.tobytes()}
    assert expected.shape == shape
    generator = np.random.default_rng(op.state())
    if (low, high) == (0, 1) and kind == "float64":
        np.testing.assert_array_equal(expected, generator.random(shape))


def test_random_operators_run_natively() -> None:
    x = random((3, 5))
    for op, arrays in (
        (RandomUniformLike(1.0), (x, np.float32(0), np.float32(2))),
        (RandomNormal(1.0), (np.array([3, 5]), np.float32(0), np.float32(2))),
        (Bernoulli(1.0), (np.abs(x) / 9,)),
        (Multinomial(1.0, sample_size=9), (x,)),
    ):
        b = Builder(graph=Graph())
        inputs = {"x": arrays[0]} if arrays[0] is not x else {"x": x}
        first = b.constant(arrays[0]) if op.__class__ is RandomNormal else b.input("x", dtypes.f32, x.shape)
        (y,) = b.add(op, first, *map(b.constant, arrays[1:]))
        b.output("y", y)
        model, inputs = Model(b.graph), {} if op.__class__ is RandomNormal else {"x": arrays[0]}
        assert not plan(model, rounds=0).interpreted, op
        found, expected = (compile(model, engine=engine)(inputs)["y"] for engine in ("native", "interpreter"))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
