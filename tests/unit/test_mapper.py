"""Mapper: rows in any table give what onnxruntime gives for them, and a fault for each row that does not fit."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import backend_data
import dovetail
from dovetail.data.rows import shared_program
from dovetail.data.rows.mapper import RowResults
from dovetail.errors import DovetailError, EngineError
from row_models import (
    BOOL,
    F16,
    F32,
    I32,
    I64,
    STRING,
    U8,
    assert_close,
    classifier,
    expected,
    lookup,
    mapper_of,
    mask,
    rows_of,
    write,
)


def codes(results: RowResults) -> dict[int, str]:
    return {fault.row: fault.code for fault in results.faults}


# Results


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 100])
@pytest.mark.parametrize("batch", ["n", 1, 8])
def test_any_number_of_rows_gives_the_results_of_onnxruntime(tmp_path: Path, batch: Any, count: int) -> None:
    path, x = classifier(tmp_path, batch), rows_of(count)
    results = mapper_of(path, batch=8).run_rows({"x": x}, count)
    assert results.faults == [] and results.index.tolist() == list(range(count))
    if count:
        assert_close(results.outputs, expected(classifier(tmp_path), {"x": x}))
    assert [(array.shape, array.dtype) for array in results.outputs.values()] == [((count, 5), "f4"), ((count,), "i8")]


@pytest.mark.parametrize("sample", backend_data.samples("pytorch-converted"), ids=lambda sample: sample.name)
def test_models_of_a_fixed_batch_keep_the_rows(sample: Any, tmp_path: Path) -> None:
    """Models that torch exported: the rows of the test's input, in another order, give its rows in that order."""
    onnx.save(sample.read_model(), tmp_path / "model.onnx")
    try:
        mapper = mapper_of(str(tmp_path / "model.onnx"))
    except EngineError as error:
        assert error.code == "batch.axis" and "dovetail rebatch" in error.message
        return
    ((inputs, outputs),) = sample.read_pairs()
    rows = len(inputs[0])
    order = np.resize(np.arange(rows)[::-1], 2 * rows + 1)
    columns = {port.name: array[order] for port, array in zip(mapper.signature.inputs, inputs, strict=True)}
    try:
        found = mapper.run_rows(columns, len(order))
    except EngineError as error:
        # Its targets are constants, one for each position of the batch.
        assert error.code == "batch.rows" and sample.name.startswith("test_PoissonNLLL")
        return
    assert found.faults == []
    backend_data.assert_similar([array[order] for array in outputs], list(found.outputs.values()), sample.rtol, sample.atol)


def test_results_of_a_row_have_the_same_bits_in_every_batch(tmp_path: Path) -> None:
    """Shorter batches are filled, so that a row never meets the plan of another batch."""
    mapper, x = mapper_of(classifier(tmp_path), batch=16), rows_of(40)
    whole = mapper.run_rows({"x": x}, 40).outputs
    for start, stop in ((0, 1), (3, 20), (16, 32), (39, 40)):
        part = mapper.run_rows({"x": x[start:stop]}, stop - start).outputs
        assert all(part[name].tobytes() == whole[name][start:stop].tobytes() for name in whole.keys())


def test_rows_of_different_shapes_run_with_their_equals(tmp_path: Path) -> None:
    path, generator = mask(tmp_path), np.random.default_rng(0)
    x = [generator.standard_normal(1 + row % 3).astype("f4") for row in range(20)]
    results = mapper_of(path, batch=8).run_rows({"x": x, "m": [2 * row for row in x]}, 20)
    assert results.faults == [] and results.outputs["y"].dtype == object and results.outputs["total"].shape == (20,)
    for row, found, total in zip(x, results.outputs["y"], results.outputs["total"], strict=True):
        theirs = expected(path, {"x": row[None], "m": 2 * row[None]})
        np.testing.assert_allclose(found, theirs["y"][0], rtol=1e-6)
        np.testing.assert_allclose(total, theirs["total"][0], rtol=1e-5)


