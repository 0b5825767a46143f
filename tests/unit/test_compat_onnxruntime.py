"""dovetail.compat.onnxruntime beside onnxruntime: short programs run with both modules, and their results are equal."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail
import dovetail.compat.onnxruntime as ours
import onnxruntime_table
from assertions import assert_same_bits
from dovetail.compat.onnxruntime.errors import EXCEPTIONS, OrtError

theirs = pytest.importorskip("onnxruntime")

Program = Callable[[Any], Any]
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
ONES = np.ones((3, 2), np.float32)
PROGRAMS: list[Program] = []
"""Programs whose results are equal in both modules."""


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the level of the logger, which set_default_logger_severity changes for the process."""
    logger = logging.getLogger("dovetail")
    before = logger.level
    yield
    logger.setLevel(before)


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


def value(name: str, kind: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: Any = (), opset: int = 18, **more: Any
) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers), doc_string=more.pop("graph_doc", ""))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)
    if more.get("producer_name"):
        helper.set_model_props(model, {"classes": "cat,dog"})
    return model.SerializeToString()  # type: ignore[no-any-return]


def affine(**more: Any) -> bytes:
    """Return y = x + b and z = Relu(y); b = [1, 2] is an initializer and an optional input."""
    return model_of(
        [helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        [value("x", FLOAT, ["n", 2]), value("b", FLOAT, [2])],
        [value("y", FLOAT, ["n", 2]), value("z", FLOAT, ["m", 2])],
        [helper.make_tensor("b", FLOAT, [2], [1, 2])],
        **more,
    )


def quiet(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def session_of(ort: Any, data: bytes) -> Any:
    return ort.InferenceSession(data, quiet(ort), providers=["CPUExecutionProvider"])


def describe(args: Any) -> list[Any]:
    return [(arg.name, arg.type, arg.shape, str(arg)) for arg in args]


# Programs


@program
def outputs_by_name(ort: Any) -> Any:
    session = session_of(ort, affine())
    feed = {"x": ONES}
    return [session.run(names, feed) for names in (None, [], ["z"], ("z", "y"), ["y", "y"])]


@program
def forms_of_arrays(ort: Any) -> Any:
    session = session_of(ort, affine())
    lists = [[[1, 2], [3, 4]], [[1.5, 2.5]], [np.ones(2)]]
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.zeros((0, 2), np.float32), ONES[::-1]]
    values = [ort.OrtValue.ortvalue_from_numpy(ONES)]
    return [session.run(None, {"x": item}) for item in (*lists, *arrays, *values)]


@program
def optional_inputs(ort: Any) -> Any:
    session = session_of(ort, affine())
    b = np.array([5, 6], np.float32)
    return [
        session.run(None, {"x": ONES}),
        session.run(None, {"x": ONES, "b": b}),
        session.run(None, {"x": ONES, "b": None}),
        describe(session.get_overridable_initializers()),
    ]


@program
def descriptions(ort: Any) -> Any:
    data = model_of(
        [
            helper.make_node("Add", ["x", "x"], ["y"]),
            helper.make_node("Concat", ["x", "x"], ["z"], axis=0),
            helper.make_node("Reshape", ["x", "s"], ["w"]),
            helper.make_node("NonZero", ["x"], ["v"]),
            helper.make_node("Identity", ["x"], ["u"]),
            helper.make_node("SplitToSequence", ["x"], ["q"], axis=0),
        ],
        [value("x", FLOAT, ["n", None, 3]), value("s", INT64, [2])],
        [
            *(value(name, FLOAT, None) for name in "yzw"),
            value("v", INT64, None),
            value("u", FLOAT, ["m", None, 3]),
            helper.make_tensor_sequence_value_info("q", FLOAT, None),
        ],
    )
    session = session_of(ort, data)
    return [describe(session.get_inputs()), describe(session.get_outputs()), describe(session.get_overridable_initializers())]


@program
def names_that_are_no_identifiers(ort: Any) -> Any:
    inputs, outputs = [value("x:0/é b", FLOAT, ["n m", 2])], [value("y.1", FLOAT, ["batch+1", 2])]
    session = session_of(ort, model_of([helper.make_node("Neg", ["x:0/é b"], ["y.1"])], inputs, outputs))
    return [describe(session.get_inputs()), describe(session.get_outputs()), session.run(["y.1"], {"x:0/é b": ONES})]


@program
def element_types(ort: Any) -> Any:
    words = "FLOAT DOUBLE FLOAT16 BFLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL STRING FLOAT8E4M3FN FLOAT8E5M2"
    found = []
    for word in words.split():
        kind = getattr(TensorProto, word)
        node = helper.make_node("Identity", ["x"], ["y"])
        session = session_of(ort, model_of([node], [value("x", kind, ["n"])], [value("y", kind, ["n"])], opset=19))
        found.append(describe(session.get_outputs()))
    return found


@program
def metadata(ort: Any) -> Any:
    fields = "custom_metadata_map description domain graph_description graph_name producer_name version".split()
    described = {"doc_string": "d", "domain": "me", "model_version": 7, "producer_name": "p", "graph_doc": "text"}
    metas = [session_of(ort, affine(**more)).get_modelmeta() for more in ({}, described)]
    return [[getattr(meta, field) for field in fields] for meta in metas]


@program
def strings(ort: Any) -> Any:
    data = model_of(
        [helper.make_node("Identity", ["s"], ["y"]), helper.make_node("Identity", ["t"], ["z"])],
        [value("s", STRING, []), value("t", STRING, ["a", "b"])],
        [value("y", STRING, []), value("z", STRING, ["a", "b"])],
    )
    session = session_of(ort, data)
    items = [np.array([["a", "bc"]]), np.array([["a", "é"]], object), [["a", "b"]], np.array([[1, 2.5]], object)]
    return [session.run(None, {"s": np.array("hi"), "t": item}) for item in items]


@program
def scalars(ort: Any) -> Any:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    return session_of(ort, model_of([node], [value("x", FLOAT, None)], [value("y", FLOAT, [])])).run(None, {"x": ONES})


@program
def sequences(ort: Any) -> Any:
    data = model_of(
        [helper.make_node("SplitToSequence", ["x"], ["y"], axis=0), helper.make_node("SequenceLength", ["q"], ["z"])],
        [value("x", FLOAT, ["n", 2]), helper.make_tensor_sequence_value_info("q", FLOAT, None)],
        [helper.make_tensor_sequence_value_info("y", FLOAT, None), value("z", INT64, [])],
    )
    session = session_of(ort, data)
    results = session.run(None, {"x": ONES, "q": [np.ones(3, np.float32), np.zeros((1, 2), np.float32)]})
    return [results, describe(session.get_inputs())]


def zipmap(key: str, labels: list[Any], kind: int) -> bytes:
    element = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(FLOAT, None))
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **{key: labels})
    return model_of(
        [node], [value("x", FLOAT, ["n", 2])], [helper.make_value_info("y", helper.make_sequence_type_proto(element))]
    )


