"""Light models there and back: same answers, same names, no growth. light_table.py asks all nine, with both kinds of weights,
and prints the worst differences."""

from __future__ import annotations

from pathlib import Path

import light_models
import numpy as np
import onnx
import pytest

import dovetail
from dovetail.compare.verification.conversion import compare
from dovetail.ir.types import Tensor
from dovetail.passes.check import validate
from dovetail.report.model_summary import summarize
from models.light_table import MISSED, source_of, ways

pytestmark = pytest.mark.slow

MODELS = [name for name in light_models.names() if name not in ("vgg19", "zfnet512", "bvlc_alexnet")]
"""Those of less than 200 MB: the others take minutes to write and show no operator that these lack."""


@pytest.mark.parametrize(("name", "weights"), [*((name, "random") for name in MODELS), ("squeezenet", "stored")])
def test_every_way_through_a_light_model_agrees(name: str, weights: str, tmp_path: Path) -> None:
    for row in ways(name, weights, tmp_path):
        assert row.difference.agrees or row.way.endswith(MISSED), row


@pytest.mark.parametrize("name", MODELS)
def test_random_weights_give_outputs_that_can_tell_models_apart(name: str, tmp_path: Path) -> None:
    source, image = source_of(name, "random", tmp_path)
    (output,) = dovetail.run(source, image).values()
    assert np.isfinite(output).all()
    assert len(np.unique(output)) > 100


def test_reversing_one_concat_shows(tmp_path: Path) -> None:
    source, image = source_of("squeezenet", "random", tmp_path)
    expected = dovetail.run(source, image)
    proto = onnx.load(source)
    concat = next(node for node in proto.graph.node if node.op_type == "Concat")
    reversed_inputs = list(concat.input)[::-1]
    del concat.input[:]
    concat.input.extend(reversed_inputs)
    onnx.save(proto, tmp_path / "reversed.onnx")
    assert not all(row.agrees for row in compare(expected, dovetail.run(tmp_path / "reversed.onnx", image)))


def test_swapping_two_channels_shows(tmp_path: Path) -> None:
    source, image = source_of("squeezenet", "random", tmp_path)
    expected = dovetail.run(source, image)
    proto = onnx.load(source)
    weight = next(tensor for tensor in proto.graph.initializer if len(tensor.dims) == 4)
    data = onnx.numpy_helper.to_array(weight).copy()
    data[[0, 1]] = data[[1, 0]]
    weight.CopyFrom(onnx.numpy_helper.from_array(data, weight.name))
    onnx.save(proto, tmp_path / "swapped.onnx")
    assert not all(row.agrees for row in compare(expected, dovetail.run(tmp_path / "swapped.onnx", image)))


def _face(model: dovetail.Model) -> tuple[object, ...]:
    """Return the properties that have to survive a round trip."""
    return (
        [(value.name, str(value.type)) for value in model.inputs],
        [(value.name, str(value.type)) for value in model.outputs],
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_second_trip_neither_renames_nor_grows(name: str, tmp_path: Path) -> None:
    source, _ = source_of(name, "stored", tmp_path)
    first = dovetail.load(source)
    trip = first
    sizes = []
    for round_ in range(2):
        dovetail.save(trip, tmp_path / f"{round_}.xml")
        ir = dovetail.load(tmp_path / f"{round_}.xml")
        assert not validate(ir.graph)
        dovetail.save(ir, tmp_path / f"{round_}.onnx")
        trip = dovetail.load(tmp_path / f"{round_}.onnx")
        assert _face(trip) == _face(first) == _face(ir)
        assert trip.versions == first.versions
        sizes.append((summarize(ir)["nodes"], summarize(trip)["nodes"]))
    # A trip may find that two constants are one.
    assert all(second <= first for first, second in zip(*sizes, strict=True))


def test_symbols_names_and_metadata_travel(tmp_path: Path) -> None:
    with dovetail.Builder("travels") as b:
        x = b.input("x", "f32", ("batch", 3, "height"))
        b.output("y", b.Concat(x, x, axis=0))
    model = b.model
    dovetail.save(model, tmp_path / "0.onnx", opset=17)
    proto = onnx.load(tmp_path / "0.onnx")
    proto.doc_string, proto.domain, proto.model_version, proto.producer_name = "a doc", "org.example", 7, "maker"
    proto.graph.input[0].doc_string = "the image"
    proto.metadata_props.add(key="author", value="somebody")
    onnx.save(proto, tmp_path / "1.onnx")
    dovetail.save(dovetail.load(tmp_path / "1.onnx"), tmp_path / "2.xml")
    ir = dovetail.load(tmp_path / "2.xml")
    assert isinstance(ir.outputs[0].type, Tensor)
    assert str(ir.outputs[0].type) == "f32[2*batch, 3, height]"
    dovetail.save(ir, tmp_path / "3.onnx")
    back = onnx.load(tmp_path / "3.onnx")
    assert (back.doc_string, back.domain, back.model_version, back.producer_name) == ("a doc", "org.example", 7, "maker")
    assert [(item.key, item.value) for item in back.metadata_props] == [("author", "somebody")]
    assert back.opset_import[0].version == 17
    assert back.graph.input[0].doc_string == "the image"
    assert [size.dim_param or size.dim_value for size in back.graph.input[0].type.tensor_type.shape.dim] == ["batch", 3, "height"]
