"""If and Loop whose bodies fit only some sizes: what is not run raises nothing, what is run does as in onnxruntime."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from assertions import assert_close
from dovetail.ir import dtypes
from dovetail.ir.types import Tensor
from dovetail.ops.control_flow.loop import Loop
from oracles import check_onnx

pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
CONDITIONS, TRIPS, DEPTH = 3, 2, 3


class _Text:
    """Random ONNX text: expressions over vectors, each of which fits only some lengths."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, kind: str, values: list[float] | list[int]) -> tuple[str, str]:
        name = self.name()
        return name, f"{name} = Constant <value = {kind}[{len(values)}] {{{', '.join(map(str, values))}}}> ()\n"

    def chain(self, x: str, depth: int) -> tuple[str, str]:
        """Return a name, and the lines that make it of ``x``."""
        lines = ""
        for _ in range(self.random.randint(1, 2)):
            kinds = [self.add, self.reshape, self.split, self.squeeze, self.gather, self.relu]
            if depth:
                kinds += [self.choice, self.choice, self.loop, self.loop, self.scan]
            x, more = self.random.choice(kinds)(x, depth - 1)
            lines += more
        return x, lines

    def relu(self, x: str, _: int) -> tuple[str, str]:
        y = self.name()
        return y, f"{y} = Relu ({x})\n"

    def add(self, x: str, _: int) -> tuple[str, str]:
        other, line = self.constant("float", [float(i) for i in range(self.random.randint(2, 4))])
        y = self.name()
        return y, f"{line}{y} = Add ({x}, {other})\n"

    def reshape(self, x: str, _: int) -> tuple[str, str]:
        rows, line = self.constant("int64", [self.random.randint(2, 4), -1])
        all_, more = self.constant("int64", [-1])
        y, z = self.name(), self.name()
        return z, f"{line}{more}{y} = Reshape ({x}, {rows})\n{z} = Reshape ({y}, {all_})\n"

    def split(self, x: str, _: int) -> tuple[str, str]:
        sizes, line = self.constant("int64", [1, self.random.randint(0, 3)])
        y, z, both = self.name(), self.name(), self.name()
        return both, f"{line}{y}, {z} = Split <axis = 0> ({x}, {sizes})\n{both} = Concat <axis = 0> ({z}, {y}, {z})\n"

    def squeeze(self, x: str, _: int) -> tuple[str, str]:
        axes, line = self.constant("int64", [0])
        y, z = self.name(), self.name()
        return z, f"{line}{y} = Squeeze ({x}, {axes})\n{z} = Unsqueeze ({y}, {axes})\n"

    def gather(self, x: str, _: int) -> tuple[str, str]:
        places, line = self.constant("int64", [self.random.randint(0, 3), 0])
        y = self.name()
        return y, f"{line}{y} = Gather <axis = 0> ({x}, {places})\n"

    def choice(self, x: str, depth: int) -> tuple[str, str]:
        y, condition = self.name(), f"c{self.random.randrange(CONDITIONS)}"
        branches = []
        for name in ("then_branch", "else_branch"):
            made, lines = self.chain(x, depth)
            last = self.name()
            head = f"{name}: graph = {self.name()} () => (float[{self.name()}] {last})"
            branches.append(f"{head} {{\n{lines}{last} = Neg ({made})\n}}")
        return y, f"{y} = If ({condition}) <{', '.join(branches)}>\n"

    def loop(self, x: str, depth: int) -> tuple[str, str]:
        trips, going, state, number = f"t{self.random.randrange(TRIPS)}", self.name(), self.name(), self.name()
        made, lines = self.chain(state, depth)
        after, goes, row, y, ys, both, flat = (self.name() for _ in range(7))
        axes, line = self.constant("int64", [0])
        sizes = [self.name() for _ in range(3)]
        body = (
            f"(int64 {number}, bool {going}, float[{sizes[0]}] {state})"
            f" => (bool {goes}, float[{sizes[1]}] {after}, float[1] {row}) {{\n"
            f"{lines}{line}{after} = Neg ({made})\n{goes} = Identity ({going})\n"
            f"{row} = ReduceSum <keepdims = 1> ({made}, {axes})\n}}"
        )
        all_, more = self.constant("int64", [-1])
        text = f"{y}, {ys} = Loop ({trips}, , {x}) <body: graph = {self.name()} {body}>\n"
        return both, f"{text}{more}{flat} = Reshape ({ys}, {all_})\n{both} = Concat <axis = 0> ({y}, {flat})\n"

    def scan(self, x: str, depth: int) -> tuple[str, str]:
        state, part, after, row, y, ys, all_rows = (self.name() for _ in range(7))
        made, lines = self.chain(part, depth)
        axes, line = self.constant("int64", [0])
        body = (
            f"(float[1] {state}, float[n] {part}) => (float[1] {after}, float[1] {row})"
            f" {{\n{lines}{line}{row} = ReduceSum <keepdims = 1> ({made}, {axes})\n{after} = Add ({state}, {row})\n}}"
        )
        zero, first = self.constant("float", [0.0])
        all_, more = self.constant("int64", [-1])
        text = f"{first}{y}, {ys} = Scan <num_scan_inputs = 1, body = {self.name()} {body}> ({zero}, rows)\n"
        flat = self.name()
        return all_rows, f"{text}{more}{flat} = Reshape ({ys}, {all_})\n{all_rows} = Concat <axis = 0> ({x}, {y}, {flat})\n"

    def model(self) -> Any:
        y, lines = self.chain("x", DEPTH)
        inputs = [f"bool c{index}" for index in range(CONDITIONS)] + [f"int64 t{index}" for index in range(TRIPS)]
        text = f"main ({', '.join(inputs)}, float[n] x, float[m, n] rows) => (float[k] y) {{\n{lines}y = Identity ({y})\n}}"
        return onnx.parser.parse_model(HEAD + text)


