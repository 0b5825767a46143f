"""Loops of both formats: the same results as onnxruntime and OpenVINO give, and the same again in the other format."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from assertions import assert_close
from oracles import check_onnx, run_onnxruntime

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

COUNT = """main (int64 trips, bool go, float[2] x) => (float[2] y, float[n, 2] ys) {
    y, ys = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t, float[2] e) {
        one = Constant <value = float {1.0}> ()
        f = Cast <to = 1> (i)
        t = Add (s, f)
        e = Mul (t, x)
        total = ReduceSum <keepdims = 0> (t)
        limit = Constant <value = float {40.0}> ()
        c2 = Less (total, limit)
    }>
}"""
GROWS = """main (int64 trips, float[1, 3] x) => (float[m, 3] y) {
    go = Constant <value = bool {1}> ()
    y = Loop (trips, go, x) <body: graph = b (int64 i, bool c, float[k, 3] s) => (bool c2, float[p, 3] t) {
        c2 = Identity (c)
        t = Concat <axis = 0> (s, x)
    }>
}"""
NESTED = """main (float[3, 4] x) => (float[3] y) {
    trips = Constant <value = int64 {3}> ()
    none = Constant <value = bool {1}> ()
    zeros = Constant <value = float[3] {0.0, 0.0, 0.0}> ()
    y = Loop (trips, none, zeros) <body: graph = b (int64 i, bool c, float[3] s) => (bool c2, float[3] t) {
        four = Constant <value = int64 {4}> ()
        u = Loop (four, c, s) <body: graph = inner (int64 j, bool d, float[3] v) => (bool d2, float[3] w) {
            d2 = Identity (d)
            column = Gather <axis = 1> (x, j)
            w = Add (v, column)
        }>
        f = Cast <to = 1> (i)
        t = Add (u, f)
        c2 = Identity (c)
    }>
}"""


def scan(attributes: str, x: str, e: str, ys: str) -> str:
    return f"""main (float[3] s, float[{x}] x) => (float[3] y, float[{ys}] ys) {{
    y, ys = Scan <num_scan_inputs = 1{attributes}, body = b (float[3] a, float[{e}] p) => (float[3] t, float[{e}] q) {{
        row = ReduceSum <keepdims = 0> (p)
        t = Add (a, row)
        q = Mul (p, t)
    }}> (s, x)
}}"""


SCANS = """main (float[3] s, float[2, 4, 3] x) => (float[3] y, float[2, 4, 3] ys) {
    y, ys = Scan <num_scan_inputs = 1, body = outer (float[3] a, float[4, 3] p) => (float[3] t, float[4, 3] q) {
        t, q = Scan <num_scan_inputs = 1, scan_input_directions = [1],
                     body = b (float[3] c, float[3] r) => (float[3] d, float[3] e) {
            d = Add (c, r)
            e = Mul (d, r)
        }> (a, p)
    }> (s, x)
}"""


MODELS: dict[str, tuple[str, list[list[Any]]]] = {
    "counts": (COUNT, [[5, True, [1, 2]], [0, True, [1, 2]], [-3, True, [1, 2]], [5, False, [1, 2]], [100, True, [1, 2]]]),
    "grows": (GROWS, [[3, np.arange(3.0)[None]], [0, np.arange(3.0)[None]]]),
    "nested": (NESTED, [[np.arange(12.0).reshape(3, 4)]]),
    "scans in a scan": (SCANS, [[np.ones(3), np.arange(24.0).reshape(2, 4, 3)]]),
    "scans": (scan("", "4, 3", "3", "4, 3"), [[np.ones(3), np.arange(12.0).reshape(4, 3)]]),
    "scans backwards": (
        scan(", scan_input_directions = [1], scan_output_directions = [1]", "4, 3", "3", "4, 3"),
        [[np.ones(3), np.arange(12.0).reshape(4, 3)]],
    ),
    "scans another axis": (
        scan(", scan_input_axes = [1], scan_output_axes = [-1]", "3, 5", "3", "3, 5"),
        [[np.ones(3), np.arange(15.0).reshape(3, 5)]],
    ),
    "scans matrices": (
        scan(", scan_input_axes = [-2], scan_output_axes = [1], scan_output_directions = [1]", "2, 5, 3", "2, 3", "2, 5, 3"),
        [[np.ones(3), np.arange(30.0).reshape(2, 5, 3)]],
    ),
}
RUNS = [pytest.param(text, run, id=f"{name} {place}") for name, (text, runs) in MODELS.items() for place, run in enumerate(runs)]


def feeds(model: Any, run: list[Any]) -> dict[str, Any]:
    types = {1: np.float32, 7: np.int64, 9: np.bool_}
    inputs = zip(model.graph.input, run, strict=True)
    return {each.name: np.asarray(x, types[each.type.tensor_type.elem_type]) for each, x in inputs}


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(f"{HEAD} {text}")


def loaded(text: str) -> dovetail.Model:
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(parsed(text), Path(folder) / "loop.onnx")
        return dovetail.load(Path(folder) / "loop.onnx")


def by_onnxruntime(path: Path, given: dict[str, Any]) -> list[Any]:
    pytest.importorskip("onnxruntime")
    return run_onnxruntime(path.read_bytes(), given)


def by_openvino(path: Path, given: dict[Any, Any]) -> list[Any]:
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(given)
    return [np.array(found[index]) for index in range(len(compiled.outputs))]


def assert_all_near(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours, theirs, 1e-5)


@pytest.mark.parametrize("engine", ["interpreter", "auto"])
@pytest.mark.parametrize(("text", "run"), RUNS)
def test_a_loop_of_onnx_gives_the_results_of_onnxruntime(text: str, run: list[Any], engine: str, tmp_path: Path) -> None:
    proto = parsed(text)
    onnx.save(proto, tmp_path / "a.onnx")
    given = feeds(proto, run)
    expected = by_onnxruntime(tmp_path / "a.onnx", given)
    model = dovetail.load(tmp_path / "a.onnx")
    assert_all_near(list(dovetail.compile(model, engine)(given).values()), expected)
    dovetail.save(model, tmp_path / "b.onnx")
    check_onnx((tmp_path / "b.onnx").read_bytes())
    assert_all_near(by_onnxruntime(tmp_path / "b.onnx", given), expected)
    again = dovetail.load(tmp_path / "b.onnx")
    assert len(again.graph.nodes) <= len(model.graph.nodes)


@pytest.mark.parametrize(("text", "run"), RUNS)
def test_a_loop_of_onnx_is_written_as_ir(text: str, run: list[Any], tmp_path: Path) -> None:
    proto = parsed(text)
    onnx.save(proto, tmp_path / "a.onnx")
    given = feeds(proto, run)
    model = dovetail.load(tmp_path / "a.onnx")
    expected = list(dovetail.run(model, given).values())
    dovetail.save(model, tmp_path / "a.xml")
    again = dovetail.load(tmp_path / "a.xml")
    assert_all_near(list(dovetail.run(again, given).values()), expected)
    assert_all_near(by_openvino(tmp_path / "a.xml", given), expected)


def iterated(stride: int, part: int, is_loop: bool) -> Any:
    """Return a TensorIterator or Loop that cuts along axis 1, written with OpenVINO's own package."""
    import openvino.opset8 as ops
    from openvino import Model

    x = ops.parameter([2, 6, 3], np.float32, name="x")
    start = ops.parameter([2, part, 3], np.float32, name="start")
    state, piece = ops.parameter([2, part, 3], np.float32), ops.parameter([2, part, 3], np.float32)
    summed = ops.add(state, piece)
    made = ops.multiply(summed, ops.constant(np.float32(2)))
    if is_loop:
        made = ops.reduce_mean(made, np.array([1]), True)
    going = ops.less(ops.reduce_sum(summed, np.array([0, 1, 2]), False), ops.constant(np.float32(1000)))
    results = [summed, made, *([going] if is_loop else [])]
    body = Model(results, [state, piece])
    trips = ops.constant(np.int64(4 if part == 1 else 2))
    node = ops.loop(trips, ops.constant(np.array(True))) if is_loop else ops.tensor_iterator()
    if not is_loop:
        node.set_body(body)
    else:
        node.set_function(body)
        node.set_special_body_ports([-1, 2])
    first, last = (-1, 0) if stride < 0 else (0, -1)
    node.set_sliced_input(piece, x.output(0), first, stride, part, last, 1)
    node.set_merged_input(state, start.output(0), body.results[0].output(0) if not is_loop else summed.output(0))
    final = node.get_iter_value(body.results[0].output(0) if not is_loop else summed.output(0), -1)
    if is_loop:
        laid = node.get_concatenated_slices(made.output(0), 0, 1, 1, -1, 1)
    else:
        laid = node.get_concatenated_slices(body.results[1].output(0), first, stride, part, last, 1)
    return Model([ops.result(final, name="final"), ops.result(laid, name="laid")], [x, start])