def test_a_model_in_memory_is_mapped_as_its_file(tmp_path: Path) -> None:
    path, x = classifier(tmp_path), rows_of(10)
    mapper = pickle.loads(pickle.dumps(dovetail.Mapper(dovetail.load(path), threads=1)))
    assert_close(mapper({"x": x}), expected(path, {"x": x}))
    assert repr(mapper) == "<Mapper of a Model, batch 64: (x: f32[12]) -> scores: f32[5], label: i64[]>"
    assert_close(dovetail.Mapper(onnx.load(path), threads=1)({"x": x}), expected(path, {"x": x}))
    with pytest.raises(DovetailError):
        dovetail.Mapper(3)


# Faults


def test_a_row_that_does_not_fit_is_a_fault_and_the_others_have_results(tmp_path: Path) -> None:
    path, x = classifier(tmp_path), rows_of(9)
    rows: list[Any] = list(x)
    rows[1], rows[2], rows[4], rows[5], rows[7] = None, x[2][:5], np.array(["a"] * 12), np.ma.masked_less(x[5], 0), [None] * 12
    results = mapper_of(path, batch=4).run_rows({"x": rows}, 9)
    assert codes(results) == {1: "batch.missing", 2: "batch.shape", 4: "batch.dtype", 5: "batch.missing", 7: "batch.missing"}
    assert results.index.tolist() == [0, 3, 6, 8]
    assert_close(results.outputs, expected(path, {"x": x[results.index]}))


@pytest.mark.parametrize("bad", [[0], [6], [3, 4], [0, 1, 2, 3, 4, 5, 6], []])
def test_a_row_for_which_the_model_fails_is_a_fault(tmp_path: Path, bad: list[int]) -> None:
    path, i = lookup(tmp_path), np.random.default_rng(0).integers(0, 7, (7, 2))
    good = [row for row in range(7) if row not in bad]
    wrong = i.copy()
    wrong[bad, 0] = 99
    results = mapper_of(path, batch=4).run_rows({"i": wrong}, 7)
    assert set(codes(results)) == set(bad) and results.index.tolist() == good
    assert set(codes(results).values()) <= {"index.range"}
    if good:
        assert_close(results.outputs, expected(path, {"i": i[good]}))


def test_two_inputs_with_different_open_sizes_are_a_fault(tmp_path: Path) -> None:
    mapper = mapper_of(mask(tmp_path))
    x, m = [np.ones(2, "f4")] * 3, [np.ones(size, "f4") for size in (2, 3, 2)]
    assert codes(mapper.run_rows({"x": x, "m": m}, 3)) == {1: "batch.shape"}
    assert set(codes(mapper.run_rows({"x": np.ones((2, 3), "f4"), "m": np.ones((2, 4), "f4")}, 2))) == {0, 1}


def test_the_error_of_a_call_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"batch\.missing.* row 2: .*1 more") as caught:
        mapper_of(classifier(tmp_path))({"x": [*rows_of(2), None, None]})
    assert caught.value.code == "batch.missing"


@pytest.mark.parametrize("op", ["Softmax", "CumSum"])
def test_a_model_that_mixes_rows_is_an_error(tmp_path: Path, op: str) -> None:
    inputs, attributes = (["x"], {"axis": 0}) if op == "Softmax" else (["x", "axis"], {})
    node = helper.make_node(op, inputs, ["y"], **attributes)
    path = write(tmp_path / "m.onnx", [node], [("x", F32, ["n", 12])], [("y", F32, ["n", 12])], {"axis": np.array(0, "i4")})
    with pytest.raises(EngineError, match=r"batch\.rows.*'y'"):
        mapper_of(path)({"x": rows_of(9)})


