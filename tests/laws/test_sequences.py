"""Lists of tensors and optional values: what onnxruntime gives, through both engines, there and back; and without lists, where
what is in them is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import dovetail
from assertions import assert_close, assert_same_graph, assert_size_holds
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir import types
from dovetail.ir.evaluate import type_of
from dovetail.ir.graph import Graph
from dovetail.ir.op import bodies
from dovetail.ir.types import Tensor, Type
from dovetail.passes.check import validate
from dovetail.runtime.interpreter.interpret import interpret
from oracles import check_onnx, run_onnxruntime
from sequence_models import SAMPLES, Sample

ENGINES = ("interpreter", "native")


RUNS = [
    pytest.param(sample, run, id=f"{name} {place}") for name, sample in SAMPLES.items() for place, run in enumerate(sample.runs)
]
EACH = pytest.mark.parametrize("sample", [pytest.param(sample, id=name) for name, sample in SAMPLES.items()])


def parsed(sample: Sample, opset: int | None = None) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset or sample.opset}]> {sample.text}')


def loaded(sample: Sample, folder: Path) -> dovetail.Model:
    onnx.save(parsed(sample), folder / "a.onnx")
    return dovetail.load(folder / "a.onnx")


def feeds(model: dovetail.Model, run: list[Any]) -> dict[str, Any]:
    return {
        value.name: x if x is None or isinstance(x, list) else np.asarray(x) for value, x in zip(model.inputs, run, strict=True)
    }


def by_onnxruntime(path: Path, given: dict[str, Any]) -> list[Any]:
    import onnxruntime

    if all(isinstance(value, np.ndarray) for value in given.values()):
        return run_onnxruntime(path.read_bytes(), given)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


def assert_same(ours: Any, theirs: Any, what: str = "") -> None:
    assert isinstance(ours, list) == isinstance(theirs, list), f"{what}: {ours}, {theirs}"
    if isinstance(ours, list):
        assert len(ours) == len(theirs), what
        for place, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_same(*pair, f"{what}, element {place}")
    else:
        assert_close(ours, np.asarray(theirs), None, what)


def assert_holds(claim: Type, item: Any, what: str) -> None:
    """Check that the inferred type of a value is true of it."""
    if isinstance(claim, types.Optional):
        if item is not None:
            assert_holds(claim.element, item, what)
    elif isinstance(claim, types.Sequence):
        assert isinstance(item, list), f"{what}: inferred {claim}"
        if claim.length is not None:
            assert_size_holds(claim.length, len(item), what, {})
        for each in item:
            assert_holds(claim.element, each, what)
    else:
        found = type_of(item)
        assert isinstance(found, Tensor) and found.shape is not None
        assert claim.dtype in (None, found.dtype), f"{what}: inferred {claim}, and is {found}"
        if claim.shape is not None:
            assert len(claim.shape) == len(found.shape), f"{what}: inferred {claim}, and is {found}"
            for size, real in zip(claim.shape, found.shape, strict=True):
                if size is not None:
                    assert_size_holds(size, int(real), f"{what}: {claim} is {found}", {})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("sample", "run"), RUNS)
def test_sequences_give_the_results_of_onnxruntime(sample: Sample, run: list[Any], engine: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = loaded(sample, tmp_path)
    given = feeds(model, run)
    found = dovetail.compile(model, engine)(given)
    for value in model.outputs:
        assert_holds(value.type, found[value.name], value.name)
    if sample.unlike:
        pytest.skip(sample.unlike)
    expected = by_onnxruntime(tmp_path / "a.onnx", given)
    for ours, theirs in zip(found.values(), expected, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize(("sample", "run"), RUNS)
def test_onnx_gives_lists_back(sample: Sample, run: list[Any], tmp_path: Path) -> None:
    model = loaded(sample, tmp_path)
    given = feeds(model, run)
    dovetail.save(model, tmp_path / "b.onnx")
    check_onnx((tmp_path / "b.onnx").read_bytes())
    onnx.checker.check_model(str(tmp_path / "b.onnx"))
    again = dovetail.load(tmp_path / "b.onnx")
    assert [str(item) for item in validate(again.graph)] == []
    assert_same_graph(model, again)
    assert [item.type for item in onnx.load(tmp_path / "b.onnx").graph.input] == [
        item.type for item in parsed(sample).graph.input
    ]
    for ours, theirs in zip(dovetail.run(again, given).values(), dovetail.run(model, given).values(), strict=True):
        assert_same(ours, theirs)


def has_lists(graph: Graph) -> bool:
    return any(not isinstance(value.type, Tensor) for value in graph.values()) or any(
        has_lists(body) for node in graph.nodes for _, body in bodies(node.op)
    )


@EACH
def test_sequences_of_known_length_are_written_without_sequences(sample: Sample, tmp_path: Path) -> None:
    model = loaded(sample, tmp_path)
    if not sample.is_plain:
        with pytest.raises(dovetail.UnsupportedError) as caught:
            dovetail.save(model, tmp_path / "a.xml")
        assert caught.value.code in ("op.unsayable", "type.version")
        assert all(item.node for item in caught.value.diagnostics)
        assert "only at run time" in str(caught.value) or "a value in OpenVINO must be a tensor" in str(caught.value)
        return
    dovetail.save(model, tmp_path / "a.xml")
    again = dovetail.load(tmp_path / "a.xml")
    assert not has_lists(again.graph)
    if not any(kind in sample.text for kind in ("Loop", "If", "Map")):
        assert_written_without_sequences(model, tmp_path / "old.onnx")
    for run in sample.runs:
        given = feeds(model, run)
        expected = list(dovetail.run(model, given, "interpreter").values())
        for ours, theirs in zip(dovetail.run(again, given).values(), expected, strict=True):
            assert_same(ours, theirs)
        for ours, theirs in zip(by_openvino(tmp_path / "a.xml", list(given.values())), expected, strict=True):
            assert_close(ours, theirs, None)


def assert_written_without_sequences(model: dovetail.Model, path: Path) -> None:
    """In an opset that has no lists."""
    try:
        onnx_write.save(model, path, opset=9)
    except dovetail.UnsupportedError as error:
        # It has no place that may count from the end, and no shape that may hold a 0, either.
        assert all("express Gather" in item.message or "express Reshape" in item.message for item in error.diagnostics)
    else:
        assert not has_lists(dovetail.load(path).graph)


def by_openvino(path: Path, given: list[Any]) -> list[Any]:
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(dict(enumerate(given)))
    return [np.array(found[index]) for index in range(len(compiled.outputs))]


@pytest.mark.parametrize(("sample", "run"), RUNS)
def test_torch_makes_the_same_lists(sample: Sample, run: list[Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if "string" in sample.text:
        pytest.skip("torch has no strings")
    model = loaded(sample, tmp_path)
    given = feeds(model, run)
    for ours, theirs in zip(interpret(model, given, torch).values(), interpret(model, given).values(), strict=True):
        assert_same(in_numpy(ours), theirs)


def in_numpy(item: Any) -> Any:
    return [in_numpy(each) for each in item] if isinstance(item, list) else None if item is None else item.numpy()


@pytest.mark.parametrize(("sample", "run"), [item for item in RUNS if item.values[0].is_plain])
def test_a_gradient_goes_through_lists_that_are_known(sample: Sample, run: list[Any], tmp_path: Path) -> None:
    """Everything here is linear in each input, or a product: a difference over a whole step is the slope."""
    model = loaded(sample, tmp_path)
    given = feeds(model, run)
    smooth = [value.name for value in model.inputs if isinstance(value.type, Tensor) and value.type.dtype.name == "f32"]
    for target in (value for value in model.outputs if isinstance(value.type, Tensor) and value.type.dtype.name == "f32"):
        gradient = dovetail.grad(model, target.name, smooth)
        assert not has_lists(gradient.graph)
        rng = np.random.default_rng(0)
        y = np.asarray(dovetail.run(model, given)[target.name])
        seed = rng.standard_normal(y.shape).astype(np.float32)
        seeds = {f"grad:{target.name}": seed} if f"grad:{target.name}" in gradient.graph.inputs[-1].name else {}
        found = dovetail.run(gradient, {**given, **seeds})
        ways = {name: rng.standard_normal(given[name].shape).astype(np.float32) for name in smooth}
        ends = [
            dovetail.run(model, {**given, **{name: given[name] + step * way for name, way in ways.items()}})[target.name]
            for step in (0.5, -0.5)
        ]
        slope = np.sum((ends[0] - ends[1]) * (seed if seeds else 1))
        total = sum(float(np.sum(found[f"grad:{name}"] * way)) for name, way in ways.items())
        assert abs(total - slope) <= 1e-4 * max(1.0, abs(slope), float(np.abs(y).max()))


def test_a_gradient_through_a_list_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    model = loaded(SAMPLES["one that the run chooses"], tmp_path)
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.grad(model, "y", ["a"])
    assert caught.value.code == "type.unknown" and caught.value.diagnostics[0].node == "y"


STRING_TENSORS = {
    "StringTensorPack": lambda ops: ops.string_tensor_pack(
        ops.parameter([2], np.int32), ops.parameter([2], np.int32), ops.parameter([5], np.uint8)
    ),
    "StringTensorUnpack": lambda ops: ops.string_tensor_unpack(ops.parameter([2], str)),
}


@pytest.mark.parametrize("kind", STRING_TENSORS)
def test_the_bytes_of_texts_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    """OpenVINO's own operators on strings load and are written back; nothing else is done with them."""
    openvino = pytest.importorskip("openvino")
    from openvino import opset15

    node = STRING_TENSORS[kind](opset15)
    node.set_friendly_name("texts")
    results = [opset15.result(output) for output in node.outputs()]
    openvino.save_model(
        openvino.Model(results, [source.get_node() for source in (value.get_source_output() for value in node.inputs())]),
        str(tmp_path / "a.xml"),
    )
    assert dovetail.check(tmp_path / "a.xml") == []
    model = dovetail.load(tmp_path / "a.xml")
    dovetail.save(model, tmp_path / "b.xml")
    assert_same_graph(model, dovetail.load(tmp_path / "b.xml"))
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.save(model, tmp_path / "b.onnx")
        check_onnx((tmp_path / "b.onnx").read_bytes())
    assert (caught.value.code, caught.value.node) == ("op.unknown", "texts")
    assert kind in caught.value.message and "ONNX has no operator" in caught.value.message
    given = {value.name: np.full(value.shape, "" if value.dtype == "string" else 0, value.dtype.numpy) for value in model.inputs}  # type: ignore[type-var]
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.run(model, given)
    assert (caught.value.code, caught.value.node) == ("op.unknown", "texts")


