"""Caches that a call extends in place: their bits are those without, and no array that was returned changes.

A sum over a cache may add in another order, since the axis that grows is the outermost one in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import EngineError
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

SIZE = 8
Arrays = dict[str, np.ndarray[Any, Any]]


def decoder(axis: int = 2, dtype: str = "f32") -> dovetail.Model:
    """Attention of new tokens over two caches, [batch, heads, length, size] with the length at ``axis``."""
    chance = np.random.default_rng(0)
    with dovetail.Builder("decoder") as b:
        x = b.input("x", "f32", ("batch", "t", 2 * SIZE))
        sizes: list[Any] = ["batch", 2, SIZE]
        sizes.insert(axis, "past")
        pasts = [b.input(name, dtype, sizes) for name in ("past_k", "past_v")]
        order = [0, 2, 3]
        order.insert(axis, 1)
        back = [order.index(position) for position in range(4)]
        q, *new = (
            b.Reshape(b.MatMul(x, chance.standard_normal((2 * SIZE, 2 * SIZE)).astype("f4")), [0, -1, 2, SIZE]) for _ in range(3)
        )
        keys, values = (
            b.Concat(past, b.Transpose(b.Cast(part, to=dtype), order), axis=axis) for past, part in zip(pasts, new, strict=True)
        )
        k, v = (b.Transpose(b.Transpose(b.Cast(each, to="f32"), back), [0, 2, 1, 3]) for each in (keys, values))
        y = b.MatMul(b.Softmax(b.MatMul(b.Transpose(q, [0, 2, 1, 3]), k, transpose_b=True), axis=-1), v)
        b.output("y", b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [0, -1, 2 * SIZE]))
        b.output("keys", keys)
        b.output("values", values)
    return b.model


CACHES = {"past_k": "keys", "past_v": "values"}


def inputs_of(seed: int, batch: int = 2, t: int = 1) -> Arrays:
    return {"x": np.random.default_rng(seed).standard_normal((batch, t, 2 * SIZE)).astype("f4")}


def empty(axis: int = 2, dtype: Any = "f4", batch: int = 2) -> Arrays:
    sizes = [batch, 2, SIZE]
    sizes.insert(axis, 0)
    return {name: np.zeros(sizes, dtype) for name in CACHES}


def step(program: dovetail.Program, caches: Arrays, seed: int, t: int = 1) -> tuple[dict[str, Any], Arrays]:
    found = program({**inputs_of(seed, t=t), **caches})
    return dict(found), {name: found[output] for name, output in CACHES.items()}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_caches_that_grow_have_the_bits_of_a_plain_program(axis: int, dtype: str) -> None:
    model = decoder(axis, dtype)
    plain, program = dovetail.compile(model, threads=1), dovetail.compile(model, threads=1, reuse_caches=True)
    kept = wanted = empty(axis, np.float16 if dtype == "f16" else np.float32)
    for seed in range(80):
        found, kept = step(program, kept, seed, t=1 + seed % 3)
        expected, wanted = step(plain, wanted, seed, t=1 + seed % 3)
        for name in expected.keys():
            assert found[name].tobytes() == expected[name].tobytes(), (seed, name)


@pytest.mark.skipif(native_core.instruction_set() not in ("avx2", "avx512", "amx"), reason="the processor has no AVX2")
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_reproducible_programs_have_one_digest_with_caches_and_without(axis: int) -> None:
    found: list[list[dict[str, bytes]]] = []
    for threads, reuse_caches in ((1, False), (1, True), (3, True)):
        program = dovetail.compile(decoder(axis), threads=threads, reuse_caches=reuse_caches, reproducible=True)
        caches, results = empty(axis), []
        for seed in range(60):
            outputs, caches = step(program, caches, seed, t=1 + seed % 3)
            results.append({name: value.tobytes() for name, value in outputs.items()})
        found.append(results)
    assert found[1] == found[0] and found[2] == found[0]


def test_a_step_copies_no_cache() -> None:
    program = dovetail.compile(decoder(), threads=1, reuse_caches=True)
    kept, row = empty(), 4 * 2 * 2 * SIZE
    for seed in range(1200):
        before = program.statistics.copied_cache_bytes
        found, longer = step(program, kept, seed)
        if program.statistics.copied_cache_bytes == before and seed > 0:
            assert np.shares_memory(longer["past_k"], kept["past_k"]) and np.shares_memory(found["values"], kept["past_v"])
        kept = longer
    # The first block holds 1024 rows; the next one is made for twice as many.
    assert program.statistics.copied_cache_bytes == 2 * 1024 * row


@pytest.mark.parametrize("threads", [False, True], ids=["in order", "two threads"])
def test_two_continuations_of_one_cache(threads: bool) -> None:
    model = decoder()
    plain, program = dovetail.compile(model, threads=1), dovetail.compile(model, threads=1, reuse_caches=True)
    _, root = step(program, empty(), 0, t=5)
    returned: list[tuple[np.ndarray[Any, Any], bytes]] = [(array, array.tobytes()) for array in root.values()]
    barrier = Barrier(2)

    def go_on(first: int) -> list[tuple[np.ndarray[Any, Any], bytes]]:
        kept = wanted = root
        arrays = []
        for seed in range(first, first + 20):
            if threads:
                barrier.wait()
            found, kept = step(program, kept, seed)
            expected, wanted = step(plain, wanted, seed)
            assert all(found[name].tobytes() == expected[name].tobytes() for name in expected.keys()), seed
            arrays += [(array, array.tobytes()) for array in kept.values()]
        return arrays

    if threads:
        with ThreadPoolExecutor(2) as pool:
            for arrays in pool.map(go_on, (100, 200)):
                returned += arrays
    else:
        returned += go_on(100) + go_on(200)
    assert all(array.tobytes() == content for array, content in returned)


def test_arrays_that_are_no_caches_of_the_program() -> None:
    model = decoder()
    plain, program = dovetail.compile(model, threads=1), dovetail.compile(model, threads=1, reuse_caches=True)
    _, kept = step(program, empty(), 0, t=6)
    k = kept["past_k"]
    contents = k.tobytes()
    others = [k[:, :, :4], k[:, :, 2:], k[:1], k[:, ::-1], np.asfortranarray(k), kept["past_v"], k.copy(), k[:, :, ::2]]
    for seed, other in enumerate(others):
        if len(other) == 1:
            continue
        caches = {"past_k": other, "past_v": other}
        found, expected = step(program, caches, seed)[0], step(plain, caches, seed)[0]
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected.keys()), seed
    assert k.tobytes() == contents


def test_targets_of_the_caller() -> None:
    model = decoder()
    program = dovetail.compile(model, threads=1, reuse_caches=True)
    target = np.zeros((2, 2, 1, SIZE), np.float32)
    found = program({**inputs_of(0), **empty()}, out={"keys": target})
    assert found["keys"] is target and target.any()
    again = program({**inputs_of(1), "past_k": target, "past_v": found["values"]})
    assert again["keys"][:, :, :1].tobytes() == target.tobytes()


# Sessions


def test_a_session_keeps_caches() -> None:
    model = decoder()
    plain, session = dovetail.compile(model, threads=1), dovetail.compile(model, threads=1, reuse_caches=True).session()
    for _ in range(2):
        wanted = empty()
        for seed in range(30):
            found = session(inputs_of(seed))
            expected, wanted = step(plain, wanted, seed)
            assert list(found.keys()) == ["y"] and found["y"].tobytes() == expected["y"].tobytes()
        assert session.states["past_k"].tobytes() == wanted["past_k"].tobytes()
        session.reset()


def update(kind: str) -> dovetail.Model:
    """Return a cache of 32 rows, of which each call writes one, and a product with all of them."""
    with dovetail.Builder(kind) as b:
        x = b.input("x", "f32", (2, 1, SIZE))
        position = b.input("position", "i64", (2,))
        past = b.input("past", "f32", (2, 32, SIZE))
        if kind == "TensorScatter":
            cache = b.TensorScatter(past, x, position, axis=1)
        elif kind == "ScatterElements":
            indices = b.Expand(b.Reshape(position, [2, 1, 1]), [2, 1, SIZE])
            cache = b.ScatterElements(past, indices, x, axis=1)
        else:
            batch = b.constant(np.array([[0], [1]]))
            cache = b.ScatterND(past, b.Concat(batch, b.Reshape(position, [2, 1]), axis=1), b.Reshape(x, [2, SIZE]))
        b.output("y", b.MatMul(x, b.Transpose(cache, [0, 2, 1])))
        b.output("cache", cache)
    return b.model


@pytest.mark.parametrize("kind", ["ScatterND", "ScatterElements", "TensorScatter"])
def test_a_session_overwrites_the_cache_that_it_keeps(kind: str) -> None:
    model = update(kind)
    program = dovetail.compile(model, threads=1, reuse_caches=True)
    session, kept = program.session(), np.zeros((2, 32, SIZE), np.float32)
    taken: list[tuple[np.ndarray[Any, Any], bytes]] = []
    memory: Any = None
    for row in range(32):
        x = np.random.default_rng(row).standard_normal((2, 1, SIZE)).astype("f4")
        position = np.array([row, 31 - row])
        found = session({"x": x, "position": position})
        expected = dovetail.run(model, {"x": x, "position": position, "past": kept}, "interpreter")
        np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-5, atol=1e-6)
        kept = expected["cache"]
        assert session.states["past"].tobytes() == kept.tobytes()
        taken.append((session.states["past"], kept.tobytes()))
        assert memory is None or session._kept["past"] is memory
        memory = session._kept["past"]
    assert program.statistics.copied_cache_bytes == 0
    assert all(array.tobytes() == contents for array, contents in taken)


def test_a_cache_that_is_read_after_its_update() -> None:
    with dovetail.Builder("late") as b:
        past = b.input("past", "f32", (8, 4))
        cache = b.ScatterND(past, b.input("position", "i64", (2, 1)), b.input("x", "f32", (2, 4)))
        b.output("y", b.Add(b.MatMul(cache, np.eye(4, dtype=np.float32)), past))
        b.output("cache", cache)
    session, kept = dovetail.compile(b.model, threads=1, reuse_caches=True).session(), np.zeros((8, 4), np.float32)
    for row in range(7):
        inputs = {"x": np.full((2, 4), row + 1, np.float32), "position": np.array([[row], [row + 1]])}
        expected = dovetail.run(b.model, {**inputs, "past": kept}, "interpreter")
        assert session(inputs)["y"].tobytes() == expected["y"].tobytes(), row
        kept = expected["cache"]


def test_a_plain_call_leaves_the_cache_that_it_gets() -> None:
    program = dovetail.compile(update("ScatterND"), threads=1, reuse_caches=True)
    past = np.zeros((2, 32, SIZE), np.float32)
    inputs = {"x": np.ones((2, 1, SIZE), np.float32), "position": np.array([3, 4])}
    first = program({**inputs, "past": past})["cache"]
    contents = first.tobytes()
    program({**inputs, "position": np.array([5, 6]), "past": first})
    assert not past.any() and first.tobytes() == contents


def test_a_run_that_fails_after_an_update() -> None:
    with dovetail.Builder("fails") as b:
        x, position = b.input("x", "f32", (2, 1, SIZE)), b.input("position", "i64", (2,))
        past = b.input("past", "f32", (2, 32, SIZE))
        batch = b.constant(np.array([[0], [1]]))
        cache = b.ScatterND(past, b.Concat(batch, b.Reshape(position, [2, 1]), axis=1), b.Reshape(x, [2, SIZE]))
        b.output("cache", cache)
        b.output("row", b.Gather(b.ReduceSum(cache, [2]), b.Add(position, b.constant(1)), axis=1))
    session = dovetail.compile(b.model, threads=1, reuse_caches=True).session()
    x = np.ones((2, 1, SIZE), np.float32)
    for _ in range(3):
        session({"x": x, "position": np.array([0, 1])})
    with pytest.raises(EngineError):
        session({"x": x, "position": np.array([30, 31])})
    with pytest.raises(EngineError, match="overwritten") as raised:
        session({"x": x, "position": np.array([0, 1])})
    assert raised.value.code == "state.first"
    session.reset()
    session({"x": x, "position": np.array([0, 1])})


def test_a_call_that_is_refused_leaves_the_session_as_it_was() -> None:
    session = dovetail.compile(update("ScatterND"), threads=1, reuse_caches=True).session()
    inputs = {"x": np.ones((2, 1, SIZE), np.float32), "position": np.array([3, 4])}
    session(inputs)
    for wrong in ({"x": inputs["x"]}, {**inputs, "x": np.ones((2, 2, SIZE), np.float32)}):
        with pytest.raises(EngineError):
            session(wrong)
    assert session(inputs["x"], inputs["position"])["y"].shape == (2, 1, 32)
    session.states["past"] = np.zeros((2, 32, SIZE), np.float32)
    assert not session.states["past"].any()


def test_growth_that_data_decides_is_no_cache() -> None:
    with dovetail.Builder("data") as b:
        past, x = b.input("past", "i64", ("p", 1)), b.input("x", "f32", ("n",))
        b.output("all", b.Concat(past, b.Transpose(b.NonZero(x), [1, 0]), axis=0))
    program = dovetail.compile(b.model, reuse_caches=True)
    kept = np.zeros((0, 1), np.int64)
    for count in (3, 0, 2):
        kept = program(past=kept, x=np.ones(count, np.float32))["all"]
    assert kept.ravel().tolist() == [0, 1, 2, 0, 1]


def test_sums_over_a_cache() -> None:
    chance = np.random.default_rng(0)
    with dovetail.Builder("sums") as b:
        both = b.Concat(b.input("past", "f32", (5, "p", 17)), b.input("x", "f32", (5, "t", 17)), axis=1)
        b.output("both", both)
        for number, axes in enumerate(([0, 1], [1, 2], [1], [0, 1, 2])):
            b.output(f"sum{number}", b.ReduceSum(both, axes))
    plain, program = dovetail.compile(b.model, threads=1), dovetail.compile(b.model, threads=1, reuse_caches=True)
    kept = np.zeros((5, 0, 17), np.float32)
    for t in (1, 7, 1, 3):
        inputs = {"past": kept, "x": chance.standard_normal((5, t, 17)).astype("f4")}
        found, wanted = program(inputs), plain(inputs)
        assert found["both"].tobytes() == wanted["both"].tobytes()
        for name in wanted.keys():
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)
        kept = found["both"]


def test_a_cache_beyond_memory() -> None:
    with dovetail.Builder("huge") as b:
        b.output("all", b.Concat(b.input("past", "f32", ("p", 4)), b.input("x", "f32", (1, 4)), axis=0))
    program = dovetail.compile(b.model, reuse_caches=True)
    with pytest.raises(EngineError) as raised:
        program(past=np.broadcast_to(np.zeros((1, 4), np.float32), (1 << 40, 4)), x=np.ones((1, 4), np.float32))
    assert raised.value.code == "run.memory"


def test_a_cache_without_a_known_first_value() -> None:
    with dovetail.Builder("unknown") as b:
        past = b.input("past", "f32", ("rows", "size"))
        b.output("now", b.ScatterND(past, b.input("at", "i64", (1, 1)), b.input("x", "f32", (1, "size"))))
    session = dovetail.compile(b.model, reuse_caches=True).session()
    call = {"at": np.array([[1]]), "x": np.ones((1, 3), np.float32)}
    with pytest.raises(EngineError) as raised:
        session(call)
    assert raised.value.code == "state.first"
    session({**call, "past": np.zeros((4, 3), np.float32)})
    session({**call, "at": np.array([[2]])})
    assert session.states["past"].tolist() == [[0] * 3, [1] * 3, [1] * 3, [0] * 3]


def concat_state(path: Path) -> Path:
    from openvino import Model, PartialShape, Shape, Type, op, opset6 as o, serialize
    from openvino.op.util import Variable, VariableInfo

    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = PartialShape([-1, 3]), Type.f32, "memory"
    variable = Variable(info)
    x = o.parameter([-1, 3], np.float32, name="x")
    x.output(0).get_tensor().set_names({"x"})
    after = o.concat([o.read_value(op.Constant(Type.f32, Shape([0, 3]), []), variable), x], 0)
    total = o.reduce_sum(after, o.constant(np.int64([0])), True)
    total.output(0).get_tensor().set_names({"y"})
    serialize(Model([o.result(total)], [o.assign(after, variable)], [x], "state"), path)
    return path


def scatter_state(path: Path) -> Path:
    from openvino import Model, PartialShape, Type, opset6 as o, serialize
    from openvino.op.util import Variable, VariableInfo

    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = PartialShape([8, 3]), Type.f32, "memory"
    variable = Variable(info)
    x = o.parameter([1, 3], np.float32, name="x")
    x.output(0).get_tensor().set_names({"x"})
    at = o.convert(o.floor(o.reduce_sum(o.abs(x), o.constant(np.int64([0, 1])), False)), "i64")
    at = o.reshape(o.mod(at, o.constant(np.int64(8))), o.constant(np.int64([1])), False)
    before = o.read_value(o.constant(np.zeros((8, 3), np.float32)), variable)
    after = o.scatter_update(before, at, x, o.constant(np.int64(0)))
    total = o.reduce_sum(after, o.constant(np.int64([0])), True)
    total.output(0).get_tensor().set_names({"y"})
    serialize(Model([o.result(total)], [o.assign(after, variable)], [x], "state"), path)
    return path


@pytest.mark.parametrize("make", [concat_state, scatter_state], ids=lambda make: make.__name__)
def test_states_of_openvino(make: Callable[[Path], Path], tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path = make(tmp_path / "state.xml")
    request = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    program = dovetail.compile(path, threads=1, reuse_caches=True)
    session, copied = program.session(), []
    for seed in range(60):
        x = np.random.default_rng(seed).normal(size=(1, 3)).astype(np.float32) * 3
        np.testing.assert_allclose(session({"x": x})["y"], request.infer([x])[0], rtol=1e-5, atol=1e-5)
        copied.append(program.statistics.copied_cache_bytes)
    assert copied[-1] == copied[2]