@pytest.mark.parametrize("is_loop", [False, True])
@pytest.mark.parametrize(("stride", "part"), [(1, 1), (-1, 1), (2, 2), (-3, 3)])
def test_a_loop_of_openvino_gives_the_results_of_openvino(stride: int, part: int, is_loop: bool, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    openvino.save_model(iterated(stride, part, is_loop), str(tmp_path / "a.xml"), compress_to_fp16=False)
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((2, 6, 3)), "start": rng.standard_normal((2, part, 3))}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    model = dovetail.load(tmp_path / "a.xml")
    named = {value.name: given[name] for value, name in zip(model.inputs, given, strict=True)}
    expected = by_openvino(tmp_path / "a.xml", dict(enumerate(given.values())))
    found = list(dovetail.run(model, named).values())
    assert_all_near(found, expected)
    dovetail.save(model, tmp_path / "b.xml")
    assert_all_near(by_openvino(tmp_path / "b.xml", dict(enumerate(given.values()))), expected)
    dovetail.save(model, tmp_path / "b.onnx")
    check_onnx((tmp_path / "b.onnx").read_bytes())
    again = dovetail.load(tmp_path / "b.onnx")
    assert_all_near(list(dovetail.run(again, named).values()), expected)


OF_BATCH = """<ir_version: 4, opset_import: ["" : 8]>
main (int64[2] lengths, float[2,2] s, float[2,3,2] x) => (float[2,2] y, float[2,3,2] z) {
    y, z = Scan (lengths, s, x) <num_scan_inputs = 1, body = b (float[2] a, float[2] n) => (float[2] t, float[2] q) {
        t = Add (a, n)
        q = Mul (t, n)
    }>
}"""