@program
def maps(ort: Any) -> Any:
    found = []
    for data in (zipmap("classlabels_strings", ["a", "b"], STRING), zipmap("classlabels_int64s", [4, 5], INT64)):
        session = session_of(ort, data)
        (ort_value,) = session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(ONES)})
        found += [session.run(None, {"x": ONES}), describe(session.get_outputs()), ort_value.data_type(), ort_value.is_tensor()]
    inputs = [helper.make_value_info("x", helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, None)))]
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    session = session_of(ort, model_of([node], inputs, [value("y", FLOAT, [1, 2])]))
    return [*found, session.run(None, {"x": {"a": 1.5}}), describe(session.get_inputs())]


@program
def optional_values(ort: Any) -> Any:
    element = helper.make_tensor_type_proto(FLOAT, [2])
    inputs = [helper.make_value_info("q", helper.make_optional_type_proto(element))]
    session = session_of(
        ort, model_of([helper.make_node("OptionalHasElement", ["q"], ["z"])], inputs, [value("z", TensorProto.BOOL, [])])
    )
    feeds: list[Any] = [{"q": None}, {}, {"q": np.ones(2, np.float32)}]
    return [[session.run(None, feed) for feed in feeds], describe(session.get_inputs())]


@program
def float8(ort: Any) -> Any:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)
    outputs = [value("y", TensorProto.FLOAT8E4M3FN, ["n"])]
    return session_of(ort, model_of([node], [value("x", FLOAT, ["n"])], outputs, opset=19)).run(None, {"x": ONES[0]})