def test_an_empty_sequence_is_not_concatenated_in_any_engine(tmp_path: Path) -> None:
    text = "main (float[n,3] x) => (float[m,3] y) { xs = SplitToSequence (x) y = ConcatFromSequence <axis = 0> (xs) }"
    model = loaded(Sample(text, []), tmp_path)
    for engine in ENGINES:
        program = dovetail.compile(model, engine)
        np.testing.assert_array_equal(program(np.ones((2, 3), np.float32))["y"], np.ones((2, 3)))
        with pytest.raises(dovetail.DovetailError) as caught:
            program(np.ones((0, 3), np.float32))
        assert (caught.value.code, caught.value.node) == ("sequence.empty", "y")


def test_the_type_of_an_empty_optional_is_preserved(tmp_path: Path) -> None:
    sample = SAMPLES["nothing of a kind"]
    dovetail.save(loaded(sample, tmp_path), tmp_path / "b.onnx")
    check_onnx((tmp_path / "b.onnx").read_bytes())
    assert onnx.load(tmp_path / "b.onnx").graph.node[0].attribute == parsed(sample).graph.node[0].attribute


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"xs": np.ones((2, 3), np.float32)}, "input.type"),
        ({"xs": [np.ones((2, 4), np.float32)]}, "input.shape"),
        ({"xs": [np.ones((2, 3), np.float32), np.ones(3, np.float32)]}, "input.shape"),
        ({"xs": [np.ones((2, 3), np.float64)]}, "input.dtype"),
        ({"xs": [None]}, "input.type"),
        ({"xs": None}, "input.type"),
        ({"xs": [], "i": np.int64(0)}, "index.range"),
        ({"xs": [np.ones((2, 3), np.float32)], "i": np.int64(1)}, "index.range"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_list_that_does_not_fit_is_refused(given: dict[str, Any], code: str, engine: str, tmp_path: Path) -> None:
    model = loaded(SAMPLES["a list comes in"], tmp_path)
    with pytest.raises(dovetail.EngineError if code.startswith("input") else dovetail.RuleError) as caught:
        dovetail.compile(model, engine)({"i": np.int64(0), **given})
    assert caught.value.code == code


@pytest.mark.parametrize("engine", ENGINES)
def test_no_array_holds_a_list(engine: str, tmp_path: Path) -> None:
    sample = SAMPLES["a list goes out"]
    program = dovetail.compile(loaded(sample, tmp_path), engine)
    for given in (np.zeros((2, 3), np.float32), [np.zeros((2, 3), np.float32)] * 3):
        with pytest.raises(dovetail.EngineError) as caught:
            program(*sample.runs[0], out={"xs": given})
        assert caught.value.code == "output.array"
