"""The bits of an answer do not depend on the sizes that a program was called with before."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.host import native_core
from dovetail.ops.nn.interpolation import COORDINATES, NEAREST
from networks.generator import generate
from networks.size_comparison import compare_sizes, open_sizes

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

NETWORKS = 400
COUNT = 25
"""Networks of one test."""


@pytest.mark.parametrize("first", range(0, NETWORKS, COUNT))
def test_random_networks_with_open_sizes(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "DOVETAIL_VERIFY", "1")
    failures: dict[int, str] = {}
    count = 0
    for seed in range(first, first + COUNT):
        model = generate(seed).model()
        if open_sizes(model):
            count += 1
            if text := compare_sizes(model, seed):
                failures[seed] = text
    assert failures == {} and count >= COUNT // 10


def decoder() -> dovetail.Model:
    """Return a layer of attention over a cache: the mask and the scale of positions follow from its length."""
    chance = np.random.default_rng(0)
    with dovetail.Builder("decoder") as b:
        x = b.input("x", "f32", ("batch", "t", 16))
        past = b.input("past", "f32", ("batch", 2, "past", 8))
        q, k = (
            b.Transpose(b.Reshape(b.MatMul(x, chance.standard_normal((16, 16)).astype("f4")), [0, -1, 2, 8]), [0, 2, 1, 3])
            for _ in range(2)
        )
        keys = b.Concat(past, k, axis=2)
        length = b.Slice(b.Shape(keys), [2], [3], [0], [1])
        positions = b.Cast(b.Range(b.constant(0), b.Squeeze(length, [0]), b.constant(1)), to="f32")
        scores = b.Add(b.MatMul(q, keys, transpose_b=True), b.Divide(positions, b.Cast(length, to="f32")))
        y = b.MatMul(b.Softmax(scores, axis=-1), keys)
        b.output("y", b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, -1, 16]))
        b.output("keys", keys)
    return b.model


def calls(model: dovetail.Model, sizes: list[dict[str, int]]) -> dovetail.Program:
    """Return a program after calls with these sizes; the bits of each are those of a new program."""
    program = dovetail.compile(model, "native", threads=1)
    for each in sizes:
        chance = np.random.default_rng(sum(each.values()))
        inputs: dict[str, Any] = {
            "x": chance.standard_normal((each["batch"], each["t"], 16)).astype("f4"),
            "past": chance.standard_normal((each["batch"], 2, each["past"], 8)).astype("f4"),
        }
        found, wanted = program(inputs), dovetail.compile(model, "native", threads=1)(inputs)
        for name in wanted.keys():
            np.testing.assert_array_equal(found[name], wanted[name])
    return program


def test_a_cache_that_grows_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "dovetail"):
        calls(decoder(), [{"batch": 1, "t": 1, "past": past} for past in range(128)])
    served = [record.message for record in caplog.records if "one plan serves" in record.message]
    assert [text.rpartition(" ")[2] for text in served] == ["past=2..4095"]


def test_sizes_that_change_together(caplog: pytest.LogCaptureFixture) -> None:
    chance = np.random.default_rng(1)
    sizes = [{"batch": int(chance.integers(2, 8)), "t": 3, "past": int(chance.integers(8, 32))} for _ in range(40)]
    with caplog.at_level("INFO", "dovetail"):
        calls(decoder(), sizes)
    assert any("one plan serves batch=2..4095, past=2..4095" in record.message for record in caplog.records)


def masked(layers: int = 3) -> dovetail.Model:
    """Return layers of attention over caches with lengths of their own, and a mask over all tokens."""
    chance = np.random.default_rng(0)
    with dovetail.Builder("masked") as b:
        y = b.input("x", "f32", (1, "t", 8))
        bias = b.Multiply(b.Subtract(b.constant(np.float32(1)), b.input("mask", "f32", (1, "total"))), b.constant(np.float32(-9)))
        for layer in range(layers):
            past = b.input(f"past_{layer}", "f32", (1, f"past_{layer}", 8))
            keys = b.Concat(past, b.MatMul(y, chance.standard_normal((8, 8)).astype("f4")), axis=1)
            y = b.MatMul(b.Softmax(b.Add(b.MatMul(y, keys, transpose_b=True), bias), axis=-1), keys)
            b.output(f"keys_{layer}", keys)
        b.output("y", y)
    return b.model


def masked_inputs(past: int, t: int, total: int, layers: int = 3) -> dict[str, Any]:
    chance = np.random.default_rng(past)
    caches = {f"past_{layer}": chance.standard_normal((1, past, 8)).astype("f4") for layer in range(layers)}
    mask = (chance.random((1, total)) < 0.8).astype("f4")
    return {"x": chance.standard_normal((1, t, 8)).astype("f4"), "mask": mask, **caches}


@pytest.mark.parametrize("layers", [1, 6])
def test_symbols_that_grow_together_have_one_plan(layers: int, caplog: pytest.LogCaptureFixture) -> None:
    model = masked(layers)
    program = dovetail.compile(model, threads=1)
    lengths = [(past, 1, past + 1) for past in range(24)]
    # Then the mask is one column for all tokens, three tokens come at once, and calls of one token go on.
    lengths += [(40, 1, 1), (41, 1, 1), (60, 3, 63), (63, 3, 66), *((past, 1, past + 1) for past in range(66, 90))]
    with caplog.at_level("INFO", "dovetail"):
        for past, t, total in lengths:
            inputs = masked_inputs(past, t, total, layers)
            found, wanted = program(inputs), dovetail.compile(model, threads=1)(inputs)
            assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted.keys()), (past, t, total)
    assert any("one plan serves past_0=2..4095" in record.message for record in caplog.records)
    # The plan was made in the first 24 calls, and serves the last 24.
    assert program.statistics.plans <= 16
    with pytest.raises(DovetailError, match="cannot be broadcast"):
        program(masked_inputs(30, 1, 30, layers))


def test_symbols_that_grow_together_and_then_apart() -> None:
    with dovetail.Builder() as b:
        x, z = b.input("x", "f32", ("n", 4)), b.input("z", "f32", ("m", 4))
        rows = b.Concat(x, b.Tanh(z), axis=0)
        b.output("y", b.Softmax(b.MatMul(rows, b.Transpose(z, [1, 0])), axis=-1))
    program, other = dovetail.compile(b.model, threads=1), dovetail.compile(b.model, "interpreter")
    rng = np.random.default_rng(0)
    together = [(n, n + offset) for offset, count in ((1, 28), (7, 9)) for n in range(2, 2 + count)]
    for n, m in (*together, (5, 2), (9, 3), (30, 31), (31, 30), (1, 2), (2, 3), (2, 2)):
        inputs = {name: rng.standard_normal((size, 4), np.float32) for name, size in (("x", n), ("z", m))}
        np.testing.assert_allclose(program(inputs)["y"], other(inputs)["y"], rtol=1e-5, atol=1e-6)
    assert program.statistics.ranges > 0


def test_prepared_symbols_that_grow_together() -> None:
    program = dovetail.compile(masked(), threads=1)
    program.prepare([{"t": 1, "total": past + 1, **{f"past_{layer}": past for layer in range(3)}} for past in (2, 500)])
    plans = program.statistics.plans
    for past in (3, 70, 400):
        program(masked_inputs(past, 1, past + 1))
    assert program.statistics.plans == plans


@pytest.mark.parametrize("kind", ["Add", "Where", "MatMul", "weights"])
def test_a_row_of_a_table_that_a_size_selects(kind: str) -> None:
    """A slice of a constant table is a view of it, whose address depends on the size."""
    table = np.random.default_rng(0).standard_normal((64, 8)).astype("f4")
    with dovetail.Builder(kind) as b:
        past, x = b.input("past", "f32", ("past", 4)), b.input("x", "f32", (1, 8))
        first = b.Gather(b.Shape(past), [0], axis=0)
        row = b.Slice(b.constant(table > 0 if kind == "Where" else table), first, b.Add(first, b.constant([1])), [0], [1])
        if kind == "Where":
            y = b.Where(row, x, np.float32(-1))
        elif kind == "weights":
            y = b.MatMul(x, b.Transpose(row, [1, 0]))
        else:
            y = b.Add(x, row) if kind == "Add" else b.MatMul(row, b.Transpose(x, [1, 0]))
        b.output("y", y)
    program = dovetail.compile(b.model, threads=1)
    for size in range(40):
        column = np.random.default_rng(size).standard_normal((1, 8)).astype("f4")
        rows = table[size : size + 1]
        wanted = {
            "Add": column + rows,
            "Where": np.where(rows > 0, column, -1),
            "MatMul": rows @ column.T,
            "weights": column @ rows.T,
        }
        found = program(past=np.zeros((size, 4), np.float32), x=column)["y"]
        np.testing.assert_allclose(found, wanted[kind], rtol=1e-4, atol=1e-5)
    assert program.statistics.ranges == 1 and program.statistics.plans <= 12


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("has_mask", [False, True], ids=["plain", "mask"])
def test_a_causal_table(tokens: int, has_mask: bool) -> None:
    """The rows and columns of a constant table are chosen by the sizes; the table ends at 64 tokens."""
    chance = np.random.default_rng(0)
    with dovetail.Builder("table") as b:
        past, x = b.input("past", "f32", (1, "past", 4)), b.input("x", "f32", (1, "t", 4))
        before, length = (b.Gather(b.Shape(value), [1], axis=0) for value in (past, x))
        total = b.Add(before, length)
        keys = b.Concat(past, x, axis=1)
        rows = b.Slice(b.constant(np.tril(np.ones((64, 64), bool))), before, total, [0], [1])
        scores = b.Where(b.Slice(rows, [0], total, [1], [1]), b.MatMul(x, keys, transpose_b=True), np.float32(-1e9))
        if has_mask:
            scores = b.Add(scores, b.input("mask", "f32", (1, "total")))
        b.output("y", b.MatMul(b.Softmax(scores, axis=-1), keys))
    program = dovetail.compile(b.model, threads=1)
    for size in range(65 - tokens):
        inputs = {
            "past": chance.standard_normal((1, size, 4), np.float32),
            "x": chance.standard_normal((1, tokens, 4), np.float32),
        }
        if has_mask:
            inputs["mask"] = chance.standard_normal((1, size + tokens), np.float32)
        wanted = dovetail.compile(b.model, "interpreter")(inputs)["y"]
        np.testing.assert_allclose(program(inputs)["y"], wanted, rtol=1e-4, atol=1e-5)
    assert program.statistics.ranges == 1 and program.statistics.plans <= 16
    inputs = {"past": np.zeros((1, 70, 4), np.float32), "x": np.zeros((1, 2, 4), np.float32)}
    with pytest.raises(DovetailError):
        program({**inputs, "mask": np.zeros((1, 72), np.float32)} if has_mask else inputs)


def test_a_constant_that_one_size_decides() -> None:
    """(n * m) // 2 is affine in n for m = 2 alone, so that what follows from n is a constant of each plan."""
    with dovetail.Builder("one") as b:
        x = b.input("x", "f32", ("n", "m"))
        n, m = (b.Slice(b.Shape(x), [axis], [axis + 1], [0], [1]) for axis in (0, 1))
        chosen = b.Where(b.Equal(n, b.constant([20])), b.constant(np.float32(5)), b.constant(np.float32(1)))
        b.output("y", b.Add(x, chosen))
        b.output("z", b.Slice(b.Reshape(x, [-1]), [0], b.Divide(b.Multiply(n, m), b.constant([2])), [0], [1]))
    program = dovetail.compile(b.model, "native", threads=1)
    for size in (8, 9, 10, 11, 20, 31, 20):
        found = program(np.zeros((size, 2), np.float32))
        assert found["y"][0, 0] == (5 if size == 20 else 1) and len(found["z"]) == size