@program
def bfloat16_values(ort: Any) -> Any:
    node = helper.make_node("Cast", ["x"], ["y"], to=FLOAT)
    session = session_of(ort, model_of([node], [value("x", TensorProto.BFLOAT16, ["n"])], [value("y", FLOAT, ["n"])], opset=19))
    bits = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.full(2, 16256, np.uint16), TensorProto.BFLOAT16)
    return [session.run(None, {"x": bits}), bits.data_type(), bits.element_type(), bits.shape()]


@program
def sizes_of_one_name_that_differ(ort: Any) -> Any:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Neg", ["w"], ["z"])]
    inputs = [value(name, FLOAT, ["n"]) for name in "xw"]
    session = session_of(ort, model_of(nodes, inputs, [value(name, FLOAT, ["n"]) for name in "yz"]))
    feed = {"x": np.ones(2, np.float32), "w": np.ones(3, np.float32)}
    return [session.run(None, feed), session.run(None, {"x": ONES[0], "w": ONES[0]})]


@program
def declared_sizes_that_are_wrong(ort: Any) -> Any:
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    session = session_of(ort, model_of([node], [value("x", FLOAT, ["n"]), value("s", INT64, [1])], [value("y", FLOAT, [3])]))
    return session.run(None, {"x": np.ones(2, np.float32), "s": np.array([-1])})


@program
def fixed_sizes(ort: Any) -> Any:
    options = quiet(ort)
    options.add_free_dimension_override_by_name("n", 3)
    session = ort.InferenceSession(affine(), options)
    return [describe(session.get_inputs()), describe(session.get_outputs())[:1], session.run(None, {"x": ONES})]


@program
def replaced_initializers(ort: Any) -> Any:
    data = model_of(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        [value("x", FLOAT, ["n", 2])],
        [value("y", FLOAT, ["n", 2])],
        [helper.make_tensor("c", FLOAT, [2], [1, 2])],
    )
    options = quiet(ort)
    replacement = ort.OrtValue.ortvalue_from_numpy(np.array([10, 20], np.float32))
    options.add_initializer("c", replacement)
    options.add_initializer("unknown", replacement)
    return ort.InferenceSession(data, options).run(None, {"x": ONES})


@program
def default_options(ort: Any) -> Any:
    kinds = (ort.SessionOptions(), ort.RunOptions())
    return [
        {name: repr(getattr(item, name)) for name in sorted(dir(item)) if name[0] != "_" and not callable(getattr(item, name))}
        for item in kinds
    ]


@program
def options_of_other_types(ort: Any) -> Any:
    options = ort.SessionOptions()
    found = []
    for name, items in {"enable_mem_pattern": (None, 2.0, 0, np.False_), "intra_op_num_threads": (np.int32(3), True)}.items():
        for item in items:
            setattr(options, name, item)
            found.append(repr(getattr(options, name)))
    return found


@program
def configuration_entries(ort: Any) -> Any:
    options, run_options = ort.SessionOptions(), ort.RunOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    session = ort.InferenceSession(affine(), options)
    return [
        options.get_session_config_entry("session.intra_op.allow_spinning"),
        run_options.get_run_config_entry("memory.enable_memory_arena_shrinkage"),
        session.run(None, {"x": ONES}, run_options),
        str(session.get_session_options().execution_mode),
        int(session.get_session_options().graph_optimization_level),
    ]


