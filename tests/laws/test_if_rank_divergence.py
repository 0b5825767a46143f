"""If whose branches differ in rank: IR has no such result, so what follows goes into the branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dovetail
from assertions import assert_close
from dovetail.laws import ranks
from dovetail.laws.ranks import has_open_rank, specialize_ranks
from dovetail.passes.check import validate
from oracles import run_onnxruntime

pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 10, opset_import: ["" : 17]>'


def squeezed(x: str, y: str, axis: int) -> str:
    """torch's squeeze(axis) of a scripted module: without the axis where its size is 1."""
    return f"""
    {y}_axis = Constant <value = int64[1] {{{axis}}}> ()
    {y}_one = Constant <value = int64[1] {{1}}> ()
    {y}_shape = Shape ({x})
    {y}_size = Gather <axis = 0> ({y}_shape, {y}_axis)
    {y}_is = Equal ({y}_size, {y}_one)
    {y} = If ({y}_is) <
        then_branch: graph = {y}_then () => (float[?] {y}_s) {{ {y}_s = Squeeze ({x}, {y}_axis) }},
        else_branch: graph = {y}_else () => (float[?, ?] {y}_i) {{ {y}_i = Identity ({x}) }}>"""


def batched(x: str, y: str, declared: tuple[str, str] = ("1, ?", "?, ?")) -> str:
    """With a first axis of 1 where the rank is 1: what torch's recurrent layers ask of their input."""
    return f"""
    {y}_first = Constant <value = int64[1] {{0}}> ()
    {y}_shape = Shape ({x})
    {y}_rank = Size ({y}_shape)
    {y}_wanted = Constant <value = int64 {{1}}> ()
    {y}_is = Equal ({y}_rank, {y}_wanted)
    {y} = If ({y}_is) <
        then_branch: graph = {y}_then () => (float[{declared[0]}] {y}_u) {{ {y}_u = Unsqueeze ({x}, {y}_first) }},
        else_branch: graph = {y}_else () => (float[{declared[1]}] {y}_i) {{ {y}_i = Identity ({x}) }}>"""


MODELS = {
    "one": f"""main (float[a, b] x) => (float[p] y) {{ {squeezed("x", "s", 1)} {batched("s", "u")}
        y = ReduceSum <keepdims = 0> (u) }}""",
    "in a row": f"""main (float[a, b] x) => (float[p] y, float[a, b] z) {{
        {squeezed("x", "s", 1)} {batched("s", "u")} {squeezed("u", "t", 0)} {batched("t", "v")}
        flat = Constant <value = int64[1] {{-1}}> ()
        y = Reshape (v, flat)
        z = Neg (x) }}""",
    "within another": f"""main (bool c, float[a, b] x) => (float[p] y) {{
        s = If (c) <
            then_branch: graph = t () => (float[?] r) {{ {squeezed("x", "r", 1)} }},
            else_branch: graph = e () => (float[?, ?] q) {{ q = Relu (x) }}>
        {batched("s", "u")}
        flat = Constant <value = int64[1] {{-1}}> ()
        y = Reshape (u, flat) }}""",
    "in a loop": f"""main (int64 n, float[a, b] x) => (float y) {{
        go = Constant <value = bool {{1}}> ()
        zero = Constant <value = float {{0.0}}> ()
        y = Loop (n, go, zero) <body: graph = body (int64 i, bool c, float k) => (bool d, float m) {{
            d = Identity (c) {squeezed("x", "s", 1)} {batched("s", "u")}
            sum = ReduceSum <keepdims = 0> (u)
            m = Add (k, sum) }}> }}""",
    "a tail that fits one rank": f"""main (float[a, b] x) => (float[p, q] y, float[p, q] z) {{ {squeezed("x", "s", 1)}
        axes = Constant <value = int64[1] {{1}}> ()
        w = Constant <value = float[1, 1] {{2.0}}> ()
        u = Unsqueeze (s, axes)
        v = Transpose <perm = [1, 0]> (u)
        y = Mul (v, w)
        z = Neg (v) }}""",
    "a convolution": f"""main (float[a, b] x) => (float[p] y) {{ {squeezed("x", "s", 1)} {batched("s", "u", ("", ""))}
        axes = Constant <value = int64[1] {{1}}> ()
        c = Unsqueeze (u, axes)
        w = Constant <value = float[2, 1, 1] {{2.0, -1.5}}> ()
        d = Conv (c, w)
        e = Sin (d)
        y = ReduceSum <keepdims = 0> (e) }}""",
}
SIZES = [(3, 1), (1, 3), (2, 2), (1, 1)]