def test_each_item_of_a_batch_is_scanned_up_to_its_length(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(OF_BATCH), tmp_path / "a.onnx")
    given = {"s": np.ones((2, 2), np.float32), "x": np.arange(12, dtype=np.float32).reshape(2, 3, 2)}
    model = dovetail.load(tmp_path / "a.onnx")
    dovetail.save(model, tmp_path / "a.xml")
    for lengths in ([2, 3], [1, 1]):
        given = {"lengths": np.int64(lengths), **given}
        expected = by_onnxruntime(tmp_path / "a.onnx", given)
        for engine in ("interpreter", "auto"):
            assert_all_near(list(dovetail.compile(model, engine)(given).values()), expected)
        assert_all_near(by_openvino(tmp_path / "a.xml", given), expected)


def test_a_batched_scan_with_lengths_and_a_backward_direction_is_refused(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(OF_BATCH.replace("= 1,", "= 1, directions = [1],")), tmp_path / "a.onnx")
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.compile(tmp_path / "a.onnx")
    assert caught.value.code == "op.unsupported"


def test_an_endless_loop_stops_at_the_trip_limit() -> None:
    text = """main (bool go, float[1] x) => (float[1] y) {
        y = Loop (, go, x) <body: graph = b (int64 i, bool c, float[1] s) => (bool c2, float[1] t) {
            c2 = Identity (c)
            t = Add (s, s)
        }>
    }"""
    model = loaded(text)
    for engine in ("native", "interpreter"):
        program = dovetail.compile(model, engine, limits=dovetail.Limits(trips=20))
        with pytest.raises(dovetail.EngineError) as caught:
            program({"go": np.True_, "x": np.ones(1, np.float32)})
        assert caught.value.code == "loop.trips" and "the limit trips is 20" in caught.value.message