@program
def options_that_change_after_the_session(ort: Any) -> Any:
    names = [["x", "n"], ["w", "n"], ["v", "k"]]
    nodes = [helper.make_node("Neg", [name], [f"{name}2"]) for name, _ in names]
    inputs = [value(name, FLOAT, [size]) for name, size in names]
    outputs = [value(f"{name}2", FLOAT, [size]) for name, size in names]
    options = quiet(ort)
    session = ort.InferenceSession(model_of(nodes, inputs, outputs), options)
    options.add_session_config_entry("a", "1")
    options.add_free_dimension_override_by_name("k", 7)
    try:
        entry = session.get_session_options().get_session_config_entry("a")
    except RuntimeError:
        entry = "none"
    return [entry, session.run(None, {name: np.ones(size, np.float32) for name, size in zip("xwv", (2, 3, 4), strict=True)})]


@program
def enumerations(ort: Any) -> Any:
    names = ("GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder")
    return [{str(item): (int(item), repr(item), item.name) for item in getattr(ort, name).__members__.values()} for name in names]


@program
def providers(ort: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = ort.InferenceSession(affine(), quiet(ort), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
        session.set_providers(["CPUExecutionProvider"])
    return [session.get_providers(), session.get_provider_options(), [item.category.__name__ for item in caught]]


@program
def ort_values(ort: Any) -> Any:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    item = ort.OrtValue.ortvalue_from_numpy(array)
    facts = [
        item.data_ptr() == array.ctypes.data, item.device_name(), item.shape(), item.data_type(), item.element_type(),
        item.tensor_size_in_bytes(), item.has_value(), item.is_tensor(), item.is_sparse_tensor(), item.is_tensor_sequence(),
        item.__dlpack_device__(), np.shares_memory(item.numpy(), array),
    ]  # fmt: skip
    item.update_inplace(np.full((2, 3), 9, np.float32))
    other = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    other.update_inplace(array.T + np.arange(2, dtype=np.float32))
    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float64)
    numbered = ort.OrtValue.ortvalue_from_shape_and_type([2], TensorProto.BFLOAT16)
    taken = ort.OrtValue.from_dlpack(np.arange(3))
    strided = ort.OrtValue.ortvalue_from_numpy(array.T)
    return [
        facts, array, empty.shape(), empty.data_type(), numbered.data_type(), taken.numpy(), np.from_dlpack(item),
        np.asarray(item), strided.numpy(), strided.shape(), other.numpy(),
    ]  # fmt: skip


@program
def runs_with_ort_values(ort: Any) -> Any:
    session = session_of(ort, affine())
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(ONES)}
    return [[item.numpy() for item in session.run_with_ort_values(names, feed)] for names in (None, ["z"])]


@program
def bound_arrays(ort: Any) -> Any:
    session = session_of(ort, affine())
    binding = session.io_binding()
    binding.bind_cpu_input("x", ONES)
    binding.bind_output("z")
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return [binding.copy_outputs_to_cpu(), [(item.shape(), item.device_name(), item.numpy()) for item in binding.get_outputs()]]