def feeds(chance: random.Random) -> dict[str, Any]:
    numbers = np.random.default_rng(chance.randrange(1 << 30))
    length = chance.randint(1, 5)
    given: dict[str, Any] = {f"c{index}": np.array(chance.random() < 0.5) for index in range(CONDITIONS)}
    given |= {f"t{index}": np.array(chance.choice([0, 0, 1, 2]), np.int64) for index in range(TRIPS)}
    given["x"] = numbers.standard_normal(length).astype(np.float32)
    given["rows"] = numbers.standard_normal((chance.randint(1, 2), length)).astype(np.float32)
    return given


def session(proto: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto, options)


def accepted(seed: int) -> tuple[Any, Any]:
    """Return the first random model that onnxruntime takes: a body that fits no size at all is refused when a model is read."""
    for attempt in range(100):
        proto = _Text(100 * seed + attempt).model()
        try:
            return proto, session(proto.SerializeToString())
        except Exception:
            continue
    raise AssertionError("no model")


@pytest.mark.parametrize("seed", range(40))
def test_branches_give_the_results_of_onnxruntime(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    proto, theirs = accepted(seed)
    onnx.save(proto, tmp_path / "a.onnx")
    chance = random.Random(seed)
    try:
        model = dovetail.load(tmp_path / "a.onnx", strict=True)
    except dovetail.RuleError:
        # What always runs fits no size.
        for _ in range(8):
            with pytest.raises(Exception, match="ONNXRuntimeError"):
                theirs.run(None, feeds(chance))
        return
    programs = [dovetail.compile(model, engine) for engine in ("interpreter", "native")]
    for _ in range(8):
        given = feeds(chance)
        try:
            (expected,) = theirs.run(None, given)
        except Exception:
            for program in programs:
                with pytest.raises(dovetail.DovetailError) as caught:
                    program(given)
                assert caught.value.node
            continue
        for program in programs:
            assert_close(program(given)["y"], expected, 1e-5)


STATIC = """main (bool c, float[4] x) => (float[?] y) {
    y = If (c) <
        then_branch: graph = t () => (float[?] a) { three = Constant <value = int64[1] {3}> () a = Reshape (x, three) },
        else_branch: graph = e () => (float[?] b) { b = Relu (x) }>
}"""
NEVER = """main (int64 n, float[4] x) => (float[?] y) {
    go = Constant <value = bool {1}> ()
    y = Loop (n, go, x) <body: graph = b (int64 i, bool c, float[?] s) => (bool d, float[?] t) {
        d = Identity (c)
        three = Constant <value = int64[1] {3}> ()
        t = Reshape (x, three)
    }>
}"""


def written(text: str, folder: Path) -> dovetail.Model:
    onnx.save(onnx.parser.parse_model(HEAD + text), folder / "a.onnx")
    return dovetail.load(folder / "a.onnx")


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize(("text", "runs", "does_not"), [(STATIC, {"c": True}, {"c": False}), (NEVER, {"n": 2}, {"n": 0})])
def test_a_body_that_can_never_run_is_a_warning(
    text: str, runs: dict[str, Any], does_not: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    model = written(text, tmp_path)
    (warning,) = model.warnings
    assert (warning.code, warning.severity) == ("reshape.volume", "warning")
    assert [item.code for item in dovetail.check(tmp_path / "a.onnx")] == ["reshape.volume"]
    program = dovetail.compile(model, engine)
    x = np.arange(4, dtype=np.float32)
    assert_close(program({"x": x, **does_not})["y"], x, 0)
    for _ in range(2):
        with pytest.raises(dovetail.RuleError) as caught:
            program({"x": x, **runs})
        assert (caught.value.code, caught.value.node) == ("reshape.volume", warning.node)
    dovetail.save(model, tmp_path / "b.onnx")
    check_onnx((tmp_path / "b.onnx").read_bytes())
    assert_close(dovetail.run(tmp_path / "b.onnx", {"x": x, **does_not})["y"], x, 0)


def test_a_branch_that_never_runs_raises_in_ir_when_it_does(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    dovetail.save(written(STATIC, tmp_path), tmp_path / "a.xml")
    compiled = openvino.Core().compile_model(str(tmp_path / "a.xml"), "CPU")
    x = np.arange(4, dtype=np.float32)
    assert_close(np.array(compiled({"c": np.array(False), "x": x})[0]), x, 0)
    with pytest.raises(RuntimeError):
        compiled({"c": np.array(True), "x": x})


def test_a_loop_that_never_runs_is_refused_in_ir(tmp_path: Path) -> None:
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.save(written(NEVER, tmp_path), tmp_path / "a.xml")
    assert caught.value.code == "reshape.volume"


@pytest.mark.parametrize("taken", [0, 1])
def test_a_constant_condition_chooses_whose_faults_count(taken: int, tmp_path: Path) -> None:
    text = STATIC.replace("main (bool c, ", "main (").replace("y = If", f"c = Constant <value = bool {{{taken}}}> ()\n    y = If")
    if taken:
        with pytest.raises(dovetail.RuleError) as caught:
            dovetail.compile(written(text, tmp_path))
        assert caught.value.code == "reshape.volume"
    else:
        model = written(text, tmp_path)
        assert not model.warnings
        assert str(model.outputs[0].type) == "f32[4]"


def test_a_builder_refuses_a_branch_that_can_never_run() -> None:
    branches = []
    for target in ([3], [4]):
        inner = dovetail.Builder()
        inner.graph.outputs = [inner.Reshape(inner.input("x", "f32", ("n",)), target)]
        branches.append(inner.graph)
    b = dovetail.Builder()
    with pytest.raises(dovetail.RuleError) as caught:
        b.apply("If", b.input("c", "boolean", ()), b.input("x", "f32", (4,)), then_branch=branches[0], else_branch=branches[1])
    assert caught.value.code == "reshape.volume"


def test_smaller_sizes_are_inferred_though_a_branch_does_not_fit(tmp_path: Path) -> None:
    text = STATIC.replace("float[4] x", "float[n] x")
    model = written(text, tmp_path)
    assert not model.warnings
    model.inputs[1].type = Tensor(dtypes.f32, (4,))
    assert str(dovetail.infer(model).outputs[0].type) == "f32[4]"


def test_nothing_is_scanned_where_there_is_nothing() -> None:
    """The refusals of the subgraph for these sizes do not count. onnxruntime refuses any empty input of Scan."""
    inner = dovetail.Builder()
    inner.input("trip", "i64", ())
    state, part = inner.input("state", "f32", (1,)), inner.input("part", "f32", (1, "n"))
    row = inner.Reshape(part, [1, 3])
    inner.graph.outputs = [inner.constant(np.array(True)), state, row]
    with dovetail.Builder() as b:
        first, rows = b.input("first", "f32", (1,)), b.input("rows", "f32", ("m", "n"))
        loop = Loop(body=inner.graph, carried=1, scan_inputs=((0, 1, False),), scan_outputs=((0, False),), outputs=2)
        last, made = b.add(loop, None, None, first, rows)
        b.output("last", last)
        b.output("made", made)
    for engine in ("interpreter", "native"):
        program = dovetail.compile(b.model, engine)
        given = {"first": np.ones(1, np.float32), "rows": np.ones((0, 5), np.float32)}
        assert_close(program(given)["last"], given["first"], 0)
        assert program(given)["made"].shape == (0, 3)
        with pytest.raises(dovetail.DovetailError):
            program({**given, "rows": np.ones((1, 5), np.float32)})


def test_a_program_may_fit_few_sizes() -> None:
    """Plans for other sizes, which a template is made of, raise nothing."""
    with dovetail.Builder() as b:
        b.output("y", b.Add(b.input("x", "f32", ("n",)), np.arange(3, dtype=np.float32)))
    program = dovetail.compile(b.model, "native")
    for size in (1, 3, 1, 3):
        assert_close(program({"x": np.ones(size, np.float32)})["y"], np.arange(3, dtype=np.float32) + 1, 0)


def test_a_declared_rank_that_a_branch_contradicts_is_ignored(tmp_path: Path) -> None:
    text = """main (bool c, float[4, 1] x) => (int64[?] h) <float[4] y> {
        y = If (c) <
            then_branch: graph = t () => (float[4] r) { ax = Constant <value = int64[1] {1}> () r = Squeeze (x, ax) },
            else_branch: graph = e () => (float[4, 1] s) { s = Relu (x) }>
        h = Shape (y)
    }"""
    model = written(text, tmp_path)
    assert [item.code for item in model.warnings] == ["type.declared"]
    for engine in ("interpreter", "native"):
        for c, expected in ((True, [4]), (False, [4, 1])):
            found = dovetail.run(model, {"c": np.array(c), "x": np.ones((4, 1), np.float32)}, engine=engine)["h"]
            assert found.tolist() == expected