def feeds(proto: Any, shape: tuple[int, int]) -> list[dict[str, Any]]:
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    names = [each.name for each in proto.graph.input]
    first = {"c": [np.array(True), np.array(False)], "n": [np.array(2, np.int64), np.array(0, np.int64)]}.get(names[0], [])
    return [{names[0]: each, "x": x} for each in first] or [{"x": x}]


def fails(run: Callable[[], Any]) -> bool:
    """Return whether a run raises: onnxruntime's errors have no class of their own."""
    try:
        run()
    except Exception:
        return True
    return False


def values(program: Any, given: dict[str, Any]) -> list[Any]:
    return [np.array(y) for y in program(given).values()]


def written(name: str, folder: Path) -> Any:
    proto = onnx.parser.parse_model(HEAD + MODELS[name])
    onnx.save(proto, folder / "a.onnx")
    return proto


@pytest.mark.parametrize("name", MODELS)
def test_ir_runs_an_inner_value_of_two_ranks(name: str, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    proto = written(name, tmp_path)
    model = dovetail.load(tmp_path / "a.onnx")
    assert has_open_rank(model.graph)
    dovetail.save(model, tmp_path / "a.xml")
    back = dovetail.load(tmp_path / "a.xml")
    dovetail.save(back, tmp_path / "b.onnx")
    again = (tmp_path / "b.onnx").read_bytes()
    answers = 0
    for shape in SIZES:
        compiled = openvino.Core().compile_model(str(tmp_path / "a.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        for given in feeds(proto, shape):
            runs: list[Callable[[], list[Any]]] = [
                partial(values, dovetail.compile(model, "native"), given),
                partial(values, dovetail.compile(model, "interpreter"), given),
                partial(values, compiled, given),
                partial(values, dovetail.compile(back), given),
                partial(run_onnxruntime, again, given),
            ]
            try:
                expected = run_onnxruntime(proto.SerializeToString(), given)
            except Exception:
                for run in runs:
                    assert fails(run)
                continue
            answers += 1
            for run in runs:
                for ours, theirs in zip(run(), expected, strict=True):
                    assert ours.shape == theirs.shape
                    assert_close(ours, theirs, 1e-5)
    assert answers


@pytest.mark.parametrize("name", MODELS)
def test_specialized_ranks_are_known(name: str, tmp_path: Path) -> None:
    written(name, tmp_path)
    model = dovetail.load(tmp_path / "a.onnx")
    graph = specialize_ranks(model.graph)
    assert validate(graph) == []
    assert not has_open_rank(graph)
    assert [value.name for value in graph.outputs] == [value.name for value in model.outputs]
    assert [value.name for value in graph.inputs] == [value.name for value in model.inputs]


def refusal(text: str, folder: Path) -> dovetail.DovetailError:
    onnx.save(onnx.parser.parse_model(HEAD + text), folder / "a.onnx")
    model = dovetail.load(folder / "a.onnx")
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.save(model, folder / "a.xml")
    assert not (folder / "a.xml").exists()
    return caught.value


def test_a_result_of_two_ranks_is_refused_by_name(tmp_path: Path) -> None:
    error = refusal(f"main (float[a, b] x) => (float[?] y) {{ {squeezed('x', 's', 1)}\n y = Relu (s) }}", tmp_path)
    assert (error.code, error.node) == ("op.unsayable", "s")


def test_too_many_combinations_of_ranks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "GROWTH", 2)
    lines = [squeezed("x", "u", 0), squeezed("u", "v", 0), squeezed("v", "w", 0)]
    last = "flat = Constant <value = int64[1] {-1}> ()\n y = Reshape (w, flat)"
    error = refusal(f"main (float[a, b, c, d] x) => (float[?] y) {{ {' '.join(lines)}\n {last} }}", tmp_path)
    assert error.code == "op.unsayable"


WEIGHTED = f"""main (float[a, b] x, float[a, b] v) => (float[p] y, float[?] s) {{
    w = Constant <value = float[1, 1] {{2.0}}> ()
    h = Mul (x, w)
    {squeezed("h", "s", 1)} {batched("s", "u", ("", ""))}
    k = Sin (u)
    axes = Constant <value = int64[1] {{1}}> ()
    c = Unsqueeze (k, axes)
    one = Constant <value = float[1, 1, 1] {{1.0}}> ()
    d = Conv (c, one)
    e = Squeeze (d, axes)
    m = Mul (e, v)
    flat = Constant <value = int64[1] {{-1}}> ()
    y = Reshape (m, flat) }}"""


def slopes(model: dovetail.Model, given: dict[str, Any], of: str, wrt: list[str]) -> None:
    """Hold the gradients of ``of`` against central differences, in the interpreter and natively."""
    gradient = dovetail.grad(model, of=of, wrt=wrt)
    assert validate(gradient.graph) == []
    chance = np.random.default_rng(3)
    value = np.asarray(dovetail.interpret(model, given)[of])
    weights = chance.standard_normal(value.shape).astype(np.float32)
    seeds = {x.name: weights for x in gradient.inputs if x.name not in given}
    found = [dovetail.compile(gradient, engine)({**given, **seeds}) for engine in ("interpreter", "native")]
    for name in wrt:
        step = chance.standard_normal(given[name].shape)
        moved = [(given[name] + distance * step).astype(np.float32) for distance in (1e-2, -1e-2)]
        ahead, behind = (dovetail.interpret(model, {**given, name: x})[of] for x in moved)
        slope = float(np.sum((ahead - behind) / 2e-2 * (weights if seeds else 1.0)))
        for outputs in found:
            assert outputs[f"grad:{name}"].shape == given[name].shape
            assert float(np.sum(outputs[f"grad:{name}"] * step)) == pytest.approx(slope, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_goes_through_either_rank(name: str, shape: tuple[int, int], tmp_path: Path) -> None:
    proto = written(name, tmp_path)
    model = dovetail.load(tmp_path / "a.onnx")
    answers = 0
    for given in feeds(proto, shape):
        try:
            run_onnxruntime(proto.SerializeToString(), given)
        except Exception:
            continue
        answers += 1
        for y in model.outputs:
            slopes(model, given, y.name, ["x"])
    assert answers or fails(lambda: dovetail.run(model, feeds(proto, shape)[0]))


def test_the_gradient_of_one_output_where_another_has_two_ranks(tmp_path: Path) -> None:
    """The gradient is of an output of one rank where another has two, with regard to a weight and to an inner value."""
    onnx.save(onnx.parser.parse_model(HEAD + WEIGHTED), tmp_path / "a.onnx")
    model = dovetail.load(tmp_path / "a.onnx")
    x, v = (np.random.default_rng(seed).standard_normal((3, 2)).astype(np.float32) for seed in (1, 2))
    slopes(model, {"x": x, "v": v}, "y", ["x", "v"])
    slope = np.cos(2 * x) * v
    found = dovetail.run(dovetail.grad(model, of="y", wrt=["w"]), {"x": x, "v": v, "grad:y": np.ones(6, np.float32)})
    np.testing.assert_allclose(found["grad:w"], np.sum(slope * x).reshape(1, 1), rtol=1e-4)
    inside = dovetail.run(dovetail.grad(model, of="m", wrt=["x"]), {"x": x, "v": v, "grad:m": np.ones((3, 2), np.float32)})
    np.testing.assert_allclose(inside["grad:x"], 2 * slope, rtol=1e-4, atol=1e-6)
    with pytest.raises(dovetail.UnsupportedError) as caught:
        dovetail.grad(model, of="y", wrt=["k"])
    assert caught.value.code == "type.unknown"
