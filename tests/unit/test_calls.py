"""Calls that people make: sources of a model, inputs and outputs of a program, what a program logs."""

from __future__ import annotations

import gc
import io
import logging
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import MissingFileError
from dovetail.ir.host import native_core

X = np.arange(6, dtype="f4").reshape(2, 3)
Z = X + 10


def small() -> dovetail.Model:
    with dovetail.Builder("small") as b:
        x, z = b.input("x", "f32", ("n", 3)), b.input("z", "f32", ("n", 3))
        b.output("y", b.Concat(x, z, axis=1))
        b.output("w", x + z)
    return b.model


@pytest.fixture(params=["native", "interpreter"])
def program(request: pytest.FixtureRequest) -> dovetail.Program:
    return dovetail.compile(small(), engine=request.param)


# Sources


def sources(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    proto = pytest.importorskip("onnx").load_model_from_string(data)
    return {
        "path": path, "text": str(path), "bytes": data, "bytearray": bytearray(data), "memoryview": memoryview(data),
        "stream": io.BytesIO(data), "proto": proto,
    }  # fmt: skip


def test_onnx_is_loaded_from_any_source(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    dovetail.save(small(), path)
    expected = str(dovetail.load(path))
    for name, source in sources(path).items():
        assert str(dovetail.load(source)) == expected, name
        assert dovetail.check(source) == [] or name == "stream"
    with open(path, "rb") as file:
        assert str(dovetail.load(file)) == expected


def test_external_data_is_read_for_a_file_object_and_missing_for_bytes(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.input("x", "f32", (64,)) + np.arange(64, dtype="f4"))
    path = tmp_path / "m.onnx"
    dovetail.save(b.model, path, external=True, threshold=16)
    with open(path, "rb") as stream:
        assert str(dovetail.load(stream)) == str(dovetail.load(path))
    with pytest.raises(dovetail.FormatError) as caught:
        dovetail.load(path.read_bytes())
    assert caught.value.code.startswith("data.")


def test_ir_is_loaded_from_bytes_with_weights(tmp_path: Path) -> None:
    with dovetail.Builder() as b:
        b.output("y", b.input("x", "f32", (64,)) + np.arange(64, dtype="f4"))
    path = tmp_path / "m.xml"
    dovetail.save(b.model, path)
    expected = str(dovetail.load(path))
    weights = path.with_suffix(".bin")
    assert str(dovetail.load(path.read_bytes(), weights=weights.read_bytes())) == expected
    assert str(dovetail.load(b"\xef\xbb\xbf" + path.read_bytes(), weights=weights)) == expected
    with open(path, "rb") as stream:
        assert str(dovetail.load(stream)) == expected
    with pytest.raises(dovetail.FormatError) as caught:
        dovetail.load(path.read_bytes())
    assert caught.value.code == "path.missing"


@pytest.mark.parametrize("source", [5, None, ["m.onnx"], object(), io.StringIO("text")])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(dovetail.FormatError) as caught:
        dovetail.load(source)
    assert caught.value.code == "argument.type"


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    with pytest.raises(FileNotFoundError) as caught:
        dovetail.load(path)
    error = caught.value
    assert isinstance(error, MissingFileError) and error.code == "file.missing" and error.filename == str(path)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


def test_a_model_is_saved_to_a_stream(tmp_path: Path) -> None:
    stream = io.BytesIO()
    dovetail.save(small(), stream)
    dovetail.save(small(), tmp_path / "m.onnx")
    assert stream.getvalue() == (tmp_path / "m.onnx").read_bytes()


@pytest.mark.parametrize("name", ["m.onnx", "m.xml", "m.dt"])
def test_a_model_without_outputs_is_not_saved(name: str, tmp_path: Path) -> None:
    """The old file stays, and no new one appears."""
    dovetail.save(small(), tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with dovetail.Builder() as b:
        b.Relu(b.input("x", "f32", (2,)))
    for path in (tmp_path / name, tmp_path / f"other_{name}"):
        with pytest.raises(dovetail.FormatError, match="must have at least 1 output") as caught:
            dovetail.save(b.model, path)
        assert (caught.value.code, caught.value.file) == ("graph.outputs", str(path))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_streams_get_no_model_without_outputs() -> None:
    streams = [io.BytesIO() for _ in range(3)]
    for target in (streams[0], (streams[1], streams[2])):
        with pytest.raises(dovetail.FormatError) as caught:
            dovetail.save(dovetail.Builder().model, target)
        assert caught.value.code == "graph.outputs"
    assert not any(stream.getvalue() for stream in streams)


# Programs


def test_inputs_are_passed_by_keyword_list_dict_and_order(program: dovetail.Program) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: program(X, Z),
        lambda: program([X, Z]),
        lambda: program((X, Z)),
        lambda: program({"x": X, "z": Z}),
        lambda: program(x=X, z=Z),
        lambda: program({"x": X}, z=Z),
        lambda: dovetail.run(program.model, [X, Z]),
    ]
    for call in calls:
        results = call()
        assert list(results.keys()) == ["y", "w"]
        np.testing.assert_array_equal(results["y"], np.concatenate([X, Z], axis=1))
        assert results[0] is results["y"] and results[1] is results["w"] is results[-1]


def test_a_list_for_the_only_input_is_its_elements_or_holds_its_array() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.input("x", "f32", ("n",)) * 2.0)
    program = dovetail.compile(b.model)
    for given in ([1.0, 2.0], [np.array([1.0, 2.0], "f4")], {"x": [1.0, 2.0]}):
        np.testing.assert_array_equal(program(given)["y"], np.array([2.0, 4.0], "f4"))


def test_a_list_for_the_only_scalar_input_holds_it() -> None:
    with dovetail.Builder() as b:
        b.output("y", b.input("x", "f32", ()) * 2.0)
    for inputs in (np.float32(3), [np.float32(3)], [3.0], 3.0, {"x": 3.0}):
        assert dovetail.run(b.model, inputs)["y"] == 6


def test_out_is_passed_by_name_or_by_position(program: dovetail.Program) -> None:
    target = np.empty((2, 3), "f4")
    assert program(X, Z, out={"w": target})["w"] is target
    target[:] = 0
    results = program(X, Z, out=[None, target])
    assert results["w"] is target
    np.testing.assert_array_equal(target, X + Z)


WRONG_CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "too few": ("input.count", lambda p: p(X)),
    "too few in a list": ("input.count", lambda p: p([X])),
    "twice": ("input.count", lambda p: p(X, x=X)),
    "twice by name": ("input.count", lambda p: p({"x": X, "z": Z}, x=X)),
    "unknown": ("input.unknown", lambda p: p(x=X, z=Z, u=X)),
    "missing": ("input.missing", lambda p: p(x=X)),
    "text": ("input.dtype", lambda p: p(x="abc", z=Z)),
    "object": ("input.type", lambda p: p(x=object(), z=Z)),
    "short out": ("output.array", lambda p: p(X, Z, out=[None])),
    "out of a wrong type": ("output.array", lambda p: p(X, Z, out=5)),
    "out of a wrong shape": ("output.array", lambda p: p(X, Z, out=[None, np.empty((3, 2), "f4")])),
    "out of no array": ("output.array", lambda p: p(X, Z, out=[None, "abc"])),
    "unknown out": ("output.unknown", lambda p: p(X, Z, out={"u": X})),
    "unknown result": ("output.unknown", lambda p: p(X, Z)["u"]),
    "position beyond the results": ("output.unknown", lambda p: p(X, Z)[2]),
    "threads": ("argument.value", lambda p: dovetail.compile(p.model, threads=0)),
    "threads of a wrong type": ("argument.value", lambda p: dovetail.compile(p.model, engine="native", threads="two")),
    "engine": ("argument.value", lambda p: dovetail.compile(p.model, engine="fast")),
    "elide": ("argument.value", lambda p: dovetail.compile(p.model, engine="native", elide="some")),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls_are_errors_of_ours(name: str, program: dovetail.Program) -> None:
    code, call = WRONG_CALLS[name]
    with pytest.raises(dovetail.DovetailError) as caught:
        call(program)
    assert caught.value.code == code


def test_a_program_shows_its_inputs_and_outputs(program: dovetail.Program) -> None:
    assert [value.name for value in program.inputs] == ["x", "z"]
    assert [str(value.type) for value in program.outputs] == ["f32[n, 6]", "f32[n, 3]"]
    assert repr(program) == f"<Program {program.engine}: (x: f32[n, 3], z: f32[n, 3]) -> (y: f32[n, 6], w: f32[n, 3])>"


def test_a_closed_program_releases_its_engine_and_cannot_run() -> None:
    native: Any = dovetail.compile(small(), engine="native")
    with native as program:
        assert program(X, Z)[0].shape == (2, 6)
        engine = weakref.ref(program._engine)
    gc.collect()
    assert engine() is None
    with pytest.raises(dovetail.EngineError) as caught:
        program(X, Z)
    assert caught.value.code == "program.closed" and "closed" in repr(program)


# Logs


def test_a_program_logs_its_engine_and_its_plan(caplog: pytest.LogCaptureFixture) -> None:
    if not dovetail.ir.host.native_core.is_compiled:
        pytest.skip("no native core")
    with dovetail.Builder() as b:
        text = b.input("text", "string", ("n",))
        b.output("y", b.StringConcat(text, text))
        b.output("z", b.input("x", "f32", ("n",)) * 2.0)
    with caplog.at_level(logging.DEBUG, logger="dovetail"):
        dovetail.compile(b.model, engine="native")(text=np.array(["a"], object), x=np.ones(1, "f4"))
    messages = [record.getMessage() for record in caplog.records]
    assert any("native engine" in message for message in messages)
    assert any("1 interpreter step: StringConcat" in message and "arena" in message for message in messages)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_results_unpack_as_arrays_and_map_names_to_arrays(engine: str) -> None:
    if engine == "native" and not native_core.is_compiled:
        pytest.skip("no native core")
    with dovetail.Builder() as b:
        x = b.input("x", "f32", (2,))
        b.output("h", b.Add(x, x))
        b.output("q", b.Multiply(x, x))
    x_values = np.array([1.0, 3.0], np.float32)
    for _ in range(2):
        for results in (dovetail.run(b.model, x_values, engine), dovetail.compile(b.model, engine)(x_values)):
            h, q = results
            assert h.tolist() == [2.0, 6.0] and q.tolist() == [1.0, 9.0]
            assert [y.tolist() for y in reversed(results)] == [[1.0, 9.0], [2.0, 6.0]]
            assert results.keys() == {"h", "q"} and "h" in results and results["h"] is h and results[1] is q
            assert {**results}.keys() == dict(results).keys() == dict(**results).keys() == {"h", "q"}
            assert pickle.loads(pickle.dumps(results)).keys() == {"h", "q"}