def served(model: dovetail.Model, shapes: list[tuple[int, ...]], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the ranges with one plan after calls with inputs of these shapes, each with the bits of a new program."""
    with caplog.at_level("INFO", "dovetail"):
        program = dovetail.compile(model, "native", threads=1)
        for shape in shapes:
            x = np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")
            assert program(x)["y"].tobytes() == dovetail.compile(model, "native", threads=1)(x)["y"].tobytes()
    assert program.statistics.cached_sizes == len(set(shapes))
    texts = [record.message for record in caplog.records]
    return [text.partition(" serves ")[2] for text in texts if " serves " in text]


def test_pictures_of_all_sizes_have_one_plan(caplog: pytest.LogCaptureFixture) -> None:
    chance = np.random.default_rng(3)
    with dovetail.Builder("pictures") as b:
        y = b.input("x", "f32", (1, 3, "height", "width"))
        for before in (3, 4, 4):
            y = b.Relu(b.Conv(y, chance.standard_normal((4, before, 3, 3)).astype("f4"), strides=(2, 2), pads=(1, 1, 1, 1)))
        b.output("y", b.MaxPool(y, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)))
    sizes = [(1, 3, *map(int, pair)) for pair in chance.integers(9, 100, (40, 2))]
    assert served(b.model, sizes, caplog) == ["height=9..4088, width=9..4088"]


def test_sounds_of_all_lengths_have_one_plan(caplog: pytest.LogCaptureFixture) -> None:
    chance = np.random.default_rng(5)
    with dovetail.Builder("sounds") as b:
        y = b.input("x", "f32", (1, 1, "length"))
        for before, size, stride in ((1, 10, 5), (8, 3, 2), (8, 4, 3), (8, 2, 2)):
            y = b.Gelu(b.Conv(y, chance.standard_normal((8, before, size)).astype("f4"), strides=(stride,)))
        b.output("y", b.Softmax(b.MatMul(b.Transpose(y, [0, 2, 1]), y)))
    sizes = [(1, 1, int(length)) for length in chance.integers(200, 4000, 80)]
    assert served(b.model, sizes, caplog) == ["length=140..4039"]


def test_sizes_a_period_apart_have_one_plan(caplog: pytest.LogCaptureFixture) -> None:
    chance = np.random.default_rng(3)
    with dovetail.Builder("branches") as b:
        x = b.input("x", "f32", (1, 3, "height", "width"))
        one, other = (b.Conv(x, chance.standard_normal((4, 3, k, k)).astype("f4"), strides=(2, 2)) for k in (2, 3))
        b.output("y", b.Softmax(b.Reshape(one, [0, 4, -1]), axis=-1))
        b.output("z", other)
    sizes = [(1, 3, *map(int, pair)) for pair in chance.integers(7, 40, (40, 2))]
    text = "height={}..409{} in steps of 2, width={}..409{} in steps of 2"
    expected = [text.format(6 - high % 2, 4 + high % 2, 6 - wide % 2, 4 + wide % 2) for high in (0, 1) for wide in (0, 1)]
    assert sorted(served(b.model, sizes, caplog)) == sorted(expected)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", [name for name in COORDINATES if name != "tf_crop_and_resize"])
def test_resizes_to_all_sizes(mode: str, coordinates: str) -> None:
    chance = np.random.default_rng(6)
    roundings = NEAREST if mode == "nearest" else NEAREST[:1]
    with dovetail.Builder("resizes") as b:
        x, like = b.input("x", "f32", (1, 2, "n")), b.input("like", "f32", ("m",))
        for nearest in roundings:
            for excludes in (False, True):
                options = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
                options |= {"axes": (2,), "exclude_outside": excludes}
                b.output(f"{nearest}{excludes}", b.Resize(x, b.Shape(like), **options))
                factors = b.constant(np.float32([1.7]))
                b.output(f"{nearest}{excludes}_scaled", b.Resize(x, None, factors, **options))
    program = dovetail.compile(b.model, "native", threads=1)
    for n, m in [*chance.integers(1, 50, (30, 2)), (7, 7), (2, 60), (100, 99)]:
        inputs = {"x": chance.standard_normal((1, 2, n)).astype("f4"), "like": np.zeros(m, np.float32)}
        found, wanted = program(inputs), dovetail.interpret(b.model, inputs)
        for name in wanted.keys():
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, atol=1e-6 if mode != "nearest" else 0)


def test_a_pyramid_of_pictures_has_one_plan(caplog: pytest.LogCaptureFixture) -> None:
    chance = np.random.default_rng(7)
    with dovetail.Builder("pyramid") as b:
        y, maps = b.input("x", "f32", (1, 3, "height", "width")), []
        for before in (3, 8, 8):
            weights = chance.standard_normal((8, before, 3, 3)).astype("f4")
            y = b.Relu(b.Conv(y, weights, strides=(2, 2), pads=(1, 1, 1, 1)))
            maps.append(y)
        for finer, mode in ((maps[1], "nearest"), (maps[0], "linear")):
            size = b.Slice(b.Shape(finer), [2], [4], [0], [1])
            y = b.Add(finer, b.Resize(y, size, mode=mode, axes=(2, 3), coordinate_transformation_mode="asymmetric"))
        b.output("y", y)
    sizes = [(1, 3, *map(int, pair)) for pair in chance.integers(9, 100, (24, 2))]
    assert served(b.model, sizes, caplog) == ["height=9..4088, width=9..4088"]


@pytest.mark.parametrize(("strides", "sizes"), [(1, "4..4094 in steps of 2"), (5, "64..4064 in steps of 32")])
def test_batches_of_pictures_of_sizes_that_strides_divide_have_one_plan(
    strides: int, sizes: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The skip connection refuses sizes that the strides do not divide; five digits of three sizes demand too many plans."""
    chance = np.random.default_rng(8)
    period = 2**strides
    with dovetail.Builder("detector") as b:
        x = y = b.input("x", "f32", ("batch", 3, "height", "width"))
        for _ in range(strides):
            y = b.Relu(b.Conv(y, chance.standard_normal((3, 3, 3, 3)).astype("f4"), strides=(2, 2), pads=(1, 1, 1, 1)))
        b.output("y", b.Add(x, b.Resize(y, None, b.constant(np.float32([period, period])), axes=(2, 3), mode="nearest")))
    shapes = [(int(n), 3, period * int(h), period * int(w)) for n, h, w in zip(*chance.integers(2, 7, (3, 14)), strict=True)]
    assert served(b.model, shapes, caplog) == [f"batch=2..4095, height={sizes}, width={sizes}"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_positions_as_floats_have_one_plan(dtype: str, caplog: pytest.LogCaptureFixture) -> None:
    start, step = (np.array(number, dtype.replace("f32", "f4").replace("f64", "f8")) for number in (1, 2))
    with dovetail.Builder("positions") as b:
        x = b.input("x", "f32", ("n", 3))
        length = b.Gather(b.Shape(x), b.constant(0), axis=0)
        numbers = b.Range(start, b.Cast(b.Add(b.Add(length, length), b.constant(1)), to=dtype), step)
        b.output("y", b.Multiply(x, b.Unsqueeze(b.Cast(numbers, to="f32"), [1])))
        b.output("limit", b.Range(start, b.Cast(length, to=dtype), step))
    assert str(b.model.outputs[1].type) == f"{dtype}[n//2]"
    assert served(b.model, [(n, 3) for n in (2, 3, 70, 9, 40, 41, 8)], caplog) == ["n=4..4095"]


def test_a_range_of_floats_is_as_long_as_its_rounded_limit() -> None:
    with dovetail.Builder("long") as b:
        x = b.input("x", "u8", ("n",))
        limit = b.Cast(b.Gather(b.Shape(x), b.constant(0), axis=0), to="f32")
        b.output("y", b.Range(np.float32(0), limit, np.float32(1)))
    for length in (1 << 24, (1 << 24) + 1):
        x = np.zeros(length, np.uint8)
        wanted = dovetail.interpret(b.model, {"x": x})["y"]
        try:
            found = dovetail.compile(b.model, "native")(x)["y"]
        except EngineError as error:
            assert length > 1 << 24 and error.code == "run.shape"
        else:
            assert found.tobytes() == wanted.tobytes()


def test_a_table_that_ends(caplog: pytest.LogCaptureFixture) -> None:
    chance = np.random.default_rng(4)
    with dovetail.Builder("positions") as b:
        x = b.input("x", "f32", (1, "n", 8))
        length = b.Slice(b.Shape(x), [1], [2], [0], [1])
        table = b.constant(chance.standard_normal((1, 40, 8)).astype("f4"))
        places = b.Slice(table, [0], length, [1], [1])
        b.output("y", b.Concat(b.Multiply(x, 2.0), places, axis=1))
    sizes = [(1, int(n), 8) for n in (2, 3, 9, 40, 39, 41, 17, 60, 100, 42, 50, 1, 0, 38)]
    assert served(b.model, sizes, caplog) == ["n=2..40", "n=41..4095"]


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_of_several_threads_with_changing_sizes(threads: int) -> None:
    model, chance = decoder(), np.random.default_rng(2)
    feeds = [
        {
            "x": chance.standard_normal((batch, t, 16)).astype("f4"),
            "past": chance.standard_normal((batch, 2, past, 8)).astype("f4"),
        }
        for batch, t, past in zip(*(chance.integers(low, high, 60) for low, high in ((1, 6), (1, 4), (0, 70))), strict=True)
    ]
    program = dovetail.compile(model, "native", threads=threads)
    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(program, feeds))
    for feed, *found in zip(feeds, every, program.map(feeds, streams=3), strict=True):
        wanted = dovetail.compile(model, "native", threads=threads)(feed)
        assert all(each[name].tobytes() == wanted[name].tobytes() for each in found for name in wanted.keys())


def test_prepare_plans_for_sizes() -> None:
    sizes = [{"batch": 1, "t": 1, "past": past} for past in (4, 90)]
    program = dovetail.compile(decoder(), "native", threads=1)
    program.prepare(sizes)
    before = program.statistics
    for past in (17, 4, 2000, 90, 33):
        x, cache = np.ones((1, 1, 16), np.float32), np.ones((1, 2, past, 8), np.float32)
        found, wanted = program(x, cache), dovetail.compile(decoder(), "native", threads=1)(x, cache)
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted.keys())
    assert before.ranges == 1 and program.statistics.plans == before.plans


