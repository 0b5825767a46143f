"""Programs of JAX and torch: equal to the native engine, and refusals that name what cannot be compiled."""

from __future__ import annotations

import pickle
import shutil
from typing import Any

import numpy as np
import pytest

import dovetail
from assertions import assert_close
from dovetail.errors import EngineError, UnsupportedError

BACKENDS = ("jax", "torch")


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


def classifier() -> dovetail.Model:
    """Token ids to logits, and the ids again: a table, a product, a shape that is computed on the host."""
    generator = np.random.default_rng(3)
    with dovetail.Builder() as b:
        ids = b.input("ids", "i64", ("batch", 6))
        y = b.Gather(b.constant(generator.standard_normal((50, 32), np.float32)), ids)
        y = b.Gelu(b.Add(b.MatMul(y, b.constant(generator.standard_normal((32, 64), np.float32))), np.float32(0.5)))
        y = b.Reshape(y, b.Concat(b.Slice(b.Shape(y), [0], [1]), b.constant([-1], "i64"), axis=0))
        b.output("logits", b.MatMul(y, b.constant(generator.standard_normal((384, 5), np.float32))))
        b.output("ids_next", b.Add(ids, b.constant(2**40, "i64")))
    return b.model


@pytest.fixture(scope="module")
def feed() -> dict[str, Any]:
    return {"ids": np.random.default_rng(4).integers(-50, 50, (3, 6))}


def test_results_are_those_of_the_native_engine(engine: str, feed: dict[str, Any]) -> None:
    model = classifier()
    expected = dovetail.run(model, feed)
    program = dovetail.compile(model, engine)
    for results in (program(feed), program(feed["ids"]), program(ids=feed["ids"]), pickle.loads(pickle.dumps(program))(feed)):
        assert list(results.keys()) == list(expected.keys())
        assert_close(results["logits"], expected["logits"], 1e-5)
        np.testing.assert_array_equal(results[1], expected[1])
        results[0][...] = 0
    longer = np.concatenate([feed["ids"], feed["ids"]])
    assert program(longer)["logits"].shape == (6, 5)
    out = np.zeros((3, 5), np.float32)
    assert program(feed, out={"logits": out})["logits"] is out and out.any()
    assert [result["logits"].shape for result in program.map([feed, feed])] == [(3, 5), (3, 5)]
    assert f"<Program {engine} on cpu" in repr(program)
    with program:
        pass
    with pytest.raises(EngineError, match=r"program\.closed"):
        program(feed)


def test_results_stay_on_the_device(engine: str, feed: dict[str, Any]) -> None:
    program = dovetail.compile(classifier(), engine, device=dovetail.DeviceOptions("cpu", results="device"))
    results = program(feed)
    if engine == "torch":
        ids: Any = pytest.importorskip("torch").from_numpy(feed["ids"])
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            ids = jax.numpy.asarray(feed["ids"])
    assert all(isinstance(array, jax.Array if engine == "jax" else type(ids)) for array in results.values())
    np.testing.assert_array_equal(np.asarray(program(ids)["logits"]), np.asarray(results["logits"]))
    with pytest.raises(EngineError, match=r"output\.array"):
        program(feed, out=[np.zeros((3, 5), np.float32), None])


def test_elements_are_checked_after_the_run(engine: str) -> None:
    program = dovetail.compile(classifier(), engine)
    with pytest.raises(EngineError, match=r"index\.range.*\n.*Gather"):
        program(np.full((3, 6), 50))
    assert program(np.full((3, 6), 49))["logits"].shape == (3, 5)
    with pytest.raises(EngineError, match=r"input\.dtype"):
        program(np.zeros((3, 6), np.float32))
    with pytest.raises(EngineError, match=r"input\.shape"):
        program(np.zeros((3, 7), np.int64))


def test_jax_names_every_node_that_it_cannot_compile() -> None:
    pytest.importorskip("jax")
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (4,))
        b.output("where", b.NonZero(x))
        b.output("noise", b.RandomNormal([4], np.float32(0), np.float32(1)))
        b.output("unique", b.Unique(x)[0])
        b.output("y", b.Add(x, x))
    with pytest.raises(UnsupportedError) as caught:
        dovetail.compile(b.model, "jax")(np.ones(4, np.float32))
    assert [item.code for item in caught.value.diagnostics] == ["device.data-dependent", "device.random", "device.data-dependent"]
    assert [str(item.op).partition("(")[0] for item in caught.value.diagnostics] == ["NonZero", "RandomNormal", "Unique"]


def test_sizes_are_known_while_a_program_is_traced(engine: str) -> None:
    """A Shape whose value is an output too, and a tensor that is read for its shape alone but depends on elements."""
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3))
        size = b.Shape(x)
        b.output("size", size)
        b.output("flat", b.Reshape(x, b.Concat(b.ReduceProd(size, keepdims=True), b.constant([1], "i64"), axis=0)))
        lengths = b.Cast(b.ReduceSum(x, [1], keepdims=True), to="i64")
        wide = b.Maximum(lengths, b.constant(np.zeros((1, 5), np.int64)))
        b.output("row", b.Expand(b.Slice(x, [0], [1], [1]), b.Shape(wide)))
    data = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}
    found = dovetail.compile(b.model, engine)(data)
    for name, array in dovetail.run(b.model, data).items():
        np.testing.assert_array_equal(found[name], array)


def test_torch_runs_operators_whose_sizes_depend_on_data() -> None:
    pytest.importorskip("torch")
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (4,))
        b.output("where", b.NonZero(x))
    found = dovetail.compile(b.model, "torch")(np.float32([0, 1, 0, 2]))
    np.testing.assert_array_equal(found["where"], [[1, 3]])


def test_wrong_options_are_named(engine: str) -> None:
    model = classifier()
    with pytest.raises(EngineError, match=r"device\.unknown"):
        dovetail.compile(model, engine, device=dovetail.DeviceOptions("cpux"))
    with pytest.raises(EngineError, match=r"argument\.conflict.*threads, elide"):
        dovetail.compile(model, engine, threads=2, elide="all")
    with pytest.raises(EngineError, match=r"argument\.value"):
        dovetail.compile(model, engine, device=dovetail.DeviceOptions(results="gpu"))
    with pytest.raises(EngineError, match=r"argument\.conflict.*device"):
        dovetail.compile(model, device=dovetail.DeviceOptions("cpu"))
    with pytest.raises(EngineError, match=r"argument\.value"):
        dovetail.compile(model, "cuda")


def test_types_that_only_numpy_has_are_refused(engine: str) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.Cast(b.input("x", "f8e4m3", (2,)), to="f32"))
    with pytest.raises(UnsupportedError, match=r"array\.dtype"):
        dovetail.compile(b.model, engine)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_computes_the_same_and_checks_elements(feed: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    model = classifier()
    program = dovetail.compile(model, "torch", device=dovetail.DeviceOptions(torch_compile=True))
    for name, array in dovetail.run(model, feed).items():
        assert_close(program(feed)[name], array, 1e-5)
    with pytest.raises(EngineError, match=r"index\.range.*\n.*Gather"):
        program(np.full((3, 6), 50))
    with dovetail.Builder() as b:
        b.output("y", b.Unique(b.input("x", "f32", (4,)))[0])
    with pytest.raises(UnsupportedError, match=r"device\.data-dependent.*\n.*Unique"):
        dovetail.compile(b.model, "torch", device=dovetail.DeviceOptions(torch_compile=True))(np.ones(4, np.float32))
    with pytest.raises(EngineError, match=r"argument\.conflict"):
        dovetail.compile(model, "jax", device=dovetail.DeviceOptions(torch_compile=True))