@program
def bound_memory(ort: Any) -> Any:
    session = session_of(ort, affine())
    target = np.zeros((3, 2), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, ONES.shape, ONES.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    session.run_with_iobinding(binding)
    return [target, binding.copy_outputs_to_cpu(), binding.get_outputs()[0].data_ptr() == target.ctypes.data]


@program
def bound_values(ort: Any) -> Any:
    session = session_of(ort, affine())
    x, z = ort.OrtValue.ortvalue_from_numpy(ONES.copy()), ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("z", z)
    session.run_with_iobinding(binding)
    first = z.numpy().copy()
    x.update_inplace(np.full((3, 2), 4, np.float32))
    session.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    binding.bind_cpu_input("x", ONES)
    session.run_with_iobinding(binding)
    return [first, z.numpy()]


@program
def asynchronous_runs(ort: Any) -> Any:
    options = quiet(ort)
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(affine(), options)
    found: list[Any] = []
    for rows in (np.ones((1, 2), np.float32), np.ones((1, 3), np.float32)):
        done = threading.Event()

        def keep(results: Any, data: Any, error: str, done: threading.Event = done) -> None:
            found.append((results, data, error == ""))
            done.set()

        session.run_async(None, {"x": rows}, keep, "data")
        assert done.wait(60)
    return found


@program
def described_library(ort: Any) -> Any:
    ort.set_seed(3)
    ort.set_default_logger_severity(3)
    ort.disable_telemetry_events()
    ort.enable_telemetry_events()
    return [
        ort.get_device(),
        ort.__version__ == ort.get_version_string(),
        ort.has_collective_ops(),
        ort.__version__.split(".")[0],
    ]


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda function: function.__name__)
def test_a_program_has_the_same_results_with_both_modules(run: Program) -> None:
    assert_same(run(ours), run(theirs))


def assert_same(own: Any, other: Any, where: str = "result") -> None:
    assert type(own) is type(other), f"{where}: {own!r}, {other!r}"
    if isinstance(own, dict):
        assert list(own) == list(other), where
        own, other = list(own.values()), list(other.values())
    if isinstance(own, list | tuple):
        assert len(own) == len(other), f"{where}: {own!r}, {other!r}"
        for index, (item, expected) in enumerate(zip(own, other, strict=True)):
            assert_same(item, expected, f"{where}[{index}]")
    elif isinstance(own, np.ndarray):
        assert_same_bits(own, other, where)
    else:
        assert own == other, f"{where}: {own!r}, {other!r}"


# Errors


def unknown_operator() -> bytes:
    return model_of([helper.make_node("Unknown", ["x"], ["y"])], [value("x", FLOAT, [2])], [value("y", FLOAT, [2])])


def reshape_model() -> bytes:
    inputs = [value("x", FLOAT, ["n", 2]), value("s", INT64, [1])]
    return model_of([helper.make_node("Reshape", ["x", "s"], ["y"])], inputs, [value("y", FLOAT, None)])


def bad_types() -> bytes:
    inputs = [value("x", FLOAT, [2]), value("w", TensorProto.DOUBLE, [2])]
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], inputs, [value("y", FLOAT, [2])])


def dangling() -> bytes:
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", FLOAT, [2])], [value("y", FLOAT, [2])])


def run_affine(names: Any, feed: Any) -> Program:
    return lambda ort: session_of(ort, affine()).run(names, feed)


def terminated(ort: Any) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return session_of(ort, affine()).run(None, {"x": ONES}, options)


def bind(change: Callable[[Any, Any], object]) -> Program:
    def run(ort: Any) -> None:
        session = session_of(ort, affine())
        binding = session.io_binding()
        binding.bind_cpu_input("x", ONES)
        change(ort, binding)
        session.run_with_iobinding(binding)

    return run