WRONG_SIZES: list[Any] = [{"batch": 1}, {"batch": 1, "t": 1, "past": 2, "other": 3}, {}, 5, None]
WRONG_SIZES += [{"batch": 1, "t": 1, "past": past} for past in (-1, "2", 1.5, None)]


@pytest.mark.parametrize("sizes", WRONG_SIZES)
def test_wrong_sizes_are_refused(sizes: Any) -> None:
    with pytest.raises(EngineError) as raised:
        dovetail.compile(decoder(), "native").prepare([sizes])
    assert raised.value.code == "argument.value"


def test_a_range_with_sizes_that_are_refused() -> None:
    with dovetail.Builder("two") as b:
        x = b.input("x", "f32", ("n", "m", 3))
        weights, state = (np.ones(shape, np.float32) for shape in ((1, 5, 3), (1, 2, 5)))
        y = b.RNN(x, weights, np.ones((1, 5, 5), np.float32), None, None, state, hidden_size=5)[0]
        b.output("y", b.Transpose(y, [0, 2, 1, 3]))
    program = dovetail.compile(b.model, "native", threads=1)
    for n, m in ((4, 2), (4, 3), (5, 2), (4, 3), (6, 2), (7, 3), (7, 2), (8, 2)):
        x, own = np.full((n, m, 3), 0.1, np.float32), dovetail.compile(b.model, "native", threads=1)
        if m == 2:
            assert program(x)["y"].tobytes() == own(x)["y"].tobytes()
        else:
            with pytest.raises(EngineError) as expected:
                own(x)
            with pytest.raises(EngineError) as raised:
                program(x)
            assert str(raised.value) == str(expected.value)


def test_a_step_that_fails_at_a_size_of_a_range() -> None:
    """The error is that of a program which has this size alone."""
    with dovetail.Builder("choose") as b:
        x, index = b.input("x", "f32", ("n", 4)), b.input("index", "i64", (2,))
        b.output("y", b.Relu(b.Gather(b.Relu(x), index, axis=0)))
    program = dovetail.compile(b.model, "native", threads=1)
    for size in (8, 9, 10, 11, 12, 13):
        x = np.ones((size, 4), np.float32)
        assert program(x, np.array([0, size - 1]))["y"].shape == (2, 4)
        for _ in range(2):
            with pytest.raises(EngineError) as raised:
                program(x, np.array([0, size]))
            with pytest.raises(EngineError) as wanted:
                dovetail.compile(b.model, "native", threads=1)(x, np.array([0, size]))
            assert str(raised.value) == str(wanted.value) and raised.value.code == "index.range"
    assert program.statistics.ranges == 1
