"""Models whose large tensors do not go through protobuf. Oracle: protobuf, which parses the whole."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings, strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dovetail.errors import DovetailError
from dovetail.formats.onnx import codec
from dovetail.formats.onnx.protobuf_scan import LARGE, TICKET_BYTES, split_elements

RANDOM = np.random.default_rng(0)


def large(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype(np.float32), name)


def branch(output: str) -> GraphProto:
    node = helper.make_node("Constant", [], [output], value=large("", 2, LARGE))
    return helper.make_graph([node], output, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, (2, LARGE))])


def model(*nodes: NodeProto, **tensors: TensorProto) -> ModelProto:
    """Large tensors wherever there may be some, and small ones between."""
    given = [
        helper.make_node("Constant", [], ["constant"], value=large("", 2, LARGE)),
        helper.make_node("If", ["condition"], ["chosen"], then_branch=branch("then"), else_branch=branch("else")),
        helper.make_node("Sum", ["x", "constant", "chosen", "w", "one"], ["y"]),
        *nodes,
    ]
    initializers = {
        "one": numpy_helper.from_array(np.ones(1, np.float32)),
        "w": large("", 2, LARGE),
        "small": numpy_helper.from_array(np.arange(TICKET_BYTES // 4, dtype=np.float32)),
        **tensors,
    }
    for name, tensor in initializers.items():
        tensor.name = name
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, LARGE)) for name in "xy")
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, ())
    graph = helper.make_graph(given, "g", [x, condition], [y], list(initializers.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


MODEL = model()
STORED = MODEL.SerializeToString()


def outcome(source: bytes | ModelProto) -> object:
    try:
        return codec.write(codec.read(source))
    except DovetailError as error:
        return [(item.code, item.message) for item in error.diagnostics]


def whole(stored: bytes) -> object:
    """Return the outcome of the message as protobuf parses it."""
    try:
        model = ModelProto.FromString(stored)
    except DecodeError:
        return "nothing"
    return outcome(model)


def test_tensors_are_those_that_protobuf_reads() -> None:
    parts = split_elements(STORED)
    assert len(parts.elements) == 4
    assert len(parts.message) < LARGE
    assert outcome(STORED) == whole(STORED) == STORED


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.dims.append(7),
        lambda tensor: tensor.float_data.append(1),
        lambda tensor: setattr(tensor, "data_type", TensorProto.STRING),
        lambda tensor: setattr(tensor, "data_type", 99),
        lambda tensor: setattr(tensor, "data_location", 1),
        lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-1]),
    ],
)
def test_a_large_tensor_at_fault_is_refused_as_any_other(change: object) -> None:
    changed = ModelProto.FromString(STORED)
    change(next(item for item in changed.graph.initializer if item.name == "w"))
    found = outcome(changed.SerializeToString())
    assert isinstance(found, list)
    assert found == outcome(changed)


def test_the_last_of_two_fields_counts() -> None:
    tensor = large("", 2, LARGE)
    tensor.name = "w"
    twice = tensor.SerializeToString() + TensorProto(raw_data=MODEL.graph.initializer[1].raw_data).SerializeToString()
    graph = GraphProto.FromString(MODEL.graph.SerializeToString())
    del graph.initializer[1]
    # Messages that follow on each other are one.
    field = bytes([5 << 3 | 2]) + _length(twice) + twice
    rest = ModelProto.FromString(STORED)
    rest.graph.CopyFrom(graph)
    stored = rest.SerializeToString() + bytes([7 << 3 | 2]) + _length(field) + field
    assert outcome(stored) == whole(stored) != outcome(STORED)
    assert isinstance(outcome(stored), bytes)


def _length(message: bytes) -> bytes:
    count, found = len(message), b""
    while count > 127:
        found += bytes([count & 127 | 128])
        count >>= 7
    return found + bytes([count])


HEADS = [place for place in range(len(STORED)) if place < 64 or len(STORED) - place < 512]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(HEADS), st.integers(0, 255))
def test_a_changed_byte_is_read_as_by_protobuf(place: int, byte: int) -> None:
    changed = STORED[:place] + bytes([byte]) + STORED[place + 1 :]
    expected = whole(changed)
    found = outcome(changed)
    assert found == expected if expected != "nothing" else found[0][0] == "proto.parse"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(STORED)))
def test_a_truncated_file_is_read_as_by_protobuf(length: int) -> None:
    expected = whole(STORED[:length])
    found = outcome(STORED[:length])
    assert found == expected if expected != "nothing" else found[0][0] == "proto.parse"


def test_bodies_without_end_are_left_to_protobuf() -> None:
    body = bytes(2 * LARGE)
    for _ in range(400):
        for field in (6, 5, 1):  # a graph of a node that has an attribute, which is a graph
            body = bytes([field << 3 | 2]) + _length(body) + body
    stored = bytes([7 << 3 | 2]) + _length(body) + body
    assert split_elements(stored).message == stored
    assert outcome(stored)[0][0] == "proto.parse"


def test_a_model_is_read_with_one_copy_of_its_tensors() -> None:
    count = 1 << 20
    big = model(helper.make_node("Identity", ["big"], ["z"]), big=large("", count))
    stored = big.SerializeToString()
    codec.read(STORED)
    tracemalloc.start()
    found = codec.read(stored)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1.1 * len(stored)
    np.testing.assert_array_equal(found.graph.constants["big"].data, numpy_helper.to_array(big.graph.initializer[-1]))
    assert not found.graph.constants["big"].data.flags.writeable
    assert found.graph.constants["big"].data.flags.aligned


def test_onnx_reads_the_written_model() -> None:
    written = onnx.load_model_from_string(codec.write(codec.read(STORED)) or b"")
    np.testing.assert_array_equal(
        numpy_helper.to_array(written.graph.initializer[1]), numpy_helper.to_array(MODEL.graph.initializer[1])
    )