def test_sizes_follow_from_the_number_of_trips() -> None:
    model = loaded(scan("", "n, 3", "3", "n, 3"))
    assert [str(value.type) for value in model.outputs] == ["f32[3]", "f32[n, 3]"]
    model = loaded(GROWS)
    assert str(model.outputs[0].type.shape[1]) == "3"
    assert model.outputs[0].type.shape[0] != 1


REFUSED = {
    "op.unsupported": """main (int64 n, float[1] x) => (float[1] y) {
        y = Loop (n, , x) <body: graph = b (int64 i, bool c, float[1] s) => (bool c2, float[1] t) {
            t = Add (s, s)
            zero = Constant <value = float[1] {0.0}> ()
            less = Less (t, zero)
            c2 = Squeeze (less)
        }> }""",
    "subgraph.ports": """main (int64 n, bool go, float[1] x) => (float[1] y) {
        y = Loop (n, go, x) <body: graph = b (int64 i, bool c) => (bool c2) { c2 = Identity (c) }> }""",
    "shape.single": """main (int64[2] n, bool go, float[1] x) => (float[1] y) {
        y = Loop (n, go, x) <body: graph = b (int64 i, bool c, float[1] s) => (bool c2, float[1] t) {
            c2 = Identity (c)
            t = Add (s, s) }> }""",
    "type.disagree": """main (int64 n, bool go, float[1] x) => (float[1] y) {
        y = Loop (n, go, x) <body: graph = b (int64 i, bool c, float[1] s) => (bool c2, double[1] t) {
            c2 = Identity (c)
            t = Cast <to = 11> (s) }> }""",
    "axis.range": scan(", scan_input_axes = [2]", "4, 3", "3", "4, 3"),
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_loop_that_is_wrong_is_refused(code: str) -> None:
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.compile(loaded(REFUSED[code]))
    assert caught.value.code == code


def test_a_size_that_branches_leave_open_is_a_new_symbol_outside() -> None:
    """A size that both branches leave open has the name of a value in them, and values outside may have that name too."""
    branches = []
    for _ in range(2):
        inner = dovetail.Builder()
        inner.graph.outputs = [inner.NonZero(inner.input("x", "f32", ("n",)))]
        branches.append(inner.graph)
    b = dovetail.Builder()
    which, x, other = b.input("which", "boolean", ()), b.input("x", "f32", ("n",)), b.input("other", "f32", ("m",))
    here = b.NonZero(other)
    (chosen,) = b.apply("If", which, x, then_branch=branches[0], else_branch=branches[1])
    assert here.shape[1] != chosen.shape[1]


def test_a_size_from_outside_has_one_name_through_a_branch() -> None:
    """A value that the file of a subgraph leaves without a name takes the name that it has outside."""
    branches = []
    for _ in range(2):
        inner = dovetail.Builder()
        inner.graph.outputs = [inner.Relu(inner.input("x", "f32", (None, 8)))]
        branches.append(inner.graph)
    b = dovetail.Builder()
    which, x = b.input("which", "boolean", ()), b.input("batch", "f32", (None, 8))
    (chosen,) = b.apply("If", which, x, then_branch=branches[0], else_branch=branches[1])
    assert chosen.shape == x.shape


def test_a_scan_of_an_unknown_rank(tmp_path: Path) -> None:
    """Axes counted from the front need no rank, and what is written of it is read again."""
    text = scan("", "4, 3", "3", "4, 3")
    proto = onnx.parser.parse_model(HEAD + text)
    (body,) = (each.g for each in proto.graph.node[0].attribute if each.name == "body")
    for value in (*proto.graph.input, *proto.graph.output, *body.input):
        value.type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "a.onnx")
    given = {"s": np.ones(3, np.float32), "x": np.arange(12, dtype=np.float32).reshape(4, 3)}
    expected = run_onnxruntime(proto.SerializeToString(), given)
    model = dovetail.load(tmp_path / "a.onnx")
    dovetail.save(model, tmp_path / "b.onnx")
    for path in (tmp_path / "a.onnx", tmp_path / "b.onnx"):
        for engine in ("interpreter", "native"):
            for ours, theirs in zip(dovetail.run(path, given, engine=engine).values(), expected, strict=True):
                assert_close(ours, theirs, 1e-5)