FAILURES: dict[str, Program] = {
    "unknown output": run_affine(["w"], {"x": ONES}),
    "unknown input": run_affine(None, {"x": ONES, "w": ONES}),
    "missing input": run_affine(None, {}),
    "names as text": run_affine("y", {"x": ONES}),
    "list of inputs": run_affine(None, [ONES]),
    "element type": run_affine(None, {"x": ONES.astype(np.float64)}),
    "strings": run_affine(None, {"x": np.array([["a", "b"]])}),
    "rank": run_affine(None, {"x": ONES[0]}),
    "size": run_affine(None, {"x": np.ones((3, 5), np.float32)}),
    "nothing": run_affine(None, {"x": None}),
    "ragged list": run_affine(None, {"x": [[1, 2], [3]]}),
    "input named by a number": run_affine(None, {"x": ONES, 3: ONES}),
    "output named by nothing": run_affine([None], {"x": ONES}),
    "number as options": lambda ort: ort.InferenceSession(affine(), 3),
    "number as options of a run": lambda ort: session_of(ort, affine()).run(None, {"x": ONES}, 3),
    "number": run_affine(None, {"x": 1.0}),
    "text": run_affine(None, {"x": "text"}),
    "terminated": terminated,
    "missing file": lambda ort: ort.InferenceSession("missing.onnx"),
    "no model": lambda ort: ort.InferenceSession(b"garbage"),
    "no source": lambda ort: ort.InferenceSession(None),
    "other source": lambda ort: ort.InferenceSession(bytearray(affine())),
    "unknown operator": lambda ort: session_of(ort, unknown_operator()),
    "types": lambda ort: session_of(ort, bad_types()),
    "dangling": lambda ort: session_of(ort, dangling()),
    "run": lambda ort: session_of(ort, reshape_model()).run(None, {"x": ONES, "s": np.array([5])}),
    "unknown option": lambda ort: setattr(ort.SessionOptions(), "threads", 1),
    "type of option": lambda ort: setattr(ort.SessionOptions(), "intra_op_num_threads", "1"),
    "list as a boolean": lambda ort: setattr(ort.SessionOptions(), "enable_mem_pattern", []),
    "fraction as a size": lambda ort: ort.SessionOptions().add_free_dimension_override_by_name("n", 2.5),
    "unknown entry": lambda ort: ort.SessionOptions().get_session_config_entry("unknown"),
    "type of entry": lambda ort: ort.SessionOptions().add_session_config_entry("a", 1),
    "providers as number": lambda ort: ort.InferenceSession(affine(), providers=3),
    "value of list": lambda ort: ort.OrtValue.ortvalue_from_numpy([1]),
    "value of strings": lambda ort: ort.OrtValue.ortvalue_from_numpy(np.array(["a"])),
    "value on a device": lambda ort: ort.OrtValue.ortvalue_from_numpy(ONES, "cuda", 0),
    "value of unknown type": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2], "unknown"),
    "strided value": lambda ort: ort.OrtValue.from_dlpack(np.ones((2, 3), np.float32).T),
    "larger update": lambda ort: ort.OrtValue.ortvalue_from_numpy(ONES.copy()).update_inplace(np.ones(9, np.float32)),
    "severity": lambda ort: ort.set_default_logger_severity(9),
    "no bound output": bind(lambda ort, binding: None),
    "bound list": bind(lambda ort, binding: binding.bind_cpu_input("x", [[1.0, 2.0]])),
    "unknown bound input": bind(lambda ort, binding: binding.bind_cpu_input("w", ONES)),
    "unknown bound output": bind(lambda ort, binding: binding.bind_output("w")),
    "bound size": bind(lambda ort, binding: binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(ONES[:2]))),
    "bound type": bind(lambda ort, binding: binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(np.ones((3, 2))))),
    "address without type": bind(lambda ort, binding: binding.bind_output("z", "cpu", 0, None, None, 8)),
    "other session": lambda ort: session_of(ort, affine()).run_with_iobinding(session_of(ort, affine()).io_binding()),
    "asynchronous in one thread": lambda ort: session_of(ort, affine()).run_async(None, {"x": ONES}, print, None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_raises_an_exception_of_the_same_class(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = {}
    for ort in (ours, theirs):
        with pytest.raises(Exception) as caught:
            FAILURES[name](ort)
        found[ort] = caught.value
    state = ours.capi.onnxruntime_pybind11_state
    known = getattr(state, type(found[theirs]).__name__, type(found[theirs]))
    assert isinstance(found[ours], known), (found[ours], found[theirs])
    assert isinstance(found[ours], dovetail.DovetailError | AttributeError)
    if isinstance(found[ours], OrtError):
        assert not isinstance(found[ours], ValueError | RuntimeError)
        assert str(found[ours]).split(" : ")[:3] == str(found[theirs]).split(" : ")[:3]


def test_each_run_of_a_model_that_breaks_a_shape_rule_raises_a_new_exception() -> None:
    node = helper.make_node(
        "LinearClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", coefficients=[1.0] * 8, classlabels_ints=[0, 1]
    )
    session = session_of(ours, model_of([node], [value("x", FLOAT, [1, 2])], [value("y", INT64, [1]), value("z", FLOAT, [1, 2])]))
    found = []
    for _ in range(2):
        with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument) as caught:
            session.run(None, {"x": ONES[:1]})
        found.append(caught.value)
    assert found[0] is not found[1] and str(found[0]) == str(found[1])


def test_the_exceptions_are_those_of_onnxruntime() -> None:
    state = theirs.capi.onnxruntime_pybind11_state
    names = {
        name for name in dir(state) if isinstance(getattr(state, name), type) and issubclass(getattr(state, name), Exception)
    }
    assert {kind.__name__ for kind in EXCEPTIONS} == names
    assert len({kind.status for kind in EXCEPTIONS}) == len(EXCEPTIONS)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.NoSuchFile) as caught:
        ours.InferenceSession("missing.onnx")
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), ours.capi.onnxruntime_pybind11_state.NoSuchFile)