def test_a_scale_of_the_batch_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Dynamic quantization: one large row changes the scale of all others, by design."""
    weights = np.random.default_rng(0).integers(-9, 9, (12, 5)).astype("i1")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["h"]),
        helper.make_node("Cast", ["h"], ["f"], to=F32),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    path = write(tmp_path / "d.onnx", nodes, [("x", F32, ["n", 12])], [("y", F32, ["n", 5])], {"w": weights})
    x = rows_of(8)
    x[0] *= 100
    found = mapper_of(path, batch=8)({"x": x})
    np.testing.assert_allclose(found["y"], expected(path, {"x": x})["y"], rtol=1e-4, atol=1e-4)
    assert "differs by" in caplog.text


# Conversions

EXACT = [
    ("i4", I64, [1, -2]),
    ("i8", I32, [1, -(2**31)]),
    ("u1", F32, [0, 255]),
    ("f8", F32, [0.5, np.nan, np.inf, -0.0]),
    ("f2", F32, [0.1, 65504]),
    (">f4", F32, [0.1, -3.5]),
    ("i8", F32, [2**24, -(2**63)]),
    ("f8", I64, [3.0, -7.0]),
    ("u8", I64, [2**63 - 1]),
    ("f4", F16, [0.5]),
]
INEXACT = [
    ("i8", I32, [2**31]),
    ("f8", F32, [0.1]),
    ("f8", F32, [1e300]),
    ("i8", F32, [2**24 + 1]),
    ("i8", F32, [2**63 - 1]),
    ("u8", F32, [2**64 - 1]),
    ("i8", F16, [2**63 - 1]),
    ("u8", I64, [2**63]),
    ("i8", U8, [-1]),
    ("f8", I64, [0.5]),
    ("f8", I64, [np.nan]),
    ("f8", I64, [2.0**63]),
    ("?", F32, [True]),
    ("i8", BOOL, [1]),
]


def identity(folder: Path, type: int) -> dovetail.Mapper:
    node = helper.make_node("Identity", ["x"], ["y"])
    return mapper_of(write(folder / "identity.onnx", [node], [("x", type, ["n"])], [("y", type, ["n"])]))


@pytest.mark.parametrize(("source", "target", "values"), EXACT, ids=str)
def test_values_are_converted_where_they_stay_the_same(tmp_path: Path, source: str, target: int, values: list[Any]) -> None:
    x = np.array(values, source)
    y = identity(tmp_path, target)({"x": x})["y"]
    assert y.dtype == helper.tensor_dtype_to_np_dtype(target)
    for one, other in zip(x.tolist(), y.tolist(), strict=True):
        assert one == other or (one != one and other != other)


@pytest.mark.parametrize(("source", "target", "values"), INEXACT, ids=str)
def test_a_value_that_would_change_is_a_fault_unless_it_may_be_cast(
    tmp_path: Path, source: str, target: int, values: list[Any]
) -> None:
    mapper = identity(tmp_path, target)
    x = np.array([0, *values], source)
    found = codes(mapper.run_rows({"x": x}, len(x)))
    assert 1 in found and set(found.values()) == {"batch.dtype"}
    cast = mapper_of(mapper.path or "", cast=True)
    with np.errstate(all="ignore"):
        theirs = x.astype(helper.tensor_dtype_to_np_dtype(target))
    np.testing.assert_array_equal(cast.run_rows({"x": x}, len(x)).outputs["y"], theirs)


def test_strings_are_strings(tmp_path: Path) -> None:
    mapper = identity(tmp_path, STRING)
    assert mapper({"x": np.array(["a", "äöü", ""])})["y"].tolist() == ["a", "äöü", ""]
    assert mapper({"x": ["a\0", "b"]})["y"].tolist() == ["a\0", "b"]
    assert codes(mapper.run_rows({"x": ["a", None, 3]}, 3)) == {1: "batch.missing", 2: "batch.dtype"}
    assert set(codes(identity(tmp_path, F32).run_rows({"x": np.array(["1", "2"])}, 2)).values()) == {"batch.dtype"}


def test_a_column_of_scalars_is_taken_for_axes_of_size_1(tmp_path: Path) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    mapper = mapper_of(write(tmp_path / "neg.onnx", [node], [("x", F32, ["n", 1])], [("y", F32, ["n", 1])]))
    assert mapper({"x": np.arange(3, dtype="f4")})["y"].tolist() == [[0], [-1], [-2]]


# Refusals

REFUSED = {
    "no common leading size": ([("x", F32, [2, 3]), ("w", F32, [3])], [("y", F32, [2, 3])], "Mul"),
    "one fixed, one open": ([("x", F32, ["n", 3]), ("w", F32, [1, 3])], [("y", F32, ["n", 3])], "Mul"),
    "a scalar": ([("x", F32, ["n", 3]), ("w", F32, [])], [("y", F32, ["n", 3])], "Mul"),
    "a leading size inside": (
        [("x", F32, ["n", "n"]), ("w", F32, ["n", "n"])],
        [("y", F32, ["n", "n"])],
        "MatMul",
    ),
    "an output of more rows": ([("x", F32, ["n", 3]), ("w", F32, ["n", 3])], [("y", F32, None)], "Concat"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_a_batch_axis_is_refused(tmp_path: Path, name: str) -> None:
    inputs, outputs, op = REFUSED[name]
    attributes = {"axis": 0} if op == "Concat" else {}
    path = write(tmp_path / "model.onnx", [helper.make_node(op, ["x", "w"], ["y"], **attributes)], inputs, outputs)
    with pytest.raises(EngineError, match=r"batch\.axis.*dovetail rebatch"):
        dovetail.Mapper(path)


def test_an_output_whose_rows_depend_on_the_data_is_refused_in_the_run(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Transpose", ["i"], ["y"])]
    path = write(tmp_path / "nonzero.onnx", nodes, [("x", F32, ["n", 3])], [("y", I64, ["k", 2])])
    for batch in (1, 5, 8):
        with pytest.raises(EngineError, match=r"batch\.axis"):
            mapper_of(path, batch=batch)({"x": np.eye(5, 3, dtype="f4") + 1})


def test_a_wrong_argument_is_a_named_error(tmp_path: Path) -> None:
    path = classifier(tmp_path)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("argument.value", {"batch": 0}),
        ("argument.value", {"batch": True}),
        ("argument.value", {"batch": 10**9}),
        ("argument.value", {"keep": "x"}),
        ("argument.value", {"columns": ["x"]}),
        ("batch.column", {"columns": {"nothing": "x"}}),
        ("batch.column", {"keep": ["label"]}),
        ("argument.value", {"threads": 0}),
    ]
    for code, options in cases:
        with pytest.raises(EngineError) as caught:
            dovetail.Mapper(path, **options)
        assert caught.value.code == code
    mapper = mapper_of(path, keep=["id"])
    tables: list[tuple[str, Any]] = [
        ("batch.table", "rows"),
        ("batch.table", iter([3])),
        ("batch.column", {"y": rows_of(2), "id": [1, 2]}),
        ("batch.column", {"x": rows_of(2)}),
        ("batch.table", {"x": 3, "id": [1]}),
        ("batch.table", {"x": np.array(3.0), "id": [1]}),
        ("batch.table", {"x": None, "id": [1]}),
        ("batch.value", {"x": [{}], "id": [1]}),
        ("batch.dtype", {"x": rows_of(1).astype("c8"), "id": [1]}),
        ("batch.dtype", {"x": np.zeros((1, 12), "M8[s]"), "id": [1]}),
        ("batch.table", np.zeros((2, 12), "f4")),
    ]
    for code, rows in tables:
        with pytest.raises(EngineError) as caught:
            list(mapper(rows))
        assert caught.value.code == code
    for count in (3, -1, 2.0):
        with pytest.raises(EngineError, match=r"batch\.table"):
            mapper.run_rows({"x": rows_of(2)}, count)
    with pytest.raises(EngineError, match=r"run\.memory"):
        mapper_of(path, batch=1 << 20, limits=dovetail.Limits(memory=1 << 20))({"x": rows_of(2)})
    with pytest.raises(DovetailError, match=r"file\.missing"):
        dovetail.Mapper(tmp_path / "absent.onnx")


def test_a_model_with_states_is_refused() -> None:
    from dovetail.ir.state import State

    with dovetail.Builder("counter") as b:
        x = b.input("x", "f32", ("n", 2))
        past = b.input("past", "f32", ("n", 2))
        b.output("now", x + past)
    model = b.model
    model.states = [State("total", "past", "now")]
    with pytest.raises(DovetailError, match=r"program\.states"):
        dovetail.Mapper(model)


# One program per process


def test_equal_mappers_share_one_program_in_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dovetail.runtime.compilation

    # Another test of this process may have compiled the same model.
    monkeypatch.setattr(shared_program, "_programs", OrderedDict())
    path, x = classifier(tmp_path), rows_of(100)
    compiled: list[Any] = []
    compile = dovetail.runtime.compilation.compile
    monkeypatch.setattr(
        dovetail.runtime.compilation, "compile", lambda *args, **options: compiled.append(args) or compile(*args, **options)
    )
    data = pickle.dumps(mapper_of(path, batch=8))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: pickle.loads(data)({"x": x}), range(16)))
    assert len(compiled) == 1
    assert len({results["scores"].tobytes() for results in found}) == 1
    mapper_of(path, threads=2)({"x": x})
    assert len(compiled) == 2


def test_a_process_keeps_few_programs(tmp_path: Path) -> None:
    mappers = [identity(tmp_path, type) for type in (F32, I64, I32, U8, F16)]
    for number in range(3):
        for mapper in mappers:
            dovetail.Mapper(mapper._content.load(None), threads=1 + number)({"x": []})
    assert len(shared_program._programs) <= shared_program.MAX_PROGRAMS


def test_a_file_that_was_changed_since_is_an_error(tmp_path: Path) -> None:
    mapper = pickle.loads(pickle.dumps(mapper_of(classifier(tmp_path))))
    shared_program._programs.clear()
    weights = np.zeros((12, 5), "f4")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"])]
    write(Path(mapper.path), nodes, [("x", F32, ["n", 12])], [("scores", F32, ["n", 5])], {"w": weights})
    with pytest.raises(DovetailError, match=r"file\.changed"):
        mapper({"x": rows_of(3)})
    Path(mapper.path).unlink()
    with pytest.raises(DovetailError, match=r"file\.missing"):
        mapper({"x": rows_of(3)})


def test_rows_whose_results_differ_in_shape_from_batch_to_batch(tmp_path: Path) -> None:
    """A data-dependent axis of the results, with a failing row between."""
    nodes = [
        helper.make_node("Gather", ["t", "x"], ["h"]),
        helper.make_node("ReduceMax", ["h"], ["k"], keepdims=0),
        helper.make_node("Unsqueeze", ["k", "zero"], ["k1"]),
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Concat", ["n", "k1"], ["sizes"], axis=0),
        helper.make_node("Unsqueeze", ["h", "one"], ["column"]),
        helper.make_node("Expand", ["column", "sizes"], ["y"]),
    ]
    constants = {"t": np.array([1, 1, 2, 3]), "zero": np.array([0]), "one": np.array([1])}
    path = write(tmp_path / "wide.onnx", nodes, [("x", I64, ["n"])], [("y", I64, ["n", "k"])], constants)
    x = np.array([0, 0, 1, 1, 2, 2, 0, 9, 3, 3, 1])
    results = mapper_of(path, batch=2).run_rows({"x": x}, len(x))
    assert results.index.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10] and codes(results) == {7: "index.range"}
    for row, found in zip(x[results.index], results.outputs["y"], strict=True):
        np.testing.assert_array_equal(found, expected(path, {"x": np.array([row])})["y"][0])
    same = mapper_of(path, batch=2).run_rows({"x": x[:4]}, 4).outputs["y"]
    assert same.shape == (4, 1) and same.dtype == "i8"
