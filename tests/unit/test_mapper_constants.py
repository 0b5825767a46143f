"""Constants of a Mapper: inputs that are the same for all rows give what onnxruntime gives with them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

import dovetail
from dovetail.cli import dovetail as command
from dovetail.errors import EngineError
from row_models import F32, I64, Array, assert_close, expected, map_rows, mapper_of, write

SR = np.array(16000, "i8")


def gain(folder: Path) -> str:
    """y = x * w / sr, with a scalar, and a vector that shares the open size of a row."""
    nodes = [
        helper.make_node("Cast", ["sr"], ["rate"], to=F32),
        helper.make_node("Mul", ["x", "w"], ["scaled"]),
        helper.make_node("Div", ["scaled", "rate"], ["y"]),
    ]
    inputs = [("x", F32, ["n", "t"]), ("w", F32, ["t"]), ("sr", I64, [])]
    return write(folder / "gain.onnx", nodes, inputs, [("y", F32, ["n", "t"])])


def recurrent(folder: Path) -> str:
    """One step of a state whose axis 1 is the batch."""
    nodes = [
        helper.make_node("ReduceSum", ["h", "axis"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "total"], ["y"]),
        helper.make_node("Add", ["h", "x"], ["next"]),
    ]
    inputs = [("x", F32, ["n", 3]), ("h", F32, [2, "n", 3])]
    outputs = [("y", F32, ["n", 3]), ("next", F32, [2, "n", 3])]
    return write(folder / "recurrent.onnx", nodes, inputs, outputs, {"axis": np.array([0], "i8")})


def rows(count: int, width: int = 3) -> Array:
    return np.random.default_rng(count).standard_normal((count, width)).astype("f4")


W = np.array([0.5, -2, 3], "f4")


@pytest.mark.parametrize("count", [0, 1, 7, 16, 50])
@pytest.mark.parametrize("as_path", [True, False])
def test_constants_give_the_results_of_onnxruntime(tmp_path: Path, count: int, as_path: bool) -> None:
    path, x = gain(tmp_path), rows(count)
    model = path if as_path else dovetail.load(path)
    mapper = pickle.loads(pickle.dumps(mapper_of(model, batch=8, constants={"sr": 16000, "w": W})))
    assert [str(port) for port in mapper.signature.inputs] == ["f32[3]"]
    found = mapper({"x": x})
    if count:
        assert_close(found, expected(path, {"x": x, "w": W, "sr": SR}))
    assert found["y"].shape == (count, 3)


def test_values_and_shapes_of_constants_share_a_folder_of_plans(tmp_path: Path) -> None:
    path = gain(tmp_path)
    for width, rate in ((3, 8000), (3, 16000), (5, 8000), (3, 8000)):
        w, x = np.arange(width, dtype="f4"), rows(20, width)
        mapper = dovetail.Mapper(path, batch=8, constants={"sr": rate, "w": w}, cache_dir=tmp_path / "plans")
        assert_close(mapper({"x": x}), expected(path, {"x": x, "w": w, "sr": np.array(rate, "i8")}))


@pytest.mark.parametrize(
    ("sr", "w"),
    [(16000.0, [0.5, -2, 3]), (np.uint8(200), W.astype("f8")), (np.array(7, ">i4"), (1, 2, 3)), (np.int64(3), W[::-1][::-1])],
)
def test_constants_are_converted_where_they_stay_the_same(tmp_path: Path, sr: Any, w: Any) -> None:
    path, x = gain(tmp_path), rows(9)
    inputs = {"x": x, "w": np.array(w, "f4"), "sr": np.array(sr, "i8")}
    assert_close(mapper_of(path, constants={"sr": sr, "w": w})({"x": x}), expected(path, inputs))


def test_a_later_write_into_an_array_does_not_change_the_constant(tmp_path: Path) -> None:
    w = W.copy()
    mapper = mapper_of(gain(tmp_path), constants={"sr": 1, "w": w})
    w[:] = 0
    np.testing.assert_array_equal(mapper.constants["w"], W)


def test_cast_rounds_constants(tmp_path: Path) -> None:
    assert mapper_of(gain(tmp_path), constants={"sr": 2.7, "w": [1, 2, 3]}, cast=True).constants["sr"] == 2


def test_a_row_must_have_the_size_that_a_constant_fixes(tmp_path: Path) -> None:
    mapper = mapper_of(gain(tmp_path), constants={"sr": 1, "w": W})
    results = mapper.run_rows({"x": [np.ones(3, "f4"), np.ones(4, "f4")]}, 2)
    assert [(fault.row, fault.code) for fault in results.faults] == [(1, "batch.shape")]


def test_a_constant_may_fix_the_batch(tmp_path: Path) -> None:
    path, x, h = recurrent(tmp_path), rows(5), rows(2)[:, None]
    with pytest.raises(EngineError, match=r"batch\.axis.*'next'.*dovetail extract --to"):
        mapper_of(path, constants={"h": h})
    mapper = mapper_of(dovetail.extract(dovetail.load(path), outputs="y"), constants={"h": h})
    assert mapper.batch == 1
    theirs = [expected(path, {"x": row[None], "h": h})["y"] for row in x]
    assert_close(mapper({"x": x}), {"y": np.concatenate(theirs)})


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"sr": 1, "w": W, "v": 0}, "a constant must be an input of the model, got 'v'; it has 'x', 'w', 'sr'"),
        ({"sr": 1.5, "w": W}, "constant 'sr' must be i64[] and is converted without loss, got 1.5"),
        ({"sr": 2**63, "w": W}, "constant 'sr' must be i64[] and is converted without loss, got 9223372036854775808"),
        ({"sr": True, "w": W}, "constant 'sr' must be i64[] and is converted without loss, got True"),
        ({"sr": None, "w": W}, "constant 'sr' must be i64[], got None"),
        ({"sr": [1, 2], "w": W}, "constant 'sr' must be i64[], got [1, 2]"),
        ({"sr": {}, "w": W}, "constant 'sr' must be i64[], got {}"),
        ({"sr": "16000", "w": W}, "constant 'sr' must be i64[] and is converted without loss, got '16000'"),
        ({"sr": 1, "w": np.ones((2, 2))}, "constant 'w' must be f32[t], got float64[2, 2]"),
        ({"sr": 1, "w": [[1], [2, 3]]}, "constant 'w' must be f32[t], got [[1], [2, 3]]"),
        ({"sr": 1, "w": W, "x": np.ones((2, 4), "f4")}, "t must be the same in all constants, got 4 and 3 in 'w'"),
    ],
)
def test_a_constant_that_does_not_fit_is_refused(tmp_path: Path, constants: Any, message: str) -> None:
    with pytest.raises(EngineError) as caught:
        mapper_of(gain(tmp_path), constants=constants)
    assert (caught.value.code, caught.value.message) == ("batch.constant", message)


def test_other_wrong_constants_are_refused(tmp_path: Path) -> None:
    path = gain(tmp_path)
    for code, options in (
        ("argument.value", {"constants": ["sr"]}),
        ("batch.constant", {"constants": {"sr": 1, "w": W}, "columns": {"sr": "a"}}),
        ("batch.axis", {"constants": {"sr": 1, "w": W, "x": np.ones((2, 3), "f4")}}),
    ):
        with pytest.raises(EngineError) as caught:
            mapper_of(path, **options)
        assert caught.value.code == code


def test_an_input_without_rows_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"batch\.axis.*'sr'.*--constant"):
        mapper_of(gain(tmp_path), constants={"w": W})


def test_rows_that_are_combined_are_refused_with_constants_too(tmp_path: Path) -> None:
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["y"])]
    path = write(tmp_path / "sum.onnx", nodes, [("x", F32, ["n", 3]), ("axis", I64, [])], [("y", F32, ["n", 3])])
    found = mapper_of(path, constants={"axis": 1})({"x": rows(4)})
    assert_close(found, {"y": np.cumsum(rows(4), axis=1)})
    with pytest.raises(EngineError, match=r"batch\.rows"):
        mapper_of(path, constants={"axis": 0})({"x": rows(4)})


def run_map(*words: str) -> Any:
    return CliRunner().invoke(command, ["map", *words, "--json"], catch_exceptions=False)


def test_dovetail_map_takes_constants_and_records_them(tmp_path: Path) -> None:
    path, x = gain(tmp_path), rows(40)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", W)
    arguments = [path, str(tmp_path / "x.npy"), "-o", str(tmp_path / "out"), "--workers", "1", "--batch", "8"]
    result = run_map(*arguments, "--constant", "sr=16000", "--constant", f"w={tmp_path / 'w.npy'}")
    assert result.exit_code == 0, result.output
    found = np.concatenate([np.load(part) for part in sorted((tmp_path / "out" / "y").iterdir())])
    assert_close({"y": found}, expected(path, {"x": x, "w": W, "sr": SR}))
    # Equal values in another form are the same job.
    report = map_rows(path, tmp_path / "x.npy", tmp_path / "out", workers=1, batch=8, constants={"w": W.tolist(), "sr": SR})
    assert report.parts == 0 and report.skipped_parts > 0
    with pytest.raises(EngineError, match=r"folder\.resume.*constants.*16000.*8000"):
        map_rows(path, tmp_path / "x.npy", tmp_path / "out", workers=1, batch=8, constants={"w": W, "sr": 8000})
    recorded = json.loads((tmp_path / "out" / "_job.json").read_text())["options"]["constants"]
    assert recorded == {"sr": "int64[] 16000", "w": "float32[3] [0.5, -2.0, 3.0]"}


@pytest.mark.parametrize("value", ["sr", "=1", "sr=abc", "sr=[1", "sr=none.npy"])
def test_an_unreadable_constant_is_a_usage_error(tmp_path: Path, value: str) -> None:
    assert run_map(gain(tmp_path), str(tmp_path), "-o", str(tmp_path / "out"), "--constant", value).exit_code == 2
