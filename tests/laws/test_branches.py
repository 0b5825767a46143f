"""If and Loop whose bodies fit only some sizes: what is not run raises nothing, what is run gives or raises as onnxruntime does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from sameness import assert_close

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
        """A name, and the lines that make it of ``x``."""
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
            branches.append(
                f"{name}: graph = {self.name()} () => (float[{self.name()}] {last}) {{\n{lines}{last} = Neg ({made})\n}}"
            )
        return y, f"{y} = If ({condition}) <{', '.join(branches)}>\n"

    def loop(self, x: str, depth: int) -> tuple[str, str]:
        trips, going, state, number = f"t{self.random.randrange(TRIPS)}", self.name(), self.name(), self.name()
        made, lines = self.chain(state, depth)
        after, goes, row, y, ys, both, flat = (self.name() for _ in range(7))
        axes, line = self.constant("int64", [0])
        sizes = [self.name() for _ in range(3)]
        body = (
            f"(int64 {number}, bool {going}, float[{sizes[0]}] {state}) => (bool {goes}, float[{sizes[1]}] {after}, float[1] {row})"
            f" {{\n{lines}{line}{after} = Neg ({made})\n{goes} = Identity ({going})\n{row} = ReduceSum <keepdims = 1> ({made}, {axes})\n}}"
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
    """The first random model that onnxruntime takes: a body that fits no size at all is refused when a model is read."""
    for attempt in range(100):
        proto = _Text(100 * seed + attempt).model()
        try:
            return proto, session(proto.SerializeToString())
        except Exception:
            continue
    raise AssertionError("no model")


@pytest.mark.parametrize("seed", range(int(__import__("os").environ.get("SEEDS", "40"))))
def test_what_is_run_is_what_onnxruntime_runs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")
    proto, theirs = accepted(seed)
    onnx.save(proto, tmp_path / "a.onnx")
    chance = random.Random(seed)
    try:
        model = dovetail.load(tmp_path / "a.onnx")
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