# What onnxruntime does not do, and what dovetail refuses


def test_options_and_sessions_are_pickled_and_copied(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(affine())
    options = quiet(ours)
    options.add_session_config_entry("a", "b")
    options.add_free_dimension_override_by_name("n", 3)
    options.add_initializer("b", ours.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32)))
    for source in (tmp_path / "m.onnx", affine()):
        session = ours.InferenceSession(source, options)
        for again in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
            assert_same(again.run(None, {"x": ONES}), session.run(None, {"x": ONES}))
            assert again.get_session_options().get_session_config_entry("a") == "b"
            assert again.get_inputs()[0].shape == [3, 2]
    again = pickle.loads(pickle.dumps(options))
    assert again.__dict__.keys() == options.__dict__.keys()
    options.intra_op_num_threads = 7
    assert again.intra_op_num_threads == session.get_session_options().intra_op_num_threads == 1


def test_any_suffix_is_onnx_and_an_ir_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(affine())
    dovetail.save(dovetail.load(affine(), freeze_defaults=True), tmp_path / "m.xml")
    for name in ("model", "m.xml"):
        assert_same(ours.InferenceSession(str(tmp_path / name)).run(["z"], {"x": ONES})[0], ONES + np.float32([1, 2]))
    with pytest.raises(OrtError) as caught:
        ours.InferenceSession("m.ort")
    assert type(caught.value).__name__ == "NotImplemented"


def test_the_optimized_model_is_written(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    options = quiet(ours)
    options.optimized_model_filepath = str(path)
    results = ours.InferenceSession(affine(), options).run(None, {"x": ONES})
    assert_same(theirs.InferenceSession(str(path)).run(None, {"x": ONES}), results)


def test_a_profile_is_a_list_of_events(tmp_path: Path) -> None:
    options = quiet(ours)
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ours.InferenceSession(affine(), options)
    session.run(None, {"x": ONES})
    path = session.end_profiling()
    events = json.loads(Path(path).read_text("utf-8"))
    assert Path(path).parent == tmp_path
    assert any(event["ph"] == "X" and event["dur"] > 0 for event in events)
    assert session.get_profiling_start_time_ns() > 0
    assert session_of(ours, affine()).end_profiling() == session_of(theirs, affine()).end_profiling() == ""


REFUSALS: dict[str, Program] = {
    "register_custom_ops_library": lambda ort: ort.SessionOptions().register_custom_ops_library("a.so"),
    "session.set_denormal_as_zero": lambda ort: ort.SessionOptions().add_session_config_entry(
        "session.set_denormal_as_zero", "1"
    ),
    "ORT": lambda ort: ort.SessionOptions().add_session_config_entry("session.load_model_format", "ORT"),
    "add_active_adapter": lambda ort: ort.RunOptions().add_active_adapter(None),
    "get_tuning_results": lambda ort: session_of(ort, affine()).get_tuning_results(),
    "SparseTensor": lambda ort: ort.SparseTensor,
    "sparse tensors": lambda ort: ort.OrtValue.ortvalue_from_numpy(ONES).as_sparse_tensor(),
    "ModelCompiler": lambda ort: ort.ModelCompiler,
    "read_config_from_model": lambda ort: ort.InferenceSession(affine(), read_config_from_model=1),
    "FooExecutionProvider": lambda ort: ort.SessionOptions().add_provider("FooExecutionProvider", {}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_refused_feature(name: str) -> None:
    with pytest.raises(dovetail.DovetailError, match=name):
        REFUSALS[name](ours)


def public(item: object) -> Iterator[str]:
    yield from (name for name in dir(item) if not name.startswith("_"))


def test_every_name_of_onnxruntime_is_covered_or_refused_by_name() -> None:
    internal = {
        "capi",
        "contextlib",
        "cuda_version",
        "import_capi_exception",
        "onnxruntime_validation",
        "package_name",
        "version",
    }
    modules = {name for name in public(theirs) if isinstance(getattr(theirs, name), type(sys))}
    names = set(public(theirs)) - internal - modules
    assert names <= set(ours.__all__) | ours.REFUSED.keys()
    assert not set(ours.__all__) & ours.REFUSED.keys()
    for name in ours.REFUSED:
        assert not hasattr(ours, name)
        with pytest.raises(AttributeError, match=f"onnxruntime.{name} is not supported"):
            getattr(ours, name)
    with pytest.raises(AttributeError, match="onnxruntime has no attribute 'unknown'"):
        _ = ours.unknown


@pytest.mark.parametrize("name", onnxruntime_table.CLASSES)
def test_every_method_is_covered_or_refused_by_name(name: str) -> None:
    item = session_of(ours, affine()) if name == "InferenceSession" else onnxruntime_table.instance(name)
    refused = onnxruntime_table.METHODS_REFUSED.get(name, set())
    for method in public(getattr(theirs, name)):
        if method in refused and not hasattr(item, method):
            with pytest.raises(AttributeError, match=f"{name}.{method} is not supported"):
                getattr(item, method)
        else:
            assert hasattr(item, method), method
    assert refused <= set(public(getattr(theirs, name)))


def test_the_table_of_the_documentation_is_this() -> None:
    if not onnxruntime_table.PAGE.exists():
        pytest.skip("an installed package comes without its documentation")
    _, rows, _ = onnxruntime_table.parts(onnxruntime_table.PAGE.read_text("utf-8"))
    assert rows == onnxruntime_table.table(), "python tests/onnxruntime_table.py writes the table"


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_stored_options_are_those_of_onnxruntime(name: str) -> None:
    plain = onnxruntime_table.plain_attributes(getattr(theirs, name)())
    assert onnxruntime_table.plain_attributes(getattr(ours, name)()) == plain
    assert onnxruntime_table.USED[name] <= plain


def test_the_module_takes_the_place_of_onnxruntime() -> None:
    code = """
        import sys, dovetail.compat.onnxruntime
        sys.modules["onnxruntime"] = dovetail.compat.onnxruntime
        import onnxruntime as ort
        from onnxruntime import InferenceSession, SessionOptions
        from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
        import onnxruntime.capi._pybind_state as state
        from onnxruntime.capi.onnxruntime_inference_collection import OrtValue
        try:
            InferenceSession("missing.onnx")
        except ort.capi.onnxruntime_pybind11_state.NoSuchFile as error:
            assert isinstance(error, NoSuchFile) and isinstance(error, state.NoSuchFile)
            print(OrtValue is ort.OrtValue, sorted({"onnx", "onnxruntime.capi"} & set(sys.modules)))
    """
    lines = "\n".join(line.removeprefix(" " * 8) for line in code.splitlines())
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "True ['onnxruntime.capi']", found.stderr
